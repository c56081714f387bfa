"""Results that others are made of, where ways lead around them: hooks and gradients there are eager's."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import core
from core.events import ArtifactBuilt, subscribe

BACKENDS = ("aot_eager", "inductor")


class Block(nn.Module):
    """A block of a transformer that gives its weights of attention back."""

    def __init__(self, size=8):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(size, size) for _ in range(3))
        self.after = nn.Sequential(nn.LayerNorm(size), nn.Linear(size, size), nn.GELU())

    def forward(self, x):
        weights = (self.query(x) @ self.key(x).transpose(-2, -1)).softmax(-1)
        x = x + weights @ self.value(x)
        return x + self.after(x), weights


class Net(nn.Module):
    def __init__(self, blocks=2):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(blocks))

    def forward(self, x):
        x, weights = x * 2, []
        for block in self.blocks:
            x, found = block(x)
            weights.append(found)
        return x.square().mean(), *weights


def agree(caller, module=None, backend="aot_eager", graphs=1):
    """What `caller(call, x)` gives, compiled and in eager."""
    torch.manual_seed(0)
    module = module or Net()
    found = []
    for call in (core.compile(module, backend=backend), module):
        torch.manual_seed(1)
        x = torch.randn(3, 4, 8, requires_grad=True)
        module.zero_grad()
        found.append([*caller(call, x), x.grad, *(parameter.grad for parameter in module.parameters())])
    torch.testing.assert_close(*found)
    assert core.stats()["graphs"] == graphs
    assert core.stats()["breaks"] == 0
    return found[1]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_gradient_with_respect_to_weights_of_attention(backend):
    def caller(call, x):
        for _ in range(2):
            loss, *weights = call(x)
            found = torch.autograd.grad(loss, [*weights, x])
        return found

    found = agree(caller, backend=backend)
    assert all(gradient.abs().sum() > 0 for gradient in found[:3])


@pytest.mark.parametrize("backend", BACKENDS)
def test_hooks_and_kept_gradients_of_weights_of_attention(backend):
    def caller(call, x):
        seen = []
        for _ in range(2):
            loss, first, second = call(x)
            first.retain_grad()
            second.register_hook(lambda gradient: seen.append(gradient) or gradient * 2)
            (loss + first.square().sum()).backward()
        return [*seen, first.grad]

    assert len(agree(caller, backend=backend)) > 3


def test_gradients_of_gradients_go_around_too():
    def caller(call, x):
        loss, first, second = call(x)
        found = torch.autograd.grad(loss, [first, second, x], create_graph=True)
        sum(gradient.square().sum() for gradient in found).backward()
        return [gradient.detach() for gradient in found]

    agree(caller)


def test_a_backward_through_one_of_them_goes_on_from_there():
    def caller(call, x):
        loss, first, second = call(x)
        found = [*torch.autograd.grad(second.square().sum(), [first, x], retain_graph=True)]
        found += torch.autograd.grad(first.square().sum(), [x], retain_graph=True)
        found += torch.autograd.grad(loss, [second], retain_graph=True)
        loss.backward()
        return found

    agree(caller)


def test_a_way_around_that_ends_in_several_places():
    def program(x):
        a = x.sin()
        b = a.exp()
        c = (b * a).cos()
        d = c * b + a
        return d.sum(), c, b

    def caller(call, x):
        total, c, b = call(x)
        found = torch.autograd.grad(total, [c, b, x], retain_graph=True)
        found += torch.autograd.grad(c.sum(), [b, x], retain_graph=True)
        total.backward()
        return found

    torch.manual_seed(0)
    agree(caller, module=_module(program))


def _module(program):
    class Program(nn.Module):
        def forward(self, x):
            return program(x)

    return Program()


def test_each_part_is_compiled_once():
    modes = []
    unsubscribe = subscribe(lambda event: modes.append(event.mode) if isinstance(event, ArtifactBuilt) else None)
    try:
        call = core.compile(Net(1), backend="aot_eager")
        for _ in range(3):
            loss, weights = call(torch.randn(3, 4, 8, requires_grad=True))
            loss.backward()
    finally:
        unsubscribe()
    assert modes.count("forward") == 1
    assert modes.count("backward") == 3


@pytest.mark.parametrize("backend", BACKENDS)
def test_weights_of_attention_whose_sizes_are_symbols(backend):
    module = Net(1)
    call = core.compile(module, backend=backend, dynamic=True)
    for size in (4, 5):
        x = torch.randn(3, size, 8, requires_grad=True)
        found = []
        for run in (call, module):
            loss, *weights = run(x)
            first = torch.autograd.grad(loss, [*weights, x], create_graph=True)
            second = torch.autograd.grad(sum(each.square().sum() for each in first), x, retain_graph=True)
            found.append([first, second, torch.autograd.grad(loss, weights)])
        torch.testing.assert_close(*found)
    assert core.stats()["graphs"] == 1


def test_what_is_freed_on_one_way_is_gone_for_the_other():
    def program(x):
        a = x * 3
        b = a.exp()
        return (b.sin() + a * 2).sum(), b, x.cos().sum()

    def caller(call, x):
        total, b, apart = call(x)
        b.sum().backward()
        with pytest.raises(RuntimeError, match="second time"):
            total.backward()
        apart.backward()
        return []

    agree(caller, module=_module(program))


def test_results_that_lead_to_each_other():
    def program(x):
        a = x.abs()
        b = a * a
        c = b.clone()
        return (c + a).sum(), b, c

    def caller(call, x):
        total, b, c = call(x)
        found = torch.autograd.grad(c.sum(), [b, x], retain_graph=True)
        found += torch.autograd.grad(total, [b, c, x], retain_graph=True)
        total.backward()
        return found

    agree(caller, module=_module(program))
