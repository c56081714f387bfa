"""The line on a terminal while a compile takes long."""

import io
import threading

import pytest
import torch

import core
from core import events
from core.report.progress import Progress

PATIENCE_S = 30
FAR_S = 3600.0


class Terminal(io.StringIO):
    """A stream that says it is a terminal and lets a test wait for a text."""

    def __init__(self, terminal: bool = True) -> None:
        super().__init__()
        self.terminal = terminal
        self.seen = threading.Event()

    def isatty(self) -> bool:
        return self.terminal

    def write(self, text: str) -> int:
        count = super().write(text)
        self.seen.set()
        return count


@pytest.fixture
def watched():
    """watch(stream, after_s): a subscribed Progress on that stream."""
    ends = []

    def watch(stream, after_s=0.0):
        ends.append(events.subscribe(Progress(after_s, stream)))

    yield watch
    for end in ends:
        end()


def backend_that_waits_for(stream):
    def backend(graph, example_inputs):
        assert stream.seen.wait(PATIENCE_S)
        return graph.forward

    return backend


def add_one(x):
    return x + 1


def test_a_long_compile_says_so_in_one_line_that_ends_with_it(watched):
    stream = Terminal()
    watched(stream)
    result = core.compile(add_one, backend=backend_that_waits_for(stream))(torch.ones(2))
    assert torch.equal(result, torch.full((2,), 2.0))
    text = stream.getvalue()
    assert text.startswith("core: still compiling add_one (") and "test_progress.py" in text
    assert " done after " in text and text.count("\n") == 1 and text.endswith(" s\n")


def test_a_compile_that_is_over_in_time_prints_nothing(watched):
    stream = Terminal()
    watched(stream, after_s=FAR_S)
    core.compile(add_one, backend="eager")(torch.ones(2))
    assert stream.getvalue() == ""
    for timer in [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]:
        timer.join(PATIENCE_S)
        assert not timer.is_alive()


def test_a_stream_that_is_no_terminal_gets_nothing_and_starts_no_thread(watched):
    stream = Terminal(terminal=False)
    watched(stream)
    started = threading.active_count()
    core.compile(add_one, backend="eager")(torch.ones(2))
    assert stream.getvalue() == "" and threading.active_count() == started


def test_a_failing_compile_ends_its_line(watched):
    stream = Terminal()
    watched(stream)

    def backend(graph, example_inputs):
        assert stream.seen.wait(PATIENCE_S)
        raise ValueError("no")

    with pytest.raises(core.BackendFailed):
        core.compile(add_one, backend=backend)(torch.ones(2))
    assert stream.getvalue().endswith(" s\n")


def test_compiles_inside_a_compile_share_the_line_of_the_outermost(watched):
    stream = Terminal()
    watched(stream)
    with events.compiling("outer"):
        assert stream.seen.wait(PATIENCE_S)
        with events.compiling("inner"):
            pass
        assert "done" not in stream.getvalue()
    assert "outer" in stream.getvalue() and "inner" not in stream.getvalue()
    assert stream.getvalue().count("\n") == 1


def test_a_stream_that_was_closed_meanwhile_disturbs_nothing(watched):
    stream = Terminal()
    watched(stream, after_s=FAR_S)
    with events.compiling("outer"):
        stream.close()
    with events.compiling("again"):
        pass
