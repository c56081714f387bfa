"""Threads: a callback belongs to one thread, and any thread may call, compile, reset or invalidate at any moment."""

import sys
import threading

from replacing import Callback, copied, copying, first_is, grown, hooked

from core import _C

EVERY_INTERPRETER = True


def step(x):
    return x + 1


def work(n):
    total = 0
    for i in range(n):
        total += step(i)
    return total


def run_threads(*targets):
    errors = []

    def guarded(target):
        try:
            target()
        except BaseException as error:  # reported below, whatever it is
            errors.append(error)

    former = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    threads = [threading.Thread(target=guarded, args=(target,)) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(former)
    assert not errors, errors


def test_threads_with_and_without_a_callback_run_side_by_side():
    seen = {}
    want = sum(i + 1 for i in range(20_000))

    def on():
        callback = copying(copy=grown)
        with hooked(callback):
            assert work(20_000) == want
        seen[threading.get_ident()] = callback.names

    def off():
        assert _C.set_frame_callback(None) is None
        assert work(20_000) == want

    run_threads(on, off, on, off)
    assert len(seen) >= 1 and all(names.count("step") == 1 for names in seen.values())
    assert not _C.hook_installed()


def test_installing_and_removing_while_others_run():
    call = _C.CompiledCallable(work, copying())
    want = sum(i + 1 for i in range(200))

    def opens():
        for _ in range(300):
            assert call(200) == want

    def plain():
        for _ in range(300):
            assert work(200) == want

    run_threads(opens, plain, opens, plain)
    assert not _C.hook_installed() and 1 <= len(call.entries()) <= 2


def test_entries_change_while_other_threads_look_them_up():
    kinds = [type(f"Kind{i}", (), {}) for i in range(6)]
    things = [kind() for kind in kinds]

    def f(x):
        return x

    def callback(owner, code, args, *rest):
        return _C.Entry(first_is(type(args[0])), copied(code), True)

    call = _C.CompiledCallable(f, callback)

    def calls():
        for i in range(8_000):
            thing = things[i % 6]
            assert call(thing) is thing

    def disturbs():
        for i in range(1_500):
            entries = call.entries()
            if i % 50 == 0:
                call.reset()
            elif entries:
                entries[i % len(entries)].valid = False

    run_threads(calls, calls, disturbs)
    for thing in things:
        assert call(thing) is thing
    assert len(call.entries()) == 6


def test_reset_of_frame_entries_while_other_threads_run_them():
    callback = Callback(lambda code: _C.Entry(None, grown(code), False))

    def runs():
        with hooked(callback):
            for _ in range(200):
                assert work(20) == 210

    def resets():
        for _ in range(3_000):
            _C.reset_code(step.__code__)

    run_threads(runs, runs, resets)
