"""Type expressions, limits of dtypes, scans and stores by mask in traced code."""

from __future__ import annotations

import typing

import pytest
import torch
from compare import check

import core
from core import torch_compat

X = torch.randn(3, 4)
T = typing.TypeVar("T")
NUMBER = int | None
TEXT = typing.Optional[str]  # noqa: UP045 - the old spelling is what is tested
INTS = list[int]
TABLE = typing.Dict[str, int]  # noqa: UP006
Width = typing.NewType("Width", int)
EPSILON = torch.finfo(torch.float32)


class Box(typing.Generic[T]):
    def __init__(self, value):
        self.value = value


def test_type_expressions_are_taken_apart():
    def fn(x):
        parts = []
        for kind in (NUMBER, TEXT, INTS, TABLE, int, typing.Any):
            parts.append((typing.get_origin(kind) is None, len(typing.get_args(kind))))
        same = (INTS == list[int], NUMBER is TEXT, INTS.__origin__ is list, isinstance(3, NUMBER))
        return x + 1, parts, same, INTS((1, 2)), NUMBER.__args__

    check(fn, X)


def test_generic_classes_and_new_types_are_called():
    def fn(x):
        return x * Box[int](3).value + Width(3), typing.cast(int, 3)

    check(fn, X)


def test_limits_of_dtypes_are_constants():
    def fn(x):
        limits = torch.finfo(x.dtype)
        low = x.masked_fill(x > 0, limits.min)
        same = (limits == EPSILON, limits.dtype, limits.bits)
        return low + torch.iinfo(torch.int32).max + EPSILON.eps, same

    check(fn, X)


def test_limits_passed_in_are_guarded_by_their_dtype():
    def fn(x, limits):
        return x * limits.max, limits.dtype

    compiled = core.compile(fn, backend="eager")
    for _ in range(2):
        assert compiled(X, torch.finfo(torch.float32))[1] == "float32"
    assert core.stats()["recompiles"] == 0
    assert compiled(X, torch.finfo(torch.float16))[1] == "float16"
    assert core.stats()["recompiles"] == 1


def test_conversions_named_like_special_methods_are_conversions():
    def fn(x):
        return x.bool(), x.type(torch.float64), x.int().bool()

    check(fn, X)


def prefix(combine, xs, dim, reverse):
    """The scan as a loop."""
    steps = [x.unbind(dim) for x in xs]
    count = len(steps[0])
    order = range(count - 1, -1, -1) if reverse else range(count)
    results, state = {}, None
    for at in order:
        item = tuple(step[at] for step in steps)
        state = item if state is None else combine(state, item)
        results[at] = state
    return [torch.stack([results[at][i] for at in range(count)], dim) for i in range(len(xs))]


@pytest.mark.parametrize("length", [1, 2, 3, 7, 8])
@pytest.mark.parametrize("reverse", [False, True])
def test_an_associative_scan_of_an_elementwise_function_is_traced(length, reverse):
    def combine(left, right):
        return left[0] * right[0], right[0] * left[1] + right[1]

    def fn(a, b):
        return torch_compat.associative_scan(combine, (a, b), dim=-1, reverse=reverse, combine_mode="generic")

    a = torch.rand(2, length, dtype=torch.float64, requires_grad=True)
    b = torch.rand(2, length, dtype=torch.float64, requires_grad=True)
    got = core.compile(fn, backend="eager", fullgraph=True)(a, b)
    want = prefix(combine, (a, b), -1, reverse)
    torch.testing.assert_close(list(got), want)
    ours = torch.autograd.grad(sum(t.square().sum() for t in got), (a, b))
    theirs = torch.autograd.grad(sum(t.square().sum() for t in want), (a, b))
    torch.testing.assert_close(ours, theirs)


def test_a_scan_whose_function_looks_across_an_element_sees_one_at_a_time():
    def combine(left, right):
        return left @ right

    def fn(a):
        return torch_compat.associative_scan(combine, a, dim=0, combine_mode="generic")

    a = torch.rand(4, 2, 2)
    want = [a[0], a[0] @ a[1], a[0] @ a[1] @ a[2], a[0] @ a[1] @ a[2] @ a[3]]
    torch.testing.assert_close(core.compile(fn, backend="eager", fullgraph=True)(a), torch.stack(want))


@pytest.mark.parametrize("shape", [(), (3,), (1,)])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_store_by_mask_of_a_value_with_gradients_is_one_graph(shape, backend):
    mask = torch.rand(4, 5) > 0.5

    def fn(x, value):
        y = x * 2
        y[mask] = value
        return y

    x = torch.randn(4, 5, 3, requires_grad=True)
    value = torch.randn(shape, requires_grad=True)
    compiled = core.compile(fn, backend=backend, fullgraph=True)
    assert torch.equal(compiled(x, value), fn(x, value))
    weights = torch.randn(4, 5, 3)
    ours = torch.autograd.grad(compiled(x, value), (x, value), weights)
    theirs = torch.autograd.grad(fn(x, value), (x, value), weights)
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("network", [torch.nn.RNN, torch.nn.GRU, torch.nn.LSTM])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_recurrent_modules_are_one_graph_with_eager_gradients(network, batch_first, backend):
    torch.manual_seed(0)
    module = network(4, 5, num_layers=2, batch_first=batch_first, bidirectional=True)
    x = torch.randn(3, 2, 4)
    compiled = core.compile(module, backend=backend)

    def step(model):
        module.zero_grad()
        output, _ = model(x)
        output.square().sum().backward()
        return [output.detach(), *(p.grad for p in module.parameters())], output.stride()

    (ours, strides), (theirs, eager_strides) = step(compiled), step(module)
    assert strides == eager_strides
    torch.testing.assert_close(ours, theirs)
    assert (core.stats()["graphs"], core.stats()["breaks"]) == (1, 0)


def test_a_new_weight_of_a_recurrent_module_is_seen():
    module = torch.nn.LSTM(4, 5)
    compiled = core.compile(module, backend="eager")
    x = torch.randn(3, 2, 4)
    with torch.no_grad():
        compiled(x)
        module.weight_ih_l0 = torch.nn.Parameter(torch.randn(20, 4))
        assert torch.equal(compiled(x)[0], module(x)[0])
