"""Recursion with the hook on ends in RecursionError, never in a crash, and reaches what it reaches without the hook."""

import sys
import threading

from replacing import Callback, copied, copying, grown, hooked, only

from core import _C

EVERY_INTERPRETER = True


def count(n):
    return 0 if n == 0 else 1 + count(n - 1)


def endless(n):
    return endless(n + 1)


def deepest(function, limit):
    """The largest n for which function(n) returns, at this recursion limit; function takes a frame for each n."""
    former = sys.getrecursionlimit()
    sys.setrecursionlimit(limit)
    low, high = 0, limit + 10
    try:
        while low < high:
            middle = (low + high + 1) // 2
            try:
                function(middle)
                low = middle
            except RecursionError:
                high = middle - 1
    finally:
        sys.setrecursionlimit(former)
    return low


def test_the_default_limit_is_reached_as_without_the_hook():
    limit = 1000
    bare = deepest(count, limit)
    with hooked(lambda *seen: False):
        asked = deepest(count, limit)
    callback = copying(copy=grown)
    with hooked(callback):
        replaced = deepest(count, limit)
    assert bare - 5 <= asked <= bare and bare - 5 <= replaced <= bare, (bare, asked, replaced)


def test_an_open_entry_recurses_to_the_limit():
    call = _C.CompiledCallable(count, copying())
    call(1)
    bare = deepest(count, 1000)
    # The compiled callable itself takes one more C call at the top.
    assert bare - 8 <= deepest(call, 1000) <= bare + 1


def test_a_function_that_calls_its_compiled_self_recurses_to_the_limit():
    def recurse(n):
        return 0 if n == 0 else 1 + call(n - 1)

    def closing(code):
        return _C.Entry(None, copied(code), True)

    for callback in (Callback(lambda code: None), Callback(closing), copying()):
        call = _C.CompiledCallable(recurse, callback)
        call(1)
        reached = deepest(call, 1000)
        assert 980 <= reached <= 1000, reached
    call = _C.CompiledCallable(recurse, Callback(closing))
    sys.setrecursionlimit(1_000_000)
    try:
        call(900_000)
    except RecursionError:
        pass
    else:
        raise AssertionError("no RecursionError")


def test_a_raised_limit_is_reached_where_the_stack_allows():
    with hooked(copying(copy=grown)):
        reached = deepest(count, 4000)
    assert reached > 3900, reached


def test_endless_recursion_raises_at_any_limit():
    for limit in (1000, 20_000, 1_000_000):
        sys.setrecursionlimit(limit)
        for callback in (copying(copy=grown), only(count.__code__, lambda: None)):
            with hooked(callback):
                for _ in range(2):
                    try:
                        endless(0)
                    except RecursionError:
                        pass
                    else:
                        raise AssertionError("no RecursionError")
        assert count(50) == 50
    sys.setrecursionlimit(1000)


def test_endless_recursion_of_a_thread_without_callback_raises_too():
    sys.setrecursionlimit(1_000_000)
    _C.install_hook()
    outcomes = []

    def work():
        try:
            endless(0)
        except RecursionError:
            outcomes.append("raised")

    for stack_bytes in (0, 512 * 1024, 2 * 1024 * 1024):
        threading.stack_size(stack_bytes)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    threading.stack_size(0)
    _C.uninstall_hook()
    assert outcomes == ["raised"] * 3


def test_recursion_through_c_code_raises():
    class Deep:
        def __repr__(self):
            return repr(self)

    nested = []
    for _ in range(100_000):
        nested = [nested]
    # 3.11 has one limit for Python and C, and dies by itself when that is more than C code can take.
    sys.setrecursionlimit(6_000 if sys.version_info < (3, 12) else 100_000)

    def repr_at(depth, thing):
        return repr_at(depth - 1, thing) if depth else repr(thing)

    with hooked(copying(copy=grown)):
        for thing in (Deep(), nested):
            for depth in (0, 500, 3000):
                try:
                    repr_at(depth, thing)
                except RecursionError:
                    pass
                else:
                    raise AssertionError("no RecursionError")
    # Nothing here recurses, but freeing a deep list must not either.
    sys.setrecursionlimit(1000)


def test_a_recursion_error_leaves_references_flat():
    def recurse(thing):
        return recurse(thing)

    thing = object()
    callback = copying(copy=grown)
    with hooked(callback):
        for _ in range(3):
            try:
                recurse(thing)
            except RecursionError:
                pass
        callback.calls.clear()
        before = sys.getrefcount(thing)
        for _ in range(20):
            try:
                recurse(thing)
            except RecursionError:
                pass
        assert sys.getrefcount(thing) == before


def test_a_callback_that_raises_near_the_limit_disposes_of_the_frame():
    def recurse(thing):
        return leaf(thing) or recurse(thing)

    def leaf(thing):
        return None

    def boom():
        raise KeyError("no")

    thing = object()
    before = sys.getrefcount(thing)
    with hooked(only(leaf.__code__, boom)):
        for _ in range(100):
            try:
                recurse(thing)
            except (RecursionError, KeyError):
                pass
    assert sys.getrefcount(thing) == before
