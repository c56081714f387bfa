"""What tracing takes for granted of sizes and numbers of the data is asserted: programs see eager's errors."""

from __future__ import annotations

import pytest
import torch

import core

X = torch.arange(1.0, 5.0)
ALL, MORE, FEW = torch.tensor([1, 1, 1, 1]), torch.tensor([1, 1, 1, 1]), torch.tensor([1, 0, 1, 1])
LOG: list[str] = []


def outcome(fn, *args):
    LOG.clear()
    try:
        return fn(*args), list(LOG)
    except RuntimeError as error:
        return type(error), str(error), list(LOG)


def same(left, right):
    if isinstance(left, torch.Tensor):
        return isinstance(right, torch.Tensor) and torch.equal(left, right)
    if isinstance(left, (list, tuple)):
        return type(left) is type(right) and len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def selected_beside_known(x, first, second):
    return first.nonzero().squeeze(-1) * x


def selected_beside_selected(x, first, second):
    return x[first.nonzero().squeeze(-1)] * x[second.nonzero().squeeze(-1)]


def number_as_a_size(x, first, second):
    return torch.zeros(first.sum().item()) + x


def caught(x, first, second):
    try:
        y = x[first.nonzero().squeeze(-1)] + x
    except RuntimeError:
        LOG.append("caught")
        y = x
    return y * 2


def with_gradients(x, first, second):
    weight = x.clone().requires_grad_()
    (weight[first.nonzero().squeeze(-1)] * x).sum().backward()
    return weight.grad


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize(
    "fn", [selected_beside_known, selected_beside_selected, number_as_a_size, caught, with_gradients]
)
def test_sizes_that_do_not_match_raise_what_eager_raises(fn, backend):
    core.reset()
    fast = core.compile(fn, backend=backend, fullgraph=True)
    for masks in ((ALL, MORE), (FEW, MORE), (ALL, FEW), (ALL, MORE)):
        assert same(outcome(fast, X, *masks), outcome(fn, X, *masks))
    assert core.stats()["graphs"] == 1


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_the_programs_own_promise_keeps_its_words(backend):
    def fn(x, first):
        chosen = first.nonzero().squeeze(-1)
        torch._check(chosen.shape[0] == 4, lambda: "choose all of them")
        return chosen * x

    core.reset()
    fast = core.compile(fn, backend=backend, fullgraph=True)
    assert torch.equal(fast(X, ALL), fn(X, ALL))
    with pytest.raises(RuntimeError, match="choose all of them"):
        fast(X, FEW)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_a_size_that_the_program_promises_to_be_a_number_is_that_number(backend):
    def fn(x):
        places = x.nonzero()
        torch._check(places.size(0) == 6)
        return places.expand([6, -1]) + 1, places

    compiled = core.compile(fn, backend=backend, fullgraph=True)
    for x in (torch.ones(2, 3), torch.ones(3, 2)):
        assert all(map(torch.equal, compiled(x), fn(x)))
    with pytest.raises(RuntimeError):
        compiled(torch.eye(3)[:2])


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("length", [0, 1, 3])
def test_a_part_may_begin_where_the_data_says(backend, length):
    def fn(x, start):
        return torch.narrow(x, 1, start, length) * 2

    core.reset()
    compiled = core.compile(fn, backend=backend, fullgraph=True)
    x = torch.arange(10.0).reshape(2, 5)
    for start in (0, 2, -4):
        assert torch.equal(compiled(x, torch.tensor(start)), fn(x, torch.tensor(start)))
    assert core.stats()["graphs"] == 1
    with pytest.raises((IndexError, RuntimeError)):
        compiled(x, torch.tensor(9))
