"""Random view and in-place programs give eager's values, aliasing, mutations and gradients, or are refused."""

from __future__ import annotations

import contextlib
import os
from collections import Counter

import graph_fuzz as fuzz
import graph_replay as replay
import pytest
import torch

from core.errors import RecorderRefused, Unsupported
from core.graph.finish import functional_graph
from core.graph.joint import joint_graph

REASONS = Counter()
COUNT = int(os.environ.get("CORE_FUZZ_PROGRAMS", "300"))


@contextlib.contextmanager
def traced_no_grad(builder):
    before = builder.set_grad_enabled(False)
    yield
    builder.set_grad_enabled(before)


def trace(program, inputs):
    def run(*traced):
        return program(lambda: traced_no_grad(traced[0].builder), *traced)

    return replay.capture(run, inputs)


def partners(tensors):
    """Which of the tensors share memory."""
    pointers = [tensor.untyped_storage().data_ptr() for tensor in tensors]
    return [[left == right for right in pointers] for left in pointers]


def geometry(tensor):
    return tuple(tensor.shape), tuple(step for step, size in zip(tensor.stride(), tensor.shape) if size != 1)


def gradients(leaves, tensors):
    terms = [(tensor * (at + 1.5)).cos().sum() for at, tensor in enumerate(tensors) if tensor.requires_grad]
    if not terms or not leaves:
        return []
    return torch.autograd.grad(sum(terms), leaves, allow_unused=True)


def outcome(seed):
    """ "equal", "eager error", "refused" or "broken"; an AssertionError for a wrong result."""
    program, kinds = fuzz.make_program(seed)
    leaves, inputs = fuzz.make_inputs(seed, kinds)
    try:
        expected = program(torch.no_grad, *inputs)
        expected_grads = gradients(leaves, [*expected, *(item for item in inputs if not item.is_leaf)])
    except (RuntimeError, IndexError, TypeError) as error:
        return _check_error(seed, program, kinds, error)
    own_leaves, own = fuzz.make_inputs(seed, kinds)
    before = [item.detach().clone() for item in own]
    try:
        captured = trace(program, own)
        assert all(torch.equal(left, right) for left, right in zip(before, own)), "capture changed a real tensor"
        graph = joint_graph(captured) if captured.needs_grad else functional_graph(captured)
    except RecorderRefused as error:
        REASONS[error.what] += 1
        return "refused"
    except Unsupported as error:
        REASONS[error.what] += 1
        return "broken"
    arguments = replay.actual_inputs(captured, own)
    found = replay.run_joint(graph, arguments) if captured.needs_grad else replay.run_functional(graph, arguments)
    for left, right in zip(expected, found):
        torch.testing.assert_close(right.detach(), left.detach(), equal_nan=True)
        assert geometry(left) == geometry(right)
        assert left.requires_grad == right.requires_grad
    for left, right in zip(inputs, own):
        torch.testing.assert_close(right.detach(), left.detach(), equal_nan=True)
    assert partners([*expected, *inputs]) == partners([*found, *own])
    assert [left is right for left in expected for right in [*expected, *inputs]] == [
        left is right for left in found for right in [*found, *own]
    ]
    found_grads = gradients(own_leaves, [*found, *(item for item in own if not item.is_leaf)])
    assert len(found_grads) == len(expected_grads)
    for left, right in zip(expected_grads, found_grads):
        # a gradient that is all zeros may be absent: both mean that the leaf has no part in the result
        left = torch.zeros(()) if left is None else left
        right = torch.zeros(()) if right is None else right
        torch.testing.assert_close(*torch.broadcast_tensors(right, left), equal_nan=True)
    return "equal"


def _check_error(seed, program, kinds, error):
    """What eager refuses must not be captured into something that works, unless the fault is in the backward."""
    _, own = fuzz.make_inputs(seed, kinds)
    try:
        captured = trace(program, own)
        if captured.needs_grad:
            joint_graph(captured)
    except (Unsupported, RecorderRefused):
        return "eager error"
    except Exception as found:  # the program's own exception: same class and text as eager's
        assert type(found) is type(error), (found, error)
        assert str(found) == str(error)
    return "eager error"


def test_random_view_programs_equal_eager_or_are_refused():
    counts = Counter()
    for seed in range(COUNT):
        try:
            counts[outcome(seed)] += 1
        except AssertionError as error:
            pytest.fail(f"seed {seed}: {error}")
    assert counts["equal"] > COUNT * 0.4
    assert counts["refused"] + counts["broken"] < COUNT * 0.06
