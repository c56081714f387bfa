"""The backend openvino: results, precision, memory, sizes, what is left to the fallback."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import core

pytest.importorskip("openvino")
pytest.importorskip("core_openvino")


def compiled(fn, **options):
    core.reset()
    return core.compile(fn, backend="openvino", **options)


def close(got, want, tolerance=1e-5):
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 16)
        self.parts = nn.Linear(16, 48)
        self.norm = nn.LayerNorm(16)
        self.feed = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, ids):
        x = self.words(ids)
        q, k, v = self.parts(x).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = self.norm(x + mixed.transpose(1, 2).flatten(2))
        return x + self.feed(x)


def test_a_model_runs_as_one_compiled_model_in_float32():
    torch.manual_seed(0)
    model = Mixer().eval()
    run = compiled(model, fullgraph=True)
    with torch.no_grad():
        for _ in range(3):
            ids = torch.randint(0, 50, (2, 7))
            close(run(ids), model(ids), 1e-5)  # the device's own default would be bfloat16: 1e-2
    stats = core.stats()
    assert stats["kernels"] > 10 and (stats["extern_calls"], stats["graphs"]) == (0, 1)


def test_convolutions_with_weights_changed_between_calls():
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1)).eval()
    run = compiled(model)
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(2, 3, 8, 8)
            close(run(x), model(x))
            model[0].weight.add_(0.5)
            close(run(x), model(x))
    assert core.stats()["graphs"] == 1


@torch.no_grad()
@pytest.mark.parametrize("settings", [{}, {"fallback": (), "fullgraph_backend": True}])
def test_frozen_weights_are_constants_of_the_model_until_they_change(settings):
    from core.events import ArtifactBuilt, subscribe

    built = []
    stop = subscribe(lambda event: built.append(event) if isinstance(event, ArtifactBuilt) else None)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 1)).eval()

    def fn(x):
        return net(x), (x.double() + 1).sum()

    run = compiled(fn, freeze=True, **settings)
    x = torch.randn(2, 3, 9, 9)
    for changes in (lambda: None, lambda: net[0].weight.mul_(-2), lambda: net[1].running_mean.add_(1)):
        changes()
        for _ in range(2):
            close(run(x), fn(x), 1e-4)
    stop()
    texts = [event.artifact.describe() for event in built if event.backend == "openvino"]
    assert len(texts) == 3 and not any("set_input_tensor(1" in text for text in texts)


def test_nan_infinities_and_layouts_are_those_of_eager():
    def fn(x):
        return torch.relu(x), torch.clamp(x, -1, 1), x.t() * 2

    run = compiled(fn)
    x = torch.tensor([[1.0, float("nan"), -2.0], [float("inf"), -0.0, 0.5]])
    for got, want in zip(run(x), fn(x)):
        torch.testing.assert_close(got, want, equal_nan=True)
        assert got.stride() == want.stride()


def test_float64_and_int64_are_never_narrowed():
    def fn(x, i):
        return x.exp() * 1.1, i * 3 + 2**40

    run = compiled(fn)
    x, i = torch.randn(4, dtype=torch.float64), torch.tensor([1, -5, 2**45])
    got, want = run(x, i), fn(x, i)
    assert torch.allclose(got[0], want[0], rtol=1e-15) and torch.equal(got[1], want[1])


def test_bfloat16_is_computed_wide_and_rounded():
    run = compiled(lambda x: (x @ x).softmax(-1))
    x = torch.randn(8, 8, dtype=torch.bfloat16)
    got = run(x)
    assert got.dtype is torch.bfloat16 and core.stats()["kernels"] > 0
    close(got.float(), (x @ x).softmax(-1).float(), 2e-2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_each_result_of_16_bits_is_rounded(dtype):
    def fn(x):
        return (x * 300) * 300 / 300, (x + 1) - x, (x.float() / 3).to(dtype).float() * 3, x.float().exp(), x > 5

    run = compiled(fn, fullgraph_backend=True)
    x = torch.tensor([1.0, 2.0, 300.0, 2048.0, 1000.3], dtype=dtype)  # products that float16 can't hold
    for got, want in zip(run(x), fn(x)):
        torch.testing.assert_close(got, want)
    assert core.stats()["kernels"] >= 3


def test_input_mutation_gradients_and_results_of_earlier_calls():
    def fn(x, y):
        x.mul_(2)
        return x + y

    run = compiled(fn)
    x, y = torch.randn(3), torch.randn(3)
    mine, other = x.clone(), x.clone()
    first = run(mine, y)
    kept = first.clone()
    close(first, fn(other, y))
    close(mine, other)
    run(torch.zeros(3), torch.zeros(3))
    assert torch.equal(first, kept)
    model = nn.Linear(3, 3)
    run = compiled(model)
    run(torch.ones(2, 3)).sum().backward()
    close(model.weight.grad, torch.full((3, 3), 2.0))


def test_sizes_that_change_and_tensors_without_elements():
    def fn(x):
        return torch.cat([x, x * 2]).softmax(-1), x.sum(0)

    run = compiled(fn)
    for rows in (3, 5, 0, 9):
        for got, want in zip(run(torch.ones(rows, 4)), fn(torch.ones(rows, 4))):
            close(got, want)


def test_options_reach_the_runtime():
    run = compiled(lambda x: x + 1, options={"config": {"INFERENCE_NUM_THREADS": 1}})
    close(run(torch.ones(3)), torch.full((3,), 2.0))
    with pytest.raises(core.CoreError, match="NO_SUCH_PROPERTY"):
        compiled(lambda x: x + 1, options={"config": {"NO_SUCH_PROPERTY": 1}})(torch.ones(3))


def test_without_a_fallback_torch_computes_what_the_device_would_narrow_between_the_models():
    def fn(x, i):
        wide = (torch.relu(x) @ x).double().exp() + 0.1
        return torch.tanh(wide.float()).sum(0), i * 3 + 2**40, x.argmax(0)

    run = compiled(fn, fullgraph_backend=True)
    for _ in range(3):
        x, i = torch.randn(4, 4), torch.tensor([1, -5, 2**45])
        for got, want in zip(run(x, i), fn(x, i)):
            torch.testing.assert_close(got, want)
    stats = core.stats()
    assert stats["kernels"] >= 4 and stats["extern_calls"] >= 4 and stats["graphs"] == 1


@pytest.fixture(params=[1, 2], ids=["one thread", "two threads"])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("config", [{}, {"NUM_STREAMS": 1}], ids=["", "a pool"])
@pytest.mark.parametrize(
    "fn, error",
    [
        (lambda x, i: x[i] * 2, IndexError),
        (lambda x, i: nn.functional.embedding(i, x.unsqueeze(1)), IndexError),
        (lambda x, i: x.index_select(0, i), IndexError),
        (lambda x, i: x.gather(0, i), RuntimeError),
        (lambda x, i: x.view(5, 1)[i, torch.zeros_like(i)], IndexError),
    ],
    ids=["index", "embedding", "index_select", "gather", "two indices"],
)
def test_places_outside_of_a_tensor_raise_what_eager_raises(fn, error, threads, config):
    run = compiled(fn, fullgraph_backend=True, options={"config": config})
    x = torch.arange(5.0)
    for places in ([0, 4, 2], [0, -1, 2], [0, 9, 2], [-9, 0, 1], [2**30, 0, 1], [2**32, 0, 1]):
        i = torch.tensor(places)
        try:
            want = fn(x, i)
        except Exception:
            with pytest.raises(error if abs(places[0]) < 2**31 else (IndexError, RuntimeError)):
                run(x, i)
        else:
            assert torch.equal(run(x, i), want)
    assert core.stats()["kernels"] > 0


@pytest.mark.parametrize("config", [{}, {"NUM_STREAMS": 1}], ids=["", "a pool"])
def test_a_kernel_that_raises_is_heard_of(threads, config):
    """A run of the device is never taken for a result where a kernel has stopped it."""
    from core_onnx.ops import indexing

    def unchecked(b, value, size, negative):
        return value

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(indexing, "_asked", unchecked)
        run = compiled(lambda x, i: x.gather(0, i) + 1, fullgraph_backend=True, options={"config": config})
        x = torch.arange(5.0)
        assert torch.equal(run(x, torch.tensor([1, 2, 4])), torch.tensor([2.0, 3.0, 5.0]))
        for _ in range(3):
            with pytest.raises(RuntimeError):
                run(x, torch.tensor([1, 2, 5]))


def test_integers_chosen_by_places_are_not_narrowed():
    run = compiled(lambda x, i: x[i], fullgraph_backend=True)
    x, i = torch.tensor([2**40, 5, -(2**33)]), torch.tensor([2, 0, 0])
    assert torch.equal(run(x, i), x[i])


def test_random_numbers_are_those_of_eager_in_their_order():
    def fn(x):
        first = nn.functional.dropout(x, 0.5)
        return first, torch.rand_like(x) + x.double().sum().float(), nn.functional.dropout(x.exp(), 0.5)

    run = compiled(fn, fullgraph_backend=True)
    x = torch.randn(6, 4)
    for seed in (1, 2, 1):
        torch.manual_seed(seed)
        want = fn(x)
        torch.manual_seed(seed)
        for got, expected in zip(run(x), want):
            close(got, expected)


def test_averages_of_uneven_windows_of_an_image_without_a_batch():
    run = compiled(lambda x: nn.functional.adaptive_avg_pool2d(x, (5, 3)), fullgraph_backend=True)
    x = torch.randn(8, 4, 3)
    close(run(x), nn.functional.adaptive_avg_pool2d(x, (5, 3)))


def test_extremes_and_softmax_of_nan_and_infinities_are_those_of_eager():
    def fn(x):
        return x.softmax(-1), x.log_softmax(0), x.amax(-1), x.amin(-1), x.argmax(-1)

    nan, inf = float("nan"), float("inf")
    run = compiled(fn, fullgraph_backend=True)
    for row in ([nan, 1.0, 2.0], [inf, 1.0, 2.0], [-inf, 1.0, 2.0], [-inf, -inf, -inf], [inf, inf, inf]):
        x = torch.tensor([row, [1.0, 2.0, 3.0]])
        for got, want in zip(run(x), fn(x)):
            torch.testing.assert_close(got, want, equal_nan=True)
