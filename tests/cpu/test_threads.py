"""Threads: a callable compiles in one thread at a time, the others run as written meanwhile; every result is right."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

import core

X = torch.arange(6.0).reshape(2, 3)


def run_all(*targets):
    """Run each target in a thread of its own; what they raised."""
    failures = []
    start = threading.Barrier(len(targets))

    def guarded(target):
        start.wait()
        try:
            target()
        except BaseException as error:  # noqa: BLE001  reported to the test
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(target,)) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return failures


def test_a_thread_that_meets_a_compile_under_way_runs_as_written():
    entered, release = threading.Event(), threading.Event()

    def slow(gm, inputs):
        entered.set()
        assert release.wait(30)
        return gm

    def fn(x):
        return x * 2

    compiled = core.compile(fn, backend=slow)
    first = threading.Thread(target=lambda: compiled(X))
    first.start()
    assert entered.wait(30)
    assert torch.equal(compiled(X), X * 2)
    assert compiled.entries() == []
    release.set()
    first.join(30)
    assert len(compiled.entries()) == 1
    assert torch.equal(compiled(X), X * 2)
    assert compiled.hits == 1


def test_many_threads_share_one_callable():
    def fn(x, k):
        y = x * k
        if k > 3:
            y = y + 1
        return y

    compiled = core.compile(fn, backend="eager")

    def work():
        for k in (1, 2, 5, 3, 7, 1):
            assert torch.equal(compiled(X, k), fn(X, k))

    assert run_all(*[work] * 4) == []
    assert core.stats()["frames"] <= 6


def test_threads_compile_different_functions_at_the_same_time():
    def job(k):
        def fn(x):
            y = (x + k).relu()
            print("", end="")
            return y * k

        compiled = core.compile(fn, backend="eager")

        def work():
            for n in (2, 3, 4):
                x = torch.ones(n, 3) * k
                assert torch.equal(compiled(x), fn(x))

        return work

    assert run_all(*[job(k) for k in range(1, 5)]) == []


def test_grad_mode_of_a_thread_is_its_own():
    def fn(x):
        return x * 2

    compiled = core.compile(fn, backend="eager")
    x = X.clone().requires_grad_()

    def with_grad():
        for _ in range(20):
            assert compiled(x).requires_grad

    def without_grad():
        with torch.no_grad():
            for _ in range(20):
                assert not compiled(x).requires_grad

    assert run_all(with_grad, without_grad, with_grad, without_grad) == []


def test_breaks_run_in_several_threads():
    def fn(x, n):
        total = 0.0
        for _ in range(n):
            x = x + 1
            total += x.sum().item()
        return x, total

    compiled = core.compile(fn, backend="eager")
    want = fn(X, 20)

    def work():
        for _ in range(3):
            got = compiled(X, 20)
            assert torch.equal(got[0], want[0])
            assert got[1] == pytest.approx(want[1])

    assert run_all(*[work] * 3) == []


def test_reset_while_others_call():
    def fn(x):
        print("", end="")
        return x * 3

    compiled = core.compile(fn, backend="eager")
    stop = threading.Event()

    def call():
        while not stop.is_set():
            assert torch.equal(compiled(X), X * 3)

    def reset():
        for _ in range(20):
            core.reset()
            time.sleep(0.005)
        stop.set()

    assert run_all(call, call, reset) == []


def test_an_exception_in_one_thread_leaves_the_others_alone():
    def fn(x, fail):
        if fail:
            raise KeyError("mine")
        return x + 1

    compiled = core.compile(fn, backend="eager")

    def bad():
        for _ in range(10):
            with pytest.raises(KeyError, match="mine"):
                compiled(X, True)

    def good():
        for _ in range(10):
            assert torch.equal(compiled(X, False), X + 1)

    assert run_all(bad, good, bad, good) == []


SCRIPT = """
import os, sys, torch, core
X = torch.arange(6.0).reshape(2, 3)
torch.set_num_threads(1)

def fn(x):
    y = x * 2
    print("", end="")
    return y + 1

def other(x):
    return x - 1

compiled = core.compile(fn, backend="eager")
later = core.compile(other, backend="eager")
assert torch.equal(compiled(X), fn(X))
child = os.fork()
if child == 0:
    good = torch.equal(compiled(X), fn(X)) and torch.equal(later(X), other(X))
    good = good and torch.equal(compiled(torch.ones(5)), fn(torch.ones(5))) and core.stats()["graphs"] >= 3
    os._exit(0 if good else 1)
_, status = os.waitpid(child, 0)
assert torch.equal(compiled(X), fn(X)) and torch.equal(later(X), other(X))
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(not hasattr(sys, "getdlopenflags") or sys.platform == "darwin", reason="needs fork")
@pytest.mark.slow
def test_a_forked_child_runs_and_compiles():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, cwd=Path(__file__).parents[2]
    )
    assert done.returncode == 0, done.stderr
