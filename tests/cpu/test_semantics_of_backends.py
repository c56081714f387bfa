"""What every backend on another compiler must have as eager has it: memory, dtypes, sizes, weights that change."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import core
from core.backends.registry import resolve_backend
from core.errors import CoreError

BACKENDS = ("inductor", "onnxrt", "openvino", "ipex", "ofi", "tvm")


@pytest.fixture(params=BACKENDS)
def backend(request):
    try:
        resolve_backend(request.param).require_device("cpu")
    except CoreError as error:
        pytest.skip(str(error))
    core.reset()
    return request.param


def same(got, want, tolerance=None):
    """Equal in structure, dtypes, strides and values: bit for bit, or within a tolerance."""
    if isinstance(want, (tuple, list)):
        assert type(got) is type(want) and len(got) == len(want)
        for one, other in zip(got, want):
            same(one, other, tolerance)
    elif isinstance(want, torch.Tensor):
        assert (got.dtype, got.shape, got.stride()) == (want.dtype, want.shape, want.stride())
        exact = tolerance is None or not want.is_floating_point()
        limits = {"rtol": 0, "atol": 0} if exact else {"rtol": tolerance, "atol": tolerance}
        torch.testing.assert_close(got, want, equal_nan=True, **limits)
    else:
        assert type(got) is type(want) and got == want


def agree(backend, fn, make, *, tolerance=None, calls=2, graphs=1, **options):
    """Call both with arguments made anew; compare the results, and the arguments afterwards."""
    run = core.compile(fn, backend=backend, **options)
    for call in range(calls):
        torch.manual_seed(call)
        mine = make(call)
        torch.manual_seed(call)
        theirs = make(call)
        with torch.no_grad():
            same(run(*mine), fn(*theirs), tolerance)
        same(mine, theirs, tolerance)
    stats = core.stats()
    assert (stats["graphs"], stats["breaks"]) == (graphs, 0)


def image_net():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 4),
    ).eval()


@pytest.mark.parametrize("freeze", [False, True], ids=["weights are inputs", "frozen"])
def test_weights_written_to_or_replaced_after_compiling_give_new_results(backend, freeze):
    net = image_net()
    run = core.compile(net, backend=backend, freeze=freeze)
    x = torch.randn(2, 3, 8, 8)

    def replace():
        net[5].weight.data = torch.randn(4, 8)

    def load():
        net.load_state_dict({name: value * 0.5 for name, value in net.state_dict().items()})

    changes = [
        lambda: None,
        lambda: net[0].weight.mul_(-2),
        lambda: net[1].running_mean.add_(0.3),
        lambda: net[5].bias.zero_(),
        lambda: net[0].weight[0].fill_(0.25),
        replace,
        load,
    ]
    with torch.no_grad():
        for change in changes:
            change()
            for _ in range(2):
                same(run(x), net(x), 1e-4)
    assert core.stats()["breaks"] == 0


def test_inputs_that_are_written_to(backend):
    def fn(x, y, flags, count):
        x.mul_(2)
        y[1:].add_(x[:-1])
        y.t()[0] = 7
        flags |= x > 0
        count += 3
        x.copy_(y.flip(0))
        return x + y, count * 2

    def make(call):
        return torch.randn(4, 4), torch.randn(4, 4), torch.zeros(4, 4, dtype=torch.bool), torch.arange(3)

    agree(backend, fn, make, tolerance=1e-6)


def test_a_graph_that_only_writes(backend):
    def effect(a, b):
        b.mul_(2).add_(a)

    run = core.compile(effect, backend=backend)
    a, mine, theirs = torch.arange(4), torch.ones(4, dtype=torch.int64), torch.ones(4, dtype=torch.int64)
    for _ in range(3):
        assert run(a, mine) is None
        effect(a, theirs)
        assert torch.equal(mine, theirs)


def test_inputs_that_share_memory(backend, monkeypatch):
    monkeypatch.setenv("CORE_STRICT", "0")  # a graph that no form without writes has runs as it was captured

    def fn(x, y):
        x.add_(1)
        y.mul_(2)
        return x - y

    def make(call):
        base = torch.randn(8)
        return base[:4], base[2:6] if call else base[4:]

    agree(backend, fn, make, calls=3, graphs=2)


def test_results_that_share_memory_with_inputs_and_one_another(backend):
    def fn(x):
        y = x * 2
        return x, x.t(), x[1:], y, y.view(-1), y[0]

    run = core.compile(fn, backend=backend)
    x = torch.randn(3, 3)
    for _ in range(2):
        given, turned, tail, y, flat, row = run(x)
        assert given is x and turned._base is x or turned.data_ptr() == x.data_ptr()
        assert tail.data_ptr() == x[1:].data_ptr() and row.data_ptr() == flat.data_ptr() == y.data_ptr()
        x[1, 0] = 5
        flat[0] = -9
        assert turned[0, 1] == 5 and tail[0, 0] == 5 and y[0, 0] == -9 and row[0] == -9
        same((given, turned, tail), (x, x.t(), x[1:]))


def test_results_of_earlier_calls_are_kept(backend):
    run = core.compile(lambda x: (x.exp(), x.sum(0)), backend=backend)
    kept = [(x, run(x)) for x in (torch.randn(5, 3) for _ in range(4))]
    for x, got in kept:
        same(got, (x.exp(), x.sum(0)), 1e-5)


def test_tensors_without_elements(backend):
    def fn(x, y):
        joined = torch.cat([x, y])
        return joined, x.sum(0), x.prod(), joined.softmax(-1), x @ y.t(), (x > 0).any(), (x > 0).all(), x.flatten()

    agree(backend, fn, lambda call: (torch.randn(0, 4), torch.randn(3, 4)), tolerance=1e-5)


def test_bools(backend):
    def fn(a, b):
        return (
            a & b,
            a | ~b,
            a ^ b,
            a.sum(-1),
            a.any(0),
            a.all(),
            torch.where(a, 1.5, 2),
            a * 3,
            a + b,
            a == b,
            a.float().mean(),
            a.cumsum(0),
            b.logical_not(),
            a.flip(0),
        )

    agree(backend, fn, lambda call: (torch.rand(3, 4) > 0.5, torch.rand(3, 4) > 0.5), tolerance=1e-6)


def test_int64(backend):
    def fn(a, b):
        return (
            a + 3_000_000_000,
            a // b,
            a % b,
            torch.div(a, b, rounding_mode="trunc"),
            a / b,
            a * a,
            a << 2,
            a >> 1,
            a.sum(),
            a.max(),
            a.abs(),
            a.float().mean(),
            a.cumsum(0),
            a.argsort(),
            a.clamp(-5, 2**41),
            -a,
            ~a,
        )

    def make(call):
        return torch.tensor([-7, 7, -(2**40) - 1, 2**62, 3 + call]), torch.tensor([2, -2, 3, 5, -3])

    agree(backend, fn, make, tolerance=1e-6)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.int8, torch.uint8])
def test_integers_that_wrap(backend, dtype):
    info = torch.iinfo(dtype)

    def fn(a, b):
        return a + b, a * b, a - b, a // b, a % b, a.sum(), a > b, a.to(torch.float32), torch.maximum(a, b), a * 2

    def make(call):
        ends = [info.max, info.min, info.max - 1, 5 + call]
        return torch.tensor(ends, dtype=dtype), torch.tensor([3, 2, info.max, 4], dtype=dtype)

    agree(backend, fn, make)


def test_float64(backend):
    def fn(x, y):
        return x * 1.1 + 1e-12, x.exp(), x @ y, x.sum(-1), (x.float() * 3).double(), x.softmax(-1), x > 1 + 1e-12

    def make(call):
        return torch.linspace(0, 1, 12, dtype=torch.float64).reshape(3, 4), torch.randn(4, 2, dtype=torch.float64)

    agree(backend, fn, make, tolerance=1e-14)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_floats_of_16_bits(backend, dtype):
    def fn(x):
        return x * 2 + 1, x.relu(), x.float().exp(), (x > 0).to(dtype), x.abs().sqrt()

    agree(backend, fn, lambda call: (torch.randn(5, 6).to(dtype),), tolerance=2e-2)


@pytest.mark.parametrize("dynamic", [None, True], ids=["found out", "asked for"])
def test_batches_of_any_size(backend, dynamic):
    net = image_net()
    run = core.compile(net, backend=backend, dynamic=dynamic)
    with torch.no_grad():
        for batch in (4, 6, 2, 8, 3):
            x = torch.randn(batch, 3, 10, 10)
            same(run(x), net(x), 1e-5)
    stats = core.stats()
    takes_any = resolve_backend(backend).capabilities.dynamic_shapes == "full"
    assert stats["graphs"] <= ((2 if dynamic is None else 1) if takes_any else 5) and stats["breaks"] == 0


def test_sizes_down_to_one_and_none(backend):
    def fn(x):
        return x.softmax(-1), x.sum(0), x * x.shape[0], torch.cat([x, x]).mean(-1)

    run = core.compile(fn, backend=backend, dynamic=True)
    for rows in (5, 3, 1, 0, 7):
        x = torch.randn(rows, 4)
        same(run(x), fn(x), 1e-6)


def test_memory_that_is_not_in_order(backend):
    def fn(x, image):
        return x * 2, (x + 1).sum(0), image.relu(), image.mean((2, 3)), x.t().contiguous(), x[:, ::2] - 1

    def make(call):
        x = [torch.randn(4, 6), torch.randn(6, 4).t(), torch.randn(8, 6)[::2], torch.randn(1, 6).expand(4, 6)][call]
        return x, torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)

    run = core.compile(fn, backend=backend)
    for call in range(4):
        args = make(call)
        same(run(*args), fn(*args), 1e-6)


def test_nan_infinities_and_signed_zeros(backend):
    def fn(x):
        return (
            x.relu(),
            x.clamp(-1, 1),
            x.amax(),
            x.amin(0),
            torch.maximum(x, x.flip(0)),
            x.round(),
            x.sign(),
            x.isnan(),
            x.abs(),
            -x,
            x == x,
            x.nan_to_num(),
        )

    x = torch.tensor([[float("nan"), 1.5], [float("inf"), -0.0], [-float("inf"), 0.5], [2.5, -2.5]])
    agree(backend, fn, lambda call: (x.clone(),))


def test_numbers_none_and_nothing_among_the_results(backend):
    def fn(x, scale):
        return x * scale, None, x.shape[0], x.dim(), "text", x.sum(), scale

    agree(backend, fn, lambda call: (torch.randn(3, 2), 2.0), tolerance=1e-6)


def test_tensors_of_no_dimensions(backend):
    def fn(x, i, flag):
        return x * 2 + i, i // 2, torch.where(flag, x, -x), x.reshape(1), (x > 0) & flag

    def make(call):
        return torch.tensor(1.5 - call), torch.tensor(-7), torch.tensor(bool(call))

    agree(backend, fn, make)


def test_gradients(backend):
    net = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 2))
    run = core.compile(net, backend=backend)
    x = torch.randn(3, 5, requires_grad=True)
    for _ in range(2):
        got = torch.autograd.grad(run(x).square().sum(), [x, *net.parameters()])
        want = torch.autograd.grad(net(x).square().sum(), [x, *net.parameters()])
        for one, other in zip(got, want):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.add_(0.1)
