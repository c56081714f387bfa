# Each target does all set-up on a fresh machine: .venv with the pinned versions and both distributions in place.
PYTHON ?= python3.11
VENV := .venv
RUN := $(VENV)/bin/python
STAMP := $(VENV)/.installed
VENDORS := $(VENV)/.vendors


.PHONY: demo test test-all cheats fuzz fuzz-shard opdb lint bench models vendor-table operator-coverage tensorrt-stages conformance catalog soak build clean

$(STAMP): pyproject.toml constraints.txt plugins/inductor/pyproject.toml conformance/pyproject.toml setup.py plugins/inductor/setup.py $(wildcard core/_C/*) $(wildcard plugins/inductor/core_inductor/csrc/*)
	test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install -q -c constraints.txt "setuptools>=77" wheel build
	$(RUN) -m pip install -q -c constraints.txt torch numpy pluggy transformers triton pytest pytest-timeout pytest-xdist hypothesis ruff mypy
	$(RUN) -m pip install -q --no-build-isolation --no-deps -e . -e plugins/inductor -e conformance
	touch $@

# The backends on other compilers, each with the runtime it is written for.
VENDOR_PLUGINS := onnx onnxrt openvino tensorrt ipex ofi tvm cudagraphs
# A builder of a hundred megabytes that needs no GPU; `make TENSORRT= test` does without, and its tests are skipped.
TENSORRT := tensorrt-rtx-cu13-bindings tensorrt-rtx-cu13-libs
# A compiler of three hundred megabytes; `make TVM= test` does without, and its tests are skipped.
TVM := apache-tvm apache-tvm-ffi
$(VENDORS): $(STAMP) $(VENDOR_PLUGINS:%=plugins/%/pyproject.toml)
	$(RUN) -m pip install -q -c constraints.txt onnx onnxruntime openvino jinja2 $(TVM)
	$(if $(TENSORRT),$(RUN) -m pip install -q -c constraints.txt --no-deps --only-binary :all: $(TENSORRT))
	$(RUN) -m pip install -q --no-build-isolation --no-deps $(VENDOR_PLUGINS:%=-e plugins/%)
	touch $@

build: $(STAMP) $(VENDORS)

demo: $(STAMP)
	$(RUN) bench/demo.py $(ARGS)

TESTS := tests plugins/inductor/tests conformance/meta_tests $(VENDOR_PLUGINS:%=plugins/%/tests)
WORKERS ?= 2
# Which of the tests that are marked slow run: none, all or SHARD/SHARDS. CI takes another shard for each commit.
SLOW ?= none
test: $(STAMP) $(VENDORS)
	CORE_STRICT=1 $(RUN) -m pytest -n $(WORKERS) $(TESTS) --slow $(SLOW) $(ARGS)

# Every backend that cheats, and the whole suite with each honest one: minutes.
cheats: $(STAMP)
	CORE_STRICT=1 $(RUN) -m pytest conformance/meta_tests --cheats-matrix --timeout 1800 $(ARGS)

FUZZ_PROGRAMS ?= 10000
FUZZ_SHARDS ?= 4
FUZZ_INDUCTOR ?= 500

fuzz: $(STAMP)
	for shard in $$(seq 0 $$(($(FUZZ_SHARDS) - 1))); do \
	  $(RUN) tests/fuzz/shards.py --programs $(FUZZ_PROGRAMS) --shards $(FUZZ_SHARDS) --shard $$shard $(ARGS) || exit 1; \
	done
	$(RUN) tests/fuzz/shards.py --backend inductor --programs $(FUZZ_INDUCTOR) $(ARGS)

# One of the shards of the random programs, another one for each commit: what CI runs beside the tests.
FUZZ_ROTATION ?= 64
fuzz-shard: $(STAMP)
	$(RUN) tests/fuzz/shards.py --programs $(FUZZ_PROGRAMS) --shards $(FUZZ_ROTATION) --fresh \
	  --shard $$(($$(git rev-list --count HEAD 2>/dev/null || echo 0) % $(FUZZ_ROTATION))) $(ARGS)

# The sweep over torch's own table of operators is a tool beside the repository; where it is not, this does nothing.
PEER ?= ../shared/peer
opdb: $(STAMP)
	if test -f $(PEER)/opinfo_sweep.py; then mkdir -p build; \
	  $(RUN) $(PEER)/opinfo_sweep.py --impl core_shim --backend eager --out build/opdb.json; fi

test-all: SLOW = all
test-all: test fuzz opdb soak

lint: $(STAMP)
	$(VENV)/bin/ruff check . && $(VENV)/bin/ruff format --check . && $(RUN) -m mypy

bench: $(STAMP)
	$(RUN) -m bench $(ARGS)

models: $(STAMP)
	$(RUN) -m bench.models_table $(ARGS)

# Models through each installed backend; a busy machine wants ARGS="--clock cpu".
vendor-table: $(STAMP) $(VENDORS)
	$(RUN) -m bench.vendor_table $(ARGS)

# Which operators of the models of `make models` a backend leaves to the fallback.
operator-coverage: $(STAMP) $(VENDORS)
	CORE_STRICT=1 $(RUN) -m bench.operator_coverage $(ARGS)

# Models converted and built by TensorRT-RTX, without a GPU; the report is what the catalog has.
tensorrt-stages: $(STAMP) $(VENDORS)
	CORE_STRICT=1 $(RUN) -m bench.tensorrt_stages $(ARGS)

# Each installed backend's declared profiles, one after the other; an interrupted run goes on where it stopped.
conformance: $(STAMP) $(VENDORS)
	CORE_STRICT=1 $(RUN) tools/conformance_profiles.py $(ARGS)

catalog: $(STAMP)
	$(RUN) -m pip install -q -c constraints.txt jinja2
	$(RUN) -m catalog.site $(ARGS)

soak: $(STAMP)
	$(RUN) tools/soak.py $(ARGS)

clean:
	rm -rf build dist core/*.so plugins/inductor/core_inductor/*.so $(STAMP) $(VENDORS)
