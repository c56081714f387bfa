"""A backward for some of the inputs computes, frees and checks what eager's nodes on the way to those do."""

from __future__ import annotations

import pytest
import torch

import core
from core import _C
from core.events import ArtifactBuilt, subscribe
from core.torch_compat import saved

BACKENDS = ("eager", "aot_eager", "inductor")


def apart(y, u, p):
    return (y.sin() + u.cos()).sum()


def meeting(y, u, p):
    return (y.sin() * u.cos()).sum() + p.sin().sum()


def through_a_result(y, u, p):
    hidden = y * u
    return hidden.sum(), (hidden.exp() + p.sin()).sum(), hidden


def through_a_view(y, u, p):
    view = y.view(-1)
    return view, (view.exp() * u.view(-1)).sum() + p.cos().sum()


def behind_a_write(y, u, p):
    y.mul_(2)
    return y, (y.sin() + u * p).sum()


PROGRAMS = (apart, meeting, through_a_result, through_a_view, behind_a_write)
SEQUENCES = (
    ((0,), (1,), None),
    ((1,), (1,)),
    ((2,), (0, 1), (2,)),
    ((3,), (2,), (0,)),
    (None, (0,)),
    ("inputs", (2,), (1,)),
    ("write", (0,), (2,)),
    ("write", (1,)),
)


def tried(step):
    try:
        return step()
    except RuntimeError as error:
        assert "a second time" in str(error) or "inplace operation" in str(error)
        return "used up"


def noted(run, sequence, which):
    """What comes of backwards for inputs by their places, None: for all leaves."""
    torch.manual_seed(0)
    leaf = torch.randn(3, 4, requires_grad=True)
    inputs = [leaf * 2, torch.randn(3, 4, requires_grad=True), torch.nn.Parameter(torch.randn(3, 4)), leaf]
    results = run(*inputs[:3])
    result = (results if isinstance(results, tuple) else (results,))[which]
    notes = []
    for step in sequence:
        loss = result.sin().sum()
        if step == "write":
            with torch.no_grad():
                inputs[2].mul_(0.5)
        elif step is None:
            notes.append(tried(loss.backward))
        elif step == "inputs":
            notes.append(tried(lambda loss=loss: loss.backward(inputs=[inputs[1]])))
        else:
            ends = [inputs[at] for at in step]
            notes.append(tried(lambda loss=loss, ends=ends: torch.autograd.grad(loss, ends, allow_unused=True)))
        if notes and notes[-1] == "used up":  # what a backward has run before it raises is another matter
            break
    else:
        notes += [each.grad for each in inputs if each.is_leaf]
    return notes


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_one_after_the_other(program, backend):
    core.reset()
    compiled = core.compile(program, backend=backend)
    for sequence in SEQUENCES:
        for which in (0, -1):
            ours, theirs = (noted(run, sequence, which) for run in (compiled, program))
            assert [type(each) for each in ours] == [type(each) for each in theirs], (sequence, which)
            torch.testing.assert_close(
                [each for each in ours if each != "used up"], [e for e in theirs if e != "used up"]
            )
    assert core.stats()["graphs"] == 1
    assert core.stats()["breaks"] == 0


def test_only_what_is_asked_for_is_computed_and_compiled_once():
    built = []
    unsubscribe = subscribe(lambda event: built.append(event) if isinstance(event, ArtifactBuilt) else None)
    compiled = core.compile(lambda x, w: (x @ w).relu().sum(), backend="aot_eager")
    x, w = torch.randn(4, 5, requires_grad=True), torch.randn(5, 3, requires_grad=True)
    try:
        for ends in ([x], [x], [x, w], [x, w]):
            torch.autograd.grad(compiled(x, w), ends)
    finally:
        unsubscribe()
    assert [event.mode for event in built] == ["forward", "backward", "backward"]
    assert built[1].extern_calls < built[2].extern_calls


def test_a_backward_knows_whether_it_is_for_all_inputs():
    told = []

    class Telling(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            return x * y

        @staticmethod
        def backward(ctx, gradient):
            told.append(_C.backward_runs_part())
            return gradient, gradient

    x, y = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    Telling.apply(x, y).sum().backward()
    torch.autograd.grad(Telling.apply(x, y).sum(), [x])
    Telling.apply(x, y).sum().backward(inputs=[y])
    assert told == [False, True, True]
    assert _C.backward_runs_part() is False


def test_the_engines_table_tells_which_edges_run():
    told = []

    class Telling(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *values):
            return sum(values)

        @staticmethod
        def backward(ctx, gradient):
            edges, every = ctx.next_functions, tuple(range(5))
            both = saved.edges_run_function()(edges, every, saved.runs_node)
            assert saved.edges_asked(edges, every, saved.runs_node) == both
            told.append((both, _C.backward_edges_run(edges, every, None)))
            return (gradient,) * 5

    x, y = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    for ends in ((0,), (2,), (1,), (0, 2)):
        inner = -x
        values = (x, inner, y, torch.ones(2), Telling.apply(x, inner, y, x, x))
        torch.autograd.grad(Telling.apply(*values).sum(), [values[at] for at in ends])
    bits = [bytes(each) for each in ((1, 1, 0, 0, 1), (0, 0, 1, 0, 1), (0, 1, 0, 0, 1), (1, 1, 1, 0, 1))]
    inside = [bytes(each) for each in ((1, 1, 0, 1, 1), (0, 0, 1, 0, 0), (0, 1, 0, 0, 0), (1, 1, 1, 1, 1))]
    assert [both for both, _ in told[::2]] == bits
    assert [both for both, _ in told[1::2]] == inside
    # the object for a node of Python's does not lead to it
    assert all(table[:4] == both[:4] and table[4] == 0 for both, table in told[::2])


def test_where_torch_does_not_tell_each_edge_is_asked(monkeypatch, heard):
    monkeypatch.setattr(_C, "backward_runs_part", lambda: None)
    monkeypatch.setattr(saved, "edges_run_function", lambda: saved.edges_asked)
    compiled = core.compile(apart, backend="aot_eager")
    for sequence in SEQUENCES:
        ours, theirs = (noted(run, sequence, -1) for run in (compiled, apart))
        assert [type(each) for each in ours] == [type(each) for each in theirs]
    told = [event.reason for event in heard if isinstance(event, core.events.FellBack) and event.stage == "backward"]
    assert set(told) == {"autograd's table of nodes is not readable; torch is asked for each argument"}
