"""torch.cond, while_loop, map, scan and associative_scan inside captured code: one node over traced functions."""

from __future__ import annotations

import pytest
import torch
import torch._higher_order_ops as higher_order
import torch.nn as nn
from functorch.experimental import control_flow
from observed import BACKENDS, agrees

import core

while_loop = higher_order.while_loop


def leaf(*shape):
    return torch.randn(*shape, requires_grad=True)


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


def branches_of_a_module():
    class Chooses(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            return torch.cond(x.sum() > 0, lambda x: self.first(x), lambda x: self.second(x).relu(), (x,))

    module = Chooses()
    return module, (torch.randn(3, 4),), lambda: [p.grad for p in module.parameters()]


def branches_over_closures():
    w = leaf(4)

    def fn(x):
        y = x * 2
        return torch.cond(x.sum() > 0, lambda x: x @ w + y.sum(), lambda x: x.cos().sum() + y.mean(), (x,))

    return fn, (torch.randn(4),), lambda: [w.grad]


def branches_in_a_branch():
    def inner(x):
        return torch.cond(x.max() > 1, lambda x: x + 1, lambda x: x - 1, (x,))

    return lambda x: torch.cond(x.sum() > 0, inner, lambda x: x * 2, (x,)), (leaf(4),)


def a_scan_along_another_dimension():
    w = leaf(4, 4)

    def step(carry, x):
        return (carry @ w + x).tanh(), (carry * 2).clone()

    def fn(first, xs):
        return higher_order.scan(step, first, xs, dim=1, reverse=True)

    return fn, (leaf(2, 4), leaf(2, 3, 4)), lambda: [w.grad]


def a_scan_of_trees():
    def step(carry, x):
        return {"s": carry["s"] + x[0], "m": torch.maximum(carry["m"], x[1])}, (carry["s"] * 2,)

    return (
        lambda i, x: higher_order.scan(step, {"s": i, "m": i + 1}, (x, x * 2)),
        (torch.zeros(4), torch.randn(3, 4)),
    )


def a_map_over_a_tree():
    w = leaf(4)

    def each(row):
        return {"o": row["a"] * w, "p": row["b"].sum()}

    return (
        lambda x, y: higher_order.map(each, {"a": x, "b": y}),
        (leaf(3, 4), torch.randn(3, 4)),
        lambda: [w.grad],
    )


def a_loop_over_a_closure():
    w = torch.randn(4, 4)

    def fn(x):
        return while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, (x @ w).tanh()), (torch.tensor(0), x))

    return fn, (torch.randn(4),)


def recurrence(left, right):
    return left[0] * right[0], right[0] * left[1] + right[1]


TRACED = {
    "cond": lambda: (lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)), (torch.randn(4),)),
    "cond with gradients": lambda: (
        lambda x: torch.cond(x.sum() > 0, lambda x: x.sin() * 2, lambda x: x.cos(), (x,)) * 3,
        (leaf(4),),
    ),
    "an operand that no branch uses": lambda: (
        lambda x, y: torch.cond(x.sum() > 0, lambda x, y: x.sin(), lambda x, y: x.cos(), (x, y)),
        (leaf(4), leaf(4)),
    ),
    "an operand that the other branch uses": lambda: (
        lambda x, y: torch.cond(x.sum() > 100, lambda x, y: y.sin(), lambda x, y: x.cos(), (x, y)),
        (leaf(4), leaf(4)),
    ),
    "cond over closures": branches_over_closures,
    "cond of trees": lambda: (
        lambda x: torch.cond(
            x.sum() > 0,
            lambda d: {"a": d["x"].sin(), "b": (d["x"] + 1,)},
            lambda d: {"a": d["x"].cos(), "b": (d["x"] - 1,)},
            ({"x": x},),
        ),
        (leaf(4),),
    ),
    "cond in cond": branches_in_a_branch,
    "cond without operands": lambda: (
        lambda x: control_flow.cond(x.sum() > 0, lambda: x.sin(), lambda: x.cos(), ()),
        (torch.randn(4),),
    ),
    "while_loop": lambda: (
        lambda x: while_loop(lambda i, x: x.sum() < 50, lambda i, x: (i + 1, x.abs() + 1), (torch.tensor(0), x)),
        (torch.randn(4),),
    ),
    "while_loop over a closure": a_loop_over_a_closure,
    "while_loop of a tree": lambda: (
        lambda x: while_loop(
            lambda i, d: i < 3, lambda i, d: (i + 1, {"a": d["a"].sin()}), (torch.tensor(0), {"a": x})
        ),
        (torch.randn(4),),
    ),
    "map": lambda: (
        lambda x, y: control_flow.map(lambda row, y: row.sin() * y, x, y),
        (leaf(3, 4), leaf(4)),
    ),
    "map over a tree": a_map_over_a_tree,
    "scan": lambda: (
        lambda i, x: higher_order.scan(lambda c, x: (c * x, (c + x).sin()), i, x),
        (leaf(4), leaf(3, 4)),
    ),
    "scan along another dimension": a_scan_along_another_dimension,
    "scan of trees": a_scan_of_trees,
    "an elementwise associative scan": lambda: (
        lambda x, y: higher_order.associative_scan(recurrence, (x, y), 1, reverse=True, combine_mode="generic"),
        (leaf(2, 5, 3), leaf(2, 5, 3)),
    ),
    "an associative scan of matrices": lambda: (
        lambda x: higher_order.associative_scan(torch.matmul, x, 0, combine_mode="generic"),
        (leaf(5, 3, 3),),
    ),
}


@pytest.mark.parametrize("name", TRACED)
def test_one_graph(name, backend):
    agrees(TRACED[name], backend)


def test_branches_of_a_module_train(backend):
    agrees(branches_of_a_module, backend, graphs=None)  # torch changes classes while it derives a gradient in eager


def test_a_predicate_known_while_tracing_chooses_then(backend):
    stats = agrees(lambda: (lambda x: torch.cond(x.shape[0] > 3, torch.sin, torch.cos, (x,)), (leaf(4),)), backend)
    assert stats["ops"] == 1


def test_both_branches_serve_one_graph(backend):
    def fn(x):
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))

    compiled = core.compile(fn, backend=backend, fullgraph=True)
    for x in (torch.ones(4), -torch.ones(4), torch.ones(4)):
        torch.testing.assert_close(compiled(x), x.sin() if x.sum() > 0 else x.cos())
    assert core.stats()["graphs"] == 1


def test_random_numbers_of_branches_move_the_generator_as_in_eager(backend):
    def fn(x):
        return torch.cond(x.sum() > 0, lambda x: x * torch.rand(4), lambda x: x + torch.rand(4), (x,)) + torch.rand(4)

    agrees(lambda: (fn, (torch.randn(4),)), backend)


def test_branches_that_draw_random_numbers_again_in_the_backward_run_as_captured(backend):
    def fn(x):
        return torch.cond(x.sum() > 0, lambda x: nn.functional.dropout(x, 0.5), lambda x: x * 1, (x,))

    agrees(lambda: (fn, (leaf(40),)), backend, strict=False)


def test_a_loop_that_carries_gradients(backend):
    def fn(x):
        return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x.sin()), (torch.tensor(0), x))[1]

    agrees(lambda: (fn, (leaf(4),)), backend, strict=False)


def test_autocast_reaches_into_branches(backend):
    @torch.autocast("cpu", torch.bfloat16)
    def fn(x):
        return torch.cond(x.sum() > 0, lambda x: x @ x, lambda x: x @ x.T, (x,))

    compiled = core.compile(fn, backend=backend, fullgraph=True)
    for x in (torch.rand(4, 4), -torch.rand(4, 4)):
        low = x.bfloat16()
        torch.testing.assert_close(compiled(x), low @ low if x.sum() > 0 else low @ low.T)
    assert core.stats()["graphs"] == 1


LOG: list[int] = []


def logs(x):
    LOG.append(1)
    return x.sin()


BREAKING = {
    "a side effect in a branch": lambda x: torch.cond(x.sum() > 0, logs, torch.cos, (x,)),
    "a branch that returns what it is given": lambda x: torch.cond(x.sum() > 0, lambda x: x, torch.cos, (x,)),
    "branches of different shapes": lambda x: torch.cond(x.sum() > 0, lambda x: x.sum(), torch.cos, (x,)),
    "a loop that counts with an int": lambda x: while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x + i), (0, x))[1],
    "a pointwise associative scan on the CPU": lambda x: higher_order.associative_scan(torch.add, x, 0),
}


@pytest.mark.parametrize("name", BREAKING)
def test_what_torch_refuses_or_runs_in_another_way_breaks_the_graph(name):
    assert agrees(lambda: (BREAKING[name], (torch.randn(4),)), graphs=None, breaks=None)["breaks"] >= 1


def test_the_operator_beneath_while_loop_takes_further_inputs(backend):
    def fn(count, x, step):
        return torch.ops.higher_order.while_loop(
            lambda count, x, step: count.sum() > 0,
            lambda count, x, step: (count - 1, x + step),
            (count, x),
            (step,),
        )

    want = (torch.tensor(0), torch.full((2,), 7.0))
    compiled = core.compile(fn, backend=backend, fullgraph=True)
    got = compiled(torch.tensor(3), torch.ones(2), torch.full((2,), 2.0))
    assert len(got) == 2 and all(map(torch.equal, got, want))
