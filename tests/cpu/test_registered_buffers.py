"""Registered buffers are weights for a backend, whatever their class; those the graph writes to are no constants."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import core
from core.plugin import Artifact

_SPEC = importlib.util.spec_from_file_location("partial_backends", Path(__file__).with_name("partial_backends.py"))
partial = sys.modules.setdefault("partial_backends", importlib.util.module_from_spec(_SPEC))
if not hasattr(partial, "Taking"):
    _SPEC.loader.exec_module(partial)

OPERATORS = ("convolution", "native_batch_norm", "_native_batch_norm_legit_functional", "add", "mul", "sub", "view")


class Baking(partial.Taking):
    """Computes with copies of the constants, made when it compiled."""

    def compile(self, graph, fake_inputs, ctx):
        calls = [node.target for node in graph.graph.nodes if node.op == "call_function"]
        names = [target._schema.name.partition("::")[2] for target in calls if hasattr(target, "_schema")]
        self.compiled.append((ctx.name, names))
        self.contexts.append(ctx)
        baked = {at: value.detach().clone() for at, value in ctx.constants.items()}
        return Artifact(lambda *inputs: graph.forward(*(baked.get(at, value) for at, value in enumerate(inputs))))


@pytest.fixture
def model():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    module[1].running_mean.normal_()
    module[1].running_var.uniform_(0.5, 2)
    return module.eval()


def frozen(module, backend, **options):
    return core.compile(module, backend=backend, fallback="eager", freeze=True, fullgraph=True, **options)


@torch.no_grad()
def test_running_statistics_are_constants_and_their_change_is_seen(model):
    backend = Baking(*OPERATORS)
    run = frozen(model, backend)
    x = torch.randn(2, 3, 6, 6)
    torch.testing.assert_close(run(x), model(x))
    held = backend.contexts[0].constants.values()
    assert {id(value) for value in held} == {id(value) for value in (*model.parameters(), *model.buffers())} - {
        id(model[1].num_batches_tracked)
    }
    assert len(backend.contexts[0].parameters) == 6
    model[1].running_mean.add_(1)
    torch.testing.assert_close(run(x), model(x))
    model.load_state_dict({name: value * 2 for name, value in model.state_dict().items()})
    torch.testing.assert_close(run(x), model(x))
    assert len(backend.contexts) == 3


@torch.no_grad()
def test_a_region_of_the_partition_gets_the_running_statistics(model):
    backend = Baking("native_batch_norm")
    run = frozen(model, backend)
    x = torch.randn(8, 3, 40, 40)  # worth a region of its own
    torch.testing.assert_close(run(x), model(x))
    assert [operators[0] for _, operators in backend.compiled] == ["native_batch_norm"]
    assert len(backend.contexts[0].constants) == len(backend.contexts[0].parameters) == 4


@torch.no_grad()
def test_statistics_of_the_training_mode_are_weights_but_no_constants(model):
    model.train()
    theirs = torch.nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    theirs.load_state_dict(model.state_dict())
    backend = Baking(*OPERATORS)
    run = frozen(model, backend)
    for _ in range(4):
        x = torch.randn(2, 3, 6, 6)
        torch.testing.assert_close(run(x), theirs(x))
    torch.testing.assert_close(model.state_dict(), theirs.state_dict())
    assert len(backend.contexts) == 1
    buffers = {id(value) for value in model.buffers()}
    assert not buffers & {id(value) for value in backend.contexts[0].constants.values()}
    assert len(backend.contexts[0].constants) == 4 and len(backend.contexts[0].parameters) == 7
    model.eval(), theirs.eval()
    torch.testing.assert_close(run(x), theirs(x))
    assert len(backend.contexts[1].constants) == 6


@torch.no_grad()
def test_a_buffer_that_is_replaced_again_and_again_is_loaded_on_each_call():
    module = nn.Module()
    module.register_buffer("shift", torch.ones(3))
    module.forward = lambda x: x + module.shift
    backend = Baking(*OPERATORS)
    run = frozen(module, backend)
    x = torch.randn(3)
    for turn in range(5):
        module.shift = torch.full((3,), float(turn))
        torch.testing.assert_close(run(x), x + turn)
    assert len(backend.contexts) == 2
    assert not backend.contexts[1].constants and len(backend.contexts[1].parameters) == 1


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_unfrozen_buffers_are_among_the_weights_of_each_graph(mode, model):
    backend = Baking(*OPERATORS, "native_batch_norm_backward", "convolution_backward")
    run = core.compile(model, backend=backend, fallback="eager", fullgraph=True)
    x = torch.randn(2, 3, 6, 6)
    with torch.set_grad_enabled(mode == "training"):
        result, expected = run(x), model(x)
    torch.testing.assert_close(result, expected)
    assert len(backend.contexts[0].parameters) == 6 and not backend.contexts[0].constants
    if mode == "training":
        wanted = list(model.parameters())
        torch.testing.assert_close(
            torch.autograd.grad(result.sum(), wanted),
            torch.autograd.grad(expected.sum(), wanted),
            rtol=1e-4,
            atol=1e-5,
        )
        assert len(backend.contexts[1].parameters) >= 4


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("kind", ["registered", "class"])
def test_a_buffer_written_to_before_the_backward_does_not_disturb_gradients(kind, backend):
    """Eager keeps the factor that was computed from the buffer, so the buffer may change."""
    module = nn.Module()
    average = torch.rand(64, 1) + 1
    module.register_buffer("average", average if kind == "registered" else nn.Buffer(average))
    module.forward = lambda x: x * module.average.sqrt().exp()
    run = core.compile(module, backend=backend, fullgraph=True)
    x = torch.randn(64, 16, requires_grad=True)
    for _ in range(2):
        expected = module.average.sqrt().exp().expand(64, 16).clone()
        y = run(x)
        module.average.mul_(0.9)
        torch.testing.assert_close(torch.autograd.grad(y.sum(), x)[0], expected)
