"""backward() inside captured code: .grad, errors and histories as eager leaves them, in one graph where it can be."""

from __future__ import annotations

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from observed import agrees
from torch.utils.checkpoint import checkpoint

import core

BACKENDS = ("eager", "aot_eager", "inductor")


def leaf(*shape):
    return torch.randn(*shape, requires_grad=True)


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


class Scaled(torch.autograd.Function):
    """A function whose gradient formula is Python code."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0]


def of_module(body, *shape, module=None):
    """A program that is given a module; its parameters and their gradients are compared."""

    def build():
        made = module() if module is not None else nn.Linear(4, 3)
        return (lambda *args: body(made, *args)), (torch.randn(*(shape or (2, 4))),), lambda: list(made.parameters())

    return build


def of_leaf(body, *shape):
    """A program that is given a leaf."""

    def build():
        w = leaf(*(shape or (4,)))
        return (lambda x: body(w, x)), (torch.randn(*(shape or (4,))),), lambda: w

    return build


def sums_up(m, x):
    m(x).pow(2).mean().backward()
    m(x + 1).sum().backward()


def twice_on_one_graph(m, x):
    loss = m(x).pow(2).mean()
    loss.backward(retain_graph=True)
    loss.backward()


def a_graph_kept_and_returned(m, x):
    loss = m(x).pow(2).mean()
    loss.backward(retain_graph=True)
    return loss


def used_up(m, x):
    loss = m(x).pow(2).mean()
    loss.backward()
    try:
        loss.backward()
    except RuntimeError as error:
        return str(error)


def with_a_seed(m, x):
    out = m(x)
    out.backward(torch.ones_like(out) * 3)


def no_scalar(m, x):
    m(x).backward()


def of_a_tuple(m, x):
    torch.autograd.backward([m(x).sum(), m(x * 2).mean()])


def set_to_zero(m, x):
    m.zero_grad(set_to_none=False)
    m(x).sum().backward()


def reads_and_scales(m, x):
    m.zero_grad()
    m(x).sum().backward()
    for parameter in m.parameters():
        parameter.grad.mul_(0.5)
    return m.weight.grad.sum()


def a_step_by_hand(w, x):
    (w * x).sum().backward()
    with torch.no_grad():
        w.sub_(w.grad * 0.1)
    w.grad.zero_()


def with_a_graph_of_its_own(w, x):
    w.grad = None
    torch.autograd.backward([((w * x) ** 3).sum()], create_graph=True)
    slope = w.grad
    w.grad = None
    (slope**2).sum().backward()
    return slope.detach()


def a_perturbation(m, x):
    delta = torch.zeros_like(x, requires_grad=True)
    m(x + delta).pow(2).sum().backward()
    return x + 0.1 * delta.grad.sign(), delta.grad is not None


def expanded_gradient(w, x):
    w.grad = None
    (w.sum() * 2).backward()
    return w.grad.stride(), x + 1


def through_a_function(w, x):
    Scaled.apply(w * x).sum().backward()


def under_no_grad(w, x):
    loss = (w * x).sum()
    with torch.no_grad():
        loss.backward()
        return w.grad.requires_grad, torch.is_grad_enabled()


PROGRAMS = {
    "two losses add up": of_module(sums_up),
    "twice through a kept graph": of_module(twice_on_one_graph),
    "a kept graph goes on outside": of_module(a_graph_kept_and_returned),
    "a second backward raises": of_module(used_up),
    "a gradient given": of_module(with_a_seed),
    "a loss that is no scalar raises": of_module(no_scalar),
    "several losses": of_module(of_a_tuple),
    "gradients set to zero before": of_module(set_to_zero),
    "gradients changed behind": of_module(reads_and_scales),
    "parameters changed by hand": of_leaf(a_step_by_hand),
    "a gradient with a graph": of_leaf(with_a_graph_of_its_own),
    "a leaf made inside": of_module(a_perturbation),
    "an expanded gradient is laid out": of_leaf(expanded_gradient, 4, 3),
    "a Function of the user's": of_leaf(through_a_function),
    "where gradients are off": of_leaf(under_no_grad),
    "through a checkpoint": of_module(
        lambda m, x: checkpoint(m, x, use_reentrant=False).sum().backward(),
        module=lambda: nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)),
    ),
    "through batch normalisation": of_module(
        lambda m, x: m(x).pow(2).mean().backward(),
        4,
        3,
        8,
        8,
        module=lambda: nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU()),
    ),
}


@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_backward_is_part_of_the_graph(name, backend):
    stats = agrees(PROGRAMS[name], backend, graphs=None)
    assert 1 <= stats["graphs"] <= 2, stats  # .grad is None, then it is a tensor


def test_a_loss_without_gradients_raises_as_in_eager(backend):
    agrees(lambda: (lambda x: (x * 2).sum().backward(), (torch.randn(3),)), backend, graphs=None)


def test_gradients_share_no_memory_with_each_other_or_with_what_was_given():
    def two_leaves():
        a, b = leaf(4), leaf(4)

        def fn(v):
            ((a + b) * v).sum().backward()
            a.grad.add_(1)

        return fn, (torch.randn(4),), lambda: (a, b)

    def given():
        x, seed = leaf(4), torch.randn(4)

        def fn(seed):
            (x + 0).backward(seed)
            x.grad.mul_(2)
            return seed + 1

        return fn, (seed,), lambda: (x, seed)

    agrees(two_leaves, graphs=2)
    agrees(given, graphs=2)


def test_gradients_are_laid_out_like_their_leaves(backend):
    def build():
        a = torch.randn(3, 4).t().requires_grad_()
        w = torch.randn(5, 4)

        def fn(v):
            a.grad = None
            ((w @ a) * v).sum().backward()
            return a.grad.stride()

        return fn, (torch.randn(3),), lambda: (a, a.grad.stride())

    agrees(build, backend)


def test_only_the_inputs_named_get_gradients(backend):
    def build():
        a, b = leaf(4), leaf(4)
        return (lambda x: (a * b * x).sum().backward(inputs=[a])), (torch.randn(4),), lambda: (a, b)

    agrees(build, backend, graphs=2)


def test_random_numbers_are_drawn_as_in_eager():
    def build():
        module = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2))

        def fn(x):
            module(x).sum().backward()
            return torch.rand(3)

        return fn, (torch.randn(5, 4),), lambda: list(module.parameters())

    for backend in BACKENDS:
        agrees(build, backend, graphs=2)


# -- results whose history the graph used up ---------------------------------------------------------------------------


def spent(fn, x):
    seen = []
    for _ in range(3):
        for result in fn(x):
            words = None
            try:
                result.sum().backward(retain_graph=True)
            except RuntimeError as error:
                words = str(error)
            seen.append((result.requires_grad, result.is_leaf, result.detach().clone(), words))
    return seen


@pytest.mark.parametrize("steps", [False, True])
def test_a_backward_from_a_used_up_result_raises_what_eager_raises(steps, backend):
    found = []
    for compiled in (False, True):
        torch.manual_seed(0)
        module = nn.Linear(4, 3)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)

        def train(x, module=module, optimizer=optimizer):
            out = module(x)
            loss = out.pow(2).mean()
            loss.backward(retain_graph=steps)
            if steps:
                optimizer.step()  # changes what the history saved
            return loss, out, (out * 1).sum()

        core.reset()
        found.append(spent(core.compile(train, backend=backend) if compiled else train, torch.randn(2, 4)))
    for theirs, ours in zip(*found):
        assert theirs[:2] == ours[:2] and theirs[3] == ours[3]
        assert torch.allclose(theirs[2], ours[2])
    assert core.stats()["breaks"] == 0


# -- what is left to Python --------------------------------------------------------------------------------------------


def test_hooks_of_leaves_break_the_graph():
    def before():
        module, log = nn.Linear(4, 3), []
        module.weight.register_hook(lambda g: g * 2)
        module.bias.register_post_accumulate_grad_hook(lambda p: log.append(p.grad.sum().item()))
        return (lambda x: module(x).sum().backward()), (torch.randn(2, 4),), lambda: (list(module.parameters()), log)

    def later():
        module, calls = nn.Linear(4, 3), []

        def observe():
            calls.append(1)
            if len(calls) == 1:
                module.weight.register_hook(lambda g: g * 2)
            return list(module.parameters())

        return (lambda x: module(x).sum().backward()), (torch.randn(2, 4),), observe

    assert agrees(before, graphs=None, breaks=None)["breaks"] >= 1
    assert agrees(later, graphs=None, breaks=None)["breaks"] >= 1


def test_a_history_outside_the_graph_breaks_it():
    def build():
        w = leaf(4)

        def fn(x):
            y = w * x
            y.tolist()
            (y * 2).sum().backward()
            return x + 1

        return fn, (torch.randn(4),), lambda: w

    agrees(build, graphs=3, breaks=2)


def test_sparse_gradients_break_the_graph():
    def build():
        table = nn.Embedding(10, 3, sparse=True)
        return (lambda i: table(i).sum().backward()), (torch.randint(0, 10, (4,)),), lambda: list(table.parameters())

    agrees(build, graphs=None, breaks=1, strict=False)


def test_a_tensor_that_is_reached_from_outside_alone_keeps_its_gradient():
    def build():
        module, other = nn.Linear(4, 3), leaf(3)

        def fn(x, y):
            F.mse_loss(module(x), y.detach()).backward()
            return (y * 2).detach()

        return fn, (torch.randn(2, 4), other * 1), lambda: (list(module.parameters()), other.grad)

    agrees(build, graphs=None, breaks=None)


@pytest.mark.parametrize("kind", ("register_hook", "register_prehook"))
def test_hooks_on_the_node_of_a_leafs_gradient_break_the_graph(kind):
    core.reset()
    w, seen = leaf(3), []
    node = torch.autograd.graph.get_gradient_edge(w).node
    getattr(node, kind)(lambda *gradients: seen.append(1))

    def step(w, x):
        (w * x).sum().backward()
        return x + 1

    compiled = core.compile(step, backend="eager")
    for count in (1, 2):
        compiled(w, torch.ones(3))
        assert len(seen) == count
    assert torch.equal(w.grad, torch.full((3,), 2.0))
    assert core.stats()["breaks"] == 1


@pytest.mark.parametrize("kind", ("register_hook", "register_prehook"))
def test_a_hook_on_the_node_of_a_leafs_gradient_is_noticed_when_it_comes_later(kind, backend):
    core.reset()
    v, w, seen = leaf(3), leaf(3), []
    node = torch.autograd.graph.get_gradient_edge(w).node

    def step(v, w, x):
        (v * w * x).sum().backward()
        return x + 1

    compiled = core.compile(step, backend=backend)
    for _ in range(2):
        compiled(v, w, torch.ones(3))
    handle = getattr(node, kind)(lambda *gradients: seen.append(1))
    for count in (1, 2):
        compiled(v, w, torch.ones(3))
        assert len(seen) == count
    before = core.stats()
    assert before["breaks"] == 1
    handle.remove()
    torch.nn.Linear(1, 1).register_forward_hook(print)
    compiled(v, w, torch.ones(3))
    assert (len(seen), core.stats()) == (2, before)
    assert torch.allclose(w.grad, 5 * v.detach())


@pytest.mark.skipif(not hasattr(torch.Tensor, "grad_dtype"), reason="gradients have the dtype of their leaf")
def test_a_leaf_that_takes_gradients_of_another_dtype_later_is_noticed():
    core.reset()
    w = leaf(3)

    def step(w, x):
        (w * x).sum().backward()
        return x + 1

    compiled = core.compile(step, backend="eager")
    compiled(w, torch.ones(3))
    w.grad = None
    w.grad_dtype = torch.float64
    compiled(w, torch.ones(3))
    assert w.grad.dtype is torch.float64
    assert (core.stats()["recompiles"], core.stats()["breaks"]) == (1, 1)


@pytest.mark.parametrize("reduced", ["min", "max", "median", "nanmedian"])
def test_gradients_are_laid_out_as_their_leaves_whatever_the_formula_does(reduced):
    def program(x):
        getattr(x, reduced)().backward()
        return x.grad

    fast = core.compile(program, backend="eager")
    for make in (lambda: torch.randn(4, 3, 2).permute(2, 1, 0), lambda: torch.randn(4, 6)[:, ::2]):
        start = make()
        grads = []
        for run in (program, fast):
            leaf = start.detach().requires_grad_()
            grads.append(run(leaf))
        assert torch.equal(*grads) and grads[0].stride() == grads[1].stride()
