"""Results that nobody reads: the error of the call that makes them comes as in eager; what can not raise is dropped."""

from __future__ import annotations

import pytest
import torch
from graph_drive import capture_module

import core
from core.graph.finish import functional_graph
from core.graph.joint import joint_graph

X = torch.arange(1.0, 5.0)
GOOD, BAD = torch.tensor([1, 3]), torch.tensor([9, 0])
BACKENDS = pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])


def told(call):
    """(what the call gave, None), or (None, the class and text of what it raised)."""
    try:
        return call(), None
    except Exception as error:  # noqa: BLE001  compared with eager's
        return None, (type(error), str(error))


def same(left, right):
    if isinstance(left, tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return torch.equal(left, right) if isinstance(left, torch.Tensor) else left == right


def agree(fn, *calls, backend, graphs=1, breaks=0):
    core.reset()
    fast = core.compile(fn, backend=backend)
    for args in calls:
        got, want = told(lambda: fast(*args)), told(lambda: fn(*args))  # noqa: B023  called at once
        assert same(got, want), (got, want)
    stats = core.stats()
    assert (stats["graphs"], stats["breaks"], stats["recompiles"]) == (graphs, breaks, 0), stats


def handled(operation):
    """A program that never reads what `operation` gives, and tells whether it raised."""

    def fn(*args):
        try:
            operation(*args)
        except (IndexError, RuntimeError):
            return "raised", args[0] + 1
        return "fine", args[0] * 2

    return fn


UNREAD = {
    "index": (lambda x, i: x[i], (X, GOOD), (X, BAD)),
    "gather": (lambda x, i: x.gather(0, i), (X, GOOD), (X, BAD)),
    "embedding": (
        lambda x, i: torch.nn.functional.embedding(i, x.view(4, 1)),
        (X, GOOD),
        (X, BAD),
    ),
    "read by what is unread itself": (lambda x, i: (x[i] + 1).sin().sum(), (X, GOOD), (X, BAD)),
    "written to memory that nobody reads": (
        lambda x, i: torch.zeros(4).index_put_((i,), torch.ones(2)),
        (X, GOOD),
        (X, BAD),
    ),
    "written over": (lambda x, i: x[i].copy_(torch.ones(2)), (X, GOOD), (X, BAD)),
    "a quotient of integers": (lambda x, i: x.long() // i[0], (X, GOOD), (X, torch.tensor([0, 1]))),
    "a loss of what is no probability": (
        lambda x, p: torch.nn.functional.binary_cross_entropy(p, p.detach()),
        (X, X / 9),
        (X, X),
    ),
    "more places than elements": (
        lambda x, i: x.masked_scatter(x > i[0], x[2:]),
        (X, GOOD + 1),
        (X, torch.tensor([0, 9])),
    ),
    "several results": (
        lambda x, i: torch.nn.functional.nll_loss(x.view(2, 2), i),
        (X, torch.tensor([1, 0])),
        (X, BAD),
    ),
}


@BACKENDS
@pytest.mark.parametrize("name", UNREAD)
def test_a_call_that_may_raise_is_made_though_nobody_reads_its_result(name, backend):
    operation, good, bad = UNREAD[name]
    fn = handled(operation)
    assert fn(*good)[0] == "fine" and fn(*bad)[0] == "raised"
    agree(fn, good, bad, good, backend=backend)


@BACKENDS
def test_the_error_leaves_a_function_that_does_not_handle_it(backend):
    def fn(x, i):
        x[i]
        return x * 2

    agree(fn, (X, GOOD), (X, BAD), backend=backend)


@BACKENDS
def test_a_training_graph_makes_the_call_in_its_forward(backend):
    def fn(weight, i):
        try:
            weight[i].sin()
        except IndexError:
            return weight.sum()
        return (weight * 2).sum()

    core.reset()
    fast = core.compile(fn, backend=backend)
    for i in (GOOD, BAD, GOOD):
        gradients = []
        for run in (fn, fast):
            weight = X.clone().requires_grad_()
            run(weight, i).backward()
            gradients.append(weight.grad)
        assert torch.equal(*gradients)
    assert core.stats()["graphs"] == 1 and core.stats()["breaks"] == 0


@BACKENDS
def test_a_view_that_may_leave_its_storage_is_taken(backend):
    def fn(x):
        try:
            x.as_strided((2, 2), (2, 1))
        except RuntimeError:
            return "raised", x + 1
        return "fine", x + 2

    agree(fn, (torch.randn(6)[:2],), (torch.randn(2),), backend=backend)


class Unread(torch.nn.Module):
    def forward(self, x, i):
        x.sin().exp()
        x.as_strided((2,), (2,))
        torch.zeros(4).add_(x)
        x.max(0)
        return x * 2


class Ordinary(torch.nn.Module):
    """Layers of ordinary models; parts of what some of their operators give are not read."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(8, 4)
        self.norm = torch.nn.LayerNorm(4)
        self.attention = torch.nn.MultiheadAttention(4, 2, batch_first=True)
        self.batch_norm = torch.nn.BatchNorm1d(3)

    def forward(self, i, target):
        x = self.norm(self.embedding(i))
        x = x + self.attention(x, x, x, need_weights=False)[0]
        values, _ = self.batch_norm(x).topk(2, dim=-1)
        return torch.nn.functional.cross_entropy(values.reshape(-1, 2), target)


def calls_of(module):
    return [str(node.target) for node in module.graph.nodes if node.op == "call_function"]


def test_dead_code_that_can_not_raise_is_dropped():
    captured, _ = capture_module(Unread(), (X, GOOD))
    functional = functional_graph(captured)
    assert calls_of(functional.module) == ["aten.mul.Tensor"]
    assert len(functional.epilogue.slots) == 1


def test_ordinary_layers_keep_nothing_that_nobody_reads():
    module = Ordinary()
    captured, _ = capture_module(module, (torch.randint(8, (2, 3)), torch.randint(2, (6,))))
    assert captured.needs_grad
    joint = joint_graph(captured)
    written = len(joint.epilogue.write_backs)
    assert joint.forward_outputs == 1 + written == 4  # the statistics of the batch norm are written
