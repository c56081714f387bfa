"""Errors that dtypes and shapes alone decide, and that only the real kernel raises: the capture raises them itself."""

from __future__ import annotations

import pytest
import torch

import core
import core.events

F = torch.nn.functional
TRUTHS = torch.tensor([True, False])
INTS = torch.arange(4)
BACKENDS = pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])

CALLS = {
    "a dtype without a kernel": (lambda x: x.abs(), TRUTHS),
    "a function without a kernel": (F.softplus, INTS),
    "a write without a kernel": (lambda x: x.clone().cumprod_(0), TRUTHS),
    "two dtypes that must be one": (lambda x: x.view(2, 2) @ x.view(2, 2).float(), INTS),
    "the largest of no elements": (lambda x: x.max(), torch.empty(0)),
    "floats where bits are wanted": (lambda x: x & 1, torch.ones(2)),
    "a division by the number zero": (lambda x: x // 0, INTS),
}


def outcome(fn, x, log):
    try:
        return fn(x, log)
    except Exception as error:  # noqa: BLE001  compared with eager's
        return type(error), str(error)


def program(operation, reads):
    def fn(x, log):
        log.append("before")
        y = x.clone()
        y.add_(y)
        x.copy_(x.clone())  # a write that the caller sees, before the error
        try:
            z = operation(x)
        except (RuntimeError, IndexError) as error:
            log.append(type(error).__name__)
            return y, str(error)
        log.append("behind")
        return (y, z) if reads else (y, None)

    return fn


@BACKENDS
@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.parametrize("name", CALLS)
def test_the_program_handles_it_in_one_graph_that_does_not_raise(name, reads, backend):
    operation, x = CALLS[name]
    fn = program(operation, reads)
    again = []
    stop = core.events.subscribe(lambda event: again.append(event) if isinstance(event, core.events.FellBack) else None)
    try:
        core.reset()
        fast = core.compile(fn, backend=backend)
        for _ in range(2):
            logs = [], []
            want, got = outcome(fn, x.clone(), logs[0]), outcome(fast, x.clone(), logs[1])
            assert torch.equal(got[0], want[0]) and got[1] == want[1] and want[1]
            assert logs[0] == logs[1] == ["before", logs[0][1]] and logs[0][1].endswith("Error")
    finally:
        stop()
    stats = core.stats()
    assert (stats["graphs"], stats["breaks"], stats["recompiles"]) == (1, 0, 0) and not again


@BACKENDS
def test_unhandled_it_leaves_the_function_under_fullgraph(backend):
    def fn(x, log):
        return x.abs() + 1

    fast = core.compile(fn, backend=backend, fullgraph=True)
    assert outcome(fast, TRUTHS, []) == outcome(fn, TRUTHS, [])


def test_another_dtype_is_another_case():
    def fn(x, log):
        try:
            return x.abs()
        except NotImplementedError:
            return x

    fast = core.compile(fn, backend="eager")
    for x in (TRUTHS, -INTS, TRUTHS, -INTS):
        assert torch.equal(fast(x, []), fn(x, []))
    assert core.stats()["recompiles"] == 1


def test_the_real_kernel_is_asked_once_for_a_kind_of_operands():
    from core.graph import absent_kernels

    op = torch.ops.aten.bitwise_xor.Tensor
    before = {key for key in absent_kernels._fine if key[0] is op}
    for size in (3, 4, 5):
        core.reset()
        core.compile(lambda x: x ^ x, backend="eager", dynamic=False)(torch.ones(size, 2, 1, dtype=torch.int16))
    asked = {key for key in absent_kernels._fine if key[0] is op} - before
    assert len(asked) == 1


def test_large_operands_are_not_tried_and_the_function_runs_again_as_written():
    def fn(x, log):
        try:
            return x.abs()
        except NotImplementedError:
            return ~x

    x = torch.zeros(1 << 17, dtype=torch.bool)
    core.reset()
    fast = core.compile(fn, backend="eager")
    assert torch.equal(fast(x, []), fn(x, []))
    assert core.stats()["graphs"] == 1


def test_random_numbers_are_as_they_would_be_without_the_trial():
    def fn(x, log):
        return torch.randint_like(x, 10) + torch.rand(3)[0]

    results = []
    for run in (fn, core.compile(fn, backend="eager")):
        torch.manual_seed(3)
        results.append(run(torch.zeros(5, dtype=torch.int32), []))
    assert torch.equal(*results)


@BACKENDS
@pytest.mark.parametrize("reads", [True, False])
def test_a_product_that_nobody_handles_raises_when_the_graph_runs(reads, backend):
    def fn(x, log):
        log.append("before")
        y = x.view(2, 2) @ x.view(2, 2).float()
        log.append("behind")
        return y if reads else x + 1

    core.reset()
    fast = core.compile(fn, backend=backend)
    for _ in range(2):
        logs = [], []
        assert outcome(fast, INTS, logs[0]) == outcome(fn, INTS, logs[1])
        assert logs[0] == logs[1] == ["before"]
    assert (core.stats()["graphs"], core.stats()["breaks"]) == (1, 0)


@BACKENDS
def test_a_product_behind_a_write_raises_where_the_program_says(backend):
    def fn(x, log):
        log.append("before")
        x.mul_(2)
        log.append("written")
        return x.view(2, 2) @ x.view(2, 2).float()

    fast = core.compile(fn, backend=backend)
    for _ in range(2):
        own, other, logs = INTS.clone(), INTS.clone(), ([], [])
        assert outcome(fast, own, logs[0]) == outcome(fn, other, logs[1])
        assert torch.equal(own, other) and logs[0] == logs[1] == ["before", "written"]
