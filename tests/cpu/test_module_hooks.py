"""Hooks of modules: those that are always called, those registered and removed by compiled code, those of backward."""

from __future__ import annotations

import copy

import pytest
import torch
from compare import same

import core

X = torch.arange(6.0).reshape(2, 3)


class Doubles(torch.nn.Module):
    def forward(self, x):
        return x * 2


class Raises(torch.nn.Module):
    def forward(self, x, factor=1):
        raise ValueError(f"no {factor}")


def agree(make, calls=2):
    """make() -> (function of a tensor, what else it leaves); eager and compiled on modules of their own."""
    seen = []
    for compiled in (False, True):
        torch.manual_seed(0)
        fn, left = make()
        core.reset()
        run = core.compile(fn, backend="eager") if compiled else fn
        results = []
        for _ in range(calls):
            x = X.clone().requires_grad_()
            result = run(x)
            if isinstance(result, torch.Tensor) and result.requires_grad:
                result.sum().backward()
            results.append([result.detach() if isinstance(result, torch.Tensor) else result, x.grad])
        seen.append([results, copy.deepcopy(left())])
    assert same(seen[0], seen[1]), seen
    return core.stats()


def one_that_raises(with_kwargs):
    module, log = Raises(), []
    hook = (lambda m, a, k, o: log.append((k, o))) if with_kwargs else (lambda m, a, o: log.append(o))
    module.register_forward_hook(hook, always_call=True, with_kwargs=with_kwargs)

    def fn(x):
        try:
            return module(x, factor=3)
        except ValueError:
            return x + 1

    return fn, lambda: log


def a_hook_before_it_that_raises():
    module, log = Doubles(), []

    def fails(m, a, o):
        raise KeyError("hook")

    module.register_forward_hook(fails)
    module.register_forward_hook(lambda m, a, o: log.append(o is None), always_call=True)

    def fn(x):
        try:
            return module(x)
        except KeyError as error:
            return str(error)

    return fn, lambda: log


def nothing_that_raises():
    module, log = Doubles(), []
    module.register_forward_hook(lambda m, a, o: (log.append(tuple(o.shape)), o + 1)[1], always_call=True)
    module.register_forward_hook(lambda m, a, o: o * 3)
    return module, lambda: log


@pytest.mark.parametrize(
    "make",
    [
        lambda: one_that_raises(False),
        lambda: one_that_raises(True),
        a_hook_before_it_that_raises,
        nothing_that_raises,
    ],
    ids=["forward_raises", "with_keywords", "a_hook_raises", "nothing_raises"],
)
def test_a_hook_that_is_always_called_is_called_once(make):
    stats = agree(make)
    assert (stats["breaks"], stats["graphs"]) == (0, 1)


def registered_and_removed():
    module = torch.nn.Linear(3, 3)

    def fn(x):
        handle = module.register_forward_hook(lambda m, a, o: o * 2)
        y = module(x)
        handle.remove()
        return y + module(x)

    return fn, lambda: len(module._forward_hooks)


def registered_for_a_region():
    module = torch.nn.Linear(3, 3)

    def fn(x):
        with module.register_forward_pre_hook(lambda m, a: (a[0] * 2,)):
            y = module(x)
        return y + module(x)

    return fn, lambda: len(module._forward_pre_hooks)


@pytest.mark.parametrize("make", [registered_and_removed, registered_for_a_region], ids=lambda make: make.__name__)
def test_a_hook_that_compiled_code_registers_and_removes_breaks_once(make):
    assert agree(make)["breaks"] == 1


def test_a_hook_that_removes_itself_is_part_of_the_graph():
    def make():
        module, box = torch.nn.Linear(3, 3), {}

        def hook(m, a, o):
            box["handle"].remove()
            return o * 3

        box["handle"] = module.register_forward_hook(hook)
        return (lambda x: module(x)), lambda: len(module._forward_hooks)

    stats = agree(make, calls=3)
    assert (stats["breaks"], stats["recompiles"]) == (0, 1)


def test_a_hook_of_the_backward_breaks_where_its_module_is_called():
    def make():
        module, log = torch.nn.Linear(3, 3), []
        module.register_full_backward_hook(lambda m, gi, go: log.append(go[0].sum().item()))
        return (lambda x: module(x).sum()), lambda: [log, module.weight.grad]

    assert agree(make)["breaks"] == 1
