"""Inputs of which one lies in the memory of another, and one is written to."""

from __future__ import annotations

import pytest
import torch

import core
from core.events import FellBack, subscribe

PAIRS = {
    "a row": lambda b: (b, b[1]),
    "the memory as a whole, later": lambda b: (b[1], b),
    "the same": lambda b: (b, b[:]),
    "transposed": lambda b: (b, b.t()),
    "detached": lambda b: (b, b.detach()),
    "rows and one of them": lambda b: (b[1:3], b[1]),
    "a column": lambda b: (b, b[:, 1:2]),
    "every other element of a row": lambda b: (b, b[2, ::3]),
    "flat": lambda b: (b, b.view(-1)[3:7]),
}


def written_first(x, y):
    x.add_(1)
    return (y * 2,)


def written_second(x, y):
    y.mul_(2)
    return x.sum() + y, y, x, y[:1], x[1:]


def written_in_turn(x, y):
    y.mul_(2)
    x.sub_(1)
    y[0] = 7
    return x * y.sum(), y


def places(results, arguments):
    """Which argument each result is, and whether it lies in the arguments' memory."""
    memory = arguments[0].untyped_storage()._cdata
    return [
        (
            next((at for at, argument in enumerate(arguments) if argument is result), None),
            result.untyped_storage()._cdata == memory,
            result.storage_offset() if result.untyped_storage()._cdata == memory else None,
        )
        for result in results
    ]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("program", [written_first, written_second, written_in_turn])
@pytest.mark.parametrize("pair", PAIRS)
def test_writes_reach_every_input_and_results_are_eagers(pair, program, backend):
    compiled = core.compile(program, backend=backend, fullgraph=True)
    for begin in (0, 1, 2):  # the relation is what is guarded, not where the memory begins
        mine = torch.randn(6, 4)
        theirs = mine.clone()
        ours, eagers = PAIRS[pair](mine[begin : begin + 4]), PAIRS[pair](theirs[begin : begin + 4])
        got, want = compiled(*ours), program(*eagers)
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(mine, theirs)
        assert places(got, ours) == places(want, eagers)
        assert [t._version > 0 for t in ours] == [t._version > 0 for t in eagers]
    assert core.stats()["graphs"] == 1


def test_another_relation_is_another_graph():
    compiled = core.compile(written_in_turn, backend="inductor", fullgraph=True)
    for row in (1, 2, 1):
        mine = torch.randn(4, 4)
        theirs = mine.clone()
        torch.testing.assert_close(compiled(mine, mine[row]), written_in_turn(theirs, theirs[row]))
        torch.testing.assert_close(mine, theirs)
    assert core.stats()["graphs"] == 2


@pytest.mark.parametrize(
    "sizes, strides, offset", [((2, 3), (4, 1), 1), ((3,), (4,), 2), ((), (), 7), ((2, 2), (1, 6), 0)]
)
def test_a_view_by_strides_is_replaced_in_a_loop(sizes, strides, offset):
    def program(x, y):
        return torch.as_strided_scatter(x * 2, y + 1, sizes, strides, offset) * 3

    x, y = torch.randn(4, 3), torch.randn(sizes)
    compiled = core.compile(program, backend="inductor", fullgraph=True)
    torch.testing.assert_close(compiled(x, y), program(x, y))
    assert core.stats()["extern_calls"] == 0


def test_a_differentiable_view_of_another_input_that_is_written_to_runs_as_captured(monkeypatch):
    monkeypatch.delenv("CORE_STRICT", raising=False)

    def program(x, y):
        before = torch.tanh(x)
        y[None] = 0.5
        return before.detach(), torch.tanh(x)

    heard = []
    stop = subscribe(heard.append)
    compiled = core.compile(program, backend="inductor")
    for _ in range(2):
        mine = torch.randn(3).requires_grad_()
        theirs = mine.detach().clone().requires_grad_()
        ours, eagers = mine * 1.0, theirs * 1.0
        got, want = compiled(ours, ours[None]), program(eagers, eagers[None])
        torch.testing.assert_close(got, want)
        got[1].sum().backward()
        want[1].sum().backward()
        torch.testing.assert_close(mine.grad, theirs.grad)
    stop()
    assert any("runs as captured" in event.reason for event in heard if isinstance(event, FellBack))


def whole_and_part():
    x = torch.arange(4.0)
    return x, x.unsafe_split(2)[0]


def whole_and_view():
    x = torch.arange(4.0)
    return x, x[:2]


def view_and_whole():
    x = torch.arange(4.0)
    return x[:2], x


def whole_and_detached():
    x = torch.arange(4.0)
    return x, x.detach()[:2]


def whole_and_data():
    x = torch.arange(4.0)
    return x, x.data[:2]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("make", [whole_and_part, whole_and_view, view_and_whole, whole_and_detached, whole_and_data])
@pytest.mark.parametrize("written", [(0,), (1,), (0, 1)])
def test_writes_are_counted_where_eager_counts_them(make, written, backend):
    def fn(*tensors):
        for at in written:
            tensors[at].add_(1)
        return tensors[0] + 0

    core.reset()
    fast = core.compile(fn, backend=backend)
    seen = []
    for run in (fn, fast):
        tensors = make()
        result = run(*tensors)
        seen.append((result.tolist(), [t.tolist() for t in tensors], [t._version > 0 for t in tensors]))
    assert seen[0] == seen[1] and core.stats()["graphs"] == 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_a_view_that_was_given_other_storage_is_no_part_of_its_base(backend):
    def fn(x, view):
        view.fill_(7)
        return x + 0, view + 0

    core.reset()
    fast = core.compile(fn, backend=backend)
    for moved in (True, False, True):
        seen = []
        for run in (fn, fast):
            x = torch.arange(3.0)
            view = x[1]
            if moved:
                view.set_(torch.ones_like(view))
            results = run(x, view)
            seen.append(([r.tolist() for r in results], x.tolist(), view.tolist()))
        assert seen[0] == seen[1]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_an_input_that_is_read_after_a_write_through_another_takes_its_history(backend):
    weight = torch.ones(4, requires_grad=True)

    def fn(x, y):
        y += weight
        return x * 2

    def outcome(call):
        x = torch.cat([torch.arange(4.0)])[None]
        result = call(x, x[None])
        result.sum().backward()
        gradient, weight.grad = weight.grad, None
        return result.detach(), gradient, x.detach(), torch.tensor(x.requires_grad)

    compiled = core.compile(fn, backend=backend)
    for _ in range(2):
        assert all(map(torch.equal, outcome(compiled), outcome(fn)))
    with pytest.raises(core.Unsupported, match="shares memory"):
        outcome(core.compile(fn, backend=backend, fullgraph=True))
