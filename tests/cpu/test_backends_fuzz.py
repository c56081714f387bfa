"""Random view and in-place programs, compiled by `aot_eager`, equal eager on the first call and on later ones."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch


def _sibling(name):
    """A module beside this file: the import mode of the tests puts no folder on sys.path."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


fuzz = _sibling("graph_fuzz")
replay = _sibling("graph_replay")

from core.backends.compile_graph import compile_graph  # noqa: E402
from core.errors import NotTwiceDifferentiable, RecorderRefused, Unsupported  # noqa: E402
from core.options import CompileOptions  # noqa: E402

COUNT = int(os.environ.get("CORE_FUZZ_PROGRAMS", "200"))


@contextlib.contextmanager
def traced_no_grad(builder):
    before = builder.set_grad_enabled(False)
    yield
    builder.set_grad_enabled(before)


def compiled_program(program, inputs):
    captured = replay.capture(lambda *traced: program(lambda: traced_no_grad(traced[0].builder), *traced), inputs)
    call = compile_graph(captured, "aot_eager", CompileOptions())
    return lambda *values: call(*replay.actual_inputs(captured, values))


def shared_memory(tensors):
    pointers = [tensor.untyped_storage().data_ptr() for tensor in tensors]
    return [[left == right for right in pointers] for left in pointers]


def geometry(tensor):
    return tuple(tensor.shape), tuple(step for step, size in zip(tensor.stride(), tensor.shape) if size != 1)


def scalar(tensors):
    terms = [(tensor * (at + 1.5)).cos().sum() for at, tensor in enumerate(tensors) if tensor.requires_grad]
    return sum(terms) if terms else None


def gradients(leaves, tensors, *, create_graph=False):
    total = scalar(tensors)
    if total is None or not leaves:
        return []
    return torch.autograd.grad(total, leaves, allow_unused=True, create_graph=create_graph)


def second_gradients(leaves, tensors):
    first = gradients(leaves, tensors, create_graph=True)
    return list(first), gradients(leaves, [gradient for gradient in first if gradient is not None])


def assert_same_gradients(expected, found):
    for left, right in zip(expected, found, strict=True):
        # an absent gradient and zeros both mean that the leaf has no part in the result
        left = torch.zeros(()) if left is None else left
        right = torch.zeros(()) if right is None else right
        right, left = torch.broadcast_tensors(right, left)
        scale = float(left.detach().nan_to_num(0, 0, 0).abs().max()) if left.numel() else 0.0
        torch.testing.assert_close(right, left, equal_nan=True, rtol=1e-5, atol=1e-5 * max(scale, 1.0))


def live(inputs):
    return [item for item in inputs if not item.is_leaf]


def compare_call(call, program, seed, kinds):
    leaves, inputs = fuzz.make_inputs(seed, kinds)
    expected = program(torch.no_grad, *inputs)
    own_leaves, own = fuzz.make_inputs(seed, kinds)
    found = call(*own)
    assert type(found) is tuple
    for left, right in zip(expected, found, strict=True):
        torch.testing.assert_close(right.detach(), left.detach(), equal_nan=True)
        assert geometry(left) == geometry(right)
        assert left.requires_grad == right.requires_grad
    for left, right in zip(inputs, own, strict=True):
        torch.testing.assert_close(right.detach(), left.detach(), equal_nan=True)
    assert shared_memory([*expected, *inputs]) == shared_memory([*found, *own])
    identity = [
        [left is right for right in [*results, *args]]
        for results, args in ((expected, inputs), (found, own))
        for left in results
    ]
    assert identity[: len(expected)] == identity[len(expected) :]
    assert_same_gradients(gradients(leaves, [*expected, *live(inputs)]), gradients(own_leaves, [*found, *live(own)]))


def compare_second_order(call, program, seed, kinds):
    """The same second gradients, or the error that says why not."""
    leaves, inputs = fuzz.make_inputs(seed, kinds)
    expected = second_gradients(leaves, [*program(torch.no_grad, *inputs), *live(inputs)])
    own_leaves, own = fuzz.make_inputs(seed, kinds)
    try:
        found = second_gradients(own_leaves, [*call(*own), *live(own)])
    except NotTwiceDifferentiable:
        return "once"
    for left, right in zip(expected, found, strict=True):
        assert_same_gradients(left, right)
    return "twice"


def outcomes(seed):
    program, kinds = fuzz.make_program(seed)
    leaves, inputs = fuzz.make_inputs(seed, kinds)
    try:
        gradients(leaves, [*program(torch.no_grad, *inputs), *live(inputs)])
    except (RuntimeError, IndexError, TypeError):
        return ["eager error"]
    _, own = fuzz.make_inputs(seed, kinds)
    try:
        call = compiled_program(program, own)
    except (RecorderRefused, Unsupported):
        return ["refused"]
    for _ in range(3):
        compare_call(call, program, seed, kinds)
    return ["equal", compare_second_order(call, program, seed, kinds)]


def test_random_programs_equal_eager_on_every_call(monkeypatch):
    monkeypatch.setenv("CORE_STRICT", "1")  # a refusal is counted, not sent to the fallback
    counts = Counter()
    for seed in range(COUNT):
        try:
            counts.update(outcomes(seed))
        except AssertionError as error:
            pytest.fail(f"seed {seed}: {error}")
    assert counts["equal"] > COUNT * 0.4
    assert counts["twice"] > counts["once"]
