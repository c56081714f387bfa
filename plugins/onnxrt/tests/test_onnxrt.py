"""The backend onnxrt on the CPU: results, gradients, memory, sizes, refusals, storage; and what really ran."""

from __future__ import annotations

import copy
import os

import pytest
import torch
from torch import nn

import core

pytest.importorskip("onnxruntime")
runtime_module = pytest.importorskip("core_onnxrt.runtime")


def compiled(fn, **options):
    core.reset()
    return core.compile(fn, backend="onnxrt", **options)


def kernels():
    """Nodes that engines run, calls of torch's operators."""
    stats = core.stats()
    return stats["kernels"], stats["extern_calls"]


def close(got, want, tolerance=1e-5):
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.Linear(16, 48)
        self.norm = nn.LayerNorm(16)
        self.feed = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, x):
        q, k, v = self.parts(x).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = self.norm(x + mixed.transpose(1, 2).flatten(2))
        return x + self.feed(x)


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, stride=2, padding=1, groups=2)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.norm(self.first(x))), 2)
        return nn.functional.adaptive_avg_pool2d(self.second(x), 1).flatten(1)


@pytest.mark.parametrize("make, shape", [(Encoder, (2, 5, 16)), (Convolutions, (2, 3, 16, 16))])
def test_a_model_runs_in_one_run_without_an_operator_of_torch(make, shape):
    torch.manual_seed(0)
    model = make().eval()
    run = compiled(model, fullgraph=True)
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(shape)
            close(run(x), model(x))
    nodes, extern = kernels()
    assert nodes > 5 and extern == 0 and core.stats()["graphs"] == 1


def test_weights_changed_in_place_or_replaced_are_read_anew():
    model = nn.Linear(4, 4)
    run = compiled(model)
    x = torch.randn(2, 4)
    with torch.no_grad():
        run(x)
        model.weight.mul_(3)
        close(run(x), model(x))
        model.weight.data = torch.randn(4, 4)
        close(run(x), model(x))
        model.load_state_dict(nn.Linear(4, 4).state_dict())
        close(run(x), model(x))


def test_inputs_of_any_layout_and_results_with_the_strides_of_eager():
    def fn(x):
        return x.t() * 2, x[:, ::2] + 1, x

    run = compiled(fn)
    for x in (torch.randn(4, 6), torch.randn(6, 4).t(), torch.randn(8, 12)[::2, ::2], torch.randn(1, 6).expand(4, 6)):
        for got, want in zip(run(x), fn(x)):
            close(got, want)
            assert got.stride() == want.stride()
        assert run(x)[2] is x


def test_input_mutation_and_a_graph_without_results():
    def fn(x, y):
        x.mul_(2).add_(y)

    run = compiled(fn)
    x, y = torch.randn(3), torch.randn(3)
    mine, other = x.clone(), x.clone()
    assert run(mine, y) is None
    fn(other, y)
    close(mine, other)


def test_integers_bools_and_numbers_keep_their_types_and_wrap():
    def fn(i, b, n):
        return i * 1000000, i + i, ~b, i // 3, i % -4, (i > 0) & b, n, i.to(torch.int8)

    run = compiled(fn)
    values = torch.tensor([-7, 7, 2**31 - 1, 300], dtype=torch.int32)
    flags = torch.tensor([True, False, True, True])
    for got, want in zip(run(values, flags, 3), fn(values, flags, 3)):
        assert got == want if isinstance(want, int) else (got.dtype is want.dtype and torch.equal(got, want))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_other_floating_types_are_as_exact_as_eager(dtype):
    def fn(x, y):
        return torch.tanh(x @ y) + x.exp().sum(-1, keepdim=True), x.softmax(-1)

    run = compiled(fn)
    x, y = torch.randn(4, 4, dtype=dtype), torch.randn(4, 4, dtype=dtype)
    tolerance = {torch.float64: 1e-12, torch.float16: 4e-3, torch.bfloat16: 3e-2}[dtype]
    for got, want in zip(run(x, y), fn(x, y)):
        assert got.dtype is dtype
        close(got, want, tolerance)
    assert kernels()[0] > 0


def test_nan_infinities_and_subnormals_come_through():
    nan, inf = float("nan"), float("inf")

    def fn(x):
        small = torch.clamp(x, -1, 1)
        return torch.relu(x), small, torch.maximum(x, -x), x.amax(), x.argmax(), torch.sign(x), x.round(), x * 2

    run = compiled(fn)
    for values in ([1.0, nan, -inf, 0.5], [inf, -2.5, 1e-42, -0.0], [3.5, 2.5, -2.5, nan]):
        x = torch.tensor(values)
        for got, want in zip(run(x), fn(x)):
            torch.testing.assert_close(got, want, rtol=1e-6, atol=0, equal_nan=True)


def test_sizes_that_change_compile_once_more_at_most():
    def fn(x, y):
        return torch.cat([x, y]).softmax(-1), x.sum(0), x.shape[0] * 2, x.reshape(-1)[: x.shape[0]]

    run = compiled(fn)
    for rows in (3, 5, 2, 9):
        x, y = torch.randn(rows, 4), torch.randn(2, 4)
        for got, want in zip(run(x, y), fn(x, y)):
            assert got == want if isinstance(want, int) else torch.allclose(got, want, atol=1e-6)
    assert core.stats()["graphs"] == 2


def test_tensors_without_elements_and_without_dimensions():
    def fn(x, s):
        return x + 1, x.sum(), s * 2, torch.cat([x, x])

    run = compiled(fn, dynamic=False)
    for x in (torch.ones(0, 3), torch.ones(2, 0), torch.ones(2, 3)):
        for got, want in zip(run(x, torch.tensor(2.0)), fn(x, torch.tensor(2.0))):
            assert got.shape == want.shape and torch.equal(got, want)


def test_what_has_no_onnx_form_goes_to_the_fallback_and_is_reported():
    def fn(x):
        return torch.special.i0(x * 2) + torch.relu(x)

    x = torch.randn(5)
    run = compiled(fn, fallback=("eager",))
    close(run(x), fn(x))
    assert kernels()[1] > 0


def test_without_a_fallback_torch_computes_what_has_no_onnx_form_between_the_engines():
    def fn(x, w):
        return torch.relu(torch.special.i0(x * 2) @ w) + x.sum(), torch.special.i1(x)

    x, w = torch.randn(3, 3), torch.randn(3, 3)
    for freeze in (False, True):
        run = compiled(fn, fullgraph_backend=True, freeze=freeze)
        for _ in range(3):
            for got, want in zip(run(x, w), fn(x, w)):
                close(got, want)
        nodes, extern = kernels()
        assert nodes == 5 and extern == 2


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8])
def test_integers_are_divided_as_in_eager_and_zero_raises(dtype):
    def fn(x, y):
        return x // y, x % y, torch.fmod(x, y), torch.div(x, y, rounding_mode="trunc"), x // -1

    run = compiled(fn, fullgraph_backend=True)
    x, y = torch.tensor([-7, 7, 100, 5, -128]).to(dtype), torch.tensor([2, 3, -1, 7, -1]).to(dtype)
    for got, want in zip(run(x, y), fn(x, y)):
        assert torch.equal(got, want)
    assert kernels()[1] == 0
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        run(x, torch.zeros_like(y))
    assert torch.equal(run(x, y)[0], x // y)


@pytest.mark.parametrize(
    "fn, error",
    [
        (lambda x, i: x[i] * 2, IndexError),
        (lambda x, i: nn.functional.embedding(i, x.unsqueeze(1)), IndexError),
        (lambda x, i: x.index_select(0, i), IndexError),
        (lambda x, i: x.index_put((i,), x[:3]), IndexError),
        (lambda x, i: x.gather(0, i), RuntimeError),
        (lambda x, i: x.scatter(0, i, 1.0), RuntimeError),
    ],
)
def test_places_outside_of_a_tensor_raise_what_eager_raises(fn, error):
    run = compiled(fn, fullgraph_backend=True)
    x = torch.arange(5.0)
    for places in ([0, 4, 2], [0, -1, 2], [0, 9, 2], [-9, 0, 1]):
        i = torch.tensor(places)
        try:
            want = fn(x, i)
        except Exception:
            with pytest.raises(error):
                run(x, i)
        else:
            assert torch.equal(run(x, i), want)


def test_random_numbers_are_those_of_eager_and_torch_draws_them():
    def fn(x):
        dropped = nn.functional.dropout(x, 0.5)
        return dropped, torch.rand_like(x) + x, torch.randn(3, 2), x + torch.rand(6, 4).t()

    run = compiled(fn, fullgraph_backend=True)
    x = torch.randn(6, 4).t()
    for seed in (1, 2, 1):
        torch.manual_seed(seed)
        want = fn(x)
        torch.manual_seed(seed)
        for got, expected in zip(run(x), want):
            assert torch.equal(got, expected) and got.stride() == expected.stride()
    assert kernels()[1] == 4


def test_means_and_variances_of_no_values_are_nan():
    def fn(x):
        return x.mean(0), x.var(0), x.std(), x.sum(0)

    run = compiled(fn, fullgraph_backend=True)
    for got, want in zip(run(torch.ones(0, 3)), fn(torch.ones(0, 3))):
        torch.testing.assert_close(got, want, equal_nan=True)


def test_places_of_equal_values_are_left_to_the_fallback_and_right_without_one():
    def fn(x):
        return x.sort(-1)

    x = torch.randint(0, 5, (2, 40)).to(torch.bfloat16)
    yielding = compiled(fn, fallback=("eager",))
    assert torch.equal(yielding(x)[1], fn(x)[1]) and kernels()[0] == 0
    values, places = compiled(fn, fullgraph_backend=True)(x)
    assert torch.equal(values, fn(x)[0]) and torch.equal(x.gather(-1, places), values)
    assert torch.equal(places.sort(-1)[0], torch.arange(40).expand(2, 40))


def test_the_runtime_writes_no_file_when_it_is_imported(tmp_path):
    import subprocess
    import sys

    program = (
        "import os; from core_onnxrt.runtime import runtime; runtime(); print('ORT_DISABLE_TELEMETRY' in os.environ)"
    )
    environment = {**os.environ, "HOME": str(tmp_path), "TMPDIR": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    environment.pop("ORT_DISABLE_TELEMETRY", None)
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False" and not list(tmp_path.iterdir())


def test_training_is_off_by_default_and_right_when_asked_for():
    torch.manual_seed(0)
    for options, native in (({}, False), ({"training": True}, True)):
        model = nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(256, 5), nn.LayerNorm(5)
        )
        twin = copy.deepcopy(model)
        run = compiled(model, options=options, fallback=("eager",))
        x, target = torch.randn(2, 3, 8, 8), torch.tensor([1, 3])
        for subject in (run, twin):
            nn.functional.cross_entropy(subject(x), target).backward()
        for mine, other in zip(model.parameters(), twin.parameters()):
            close(mine.grad, other.grad, 1e-4)
        assert (kernels()[0] > 0) is native


HIDDEN = torch.zeros(2, 1, 5, 6).index_fill(2, torch.tensor([1]), -float("inf"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "settings", [{}, {"is_causal": True}, {"scale": 0.3}, {"attn_mask": HIDDEN}, {"attn_mask": HIDDEN == 0}]
)
def test_gradients_of_attention_are_as_exact_as_eager_s_and_hidden_rows_have_none(settings, dtype):
    def gradients(fn, kind):
        leaves = [value.to(kind).clone().requires_grad_() for value in values]
        result = fn(*leaves)
        return [result.detach(), *torch.autograd.grad(result.square().sum(), leaves)]

    def attention(q, k, v):
        cast = {
            key: value.to(q.dtype) if key == "attn_mask" and value.is_floating_point() else value
            for key, value in settings.items()
        }
        return nn.functional.scaled_dot_product_attention(q, k, v, **cast)

    torch.manual_seed(0)
    values = [torch.randn(2, 3, rows, 8).to(dtype) for rows in (5, 6, 6)]
    got = gradients(compiled(attention, options={"training": True}, fallback=()), dtype)
    assert kernels()[1] == 0
    for one, other, exact in zip(got, gradients(attention, dtype), gradients(attention, torch.float64)):
        mine, eager = ((value.double() - exact).norm() for value in (one, other))
        assert mine <= 2 * eager + torch.finfo(dtype).eps * exact.norm()


def test_threads_have_bindings_of_their_own():
    from concurrent.futures import ThreadPoolExecutor

    run = compiled(lambda x: torch.relu(x @ x).sum(-1))
    inputs = [torch.randn(32, 32) for _ in range(16)]
    run(inputs[0])
    with ThreadPoolExecutor(4) as pool:
        for got, x in zip(pool.map(run, inputs * 4), inputs * 4):
            close(got, torch.relu(x @ x).sum(-1), 1e-4)


def test_a_fork_after_compiling_makes_its_engines_again():
    run = compiled(lambda x: torch.tanh(x @ x) + 1)
    x = torch.randn(64, 64)
    want = run(x)
    child = os.fork()
    if not child:
        os._exit(0 if torch.allclose(run(x), want) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_results_of_earlier_calls_are_not_written_to():
    run = compiled(lambda x: x * 2)
    first = run(torch.ones(3))
    run(torch.zeros(3))
    assert torch.equal(first, torch.full((3,), 2.0))


def test_an_artifact_survives_its_bytes(monkeypatch, tmp_path):
    monkeypatch.setenv("CORE_CACHE_DIR", str(tmp_path))  # where nothing is that would be read in place of compiling
    from core_onnxrt.plugin import OnnxRuntimeBackend
    from core_onnxrt.runtime import runtime

    from core.plugin import StaleArtifact

    made = []

    class Keeping(OnnxRuntimeBackend):
        def compile(self, graph, fake_inputs, ctx):
            artifact = super().compile(graph, fake_inputs, ctx)
            made.append((artifact, ctx))
            return artifact

    backend = Keeping()
    core.reset()
    core.compile(lambda x: (torch.relu(x) + 1, x.shape[0]), backend=backend)(torch.randn(2, 3))
    artifact, ctx = made[0]
    blob = backend.serialize(artifact)
    x = torch.randn(2, 3)
    again = backend.deserialize(blob, ctx)
    assert torch.equal(again.call(x)[0], artifact.call(x)[0])
    for damaged in (b"", blob[:40], blob[:-1] + b"\xff"):
        with pytest.raises(StaleArtifact):
            backend.deserialize(damaged, ctx)
    monkeypatch.setattr(runtime(), "__version__", "1.0.0")
    with pytest.raises(StaleArtifact):
        backend.deserialize(blob, ctx)


def test_options_are_checked_and_used():
    x = torch.randn(3)
    run = compiled(lambda x: x + 1, options={"graph_optimization": "disabled", "intra_op_threads": 1})
    close(run(x), x + 1)
    with pytest.raises(core.CoreError, match="graph_optimization"):
        compiled(lambda x: x + 1, options={"graph_optimization": "most"})(x)


def test_a_warm_call_enters_no_python_file_of_the_plugin():
    import sys

    run = compiled(lambda x: torch.relu(x @ x))
    x = torch.randn(4, 4)
    for _ in range(3):
        run(x)
    seen = []
    sys.setprofile(lambda frame, event, arg: seen.append(frame.f_code.co_filename) if event == "call" else None)
    try:
        run(x)
    finally:
        sys.setprofile(None)
    assert not [name for name in seen if "core_onnxrt" in name or "/core/" in name], seen


def test_the_softmax_of_one_number_is_one():
    run = compiled(lambda x: (x.softmax(0), x.log_softmax(0)))
    for number in (0.0, -3.0, float("inf"), float("nan")):
        x = torch.tensor(number)
        for got, want in zip(run(x), (x.softmax(0), x.log_softmax(0))):
            torch.testing.assert_close(got, want, equal_nan=True)


@pytest.fixture
def asked(monkeypatch):
    """Which providers' kernels were asked of the runtime itself; nothing is remembered from before, or afterwards."""
    seen = []
    runtime_module.kernels_of.cache_clear()
    original = runtime_module.asked_kernels
    monkeypatch.setattr(runtime_module, "asked_kernels", lambda *key: seen.append(key) or original(*key))
    yield seen
    runtime_module.kernels_of.cache_clear()


def test_a_build_with_other_providers_is_not_asked_for_its_kernels(monkeypatch, asked):
    providers = ["TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(runtime_module.runtime(), "get_available_providers", lambda: providers)
    kernels = runtime_module.kernels_of("CPUExecutionProvider", 18)
    assert not asked and "tensor(float)" in kernels["MatMul"] and "tensor(float)" not in kernels["And"]


def test_the_kept_table_says_what_this_runtime_says(monkeypatch, asked):
    own = {opset: runtime_module.kernels_of("CPUExecutionProvider", opset) for opset in runtime_module.OPSETS}
    assert len(asked) == len(own)
    runtime_module.kernels_of.cache_clear()
    providers = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(runtime_module.runtime(), "get_available_providers", lambda: providers)
    known = runtime_module.type_names()
    for opset, kernels in own.items():
        kept = runtime_module.kernels_of("CPUExecutionProvider", opset)
        assert kept == {name: types & known for name, types in kernels.items()}


def test_the_factor_of_a_product_of_float64_is_a_float64():
    def program(x, w):
        return torch.sin(x) @ w / 3, (x * 0.7) @ w, torch.softmax(x @ w * 0.3, -1)

    run = compiled(program, fullgraph=True)
    x, w = torch.randn(8, 16, dtype=torch.float64), torch.randn(16, 8, dtype=torch.float64)
    for got, want in zip(run(x, w), program(x, w)):
        close(got, want, 1e-13)


def test_models_for_cuda_are_in_an_opset_that_its_kernels_are_written_for():
    assert runtime_module.target_of("cuda").opset == runtime_module.OPSETS[-1]


def test_a_padding_that_is_a_symbol_goes_to_the_fallback():
    net = nn.Conv2d(3, 4, 3, padding=1).eval()
    run = compiled(net, dynamic=True)
    with torch.no_grad():
        for batch in (4, 6, 1):
            x = torch.randn(batch, 3, 8, 8)
            close(run(x), net(x))


def test_a_provider_that_the_build_lacks_is_an_error_and_no_silent_other():
    run = compiled(torch.relu, options={"provider": "NoSuchExecutionProvider"}, fallback=(), fullgraph_backend=True)
    with pytest.raises(core.CoreError, match="no NoSuchExecutionProvider in this build, which has .*CPUExecution"):
        run(torch.ones(3))
    run = compiled(torch.relu, options={"provider": "CPUExecutionProvider"}, fallback=(), fullgraph_backend=True)
    close(run(torch.ones(3)), torch.ones(3))


def test_a_provider_asked_for_on_a_gpu_claims_first_and_leaves_the_rest_to_cuda(monkeypatch):
    from types import SimpleNamespace

    from core_onnxrt import engine

    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=7))
    shared = {"device_id": "1", "user_compute_stream": "7"}
    cuda = ("CUDAExecutionProvider", {**shared, "use_tf32": "0"})
    made = engine._providers(engine.Settings("cuda:1", "TensorrtExecutionProvider"))
    assert made == [("TensorrtExecutionProvider", shared), cuda, "CPUExecutionProvider"]
    for provider in ("auto", "CUDAExecutionProvider"):
        assert engine._providers(engine.Settings("cuda:1", provider)) == [cuda, "CPUExecutionProvider"]
