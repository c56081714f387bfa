# Each target does all set-up on a fresh machine: .venv with the pinned versions and both distributions in place.
PYTHON ?= python3.11
VENV := .venv
RUN := $(VENV)/bin/python
STAMP := $(VENV)/.installed


.PHONY: demo test lint bench models soak build clean

$(STAMP): pyproject.toml constraints.txt plugins/inductor/pyproject.toml setup.py plugins/inductor/setup.py $(wildcard core/_C/*) $(wildcard plugins/inductor/core_inductor/csrc/*)
	test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install -q -c constraints.txt "setuptools>=77" wheel build
	$(RUN) -m pip install -q -c constraints.txt torch numpy pluggy transformers triton pytest pytest-timeout hypothesis ruff mypy
	$(RUN) -m pip install -q --no-build-isolation --no-deps -e . -e plugins/inductor
	touch $@

build: $(STAMP)

demo: $(STAMP)
	$(RUN) bench/demo.py $(ARGS)

test: $(STAMP)
	CORE_STRICT=1 $(RUN) -m pytest tests plugins/inductor/tests $(ARGS)

lint: $(STAMP)
	$(VENV)/bin/ruff check . && $(VENV)/bin/ruff format --check . && $(RUN) -m mypy

bench: $(STAMP)
	$(RUN) -m bench $(ARGS)

models: $(STAMP)
	$(RUN) -m bench.models_table $(ARGS)

soak: $(STAMP)
	$(RUN) tools/soak.py $(ARGS)

clean:
	rm -rf build dist core/*.so plugins/inductor/core_inductor/*.so $(STAMP)
