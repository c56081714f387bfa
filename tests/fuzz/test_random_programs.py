"""Random programs do compiled what they do in eager; and the fuzzer would notice if they did not.

CORE_FUZZ_PROGRAMS, CORE_FUZZ_SEED, CORE_FUZZ_SHARD, CORE_FUZZ_SHARDS and CORE_FUZZ_BACKEND choose the programs;
`make test-all` runs ten thousand through shards.py.
"""

from __future__ import annotations

import gc
import os
from pathlib import Path
from unittest import mock

import comparison
import expressions
import habit_forms
import habits
import hypothesis
import hypothesis.strategies as st
import minimise
import programs
import shards
import torch

PROGRAMS = int(os.environ.get("CORE_FUZZ_PROGRAMS", "12"))
FIRST = int(os.environ.get("CORE_FUZZ_SEED", "0"))
SHARD, SHARDS = int(os.environ.get("CORE_FUZZ_SHARD", "0")), int(os.environ.get("CORE_FUZZ_SHARDS", "1"))
BACKEND = os.environ.get("CORE_FUZZ_BACKEND", "eager")
SEEDS = range(FIRST + SHARD, FIRST + PROGRAMS, SHARDS)

COUNTING = """
import torch
LOG = []


def program(x, k):
    y = x * 2
    LOG.append(k)
    if k > 1:
        y = y + 1
    for item in range(2):
        y = y - item
    return y, [x, y]


def arguments(call):
    return torch.ones(3), call


def between(call):
    LOG.append("between")
"""


WAITING = """
import torch
LOG = []


def program(x, k):
    def waits():
        try:
            yield x
        finally:
            LOG.append(k)
    waiting = waits()
    next(waiting)
    [][k]


def arguments(call):
    return torch.ones(3), call
"""


def uncompiled(fn, **_):
    return fn


def forgetful(fn, **_):
    def run(*args):
        result = fn(*args)
        fn.__globals__["LOG"].clear()
        return result

    return run


def test_random_programs_do_compiled_what_they_do_in_eager(tmp_path):
    found = []
    totals = shards.run_shard(tmp_path / "state.json", SEEDS, BACKEND, report=found.append)
    assert not totals.differing, "\n".join(found) + shards.script(next(iter(totals.differing.values()))[0], BACKEND)
    assert totals.counts["programs"] == len(SEEDS)
    assert totals.too_low() == []


def test_random_programs_of_tensors_do_compiled_what_they_do_in_eager(tmp_path):
    found = []
    seeds = range(21000 + SHARD, 21000 + PROGRAMS, SHARDS)
    backend = "aot_eager" if BACKEND == "eager" else BACKEND
    totals = shards.run_shard(tmp_path / "state.json", seeds, backend, report=found.append, grammar="tensors")
    assert not totals.differing, "\n".join(found)
    assert totals.counts["programs"] == len(seeds)


def test_callers_of_random_programs_meet_in_autograd_what_they_meet_in_eager(tmp_path):
    found = []
    seeds = range(1000, 1012)  # among more, some meet what docs/training.md says of one node and many
    backend = "aot_eager" if BACKEND == "eager" else BACKEND
    totals = shards.run_shard(tmp_path / "state.json", seeds, backend, report=found.append, grammar="autograd")
    assert not totals.differing, "\n".join(found)
    assert totals.counts["programs"] == len(seeds)


def test_a_compiler_that_captures_nothing_falls_below_the_floors():
    totals = shards.Totals()
    for seed in range(3):
        assert shards.run_seed(seed, totals, "eager", uncompiled) is None
    assert len(totals.too_low()) == len(shards.FLOORS)


def test_a_lost_side_effect_is_a_difference():
    difference = comparison.compare(COUNTING, compiler=forgetful).difference
    assert difference is not None and difference.kind == "globals" and difference.call == 0
    assert comparison.compare(COUNTING).difference is None


def test_what_only_a_collection_frees_goes_between_calls():
    before = gc.get_threshold()
    try:
        for threshold in (1, 50, 1 << 30):
            gc.set_threshold(threshold)
            assert comparison.compare(WAITING).difference is None
            assert comparison.compare(WAITING, compiler=uncompiled).difference is None
    finally:
        gc.set_threshold(*before)
    assert gc.isenabled() and gc.get_freeze_count() == 0


def test_the_minimised_program_is_what_makes_the_difference():
    def fails(text):
        found = comparison.compare(text, compiler=forgetful).difference
        return found is not None and found.kind == "globals"

    small = minimise.minimised(COUNTING, fails, 20)
    assert fails(small)
    assert "LOG.append" in small and "for" not in small and "between" not in small and "* 2" not in small


def test_a_shard_goes_on_where_it_stopped_and_reports_what_it_died_of(tmp_path: Path):
    state = tmp_path / "state.json"
    first = shards.run_shard(state, range(0, 3, 2), "eager", seconds=0.0)
    assert (first.next, first.counts) == (0, {})
    state.write_text(shards.json.dumps({**shards.asdict(first), "running": 0}))
    found = []
    second = shards.run_shard(state, range(0, 3, 2), "eager", report=found.append)
    assert (second.next, second.counts["programs"], second.differing) == (4, 1, {"crash": [0]})
    assert found == ["seed 0: the process died"]


@hypothesis.given(st.integers(0, 2**40))
@hypothesis.settings(max_examples=30, deadline=None, derandomize=True)
def test_every_seed_gives_a_program_that_compiles_and_is_the_same_each_time(seed):
    program = programs.make_program(seed)
    compile(program.text, "<random program>", "exec")
    assert program.text == programs.make_program(seed).text
    assert torch.is_grad_enabled()


def test_programs_of_habits_do_compiled_what_they_do_in_eager(tmp_path):
    found = []
    totals = shards.run_shard(tmp_path / "state.json", SEEDS, BACKEND, report=found.append, grammar="habits")
    assert not totals.differing, "\n".join(found)
    assert totals.counts["programs"] == len(SEEDS)


def test_each_habit_is_text_that_python_reads():
    for at in range(len(habit_forms.FORMS)):
        writer = habits.HabitWriter(at)
        writer.classes, writer.globals = {}, {}
        form = habit_forms.FORMS[at]
        with mock.patch.object(habits, "FORMS", [form]):
            lines = writer.habit(expressions.Scope({}, "3"))
        compile("\n".join(lines), "<form>", "exec")
        assert "@" not in "".join(lines).replace("@tagged", "") or "matmul" in form[0]
