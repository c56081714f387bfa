"""The frame hook: which frames the callback sees, and what a replaced frame looks like from inside and outside."""

import asyncio
import sys
import traceback

from replacing import Callback, copied, copying, grown, hooked, only

from core import _C

EVERY_INTERPRETER = True


def callee(x):
    return x + 1


def caller(x):
    return callee(x) + callee(x)


def test_code_outside_is_untouched_and_removal_is_complete():
    callback = copying()
    with hooked(callback):
        assert caller(1) == 4
    assert _C.frame_entries(caller.__code__) and _C.frame_entries(callee.__code__)
    count, hits = len(callback.calls), [entry.hits for entry in _C.frame_entries(callee.__code__)]
    assert caller(1) == 4 and not _C.hook_installed()
    assert len(callback.calls) == count
    assert [entry.hits for entry in _C.frame_entries(callee.__code__)] == hits == [1]
    for function in (caller, callee):
        _C.reset_code(function.__code__)
        assert _C.frame_entries(function.__code__) == []


def test_a_skip_mark_stops_callbacks_for_that_code_but_not_its_callees():
    callback = Callback(lambda code: False)
    _C.skip_code(caller.__code__)
    assert _C.is_skipped(caller.__code__) and not _C.is_skipped(callee.__code__)
    with hooked(callback):
        assert caller(1) == 4
    assert callback.names.count("callee") == 2 and "caller" not in callback.names
    _C.reset_code(caller.__code__)
    assert not _C.is_skipped(caller.__code__)
    with hooked(callback):
        caller(1)
    assert "caller" in callback.names


def test_none_skips_for_that_callback_only_and_false_for_the_call():
    def f(x):
        return x

    first, second = only(f.__code__, lambda: None), only(f.__code__, lambda: False)
    for callback, calls in ((first, 1), (second, 3)):
        with hooked(callback):
            assert [f(i) for i in range(3)] == [0, 1, 2]
        assert callback.names.count("f") == calls


def test_entries_of_one_callback_never_serve_another():
    def f(x):
        return ("written", x)

    def a(x):
        return ("a", x)

    def b(x):
        return ("b", x)

    first = only(f.__code__, lambda: _C.Entry(None, a.__code__, False))
    second = only(f.__code__, lambda: _C.Entry(None, b.__code__, False))
    for _ in range(2):
        with hooked(first):
            assert f(1) == ("a", 1)
            with hooked(second):
                assert f(1) == ("b", 1)
            assert f(1) == ("a", 1)
    assert f(1) == ("written", 1) and len(_C.frame_entries(f.__code__)) == 2
    assert first.names.count("f") == second.names.count("f") == 1


def test_a_dead_callback_takes_its_entries_along():
    def f(x):
        return x

    callback = only(f.__code__, lambda: _C.Entry(None, copied(f.__code__), False))
    with hooked(callback):
        f(1)
    assert len(_C.frame_entries(f.__code__)) == 1
    del callback
    assert _C.frame_entries(f.__code__) == []


def test_run_only_runs_entries_and_compiles_nothing():
    def f(x):
        return ("written", x)

    def replacement(x):
        return ("replaced", x)

    callback = only(f.__code__, lambda: _C.Entry(None, replacement.__code__, False))
    with hooked(callback):
        assert f(1) == ("replaced", 1)
        asked = len(callback.calls)
        former = _C.set_frame_callback(False)
        assert former is callback and f(1) == ("replaced", 1) and callee(1) == 2
        assert len(callback.calls) == asked
        assert _C.set_frame_callback(callback) is False


def test_raising_and_wrong_answers_fail_the_call_cleanly():
    def f(x):
        return x

    def other(x, y):
        return x

    def boom():
        raise KeyError("no")

    for answer, error in (
        (boom, KeyError),
        (lambda: 3, TypeError),
        (lambda: _C.Entry(None, other.__code__, 0), TypeError),
    ):
        with hooked(only(f.__code__, answer)):
            for _ in range(200):
                try:
                    f(object())
                except error:
                    pass
                else:
                    raise AssertionError("no error")
    assert f(1) == 1


def test_arguments_of_every_kind_arrive_in_order():
    def f(a, b=2, /, c=3, *rest, d, e=5, **named):
        return a, b, c, rest, d, e, named

    callback = only(f.__code__, lambda: _C.Entry(None, grown(f.__code__), False))
    with hooked(callback):
        for _ in range(2):
            assert f(1, d=4) == (1, 2, 3, (), 4, 5, {})
            assert f(1, 9, 8, 7, d=4, z=0) == (1, 9, 8, (7,), 4, 5, {"z": 0})
    assert [args for _, name, args in callback.calls if name == "f"] == [(1, 2, 3, 4, 5, (), {})]


def test_cells_and_closures_follow_the_function_that_is_called():
    def make(n):
        def f(x, y):
            def inner():
                return x * 100 + y * 10 + n

            x += 1
            return inner

        return f

    code = make(0).__code__
    callback = only(code, lambda: _C.Entry(None, grown(code, 20), False))
    with hooked(callback):
        for n in range(5):
            assert make(n)(1, 2)() == 220 + n
    assert _C.frame_entries(code)[0].hits == 4


def test_larger_replacements_fit_at_every_position_of_the_data_stack():
    """Where the stack's chunk has no room the replacement runs as a function: same results, same errors, no leak."""
    space = {}
    body = "\n".join(f"    v{i} = x + {i}" for i in range(300))
    exec("def at(depth, pad, call):\n    return at(depth - 1, pad, call) if depth else call(*pad)", space)
    exec("def padded(*pad):\n    return small(pad[0])", space)
    _C.skip_code(space["at"].__code__)
    _C.skip_code(space["padded"].__code__)
    for parameters in ("x", "x, y=2, *rest, k=1, **kw"):
        exec(f"def big({parameters}):\n{body}\n    return 1 // (v299 - 299)", space)
        exec(f"def small({parameters}):\n    return 1 // x", space)
        small = space["small"]
        replace_small = only(small.__code__, lambda: _C.Entry(None, space["big"].__code__, False))
        outcomes = []
        with hooked(replace_small):
            for depth in range(240):
                for width in (1, 7, 40):
                    outcomes.append(space["at"](depth, range(1, width + 1), space["padded"]))
                    try:
                        space["at"](depth, [0] * width, space["padded"])
                    except ZeroDivisionError as error:
                        outcomes.append(traceback.extract_tb(error.__traceback__)[-1].name)
        assert outcomes == [1, "big"] * 720
        assert _C.frame_entries(small.__code__)[0].hits == 1439


def test_exceptions_show_one_frame_with_name_line_and_columns():
    def fails(x):
        y = x
        return (y + 1) / 0

    def run():
        try:
            fails(1)
        except ZeroDivisionError as error:
            frames = []
            entry = error.__traceback__
            while entry is not None:
                frame = entry.tb_frame
                frames.append(
                    (
                        frame.f_code.co_name,
                        entry.tb_lineno,
                        dict(frame.f_locals) if frame.f_code.co_name == "fails" else 0,
                    )
                )
                entry = entry.tb_next
            return frames, frame.f_back.f_code.co_name, traceback.format_exc()

    want = run()
    with hooked(only(fails.__code__, lambda: _C.Entry(None, grown(fails.__code__), False))):
        assert [run() for _ in range(3)] == [want] * 3
    assert want[0][-1] == ("fails", fails.__code__.co_firstlineno + 2, {"x": 1, "y": 1})


def test_kept_frames_stay_valid_and_can_be_cleared():
    class Big:
        pass

    def keeps(x):
        local = x
        return sys._getframe(), local

    def fails(x):
        raise ValueError(x)

    callback = copying(copy=grown)
    with hooked(callback):
        for _ in range(3):
            thing = Big()
            before = sys.getrefcount(thing)
            frame, _ = keeps(thing)
            callback.calls.clear()
            assert frame.f_locals["x"] is thing and frame.f_code.co_name == "keeps"
            assert sys.getrefcount(thing) > before
            frame.clear()
            del frame, _
            assert sys.getrefcount(thing) == before
            try:
                fails(thing)
            except ValueError as error:
                kept = error.__traceback__
                error = None
            assert kept.tb_next.tb_frame.f_locals["x"] is thing
            traceback.clear_frames(kept)
            del kept


def test_generators_coroutines_and_class_bodies_are_untouched():
    def generating(n):
        try:
            for i in range(n):
                got = yield i
                if got:
                    yield got
        except KeyError:
            yield "thrown"
        finally:
            closed.append(n)

    async def waits(n):
        await asyncio.sleep(0)
        return n

    async def streams(n):
        for i in range(n):
            await asyncio.sleep(0)
            yield i

    async def main():
        return [await waits(1), [i async for i in streams(3)], await asyncio.gather(*(waits(i) for i in range(3)))]

    def run():
        g = generating(3)
        out = [next(g), g.send("sent"), g.throw(KeyError), list(generating(2)), [x * 2 for x in range(3)]]
        g.close()
        h = generating(5)
        next(h)
        h.close()

        class Body:
            attribute = [i for i in range(2)]

        return out, Body.attribute, asyncio.run(main())

    closed = []
    want = run()
    order, closed[:] = list(closed), []
    callback = copying(copy=grown)
    with hooked(callback):
        for _ in range(2):
            assert run() == want and closed == order
            closed.clear()
    assert not {"generating", "waits", "streams", "Body"} & set(callback.names)


def test_an_open_entry_captures_callees_and_a_closed_one_does_not():
    def outer(x):
        return callee(x)

    for closed, names in ((False, ["outer", "callee"]), (True, ["outer"])):
        callback = copying(closed=closed)
        call = _C.CompiledCallable(outer, callback)
        assert [call(i) for i in range(3)] == [1, 2, 3]
        assert callback.names == names and not _C.hook_installed()


def test_the_hook_and_callback_are_restored_when_an_open_entry_raises():
    def outer(x):
        assert _C.hook_installed()
        raise KeyError(x)

    call = _C.CompiledCallable(outer, copying())
    for _ in range(50):
        try:
            call(1)
        except KeyError:
            pass
        assert not _C.hook_installed() and _C.set_frame_callback(None) is None


def test_a_closed_entry_inside_an_open_region_hides_from_the_outer_callback():
    def inner(x):
        return callee(x)

    outer_callback, inner_callback = copying(), copying(closed=True)
    compiled = _C.CompiledCallable(inner, inner_callback)

    def outer(x):
        return compiled(x) + callee(x)

    call = _C.CompiledCallable(outer, outer_callback)
    assert [call(1), call(1)] == [4, 4]
    assert outer_callback.names == ["outer", "callee"] and inner_callback.names == ["inner"]


def test_one_function_with_two_callbacks_nested_in_each_other():
    def f(x):
        return x if x < 2 else g(x - 1)

    logs = {}
    a, b = copying(), copying()
    first = _C.CompiledCallable(f, a)
    second = _C.CompiledCallable(f, b)
    g = second
    assert first(4) == 1 and second(4) == 1
    logs = (len(first.entries()), len(second.entries()), a.names.count("f"), b.names.count("f"))
    assert logs == (1, 1, 1, 1)
    assert _C.frame_entries(f.__code__) == []


def test_replacement_code_is_never_captured_itself():
    callback = copying()
    with hooked(callback):
        caller(1)
        entry = _C.frame_entries(caller.__code__)[-1]
        assert _C.is_skipped(entry.code)
        _C.reset_code(entry.code)
        assert _C.is_skipped(entry.code)
