"""Floats that differ between calls: what sums of them lose in eager is lost in graphs of real arithmetic too."""

from __future__ import annotations

import pytest
import torch

import core


def cancels(x, s):
    return x * ((s + 1.0) - 1.0), x + (s + 1e16 - 1e16), (1.0 - s) * 0.3 - s


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_what_floats_lose_in_between_is_lost(backend):
    compiled = core.compile(cancels, backend=backend, fullgraph=True)
    x = torch.ones(2, dtype=torch.float64)
    for s in (0.3, 0.7, 1e-3, 0.123456789):
        found, expected = compiled(x, s), cancels(x, s)
        assert all(torch.equal(torch.as_tensor(a), torch.as_tensor(b)) for a, b in zip(found, expected))


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_one_operation_on_a_float_serves_every_float(backend):
    compiled = core.compile(lambda x, s: (x * (s * 0.1), x + s), backend=backend, fullgraph=True)
    x = torch.randn(3)
    for s in (0.3, 0.7, 1e-3, 0.123456789):
        torch.testing.assert_close(compiled(x, s), (x * (s * 0.1), x + s))
    assert core.stats()["graphs"] == 2


def test_a_choice_between_numbers_is_written_into_the_graph():
    import sympy

    from core import torch_compat

    size = sympy.Symbol("size", integer=True)
    for expression in (sympy.Piecewise((size + 1, size > 3), (-size, True)), sympy.Piecewise((1, size > 3), (0, True))):
        graph = torch.fx.Graph()
        graph.output(torch_compat.write_expression(graph, expression, {size: graph.placeholder("size")}))
        module = torch.fx.GraphModule(torch.nn.Module(), graph)
        assert [module(number) for number in (2, 5)] == [int(expression.subs(size, number)) for number in (2, 5)]
