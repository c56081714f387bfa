"""Floats that differ between calls: what they lose in eager is lost in graphs, whose symbols are real numbers, too."""

from __future__ import annotations

import math
import random

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


ORDERS = {
    "products": lambda x, s, a, b: (x * (s * a * b), x + -a * b * s, x * (0.1 * a * 0.2 * b * 0.3)),
    "quotients": lambda x, s, a, b: (x * (a / b * s), x * (a / (b * s)), x * (a * 3 / 3), x * (1 / a / b)),
    "sums": lambda x, s, a, b: (x * (s + a + b), x * (s + (a + b)), x * (s + a + b - a), x * (a * s + b * s)),
    "powers": lambda x, s, a, b: (x * (a**2 * s), x * (a**0.5 * b), x * (a**b * s)),
    "sizes": lambda x, s, a, b: (x * (x.shape[0] * a * b), x * (x.shape[0] / 7 * a), x * (float(len(x)) * a / b)),
    "functions": lambda x, s, a, b: (x * (abs(-a) * b * s), x * (max(a * s, b * s) * 0.7), x * math.sqrt(a * b) * s),
    "results": lambda x, s, a, b: (s * a * b, a / b * s, s + a - b, -a * b * s, x * 2),
    "arguments": lambda x, s, a, b: (torch.full((3,), s * a * b, dtype=torch.float64), x.clamp(max=s * a * b)),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("kind", ORDERS)
def test_floats_keep_the_order_and_the_roundings_of_their_operations(kind, backend):
    fn = ORDERS[kind]
    compiled = core.compile(fn, backend=backend, fullgraph=True)
    numbers = random.Random(0)
    for call in range(12):
        x = torch.linspace(0.1, 2, 3 + call % 2, dtype=torch.float64)
        s, a, b = (numbers.uniform(0.01, 3) for _ in range(3))
        for found, expected in zip(compiled(x, s, a, b), fn(x, s, a, b)):
            assert type(found) is type(expected)
            assert torch.equal(torch.as_tensor(found), torch.as_tensor(expected))
    assert core.stats()["graphs"] <= 6  # by size and by number; a maximum is decided, and of full's value
    assert not core.stats()["skipped"]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_what_real_arithmetic_knows_nothing_of_is_as_eager_computes_it(backend):
    def fn(x, a, b):
        return x + 1, a * 0.0, a - a, a / a, (a * b - b * a) * 3.0, a == a, a != a, "nan" if a != a else "number"

    compiled = core.compile(fn, backend=backend, fullgraph=True)
    for a, b in ((0.3, 1.5), (-0.7, 2.5), (1e200, 1e200), (float("inf"), 1.0), (float("nan"), 1.0), (0.2, 0.1)):
        found, expected = compiled(torch.ones(2), a, b)[1:], fn(torch.ones(2), a, b)[1:]
        assert repr(found) == repr(expected)


def test_a_number_that_is_decided_late_decides_what_was_computed_of_it():
    def fn(x, a, b):
        product = a * b / 3
        if a == 0.5:
            x = x + 1
        return x.reshape(-1)[: round(product)] * product

    compiled = core.compile(fn, backend="aot_eager", fullgraph=True)
    for a, b in ((0.5, 12.0), (0.5, 18.0), (0.75, 9.0), (0.5, 18.5)):
        x = torch.randn(2, 3, dtype=torch.float64)
        assert torch.equal(compiled(x, a, b), fn(x, a, b))


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


@pytest.mark.parametrize("function", [int, math.floor, math.ceil, math.trunc])
def test_a_product_that_becomes_infinite_is_no_integer_and_what_came_before_has_happened(function):
    def fn(x, s, log):
        x.add_(1)  # from here on a graph that raises is not run again as written
        product = s * s * s
        log.append(product)
        return x + function(product)

    def outcome(call, s):
        x, log = torch.zeros(2), []
        try:
            return call(x, s, log), x, log
        except OverflowError as error:
            return str(error), x, log

    compiled = core.compile(fn, backend="eager")
    for s in (3.0, 4.5, -5.5, 1e150, -1e150, 2.5):
        assert repr(outcome(compiled, s)) == repr(outcome(fn, s))
    assert core.stats()["graphs"] <= 4  # 3.0, any finite one, and both infinite ones
