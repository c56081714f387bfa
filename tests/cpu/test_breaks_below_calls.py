"""Breaks that calls further in cause: where the graph ends, and how often that is told."""

from __future__ import annotations

import contextlib
import dis

import pytest
import torch
from torch import nn

import core
from core import events


@contextlib.contextmanager
def lines_of_breaks():
    lines = []
    unsubscribe = events.subscribe(
        lambda event: lines.append(event.line.function) if isinstance(event, events.GraphBroken) else None
    )
    try:
        yield lines
    finally:
        unsubscribe()


class Layer(nn.Module):
    def forward(self, x, flagged):
        if flagged:
            return x * 2
        return x + 1


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Layer(), Layer(), Layer()])

    def forward(self, x):
        flagged = (x > 0).any().item()
        x = x.cos()
        for layer in self.layers:
            x = layer(x, flagged)
        return x


@pytest.mark.parametrize("fill", [1.0, -1.0])
def test_a_bool_that_layers_decide_by_is_read_once_where_the_program_reads_it(fill):
    module, x = Layers(), torch.full((4,), fill)
    with lines_of_breaks() as lines:
        assert torch.equal(core.compile(module, backend="eager")(x), module(x))
    assert lines == ["Layer.forward"]
    stats = core.stats()
    assert (stats["graphs"], stats["breaks"]) == (2, 1)


def test_both_answers_of_a_bool_that_layers_decide_by_have_an_entry():
    module, compiled = Layers(), core.compile(Layers(), backend="eager")
    for _ in range(2):
        for x in (torch.ones(4), -torch.ones(4)):
            assert torch.equal(compiled(x), module(x))
    stats = core.stats()
    assert (stats["graphs"], stats["breaks"]) == (3, 1)


def test_a_bool_that_its_own_function_decides_by_breaks_where_it_decides():
    def f(x):
        flagged = (x > 0).any().item()
        x = x.cos().sin()
        return x * 2 if flagged else x + 1

    x = torch.ones(4)
    assert torch.equal(core.compile(f, backend="eager")(x), f(x))
    stats = core.stats()
    assert (stats["graphs"], stats["breaks"], stats["ops"]) == (2, 1, 6)  # the questions, cos and sin; then one


def test_a_bool_of_a_call_that_another_call_decides_by_breaks_there():
    def positive(x):
        return (x > 0).any().item()

    def chosen(x, flagged):
        return x * 2 if flagged else x + 1

    def f(x):
        return chosen(x.cos(), positive(x)).sin()

    for x in (torch.ones(4), -torch.ones(4)):
        assert torch.equal(core.compile(f, backend="eager")(x), f(x))
    assert core.stats()["breaks"] == 1  # both calls are of one program


class Printing(nn.Module):
    def forward(self, x):
        x = x + 1
        print(end="")
        return x * 2


def test_a_break_in_a_module_is_told_once_and_not_again_for_the_call_that_enters_it():
    x = torch.ones(3)
    with lines_of_breaks() as lines:
        assert torch.equal(core.compile(Printing(), backend="eager")(x), Printing()(x))
    assert lines == ["Printing.forward"]
    assert core.stats()["graphs"] == 2


def test_a_break_below_calls_is_told_again_by_each_that_has_operations_before_it():
    module, x = nn.Sequential(nn.ReLU(), Printing(), nn.ReLU()), torch.ones(3)
    with lines_of_breaks() as lines:
        assert torch.equal(core.compile(module, backend="eager")(x), module(x))
    assert lines == ["Printing.forward", "Printing.forward"]
    assert core.stats()["graphs"] == 4


def test_a_break_below_calls_is_told_once_where_it_ends_no_graph_of_theirs():
    module, x = nn.Sequential(nn.Sequential(Printing()), nn.ReLU()), torch.ones(3)
    with lines_of_breaks() as lines:
        assert torch.equal(core.compile(module, backend="eager")(x), module(x))
    assert lines == ["Printing.forward"]
    assert core.stats()["graphs"] == 3


def test_a_break_that_is_due_to_the_calls_around_is_told_where_the_graph_ends():
    def chosen(x, flagged):
        return x * 2 if flagged else x + 1

    def f(x, flag):
        return chosen(x, flag.item())

    x, flag = torch.ones(4), torch.tensor(True)
    with lines_of_breaks() as lines:
        assert torch.equal(core.compile(f, backend="eager")(x, flag), f(x, flag))
    assert len(lines) == 1


def test_calls_that_are_nested_too_deep_are_told():
    def f(x, depth):
        return f(x, depth - 1) if depth else x + 1

    with lines_of_breaks() as lines:
        assert torch.equal(core.compile(f, backend="eager")(torch.ones(3), 120), torch.ones(3) + 1)
    assert lines


def test_a_break_in_a_module_is_told_where_its_frames_are_not_captured():
    x = torch.ones(3)
    with lines_of_breaks() as lines:
        assert torch.equal(core.compile(Printing(), backend="eager", nested=False)(x), Printing()(x))
    assert lines == ["Printing.forward"]


def test_a_break_in_a_hook_is_told_once():
    module, x = nn.ReLU(), torch.ones(3)
    module.register_forward_hook(lambda module, args, result: print(end=""))
    with lines_of_breaks() as lines:
        assert torch.equal(core.compile(module, backend="eager")(x), x)
    assert len(lines) == 1


def test_an_explanation_of_a_module_names_its_break():
    assert core.explain(Printing())(torch.ones(3)).breaks
    with pytest.raises(core.Unsupported):
        core.compile(Printing(), backend="eager", fullgraph=True)(torch.ones(3))


@pytest.mark.skipif("LOAD_FAST_AND_CLEAR" in dis.opmap, reason="comprehensions are part of their function")
def test_a_comprehension_with_a_break_is_one_step_of_python_and_what_it_calls_is_captured():
    shown = core.disable(lambda value: value)

    def layer(x):
        return (x * 2).sin()

    def fn(x):
        y = x + 1
        parts = [shown(layer(y * k)) for k in range(4)]
        return sum(parts) * 2, {k: shown(part) for k, part in enumerate(parts)}

    compiled, x = core.compile(fn, backend="eager"), torch.ones(3)
    with lines_of_breaks() as lines:
        assert all(repr(compiled(x)) == repr(fn(x)) for _ in range(2))
    assert [line.rpartition(".")[2] for line in lines] == ["<listcomp>", "<dictcomp>"]
    stats = core.stats()
    assert (stats["graphs"], stats["recompiles"], stats["skipped"]) == (3, 0, 0)
