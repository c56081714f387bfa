"""Compiled functions that are called under saved-tensor hooks: torch's own pack what the graph saves."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import core
from core.events import FellBack, subscribe

BACKENDS = ("eager", "aot_eager", "inductor")


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


def block(dropout=0.0):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Dropout(dropout), nn.Linear(8, 4), nn.Tanh())


def gradients(call, module, size=3):
    """The result and the gradients of one step."""
    torch.manual_seed(1)
    x = torch.randn(size, 4, requires_grad=True)
    result = call(x)
    result.sum().backward()
    found = [result.detach(), x.grad, *(parameter.grad for parameter in module.parameters())]
    module.zero_grad()
    return found


@pytest.mark.parametrize("early_stop", (True, False))
def test_a_compiled_module_is_checkpointed(backend, early_stop):
    module = block()
    compiled = core.compile(module, backend=backend)
    how = {"use_reentrant": False, "early_stop": early_stop}
    for _ in range(3):
        ours = gradients(lambda x: checkpoint(compiled, x, **how), module)
        torch.testing.assert_close(ours, gradients(lambda x: checkpoint(module, x, **how), module))
    assert core.stats()["graphs"] == 1
    assert core.stats()["recompiles"] == 0


@pytest.mark.parametrize("backend", ("eager", "aot_eager"))
def test_random_numbers_are_drawn_again_as_they_were(backend):
    module = block(0.5)
    compiled = core.compile(module, backend=backend)
    ours = gradients(lambda x: checkpoint(compiled, x, use_reentrant=False), module)
    torch.testing.assert_close(ours, gradients(lambda x: checkpoint(module, x, use_reentrant=False), module))
    assert core.stats()["graphs"] == 1


def test_a_checkpointed_graph_keeps_nothing_but_its_inputs():
    module = block()
    compiled = core.compile(module, backend="aot_eager")

    x = torch.randn(3, 4, requires_grad=True)
    checkpoint(compiled, x, use_reentrant=False).sum().backward()
    inside = []

    def watched(x):
        result = compiled(x)
        inside.append(result.grad_fn)
        return result

    result = checkpoint(watched, x, use_reentrant=False)
    kept = [raw for raw in inside[0]._raw_saved_tensors if isinstance(getattr(raw, "data", None), torch.Tensor)]
    assert inside[0]._raw_saved_tensors
    assert kept == []
    result.sum().backward()


def test_a_break_under_a_checkpoint(backend):
    module = block()

    def program(x):
        y = module(x)
        print(end="")
        return y.sin() * y

    compiled = core.compile(program, backend=backend)
    ours = gradients(lambda x: checkpoint(compiled, x, use_reentrant=False), module)
    torch.testing.assert_close(ours, gradients(program, module))
    assert core.stats()["graphs"] == 2
    assert core.stats()["breaks"] == 1


def test_a_checkpoint_inside_of_one(backend):
    module = block()

    def program(x):
        return checkpoint(module, x, use_reentrant=False).sin()

    compiled = core.compile(program, backend=backend, fullgraph=True)
    ours = gradients(lambda x: checkpoint(compiled, x, use_reentrant=False), module)
    torch.testing.assert_close(ours, gradients(program, module))
    assert core.stats()["graphs"] == 1


def test_what_a_graph_saves_goes_to_the_cpu(backend):
    module = block()
    compiled = core.compile(module, backend=backend)

    def saving(call):
        def run(x):
            with torch.autograd.graph.save_on_cpu():
                return call(x)

        return run

    for _ in range(2):
        torch.testing.assert_close(gradients(saving(compiled), module), gradients(saving(module), module))
    assert core.stats()["graphs"] == 1


def test_with_hooks_of_the_program_a_call_runs_as_written():
    module = block()
    compiled = core.compile(module, backend="aot_eager")
    counts = []

    def counted(call):
        def run(x):
            packed = []
            with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(1) or t * 2, lambda t: t):
                result = call(x)
            counts.append(len(packed))
            return result

        return run

    reasons = []
    unsubscribe = subscribe(lambda event: reasons.append(event.reason) if isinstance(event, FellBack) else None)
    try:
        with torch.autograd.graph.save_on_cpu():  # the innermost hooks are the ones that autograd asks
            ours = gradients(counted(compiled), module)
    finally:
        unsubscribe()
    torch.testing.assert_close(ours, gradients(counted(module), module))
    assert counts[0] == counts[1]
    assert reasons == ["a saved-tensor hook is active"]
    gradients(compiled, module)
    with torch.autograd.graph.save_on_cpu():
        gradients(compiled, module)
    assert core.stats()["graphs"] == 2
    torch.testing.assert_close(gradients(counted(compiled), module), ours)
    assert core.stats()["graphs"] == 2


def test_the_fastest_backend_is_not_searched_for_under_hooks():
    module = block()
    compiled = core.compile(module, backend="auto")
    for _ in range(3):
        ours = gradients(lambda x: checkpoint(compiled, x, use_reentrant=False), module)
        torch.testing.assert_close(ours, gradients(module, module))
    assert core.stats()["graphs"] == 1
