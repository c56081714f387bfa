"""Training inside captured code: gradients, optimizers, hooks on gradients."""

from __future__ import annotations

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from observed import BACKENDS, agrees

grad = torch.autograd.grad


def leaf(*shape):
    return torch.randn(*shape, requires_grad=True)


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


@pytest.mark.parametrize(
    "name, options",
    [("SGD", {"lr": 0.1, "momentum": 0.9}), ("AdamW", {"lr": 0.1}), ("RMSprop", {}), ("Adagrad", {})],
)
def test_a_training_step_is_one_graph(name, options, backend):
    def build():
        module = nn.Linear(4, 3)
        optimizer = getattr(torch.optim, name)(module.parameters(), **options)

        def step(x):
            loss = module(x).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.detach()

        state = lambda: (list(module.parameters()), [dict(s) for s in optimizer.state.values()])  # noqa: E731
        return step, (torch.randn(5, 4),), state

    assert agrees(build, backend, graphs=None)["graphs"] <= 2  # the first makes gradients and state


def test_a_step_with_scaler_and_scheduler():
    def build():
        module = nn.Linear(4, 4)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        scaler = torch.amp.GradScaler("cpu")

        def step(x):
            loss = module(x).pow(2).mean()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            scheduler.step()
            return loss.detach()

        return (
            step,
            (torch.randn(2, 4),),
            lambda: (list(module.parameters()), scaler.get_scale(), scheduler.get_last_lr()),
        )

    agrees(build, graphs=None, breaks=None)


def test_zero_grad_and_grads_that_are_read_and_assigned(backend):
    def zeroed():
        module = nn.Linear(4, 1)

        def fn(x):
            module.zero_grad()
            return module(x).sum()

        return fn, (torch.randn(5, 4),), lambda: list(module.parameters())

    def assigned():
        w = leaf(3)

        def fn(x):
            w.grad = x * 2
            return w.grad + 1

        return fn, (torch.randn(3),), lambda: w.grad

    def by_hand():
        w = leaf(4)

        def fn(x):
            (loss := (w * x).sum()).backward()
            with torch.no_grad():
                w.sub_(w.grad * 0.1)
            w.grad = None
            return loss.detach()

        return fn, (torch.randn(4),), lambda: w

    agrees(zeroed, backend, graphs=2)  # once without and once with gradients
    agrees(assigned, backend)
    agrees(by_hand, backend, graphs=1)


def test_clipping_gradients_is_traced(backend):
    def build():
        module = nn.Linear(4, 3)
        for parameter in module.parameters():
            parameter.grad = torch.ones_like(parameter) * 7

        def fn():
            nn.utils.clip_grad_value_(module.parameters(), 5.0)
            return nn.utils.clip_grad_norm_(module.parameters(), 1.0)

        return fn, (), lambda: list(module.parameters())

    agrees(build, backend)


GRADIENTS = {
    "of an input": lambda: (lambda x: grad((x**3).sum(), x)[0], (leaf(4),)),
    "with a graph of its own": lambda: (lambda x: grad((x**3).sum(), x, create_graph=True)[0].sum(), (leaf(4),)),
    "with incoming gradients": lambda: (lambda x, v: grad(x**2, x, grad_outputs=v)[0], (leaf(4), torch.randn(4))),
    "with an unused input": lambda: (
        lambda x, y: grad((x**2).sum(), [x, y], allow_unused=True),
        (leaf(4), leaf(4)),
    ),
    "of dropout": lambda: (lambda x: grad(F.dropout(x).sum(), x)[0] + torch.rand(4), (leaf(4),)),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_autograd_grad(name, backend):
    agrees(GRADIENTS[name], backend)


def test_a_gradient_penalty(backend):
    def build():
        module = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))

        def fn(x):
            x = x.detach().requires_grad_()
            out = module(x).sum()
            (slope,) = grad(out, x, create_graph=True)
            return out + slope.pow(2).sum()

        return fn, (torch.randn(3, 4),), lambda: list(module.parameters())

    agrees(build, backend)


def test_autograd_grad_through_history_or_hooks_outside_breaks_the_graph(backend):
    def outside(x):
        y = x.exp()
        y.tolist()
        return grad((y * 2).sum(), y)[0] + y

    def hooked_later():
        x = leaf(4)
        calls = []

        def observe():
            calls.append(1)
            if len(calls) == 1:
                x.register_hook(lambda g: g * 3)

        return lambda x: grad((x**2).sum(), x)[0], (x,), observe

    agrees(lambda: (outside, (leaf(4),)), backend, graphs=3, breaks=2)
    agrees(hooked_later, backend, graphs=None, breaks=1)


def test_hooks_on_tensors_run_as_in_eager(backend):
    def inside():
        log = []

        def fn(x):
            y = x * 2
            y.register_hook(lambda g: log.append(1) or g * 3)
            y.retain_grad()
            return y.sin()

        return fn, (leaf(3),), lambda: list(log)

    def before():
        log = []
        x = leaf(3)
        x.register_hook(lambda g: log.append(1) or g * 2)
        x.register_post_accumulate_grad_hook(lambda p: log.append(p.grad.clone()))
        return lambda x: x.sin(), (x,), lambda: list(log)

    assert agrees(inside, backend, graphs=None, breaks=None)["breaks"] >= 2
    agrees(before, backend)


def test_hooks_on_modules_run_as_in_eager(backend):
    def forward_hooks():
        log = []
        module = nn.Linear(3, 3)
        module.register_forward_hook(lambda m, i, o: log.append(1) or o * 2)
        module.register_forward_pre_hook(lambda m, i: (i[0] + 1,))
        return lambda x: module(x), (torch.randn(2, 3),), lambda: (list(log), list(module.parameters()))

    def backward_hooks():
        log = []
        module = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
        module[0].register_full_backward_hook(lambda m, gi, go: log.append(go[0].sum().item()))
        module[2].register_full_backward_pre_hook(lambda m, go: (go[0] * 2,))
        return lambda x: module(x) * 2, (leaf(2, 3),), lambda: (list(log), list(module.parameters()))

    agrees(forward_hooks, backend)
    agrees(backward_hooks, backend, graphs=None, breaks=None)


def test_sparse_gradients(backend):
    def build():
        module = nn.Embedding(10, 3, sparse=True)
        return module.forward, (torch.randint(0, 10, (2, 4)),), lambda: list(module.parameters())

    agrees(build, backend, strict=False)


def test_forward_mode_differentiation_is_left_to_eager(backend):
    import torch.autograd.forward_ad as forward_ad

    def fn(x):
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(forward_ad.make_dual(x, torch.ones_like(x)).sin()).tangent

    agrees(lambda: (fn, (torch.randn(3),)), backend, graphs=None, breaks=None)
