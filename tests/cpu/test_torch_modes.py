"""Grad mode, inference mode, autocast, device contexts and function modes inside captured code."""

from __future__ import annotations

import pytest
import torch
import torch.nn as nn
from observed import BACKENDS, agrees
from torch.overrides import TorchFunctionMode

import core


def leaf(*shape):
    return torch.randn(*shape, requires_grad=True)


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


def test_grad_mode_as_context_as_decorator_and_as_a_call(backend):
    @torch.no_grad()
    def frozen(x):
        return x * 2

    def fn(x, flag):
        with torch.no_grad():
            a = x * 2
            with torch.enable_grad():
                b = x * 3
        with torch.set_grad_enabled(flag):
            c = x * 4
        torch.set_grad_enabled(False)
        d = x * 5
        torch.set_grad_enabled(True)
        return a, b, c, d, frozen(x), x + 1, torch.is_grad_enabled()

    agrees(lambda: (fn, (leaf(4), False)), backend)
    agrees(lambda: (frozen, (leaf(4),)), backend)


def test_inference_mode_is_part_of_the_graph(backend):
    def inside(x):
        with torch.inference_mode():
            y = x * 2
        return y + 1

    @torch.inference_mode()
    def decorated(x):
        return x * 2

    for fn in (inside, decorated, lambda x: (decorated(x), x + 1)):
        agrees(lambda fn=fn: (fn, (torch.randn(4),)), backend)


def test_autocast_as_context_and_as_decorator(backend):
    def build():
        module = nn.Linear(4, 4)

        @torch.autocast("cpu", dtype=torch.bfloat16)
        def decorated(x):
            return module(x)

        def fn(x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y = module(x)
                with torch.autocast("cpu", enabled=False):
                    z = module(x)
            return y.float() + z + decorated(x).float()

        return fn, (torch.randn(2, 4),), lambda: list(module.parameters())

    agrees(build, backend)


def test_a_device_context_breaks_the_graph(backend):
    def fn(x):
        with torch.device("meta"):
            y = torch.ones(3)
        return x + 1, y

    agrees(lambda: (fn, (torch.randn(3),)), backend, graphs=None, breaks=1)


def test_a_function_mode_sees_every_call(backend):
    def build():
        log = []

        class Logging(TorchFunctionMode):
            def __torch_function__(self, function, types, args=(), kwargs=None):
                log.append(function.__name__)
                return function(*args, **(kwargs or {}))

        def fn(x):
            with Logging():
                y = x * 2
            return y + 1

        return fn, (torch.randn(3),), lambda: list(log)

    agrees(build, backend, graphs=None, breaks=0)


def test_saved_tensor_hooks_run_as_in_eager(backend):
    def build():
        log = []

        def fn(x):
            hooks = torch.autograd.graph.saved_tensors_hooks(
                lambda t: (log.append("pack"), t)[1], lambda t: (log.append("unpack"), t)[1]
            )
            with hooks:
                return x.sin()

        return fn, (leaf(3),), lambda: list(log)

    assert agrees(build, backend, graphs=None, breaks=None)["breaks"] >= 1


def test_scripted_functions_are_called_and_what_torch_compile_made_is_traced():
    @torch.jit.script
    def scripted(x: torch.Tensor):
        if bool(x.sum() > 0):
            return x * 2
        return x * 3

    def build():
        compiled = torch.compile(lambda x: x.sin() * 2, backend="eager")
        return lambda x: compiled(x) + scripted(x) + 1, (torch.randn(3),)

    assert agrees(build, graphs=None, breaks=None)["breaks"] == 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_a_graph_that_raises_between_switches_leaves_grad_mode_and_autocast_as_they_were(backend):
    def fn(x, places):
        with torch.no_grad(), torch.autocast("cpu"):
            chosen = x[places]
        return chosen + x

    x = torch.arange(4.0, requires_grad=True)
    fast = core.compile(fn, backend=backend, fullgraph=True)
    fast(x, torch.tensor([0, 1, 2, 3]))
    with pytest.raises(IndexError):
        fast(x, torch.tensor([0, 1, 2, 9]))
    depth = torch.autocast_increment_nesting()
    torch.autocast_decrement_nesting()
    assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu") and depth == 1
