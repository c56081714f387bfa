"""CORE_LOGS: what each channel prints, and that nothing is subscribed without it."""

import pytest
import torch

import core
from core import events
from core.report import logs


@pytest.fixture
def logged(monkeypatch, capsys):
    """log(channels): follow them from here on; read(): what was printed since, by channel."""

    def log(channels: str) -> None:
        monkeypatch.setenv("CORE_LOGS", channels)
        capsys.readouterr()

    yield log, lambda: capsys.readouterr().err
    monkeypatch.delenv("CORE_LOGS", raising=False)
    logs.follow_environment()


def add_one(x):
    return x + 1


def with_a_break(x):
    y = x + 1
    print("between")
    return y * 2


def line(function, offset: int) -> str:
    """The place `offset` lines below a function's `def`."""
    return f"test_logs.py:{function.__code__.co_firstlineno + offset} in {function.__name__}"


def test_without_the_variable_no_sink_prints(monkeypatch, capsys):
    monkeypatch.delenv("CORE_LOGS", raising=False)
    core.compile(add_one, backend="eager")(torch.ones(2))
    assert not [sink for sink in events._sinks if isinstance(sink, logs.Log)]
    assert capsys.readouterr().err == ""


def test_the_graph_channel_prints_the_graph_and_the_users_lines(logged):
    log, read = logged
    log("graph")
    core.compile(add_one, backend="eager")(torch.ones(2))
    text = read()
    assert text.startswith("[core graph] add_one: 1 operations for eager\n")
    assert "input_0 + 1" in text and line(add_one, 1) in text
    assert text.count("[core ") == 1


def test_the_guards_channel_prints_each_guard_once_with_its_line(logged):
    log, read = logged
    log("guards")
    core.compile(add_one, backend="eager")(torch.ones(2))
    lines = read().splitlines()
    assert lines[0] == "[core guards] add_one: 2 guards"
    assert lines[1].strip() == "torch's global state is as at capture"
    assert "L['x'] is a Tensor: torch.float32[2]" in lines[2] and line(add_one, 1) in lines[2]


def test_the_breaks_channel_prints_reason_line_and_remedy(logged):
    log, read = logged
    log("breaks")
    core.compile(with_a_break, backend="eager")(torch.ones(2))
    lines = read().splitlines()
    assert lines[0].startswith("[core breaks] print()") and line(with_a_break, 2) in lines[0]
    assert lines[1].startswith("  remedy: ")


def test_the_recompiles_channel_prints_the_guard_that_failed(logged):
    log, read = logged
    log("recompiles")
    compiled = core.compile(add_one, backend="eager")
    compiled(torch.ones(2))
    compiled(torch.ones(3))
    assert read().splitlines()[1].strip().startswith("L['x'].shape[0] was 2, now 3")


def test_the_code_channel_prints_both_codes_and_the_call_of_the_graph(logged):
    log, read = logged
    log("code")
    core.compile(add_one, backend="eager")(torch.ones(2))
    written, _, run = read().partition("runs as:")
    assert "BINARY_OP" in written and "BINARY_OP" not in run
    assert "BoundGraph" in run and "def compiled(*inputs):" in run


def test_the_kernels_channel_prints_what_the_backend_says_of_its_artifact(logged):
    log, read = logged
    log("kernels")
    core.compile(add_one, backend="aot_eager")(torch.ones(2))
    text = read()
    assert text.startswith("[core kernels] aot_eager, inference: 0 kernels, 1 calls of torch's own")
    assert "torch.ops.aten.add" in text


def test_all_names_every_channel(logged):
    log, read = logged
    log("all")
    compiled = core.compile(with_a_break, backend="eager")
    compiled(torch.ones(2))
    compiled(torch.ones(3))
    text = read()
    assert all(f"[core {channel}]" in text for channel in logs.CHANNELS)


def test_an_unknown_channel_is_an_error_that_lists_the_known_ones(logged):
    log, _ = logged
    log("graph,grahp")
    with pytest.raises(core.InvalidOption, match="'grahp'") as raised:
        core.compile(add_one, backend="eager")
    assert "recompiles" in raised.value.remedy


def test_a_changed_variable_takes_the_place_of_the_former(logged):
    log, read = logged
    log("graph")
    core.compile(add_one, backend="eager")(torch.ones(2))
    log("guards")
    core.compile(with_a_break, backend="eager")(torch.ones(2))
    text = read()
    assert "[core guards]" in text and "[core graph]" not in text
