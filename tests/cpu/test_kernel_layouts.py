"""Strides of fakes are those that the kernels give, operator by operator."""

from __future__ import annotations

import random

import pytest
import torch
import torch.nn.functional as F

import core
from core import torch_compat
from core.graph.kernel_layouts import as_kernels_do, channels_last, in_order, is_channels_last
from core.graph.tree import leaves, map_tree

aten = torch.ops.aten


def image(draw, size):
    """Random numbers of this size in a random layout."""
    kind = draw.choice(("in order", "channels last", "permuted", "permuted", "expanded", "sliced"))
    if kind == "in order":
        return torch.randn(size)
    if kind == "channels last" and len(size) == 4:
        return torch.randn(size).to(memory_format=torch.channels_last)
    if kind == "expanded":
        repeated = draw.randrange(len(size))
        return torch.randn([1 if at == repeated else length for at, length in enumerate(size)]).expand(size)
    if kind == "sliced":
        return torch.randn([length + 1 for length in size])[tuple(slice(1, None) for _ in size)]
    order = draw.sample(range(len(size)), len(size))
    return torch.randn([size[at] for at in order]).permute([order.index(at) for at in range(len(size))])


def weights(count):
    return torch.randn(count), torch.rand(count) + 0.5


UNARY = "sin exp sigmoid neg abs relu leaky_relu elu softplus log_sigmoid_forward nan_to_num frac sign flip sort tril"
BINARY = "add.Tensor mul.Tensor sub.Tensor div.Tensor maximum xlogy.Tensor copysign.Tensor hypot gt.Tensor lerp.Scalar"
GRADIENTS = (
    "gelu hardswish hardsigmoid mish sigmoid silu tanh leaky_relu threshold elu softplus softshrink hardshrink hardtanh"
)
SETTINGS = {
    "leaky_relu_backward": (0.1, False),
    "threshold_backward": (0.0,),
    "softplus_backward": (1.0, 20.0),
    "softshrink_backward": (0.5,),
    "hardshrink_backward": (0.5,),
    "hardtanh_backward": (-1.0, 1.0),
    "lerp.Scalar": (0.3,),
    "flip": ([0],),
}


def arguments(name, draw):
    # in the backward of a batch norm strides of dimensions of size 1 follow no rule known here
    sizes = (2, 3, 4) if name == "native_batch_norm_backward" else (1, 1, 2, 3, 4)
    size = [draw.choice(sizes) for _ in range(4)]
    x, y = image(draw, size), image(draw, size)
    if name in BINARY.split() and draw.random() < 0.4:
        y = image(draw, [draw.choice((1, length)) for length in size])
    if name == "elu_backward":
        return x, 1.0, 1.0, 1.0, False, y
    if name in BINARY.split() or name.endswith("_backward") and name != "native_batch_norm_backward":
        return x, y, *SETTINGS.get(name, ())
    match name:
        case "add number":
            return x, 2
        case "gt.Scalar" | "mul.Scalar":
            return x, 1.5
        case "where.self":
            return x > 0, x, y
        case "clamp.Tensor":
            return x, None, y
        case "clamp":
            return x, -1, 1
        case "cat":
            return [x, y], draw.randrange(4)
        case "native_batch_norm":
            return x, *weights(size[1]), *weights(size[1]), False, 0.1, 1e-5
        case "native_batch_norm_backward":
            return x, y, *weights(size[1])[:1], *weights(size[1]), None, None, False, 1e-5, [True] * 3
        case "native_group_norm":
            return x.contiguous(memory_format=formats(x)), None, None, size[0], size[1], size[2] * size[3], 1, 1e-5
        case "upsample_nearest2d" | "upsample_bilinear2d":
            return x, [5, 3], *([False] if "bilinear" in name else [])
        case "max_unpool2d":
            return x, torch.zeros(size, dtype=torch.int64), size[2:]
        case "channel_shuffle":
            return image(draw, [size[0], 4, *size[2:]]), 2
        case "linalg_vector_norm":
            return x, 2, [draw.randrange(4)], True
    return x, *SETTINGS.get(name, ())


def formats(x):
    return torch.channels_last if is_channels_last(x.shape, x.stride()) else torch.contiguous_format


NAMES = [
    *UNARY.split(),
    *BINARY.split(),
    *(f"{name}_backward" for name in GRADIENTS.split()),
    *"add|number gt.Scalar mul.Scalar where.self clamp.Tensor clamp cat native_batch_norm".replace("|", "_").split(),
    *"native_batch_norm_backward native_group_norm upsample_nearest2d upsample_bilinear2d max_unpool2d".split(),
    *"channel_shuffle linalg_vector_norm zeros_like clone masked_fill.Scalar".split(),
]


def operator_named(name):
    packet, _, overload = ("add.Tensor" if name == "add_number" else name).partition(".")
    return getattr(getattr(aten, packet), overload or getattr(aten, packet).overloads()[0])


@pytest.mark.parametrize("name", NAMES)
def test_results_lie_as_those_of_the_kernel(name):
    op = operator_named(name)
    draw = random.Random(name)
    for _ in range(100):
        args = arguments("add number" if name == "add_number" else name, draw)
        if name == "masked_fill.Scalar":
            args = (*args, args[0] > 0, 1.0)
        mode = torch_compat.fake_tensor_mode(None)

        def twin(leaf, mode=mode):
            if not isinstance(leaf, torch.Tensor):
                return leaf
            with mode:
                return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype)

        fakes = map_tree(twin, args)
        with mode:
            found = as_kernels_do(mode, op, fakes, {}, op(*fakes))
        for real, fake in zip(leaves(op(*args)), leaves(found), strict=True):
            assert (real.shape, real.dtype) == (fake.shape, fake.dtype)
            assert real.stride() == fake.stride() or not real.numel(), [
                (leaf.shape, leaf.stride()) for leaf in leaves(args) if isinstance(leaf, torch.Tensor)
            ]


def picked(draw):
    """A tensor and indices for some of its dimensions, all in random layouts."""
    size = [draw.choice((1, 1, 2, 3, 4)) for _ in range(draw.randint(1, 5))]
    length = [draw.choice((1, 2, 3)) for _ in range(draw.randint(1, 3))]
    indices: list = [None if draw.random() < 0.4 else torch.zeros(()) for _ in size]
    for at, index in enumerate(indices):
        if index is not None:
            own = [draw.choice((1, each)) for each in length] if draw.random() < 0.4 else length
            indices[at] = (image(draw, own[draw.randrange(len(own)) :]) * 0).long()
    return image(draw, size), indices


def test_what_indices_pick_lies_as_the_kernel_leaves_it():
    draw, op = random.Random(0), aten.index.Tensor
    for _ in range(400):
        x, indices = picked(draw)
        if all(index is None for index in indices):
            continue
        mode = torch_compat.fake_tensor_mode(None)
        with mode:
            fakes = map_tree(
                lambda leaf: leaf if leaf is None else torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype),
                (x, indices),
            )
            found = as_kernels_do(mode, op, fakes, {}, op(*fakes))
        assert found.stride() == op(x, indices).stride()


def test_formats_of_images():
    for seed in range(100):
        size = [random.Random(f"{seed}.{dim}").choice((1, 2, 3)) for dim in range(4)]
        assert in_order(size) == torch.empty(size).stride()
        assert channels_last(size) == torch.empty(size, memory_format=torch.channels_last).stride()
    assert is_channels_last((2, 3, 4, 5), channels_last((2, 3, 4, 5)))
    assert not is_channels_last((2, 3, 4, 5), in_order((2, 3, 4, 5)))
    assert not is_channels_last((1, 3, 1, 1), (3, 1, 1, 1))  # both formats: taken for the usual one
    assert is_channels_last((1, 3, 1, 1), (3, 1, 3, 3))


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_symbolic_sizes_keep_the_results_of_transposed_images(backend):
    def program(x):
        y = torch.nn.functional.batch_norm(x.transpose(2, 3), None, None, training=True)
        return y.relu() + 1, torch.nn.functional.logsigmoid(y)

    run = core.compile(program, backend=backend, dynamic=True, fullgraph=True)
    for size in ((2, 3, 4, 5), (4, 3, 6, 2), (3, 3, 5, 5)):
        x = torch.randn(size)
        for found, expected in zip(run(x), program(x), strict=True):
            torch.testing.assert_close(found, expected)


OF_OPEN_SIZES = {
    "batch norm": lambda x: F.batch_norm(x, None, None, training=True),
    "random relu": lambda x: F.rrelu(x, training=True),
    "softmax": lambda x: F.softmax(x, 1),
    "group norm": lambda x: F.group_norm(x, 1),
    "cat": lambda x: torch.cat([x, x], 1),
    "interpolate": lambda x: F.interpolate(x, scale_factor=2),
    "broadcast sum": lambda x: x + x[:, :, :, :1],
    "where": lambda x: torch.where(x > 0, x, 0),
}
LAID_OUT = {
    "channels last": lambda n: torch.randn(n, 4, 4, 4).contiguous(memory_format=torch.channels_last),
    "permuted": lambda n: torch.randn(2, n, 4, 4).permute(3, 1, 2, 0),
    "with gaps": lambda n: torch.randn(4, n, 6)[:, :, 1:5].transpose(0, 1)[None],
}


@pytest.mark.parametrize("layout", LAID_OUT)
@pytest.mark.parametrize("name", OF_OPEN_SIZES)
def test_layouts_of_open_sizes_are_the_kernels_too(name, layout):
    core.reset()
    compiled = core.compile(OF_OPEN_SIZES[name], backend="aot_eager", dynamic=True)
    for size in (3, 5, 4):
        x = LAID_OUT[layout](size)
        assert compiled(x).stride() == OF_OPEN_SIZES[name](x).stride()
    assert core.stats()["graphs"] == 1


@pytest.mark.parametrize("how", [(1, 0), (0, 0), (3, -4), ((1, 1), (0, 2)), ((0, 1), (0, 2)), (1,)])
@pytest.mark.parametrize("layout", LAID_OUT)
def test_what_is_rolled_lies_as_its_parts_do(layout, how):
    core.reset()
    x = LAID_OUT[layout](3)
    assert core.compile(lambda x: x.roll(*how) + 1, backend="aot_eager")(x).stride() == (x.roll(*how) + 1).stride()
    assert core.stats()["graphs"] == 1


@pytest.mark.parametrize("how", [(1, 1), (0, 0), ((1, 2), (1, 3)), (1,)])
@pytest.mark.parametrize("layout", LAID_OUT)
def test_what_is_rolled_lies_so_with_symbolic_sizes_too(layout, how):
    core.reset()
    fast = core.compile(lambda x: x.roll(*how), backend="aot_eager", dynamic=True)
    for size in (3, 5, 4):
        x = LAID_OUT[layout](size)
        assert fast(x).stride() == x.roll(*how).stride()


OTHER_OPERANDS = {
    "a power of a number": lambda x: 2**x,
    "a power of one": lambda x: 1**x,
    "is it a number": lambda x: torch.isin(x, 1),
    "is it one of few": lambda x: torch.isin(x, torch.tensor([1.0, 2.0])),
    "is it one of many": lambda x: torch.isin(x, torch.arange(50.0)),
}


@pytest.mark.parametrize("layout", LAID_OUT)
@pytest.mark.parametrize("name", OTHER_OPERANDS)
def test_results_whose_memory_is_made_before_the_operand_is_looked_at_lie_in_order(name, layout):
    core.reset()
    x, fn = LAID_OUT[layout](3), OTHER_OPERANDS[name]
    assert core.compile(fn, backend="aot_eager")(x).stride() == fn(x).stride()


def test_strides_of_a_view_with_another_dtype_are_its_own(monkeypatch):
    monkeypatch.setenv("CORE_STRICT", "0")

    def fn(x):
        return torch.view_as_real(x).as_strided((2, 2), (1, 1)).sin()

    core.reset()
    x = torch.randn(4, 2, dtype=torch.complex64)
    assert torch.equal(core.compile(fn, backend="aot_eager")(x), fn(x))


def test_rows_that_are_normalized_lie_in_order_beside_dimensions_of_size_one_too():
    def fn(x):
        y = torch.nn.functional.layer_norm(x, x.shape[-1:])
        return y, y.stride()

    core.reset()
    fast = core.compile(fn, backend="inductor", dynamic=False)
    for shape, strides in (((1, 2), (1, 1)), ((2, 1, 2), (2, 9, 1))):
        x = torch.randn(20).as_strided(shape, strides)
        (got, seen), (_, want) = fast(x), fn(x)
        assert got.stride() == seen == want


OF_NOTHING = {
    "like": torch.zeros_like,
    "drawn": torch.randn_like,
    "copied": torch.clone,
    "converted": lambda x: x.to(torch.float64),
    "filled": lambda x: torch.fill(x, 2.0),
    "bounded": torch.nn.functional.relu6,
    "by a weight": lambda x: torch.nn.functional.prelu(x, torch.ones(())),
    "in parts": lambda x: torch.frexp(x).mantissa,
    "turned": lambda x: x.flip(0),
    "sorted": lambda x: x.sort().values,
    "added": lambda x: x + x,
}


@pytest.mark.parametrize("name", OF_NOTHING)
def test_results_without_elements_keep_the_strides_that_eager_keeps(name):
    core.reset()

    def fn(x):
        y = OF_NOTHING[name](x)
        return y, y.stride()

    fast = core.compile(fn, backend="aot_eager", dynamic=False)
    for shape, strides in (((1, 0, 3), (1, 1, 1)), ((3, 0), (1, 3)), ((2, 0, 3), (3, 6, 1)), ((2, 0, 3), (3, 3, 1))):
        x = torch.empty(0).as_strided(shape, strides)
        (got, seen), (_, want) = fast(x), fn(x)
        assert got.stride() == seen == want
