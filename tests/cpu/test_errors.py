"""Errors: what the user is told, and that a failure leaves the program where eager would have it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import traceback
import warnings
from pathlib import Path

import pytest
import torch

import core

X = torch.arange(6.0).reshape(2, 3)
ROOT = Path(__file__).parents[2]


def line_of(fn, text):
    """The number of the line of `fn` that contains `text`."""
    import inspect

    lines, first = inspect.getsourcelines(fn)
    return first + next(i for i, line in enumerate(lines) if text in line)


# -- fullgraph ---------------------------------------------------------------------------------------------------------


def address(x):
    n = x.data_ptr()  # here
    return x * n


def branch(x):
    if x.sum() > 0:  # here
        return x + 1
    return x


def prints(x):
    y = x + 1
    print(y)  # here
    return y


def calls_disabled(x):
    return disabled(x)  # here


@core.disable
def disabled(x):
    return x * 2


def unknown_builtin(x):
    return x + len(os.listdir("/"))  # here


@pytest.mark.parametrize("fn", [address, branch, prints, calls_disabled, unknown_builtin], ids=lambda fn: fn.__name__)
def test_fullgraph_names_the_line_the_reason_and_a_remedy(fn):
    with pytest.raises(core.Unsupported) as caught:
        core.compile(fn, backend="eager", fullgraph=True)(X)
    error = caught.value
    assert error.where.filename == __file__
    assert error.where.line == line_of(fn, "# here")
    assert error.where.function == fn.__name__
    assert error.what
    assert error.remedy
    text = str(error)
    assert text.startswith("[CORE-C001]")
    assert f"{__file__}:{error.where.line}" in text
    assert "remedy:" in text


def test_fullgraph_names_the_line_inside_an_inlined_callee():
    def fn(x):
        return address(x) + 1

    with pytest.raises(core.Unsupported) as caught:
        core.compile(fn, backend="eager", fullgraph=True)(X)
    assert caught.value.where.line == line_of(address, "# here")


def test_fullgraph_raises_each_time_and_changes_nothing():
    def fn(items):
        items.append(1)
        print(items)
        return items[0] + 1

    compiled = core.compile(fn, backend="eager", fullgraph=True)
    items = [X]
    for _ in range(3):
        with pytest.raises(core.Unsupported):
            compiled(items)
        assert len(items) == 1
    assert torch.is_grad_enabled()


def test_fullgraph_lets_the_programs_own_exceptions_out():
    def fn(x, n):
        y = x + 1
        if n > 1:
            raise KeyError(n)
        return y

    compiled = core.compile(fn, backend="eager", fullgraph=True)
    for _ in range(3):
        with pytest.raises(KeyError, match="2"):
            compiled(X, 2)
        assert torch.equal(compiled(X, 0), X + 1)
    assert core.stats()["frames"] <= 3


# -- the program's exceptions ----------------------------------------------------------------------------------------


def raises_inside(x):
    y = x + 1
    return deeper(y)


def deeper(y):
    y = y * 2
    raise RuntimeError("from deep inside")


def mismatched(x):
    return x @ x


def missing_name(x):
    return x + undefined_name  # noqa: F821


def unbound(x):
    if x.dim() == 5:
        y = x
    return y + 1


def divides(x):
    return x / (len(x.shape) - 2) + 1 // (len(x.shape) - 2)


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("fn", [raises_inside, mismatched, missing_name, unbound, divides], ids=lambda f: f.__name__)
def test_an_exception_comes_out_with_eagers_text_and_lines(fn, fullgraph):
    compiled = core.compile(fn, backend="eager", fullgraph=fullgraph)

    def outcome(call):
        with pytest.raises(Exception) as caught:  # noqa: B017, PT011  compared below
            call(X)
        frames = [entry for entry in traceback.extract_tb(caught.tb) if entry.filename == __file__][1:]
        return type(caught.value), str(caught.value), [(entry.name, entry.lineno) for entry in frames]

    want = outcome(fn)
    for _ in range(3):
        assert outcome(compiled) == want
    frames = core.stats()["frames"]
    outcome(compiled)
    assert core.stats()["frames"] == frames


def test_cause_context_and_notes_survive():
    def fn(x):
        try:
            raise KeyError("first")
        except KeyError as error:
            second = ValueError("second")
            second.add_note("a note")
            raise second from error

    with pytest.raises(ValueError, match="second") as caught:
        core.compile(fn, backend="eager")(X)
    assert isinstance(caught.value.__cause__, KeyError)
    assert caught.value.__notes__ == ["a note"]


def test_exceptions_of_user_classes_keep_their_attributes():
    class Custom(Exception):
        def __init__(self, code, detail=None):
            super().__init__(f"code {code}")
            self.code = code
            self.detail = detail

    def fn(x):
        y = x + 1
        raise Custom(7, detail=y)

    compiled = core.compile(fn, backend="eager")
    for _ in range(2):
        with pytest.raises(Custom, match="code 7") as caught:
            compiled(X)
        assert caught.value.code == 7
        assert torch.equal(caught.value.detail, X + 1)


def test_stop_iteration_system_exit_and_keyboard_interrupt_pass():
    def fn(x, kind):
        x = x + 1
        raise kind("out")

    compiled = core.compile(fn, backend="eager")
    for kind in (StopIteration, SystemExit, KeyboardInterrupt, GeneratorExit):
        with pytest.raises(kind):
            compiled(X, kind)


def test_recursion_without_end_is_a_recursion_error():
    def fn(x):
        return fn(x + 1)

    with pytest.raises(RecursionError):
        core.compile(fn, backend="eager")(X)


# -- compile() itself ------------------------------------------------------------------------------------------------


def test_an_unknown_backend_is_named_with_what_there_is():
    with pytest.raises(core.BackendNotInstalled, match="no_such_backend") as caught:
        core.compile(address, backend="no_such_backend")
    assert caught.value.remedy


def test_options_are_checked_at_compile():
    with pytest.raises(core.InvalidOption, match="mode"):
        core.compile(address, backend="eager", mode="fastest")
    with pytest.raises(core.InvalidOption, match="dynamic"):
        core.compile(address, backend="eager", dynamic="yes")
    with pytest.raises(core.InvalidOption, match="recompile_limit"):
        core.compile(address, backend="eager", recompile_limit=0)
    with pytest.raises(core.InvalidOption):
        core.compile(address, backend="eager", options={"no_such_option": 1})
    with pytest.raises(core.InvalidOption, match="callable"):
        core.compile(3, backend="eager")
    with pytest.raises(TypeError):
        core.compile(address, backend="eager", no_such_keyword=1)


def test_a_backend_that_raises_is_named():
    def broken(gm, inputs):
        raise RuntimeError("out of luck")

    with pytest.raises(core.BackendError, match="out of luck"):
        core.compile(lambda x: x + 1, backend=broken)(X)
    assert torch.is_grad_enabled()


# -- what can't be captured ------------------------------------------------------------------------------------------


def test_generators_and_coroutines_run_as_written():
    def produce(x):
        yield x + 1
        yield x + 2

    async def wait(x):
        return x + 1

    made = list(core.compile(produce, backend="eager")(X))
    assert torch.equal(made[1], X + 2)
    coroutine = core.compile(wait, backend="eager")(X)
    with pytest.raises(StopIteration) as stop:
        coroutine.send(None)
    assert torch.equal(stop.value.value, X + 1)


def test_builtins_partials_and_callable_objects_can_be_compiled():
    import functools

    class Adds:
        def __init__(self, n):
            self.n = n

        def __call__(self, x):
            return x + self.n

    adds = Adds(2)
    compiled = core.compile(adds, backend="eager")
    assert torch.equal(compiled(X), X + 2)
    adds.n = 5
    assert torch.equal(compiled(X), X + 5)
    assert torch.equal(core.compile(functools.partial(torch.add, other=1), backend="eager")(X), X + 1)
    assert torch.equal(core.compile(torch.relu, backend="eager")(X), X)
    assert core.stats()["graphs"] >= 3


def test_a_fault_of_ours_warns_once_and_runs_the_program(monkeypatch):
    from core.capture import convert_frame

    def fails(*args, **kwargs):
        raise AssertionError("a fault inside")

    monkeypatch.setenv("CORE_STRICT", "0")
    monkeypatch.setattr(convert_frame.replacement, "build", fails)
    compiled = core.compile(lambda x: x + 1, backend="eager")
    with pytest.warns(RuntimeWarning, match="runs uncompiled.*a fault inside"):
        assert torch.equal(compiled(X), X + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(compiled(X), X + 1)
    assert torch.is_grad_enabled()


def test_strict_raises_faults_of_ours(monkeypatch):
    from core.capture import convert_frame

    def fails(*args, **kwargs):
        raise AssertionError("a fault inside")

    monkeypatch.setenv("CORE_STRICT", "1")
    monkeypatch.setattr(convert_frame.replacement, "build", fails)
    with pytest.raises(AssertionError, match="a fault inside"):
        core.compile(lambda x: x + 1, backend="eager")(X)


# -- interruption ----------------------------------------------------------------------------------------------------


def test_ctrl_c_while_compiling_leaves_everything_usable():
    def interrupted(gm, inputs):
        signal.raise_signal(signal.SIGINT)
        return gm

    def fn(x):
        with torch.no_grad():
            y = x + 1
        return y * 2

    interrupt = [True]

    def backend(gm, inputs):
        return interrupted(gm, inputs) if interrupt[0] else gm

    compiled = core.compile(fn, backend=backend)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            compiled(X)
        assert torch.is_grad_enabled()
    interrupt[0] = False
    assert torch.equal(compiled(X), fn(X))
    assert torch.equal(compiled(X), fn(X))
    assert len(compiled.entries()) == 1


SCRIPT = """
import threading, time, _thread, torch, core
import torch._dynamo  # beside other threads fake tensors load it, and an interrupted import stays half done
X = torch.ones(3)

def fn(x):
    for k in range(400):
        x = x * 2 - k
    return x

compiled = core.compile(fn, backend="eager")
compiled(X); core.reset()
for delay in (0.005, 0.02, 0.05, 0.1):
    timer = threading.Timer(delay, _thread.interrupt_main)
    try:
        timer.start()
        while True:
            compiled(X); core.reset()
    except KeyboardInterrupt:
        pass
    timer.join()
    assert torch.is_grad_enabled()
assert torch.equal(compiled(X), fn(X))
assert len(compiled.entries()) == 1
print("usable")
"""


def test_ctrl_c_at_any_moment_of_a_capture_leaves_everything_usable():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert done.stdout.strip() == "usable", done.stderr
