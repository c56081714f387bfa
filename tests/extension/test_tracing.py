"""Tracers, profilers and monitors see a replaced frame as one ordinary call, and nothing of compiling."""

import cProfile
import pstats
import sys
import unittest

from replacing import copied, copying, grown, hooked, only

from core import _C

EVERY_INTERPRETER = True


def callee(x):
    y = x + 1
    return y


def caller(x):
    a = callee(x)
    b = callee(a)
    return a + b


def fails(x):
    raise KeyError(x)


def catches(x):
    try:
        fails(x)
    except KeyError:
        return callee(x)


# What is listened to: the functions above, and what runs while compiling, of which nothing may be heard.
ORDER = ("caller", "callee", "fails", "catches", "noisy", "__call__", "copied", "grown")


def traced(call, *args):
    """The trace events of the functions above during call(*args)."""
    events = []

    def trace(frame, event, argument):
        if frame.f_code.co_name in ORDER:
            line = frame.f_lineno - frame.f_code.co_firstlineno
            events.append((event, frame.f_code.co_name, line, argument if event == "return" else None))
        return trace

    sys.settrace(trace)
    try:
        call(*args)
    finally:
        sys.settrace(None)
    return events


def profiled(call, *args):
    events = []

    def profile(frame, event, argument):
        events.append((event, frame.f_code.co_name if "c_" not in event else argument.__name__))

    sys.setprofile(profile)
    try:
        call(*args)
    finally:
        sys.setprofile(None)
    return events


def noisy(code):
    """Compiling that runs Python of its own."""
    return sorted([code, code], key=lambda seen: len(seen.co_code))[0].replace(co_stacksize=code.co_stacksize + 7)


def test_settrace_sees_the_same_events_when_compiling_and_after():
    for function in (caller, catches):
        want = traced(function, 1)
        assert want
        for copy in (copied, grown, noisy):
            callback = copying(copy=copy)
            with hooked(callback):
                assert [traced(function, 1) for _ in range(3)] == [want] * 3
            assert function.__name__ in callback.names


def test_setprofile_sees_the_same_events_when_compiling_and_after():
    for function in (caller, catches):
        want = profiled(function, 1)
        callback = copying(copy=noisy)
        with hooked(callback):
            assert [profiled(function, 1) for _ in range(3)] == [want] * 3
        assert function.__name__ in callback.names


def test_a_compiled_callable_shows_one_call_of_the_function():
    for closed in (False, True):
        call = _C.CompiledCallable(caller, copying(closed=closed, copy=noisy))
        want = traced(caller, 1)
        assert [traced(call, 1) for _ in range(3)] == [want] * 3
        want = profiled(caller, 1)
        assert [profiled(call, 1) for _ in range(3)] == [want] * 3


def test_a_failing_callback_leaves_no_event_behind():
    def boom():
        raise ValueError("no")

    callback = only(callee.__code__, boom)

    def attempt():
        try:
            caller(1)
        except ValueError:
            pass

    with hooked(callback):
        events = traced(attempt)
    assert [event for event in events if event[1] == "callee"] == []
    assert [event[0] for event in events] == ["call", "line", "exception", "return"]


def test_tracing_set_inside_a_replaced_frame_works():
    events = []

    def trace(frame, event, argument):
        events.append((event, frame.f_code.co_name))
        return trace

    def starts(x):
        sys.settrace(trace)
        callee(x)
        sys.settrace(None)

    with hooked(copying(copy=grown)):
        for _ in range(2):
            events.clear()
            starts(1)
            assert events == [("call", "callee"), ("line", "callee"), ("line", "callee"), ("return", "callee")]


def test_cprofile_counts_calls_as_written():
    def counted():
        profile = cProfile.Profile()
        profile.enable()
        for _ in range(5):
            caller(1)
        profile.disable()
        rows = pstats.Stats(profile).stats
        return {key[2]: value[:2] for key, value in rows.items() if key[2] in ORDER}

    want = counted()
    with hooked(copying(copy=noisy)):
        assert [counted(), counted()] == [want, want]
    assert want == {"caller": (5, 5), "callee": (10, 10)}


def need_monitoring():
    if not hasattr(sys, "monitoring"):
        raise unittest.SkipTest("sys.monitoring came with 3.12")
    return sys.monitoring


def test_global_monitoring_events_come_once():
    monitoring = need_monitoring()
    events = monitoring.events
    seen = []

    def watched(function):
        def register(event, name):
            def note(code, *rest):
                if code.co_name in ORDER:
                    seen.append((name, code.co_name, rest if name == "line" else None))

            monitoring.register_callback(2, event, note)

        monitoring.use_tool_id(2, "core test")
        register(events.PY_START, "start")
        register(events.PY_RETURN, "return")
        register(events.PY_UNWIND, "unwind")
        register(events.LINE, "line")
        monitoring.set_events(2, events.PY_START | events.PY_RETURN | events.PY_UNWIND | events.LINE)
        try:
            function(1)
        finally:
            monitoring.set_events(2, 0)
            monitoring.free_tool_id(2)
        out = list(seen)
        seen.clear()
        return out

    for function in (caller, catches):
        want = watched(function)
        with hooked(copying(copy=noisy)):
            assert [watched(function) for _ in range(3)] == [want] * 3
        assert [event for event in want if event[0] == "start"]


def test_code_with_local_monitoring_events_runs_as_written():
    monitoring = need_monitoring()

    def lined(x):
        return x + 1

    def replacement(x):
        return x + 100

    lines = []
    monitoring.use_tool_id(2, "core test")
    monitoring.register_callback(2, monitoring.events.LINE, lambda code, line: lines.append(line))
    callback = only(lined.__code__, lambda: _C.Entry(None, replacement.__code__, True))
    call = _C.CompiledCallable(lined, callback)
    monitoring.set_local_events(2, lined.__code__, monitoring.events.LINE)
    with hooked(callback):
        assert lined(1) == 2
    assert call(1) == 2 and len(lines) == 2 and "lined" not in callback.names
    monitoring.set_local_events(2, lined.__code__, 0)
    with hooked(callback):
        assert lined(1) == 101
    assert call(1) == 101 and len(lines) == 2
    monitoring.free_tool_id(2)


def test_trace_profile_and_audit_functions_are_no_part_of_the_program():
    """They run while a captured frame does, and are left as written, without the callback having seen them."""
    seen = []

    def callback(owner, code, *rest):
        seen.append(code.co_name)
        return False

    def watcher(*event):
        return len(event)

    active = [True]
    sys.addaudithook(lambda *event: active and watcher(*event))  # an audit hook stays: it is quiet after the test

    def subject():
        sys.audit("subject.ran")
        return watched()

    def watched():
        return 7

    _C.install_hook()
    former = _C.set_frame_callback(callback)
    sys.setprofile(lambda *event: watcher(*event) and None)
    try:
        assert subject() == 7
    finally:
        sys.setprofile(None)
        _C.set_frame_callback(former)
        _C.uninstall_hook()
        active.clear()
    assert [name for name in seen if name in ("subject", "watched")] == ["subject", "watched"]
    assert "watcher" not in seen and "<lambda>" not in seen
