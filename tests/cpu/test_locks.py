"""Locks from outside, and locks that the function makes."""

from __future__ import annotations

import sys
import threading

import pytest
import torch

import core


class Counter:
    def __init__(self, lock):
        self.lock, self.count = lock, 0


def counted(x, counter):
    y = x + 1
    with counter.lock:
        counter.count += 1
        y = y * counter.count
    return y * 2


def by_hand(x, counter):
    counter.lock.acquire()
    try:
        y = x * 3
    finally:
        counter.lock.release()
    return y + 1


def raising(x, counter):
    try:
        with counter.lock:
            y = x + 1
            raise ValueError("inside")
    except ValueError as error:
        return y * 2, str(error)


def twice(x, counter):
    with counter.lock:
        x = x + 1
    with counter.lock:
        x = x * 2
    return x


def returning(x, counter):
    with counter.lock:
        return x * counter.count, counter.lock.locked() if hasattr(counter.lock, "locked") else True


def is_free(lock):
    """Whether another thread can have it."""
    answers = []
    thread = threading.Thread(target=lambda: answers.append(lock.acquire(blocking=False)))
    thread.start()
    thread.join()
    return answers == [True]


@pytest.mark.parametrize("kind", [threading.Lock, threading.RLock])
@pytest.mark.parametrize(
    "fn, breaks",
    [(counted, 1), (by_hand, 1), (raising, 1), (twice, 2), (returning, 2)],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_taking_a_lock_is_a_break_giving_it_back_is_none(kind, fn, breaks):
    core.reset()
    mine, theirs = Counter(kind()), Counter(kind())
    compiled, x = core.compile(fn, backend="eager"), torch.ones(2)
    for _ in range(3):
        assert repr(compiled(x, mine)) == repr(fn(x, theirs))
        assert mine.count == theirs.count
        assert is_free(mine.lock)
        mine.lock = kind()
    stats = core.stats()
    assert (stats["graphs"] > 0, stats["skipped"]) == (True, 0)
    assert stats["breaks"] <= breaks


def test_what_is_changed_under_a_lock_is_written_before_another_thread_has_it():
    compiled, counter, x = core.compile(counted, backend="eager"), Counter(threading.Lock()), torch.ones(2)
    for _ in range(3):
        compiled(x, counter)
    counter.count, interval = 0, sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=lambda: [compiled(x, counter) for _ in range(50)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert counter.count == 200


def test_a_lock_made_inside_is_free_and_is_not_taken_twice():
    def fn(x):
        lock = threading.Lock()
        with lock:
            x = x + 1
            refused = lock.acquire(False)
        free = lock.locked(), lock.acquire()
        lock.release()
        try:
            lock.release()
        except RuntimeError as error:
            return x, refused, free, str(error)

    x = torch.ones(2)
    assert repr(core.compile(fn, backend="eager", fullgraph=True)(x)) == repr(fn(x))

    def waits(x):
        lock = threading.Lock()
        with lock:
            return x + 1, lock.acquire(timeout=0.001)

    assert repr(core.compile(waits, backend="eager")(x)) == repr(waits(x))
