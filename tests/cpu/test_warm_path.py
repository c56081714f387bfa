"""No Python file of core is entered by a warm call of a compiled graph, forward or backward."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import torch

import core

_SPEC = importlib.util.spec_from_file_location("backend_harness", Path(__file__).with_name("backend_harness.py"))
harness = sys.modules.setdefault("backend_harness", importlib.util.module_from_spec(_SPEC))
if not hasattr(harness, "compiled"):
    _SPEC.loader.exec_module(harness)
compiled, leaf = harness.compiled, harness.leaf

OURS = str(Path(core.__file__).parent)


def frames_of_ours(action):
    """(frames in files of core, frames in generated source) that `action` enters."""
    ours, generated = [], []

    def profile(frame, event, arg):
        filename = frame.f_code.co_filename
        if event == "call" and filename.startswith(OURS):
            ours.append(f"{filename}:{frame.f_code.co_name}")
        elif event == "call" and filename.startswith("<core generated"):
            generated.append(frame.f_code.co_name)

    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(None)
    return ours, generated


def settled(run, *inputs):
    """The callable that an owner holds after the first run."""
    run(*inputs)
    return run.holder[0]


def test_inference_without_epilogue_is_the_artifacts_own_call():
    x, w = torch.randn(4, 5), torch.randn(5, 3)
    call = settled(compiled(lambda x, w: (torch.relu(x @ w),), x, w), x, w)
    ours, generated = frames_of_ours(lambda: call(x, w))
    assert (ours, generated) == ([], [])
    assert call.__func__.__code__.co_filename.startswith("<eval_with_key>")


def test_eager_backend_is_the_captured_graphs_own_code():
    x = torch.randn(4, 5)
    run = compiled(lambda x: (torch.relu(x),), x, backend="eager")
    call = settled(run, x)
    assert call == run.captured.module.forward


def test_mutation_and_views_enter_one_generated_function():
    x = torch.randn(4, 5)

    def program(x):
        x.add_(1)
        return x.t(), x * 2

    call = settled(compiled(program, x), x)
    ours, generated = frames_of_ours(lambda: call(x))
    assert (ours, generated) == ([], ["compiled"])


def test_training_enters_one_generated_forward_and_one_generated_backward():
    x, w = leaf(4, 5), leaf(5, 3, seed=1)
    call = settled(compiled(lambda x, w: (torch.tanh(x @ w).sum(),), x, w), x, w)
    call(x, w)[0].backward()

    def step():
        call(x, w)[0].backward()

    ours, generated = frames_of_ours(step)
    assert (ours, generated) == ([], ["forward", "backward"])
    assert frames_of_ours(lambda: torch.autograd.grad(call(x, w)[0], (x, w))) == ([], ["forward", "backward"])


def test_training_with_buffers_and_expanded_gradients_stays_in_generated_source():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU())
    x = torch.randn(2, 3, 8, 8)
    run = compiled(lambda x: (net(x),), x)
    run(x)[0].sum().backward()
    call, inputs = run.holder[0], harness.replay.actual_inputs(run.captured, [x])

    def step():
        call(*inputs)[0].sum().backward()

    step()
    ours, generated = frames_of_ours(step)
    assert (ours, generated) == ([], ["compiled", "forward", "backward"])


def test_views_by_strides_stay_in_generated_source():
    x = torch.randn(4, 6)

    def program(x):
        return x.as_strided((2, 2), (6, 1), 3), x + 1

    call = settled(compiled(program, x[:, :]), x)
    ours, _ = frames_of_ours(lambda: call(x))
    assert ours == []
