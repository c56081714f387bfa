"""Marked callables that are objects, and frozen dataclasses among the arguments of marked functions."""

from __future__ import annotations

import dataclasses

import pytest
import torch

import core

X, Y = torch.full((2,), 3.0), torch.full((2,), 4.0)


@dataclasses.dataclass(frozen=True)
class Pair:
    first: torch.Tensor
    second: torch.Tensor
    factor: int = dataclasses.field(default=5)
    offset: int = 6


@core.allow_in_graph
def combined(pair, *, times=1):
    return (pair.first * pair.factor + pair.second + pair.offset) * times


def seen(graphs):
    def backend(graph_module, inputs):
        graphs.append(graph_module)
        return graph_module.forward

    return backend


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_a_marked_function_takes_a_frozen_dataclass_that_the_program_makes(backend):
    call = core.compile(lambda x, y: combined(Pair(x, y), times=2) + 1, backend=backend, fullgraph=True)
    assert torch.equal(call(X, Y), combined(Pair(X, Y), times=2) + 1)
    assert core.stats()["graphs"] == 1


def test_a_marked_function_takes_a_frozen_dataclass_from_outside():
    call = core.compile(lambda pair: combined(pair) + 1, backend="eager", fullgraph=True)
    assert torch.equal(call(Pair(X, Y)), combined(Pair(X, Y)) + 1)
    assert torch.equal(call(Pair(Y, X)), combined(Pair(Y, X)) + 1)
    assert core.stats()["graphs"] == 1
    assert torch.equal(call(Pair(X, Y, offset=1)), combined(Pair(X, Y, offset=1)) + 1)


def test_a_marked_object_is_one_node():
    class Scale:
        def __init__(self, by):
            self.by = by

        def __call__(self, x):
            return x * self.by

    scale = core.allow_in_graph(Scale(3))
    graphs = []
    call = core.compile(lambda x: scale(x) + 1, backend=seen(graphs), fullgraph=True)
    assert call(X).tolist() == [10.0, 10.0]
    targets = [node.target for node in graphs[0].graph.nodes if node.op == "call_function"]
    assert len(targets) == 2 and type(targets[0]).__name__ == "PackedCall"


def test_another_object_in_the_place_of_a_marked_one_is_seen():
    class Scale:
        def __init__(self, by):
            self.by = by

        def __call__(self, x):
            return x * self.by

    holder = {"scale": core.allow_in_graph(Scale(3))}
    call = core.compile(lambda x: holder["scale"](x), backend="eager", fullgraph=True)
    assert call(X).tolist() == [9.0, 9.0]
    holder["scale"] = core.allow_in_graph(Scale(2))
    assert call(X).tolist() == [6.0, 6.0]
