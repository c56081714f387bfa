"""backend="auto" starts on the default backend and keeps the fastest right one; nothing of the trial is visible."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from backend_site import add_backend

import core
from core.backends import auto_trial
from core.backends import registry as registry_module
from core.backends.auto_trial import Copies, ratio_of
from core.events import AutoDecided, FellBack, subscribe

FAST = """
from core.plugin import Artifact, Backend, Capabilities, hookimpl

class Mine(Backend):
    name = "{name}"
    version = "1.0"
    compiled = 0

    def compile(self, graph, fake_inputs, ctx):
        Mine.compiled += 1
        {body}
        return Artifact(call=graph.forward if call is None else call)

@hookimpl
def core_backend():
    return Mine()
"""


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder of plugins that this process's registry sees, an empty cache, and no need for certificates."""
    monkeypatch.setenv("CORE_CACHE_DIR", str(tmp_path / "cache"))
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(registry_module, "_default", None)
    before = set(sys.modules)
    with core.config.patch(require_certified=False, auto_seconds=0.05):
        yield folder
    core.reset()
    for name in set(sys.modules) - before:
        if name.startswith("auto_site_"):
            del sys.modules[name]


@pytest.fixture
def decided():
    told = []
    end = subscribe(lambda event: told.append(event) if isinstance(event, AutoDecided) else None)
    yield told
    end()


def program(x, w):
    return torch.tanh(x @ w).sum(-1)


def pair():
    return torch.randn(8, 16), torch.randn(16, 4)


def slow_default(monkeypatch):
    """Make every timed run of the default look slower than the others': no test depends on this machine's load."""
    real = auto_trial.measure

    def measured(captured, runs, copies, seconds, **more):
        return [
            [2.0 if at == 0 else 1.0 + at / 10 for _ in times]
            for at, times in enumerate(real(captured, runs, copies, seconds))
        ]

    monkeypatch.setattr("core.backends.auto.measure", measured)


def reasons(event):
    return {trial.backend: trial.reason for trial in event.trials}


def test_the_fastest_right_candidate_stays_and_nothing_of_core_stands_before_it(site, decided, monkeypatch):
    slow_default(monkeypatch)
    add_backend(site, "quick", FAST.format(name="quick", body="call = None"))
    add_backend(site, "quicker", FAST.format(name="quicker", body="call = None"))
    compiled = core.compile(program, backend="auto", options={"candidates": ["quick", "quicker"]})
    for call in range(5):
        x, w = pair()
        torch.testing.assert_close(compiled(x, w), program(x, w))
        assert len(decided) == (call >= 2), "the third call decides"
    (event,) = decided
    assert event.winner == "quick" and reasons(event) == {
        "inductor": "quick is faster",
        "quick": "",
        "quicker": "quick is faster",
    }
    frames = []
    x, w = pair()
    sys.setprofile(lambda frame, what, arg: frames.append(frame.f_code.co_filename) if what == "call" else None)
    try:
        compiled(x, w)
    finally:
        sys.setprofile(None)
    assert not [name for name in frames if "/core/" in name]


def test_a_wrong_candidate_never_wins(site, decided, monkeypatch):
    slow_default(monkeypatch)
    body = "call = lambda *inputs: tuple(o + 1e-3 for o in graph.forward(*inputs))"
    add_backend(site, "wrong", FAST.format(name="wrong", body=body))
    add_backend(site, "raising", FAST.format(name="raising", body="raise RuntimeError('no luck')"))
    few = "call = lambda *i: tuple(o.index_fill(0, __import__('torch').tensor([0]), 7.0) for o in graph.forward(*i))"
    add_backend(site, "few", FAST.format(name="few", body=few))
    compiled = core.compile(program, backend="auto", options={"candidates": ["wrong", "raising", "few"]})
    for _ in range(4):
        x, w = pair()
        torch.testing.assert_close(compiled(x, w), program(x, w))
    (event,) = decided
    assert event.winner == "inductor"
    said = reasons(event)
    assert "root mean square" in said["wrong"] and "no luck" in said["raising"] and said["few"]


FATAL = """
import torch, core
from core.events import AutoDecided, subscribe

def program(x, w):
    return torch.tanh(x @ w).sum(-1)

told = []
subscribe(lambda event: told.append(event) if isinstance(event, AutoDecided) else None)
core.config.require_certified, core.config.auto_seconds = False, 0.05
compiled = core.compile(program, backend="auto", options={"candidates": ["fatal"]})
for _ in range(4):
    compiled(torch.ones(8, 16), torch.ones(16, 4))
print(told[0].winner, {trial.backend: trial.reason for trial in told[0].trials}["fatal"])
"""


@pytest.mark.parametrize("body", ["import os; os.abort()", "call = lambda *inputs: __import__('os').abort()"])
@pytest.mark.slow
def test_a_candidate_that_ends_the_process_does_so_once(site, body, tmp_path):
    add_backend(site, "fatal", FAST.format(name="fatal", body=body))
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join((str(site), str(Path(__file__).parents[2])))}
    ends = [
        subprocess.run([sys.executable, "-c", FATAL], capture_output=True, text=True, env=environ, cwd=tmp_path)
        for _ in range(2)
    ]
    assert ends[0].returncode == -signal.SIGABRT
    assert ends[1].returncode == 0, ends[1].stderr
    assert ends[1].stdout.startswith("inductor the process that tried it ended there")


def test_a_trial_that_the_user_interrupts_is_not_begun_again(site, decided):
    add_backend(site, "hanging", FAST.format(name="hanging", body="raise KeyboardInterrupt"))
    compiled = core.compile(program, backend="auto", options={"candidates": ["hanging"]})
    interrupted = 0
    for _ in range(5):
        x, w = pair()
        try:
            torch.testing.assert_close(compiled(x, w), program(x, w))
        except KeyboardInterrupt:
            interrupted += 1
    (event,) = decided
    assert interrupted == 1 and event.winner == "inductor"
    assert reasons(event)["hanging"].startswith("it was interrupted when it was tried")


def test_a_decision_is_kept_for_the_next_callable_and_frozen_uses_nothing_else(site, decided, monkeypatch):
    slow_default(monkeypatch)
    add_backend(site, "quick", FAST.format(name="quick", body="call = None"))
    options = {"candidates": ["quick"]}
    with core.config.patch(auto_frozen=True):
        frozen = core.compile(program, backend="auto", options=options, name="frozen")
        for _ in range(4):
            frozen(*pair())
    assert [event.winner for event in decided] == ["inductor"] and "frozen" in decided[0].reason
    first = core.compile(program, backend="auto", options=options, name="first")
    for _ in range(3):
        first(*pair())
    with core.config.patch(auto_frozen=True):
        second = core.compile(program, backend="auto", options=options, name="second")
        x, w = pair()
        torch.testing.assert_close(second(x, w), program(x, w))
    assert [(event.winner, event.stored) for event in decided[1:]] == [("quick", False), ("quick", True)]


def test_writes_and_gradients_happen_once(site, decided):
    add_backend(site, "quick", FAST.format(name="quick", body="call = None"))

    def step(total, x, w):
        y = (x @ w).relu()
        total.add_(y.detach().sum())
        return y

    compiled = core.compile(step, backend="auto", options={"candidates": ["quick"]})
    ours, theirs = torch.zeros(()), torch.zeros(())
    x, w = pair()
    left, right = w.clone().requires_grad_(), w.clone().requires_grad_()
    told = []
    end = subscribe(lambda event: told.append(event) if isinstance(event, FellBack) else None)
    for _ in range(5):
        compiled(ours, x, left).sum().backward()
        step(theirs, x, right).sum().backward()
    end()
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(left.grad, right.grad)
    assert len(decided) == 1 and not told, "each candidate records the backward it needs"
    assert all(trial.error_ratio is not None for trial in decided[0].trials)


@pytest.mark.parametrize(
    "make, why",
    [
        (lambda x: torch.nn.functional.dropout(x, 0.5), "draws random numbers"),
        (lambda x: x.mul_(2.0).sum(), ""),
        (lambda x: torch.rand_like(x) + x, "draws random numbers"),
    ],
    ids=["dropout", "write", "random"],
)
def test_graphs_that_draw_random_numbers_are_not_tried(make, why, site, decided):
    add_backend(site, "quick", FAST.format(name="quick", body="call = None"))
    compiled = core.compile(make, backend="auto", options={"candidates": ["quick"]})
    for _ in range(4):
        x = torch.randn(5)
        torch.manual_seed(3)
        ours = x.clone()
        compiled(ours)
    assert len(decided) == 1 and why in decided[0].reason


def test_a_candidate_that_leaves_most_of_the_graph_to_others_is_out(site, decided, monkeypatch):
    slow_default(monkeypatch)
    source = FAST.format(name="half", body="call = None").replace(
        "    def compile(",
        "    def supports(self, node, ctx):\n"
        "        from core.plugin import Support\n"
        "        return Support('native' if 'tanh' in str(node.target) else 'no', 'not mine')\n\n"
        "    def compile(",
    )
    add_backend(site, "half", source)
    compiled = core.compile(program, backend="auto", options={"candidates": ["half"]})
    for _ in range(3):
        compiled(*pair())
    (event,) = decided
    assert event.winner == "inductor" and "of the graph itself" in reasons(event)["half"]


def test_without_a_certificate_nobody_is_tried_and_the_reason_is_said(site, decided):
    add_backend(site, "quick", FAST.format(name="quick", body="call = None"))
    with core.config.patch(require_certified=True):
        compiled = core.compile(program, backend="auto", options={"candidates": ["quick", "dynamo:no_such"]})
        x, w = pair()
        torch.testing.assert_close(compiled(x, w), program(x, w))
    (event,) = decided
    assert event.reason == "no other backend is a candidate"
    assert "no certificate for inference-core" in reasons(event)["quick"]


def test_frozen_weights_are_not_copied(site, decided):
    add_backend(site, "quick", FAST.format(name="quick", body="call = None"))
    module = torch.nn.Linear(4, 2)
    compiled = core.compile(module, backend="auto", options={"candidates": ["quick"]}, freeze=True)
    x = torch.randn(3, 4)
    with torch.no_grad():
        for _ in range(4):
            torch.testing.assert_close(compiled(x), module(x))
    assert [event.winner for event in decided] == ["inductor"] and "freeze=True" in decided[0].reason


def test_explain_shows_the_table_of_one_call(site):
    add_backend(site, "quick", FAST.format(name="quick", body="call = None"))
    explanation = core.explain(program, backend="auto", options={"candidates": ["quick"]})(*pair())
    (choice,) = explanation.choices
    assert {trial.backend for trial in choice.trials} == {"inductor", "quick"}
    assert explanation.graph_count == 1
    text = str(explanation)
    assert "candidate" in text and "reason lost" in text and "quick" in text


def test_changing_sizes_are_decided_once_for_the_symbolic_graph(site, decided):
    add_backend(site, "quick", FAST.format(name="quick", body="call = None"))
    compiled = core.compile(program, backend="auto", options={"candidates": ["quick"]})
    for size in (3, 4, 5, 6, 7, 8):
        x, w = torch.randn(size, 16), torch.randn(16, 4)
        torch.testing.assert_close(compiled(x, w), program(x, w))
    assert len(decided) == 1


def test_copies_share_memory_as_the_inputs_do():
    class Captured:
        mutated = frozenset()
        needs_grad = False

    base = torch.randn(6)
    leaf = torch.randn(3, requires_grad=True)
    view, flat, other, number = Copies(Captured(), [base[2:], base, leaf, 5]).make()
    view.zero_()
    assert float(flat[2:].abs().sum()) == 0 and float(base[2:].abs().sum()) != 0
    assert other.requires_grad and other.is_leaf and number == 5


def test_noise_hides_small_gains_and_not_large_ones():
    base = [1.0, 1.1, 0.9, 1.0, 1.05, 0.95]
    middle, noise = ratio_of([one * factor for one, factor in zip(base, (0.9, 1.0, 0.8, 0.95, 1.05, 0.85))], base)
    assert middle + noise > 0.95
    middle, noise = ratio_of([one * 0.5 for one in base], base)
    assert middle == pytest.approx(0.5) and noise == pytest.approx(0.0)


def test_settings_of_the_choice_are_checked(monkeypatch):
    monkeypatch.setenv("CORE_AUTO_FROZEN", "1")
    assert core.config.auto_frozen is True and core.config.auto_candidates == ()
    with pytest.raises(core.errors.InvalidOption):
        core.config.auto_calls = 0
    with core.config.patch(auto_seconds=0.0):
        assert core.config.auto_seconds == 0.0
