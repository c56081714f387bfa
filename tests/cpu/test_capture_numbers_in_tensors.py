"""Numbers in tensors of no dimension: known ones decide while tracing, unknown ones stand for scalar arguments."""

from __future__ import annotations

import pytest
import torch
from compare import check

import core

X = torch.arange(6.0).reshape(2, 3)
OUTSIDE = torch.tensor(1)


def test_a_tensor_made_of_a_literal_indexes_decides_and_converts():
    def fn(x):
        items = [x, x + 1, x + 2, x + 3]
        first = torch.tensor(1)
        kept = items[first + 1], items[torch.as_tensor(3)], items[first:][0]
        return kept, int(first), (first * 3).item(), x * 2 if first > 0 else x

    check(fn, X)


def test_numbers_of_tensors_from_outside_stay_unknown():
    def fn(x):
        return [x, x + 1][OUTSIDE]

    with pytest.raises(core.Unsupported):
        core.compile(fn, backend="eager", fullgraph=True)(X)


def test_a_tensor_of_a_literal_that_was_written_to_is_unknown():
    def fn(x, step):
        count = torch.tensor(0)
        count.add_(step)
        return [x, x + 1][count]

    with pytest.raises(core.Unsupported):
        core.compile(fn, backend="eager", fullgraph=True)(X, torch.tensor(1))


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_a_tensor_as_alpha_or_value_is_part_of_the_graph(backend):
    def fn(x, y, scale):
        summed = torch.add(x, y, alpha=scale), x.sub(y, alpha=scale), torch.addcmul(x, y, y, value=scale)
        return *summed, x.addcdiv_(y, y + 1, value=scale)

    core.reset()
    args = [X.clone(), X + 1, torch.tensor(0.3)]
    want = fn(X.clone(), X + 1, torch.tensor(0.3))
    got = core.compile(fn, backend=backend, fullgraph=True)(*args)
    assert all(torch.allclose(a, b) for a, b in zip(got, want)) and got[-1] is args[0]


def test_no_gradient_goes_to_a_tensor_read_as_a_number():
    def fn(x, scale):
        return torch.add(x, x, alpha=scale)

    x, scale = X.clone().requires_grad_(), torch.tensor(2.0, requires_grad=True)
    core.compile(fn, backend="eager", fullgraph=True)(x, scale).sum().backward()
    assert scale.grad is None and torch.equal(x.grad, torch.full_like(X, 3.0))


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_lists_of_tensors_with_a_tensor_as_the_number(backend):
    def fn(starts, ends, number):
        powers = torch._foreach_pow(number, ends)
        moved = torch._foreach_lerp(starts, ends, number)
        return powers, moved, torch._foreach_lerp_(starts, ends, number) is starts

    def inputs():
        return [X + 1, X + 2], [X + 3, X + 4], torch.tensor(0.5)

    core.reset()
    ours, theirs = inputs(), inputs()
    got, want = core.compile(fn, backend=backend, fullgraph=True)(*ours), fn(*theirs)
    pairs = [*zip(got[0], want[0]), *zip(got[1], want[1]), *zip(ours[0], theirs[0])]
    assert all(torch.allclose(a, b) for a, b in pairs) and got[2] and type(got[0]) is type(want[0])


def test_the_old_constructor_gives_sizes_or_numbers():
    def fn(x):
        shapes = x.new(2, 3).shape, x.new(x.shape).shape, x.new().shape, x.new(4).dtype
        return shapes, x.new([1, 2.5]), x.new((3, 4))

    check(fn, X.double())


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("values", [1, [[1.0, 2.0, 3.0]]])
def test_a_tensor_of_literals_whose_shape_is_changed_in_place(values, backend):
    def program(x):
        made = torch.tensor(values)
        made.unsqueeze_(0)
        before = made + 1
        made.squeeze_()
        return made, before, x * made.sum()

    compiled = core.compile(program, backend=backend, fullgraph=True)
    for _ in range(2):
        for got, want in zip(compiled(torch.ones(2)), program(torch.ones(2))):
            assert got.shape == want.shape and torch.equal(got, want)


def test_nested_lists_with_numbers_that_differ_become_tensors_of_the_graph():
    def fn(x, k):
        read = x[1].item()
        return torch.tensor([[read, 1], [k, 2.0]]), torch.tensor(((k, 1), (2, k)), dtype=torch.float64), x + k

    call = core.compile(fn, backend="aot_eager", fullgraph=True)
    for k in (2, 5, 9, 4):
        x = torch.arange(3.0) + k
        assert all(a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(call(x, k), fn(x, k)))
    assert core.stats()["frames"] == 2
    with pytest.raises(ValueError, match="expected sequence of length 2"):
        core.compile(lambda x, k: torch.tensor([[k, 1], [k]]), backend="eager")(torch.ones(2), 3)
