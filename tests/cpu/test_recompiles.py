"""Recompiles: when a call misses, what is said about it, where it ends, and who owns the entries."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
import warnings
import weakref
from pathlib import Path

import pytest
import torch
from compare import same

import core
from core import events

X = torch.arange(6.0).reshape(2, 3)
HERE = Path(__file__).parent


def reasons():
    """A list that collects the reasons of each recompile."""
    found: list[str] = []
    events.subscribe(lambda event: found.extend(event.reasons) if isinstance(event, events.Recompiled) else None)
    return found


def test_the_reason_names_what_changed_and_the_line_that_relied_on_it():
    def fn(x, mode):
        return x + 1 if mode == "add" else x - 1

    compiled = core.compile(fn, backend="eager")
    found = reasons()
    compiled(X, "add")
    compiled(X, "sub")
    assert len(found) == 1
    assert "L['mode'] was 'add', now 'sub'" in found[0]
    assert f"test_recompiles.py:{fn.__code__.co_firstlineno + 1}" in found[0]


def test_past_the_limit_one_warning_lists_the_guards_and_new_cases_run_eager():
    def fn(x, key):
        return x + len(key)

    compiled = core.compile(fn, backend="eager", recompile_limit=3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for key in "abcdefgh":
            assert same(compiled(X, key * 2), fn(X, key * 2))
    mine = [str(w.message) for w in caught if "recompile_limit=3" in str(w.message)]
    assert len(mine) == 1
    assert mine[0].count("L['key'] was") == 3
    assert core.stats()["frames"] == 3
    hits = compiled.hits
    compiled(X, "aa")
    assert compiled.hits == hits + 1


def test_past_the_limit_fullgraph_raises():
    def fn(x, key):
        return x + len(key)

    compiled = core.compile(fn, backend="eager", recompile_limit=2, fullgraph=True)
    compiled(X, "a")
    compiled(X, "b")
    with pytest.raises(core.RecompileLimit, match="recompile_limit"):
        compiled(X, "c")
    assert same(compiled(X, "a"), fn(X, "a"))


def test_entries_that_die_unused_count_towards_the_limit():
    class Marker:
        pass

    def fn(x, cls):
        return x + (1 if cls is Marker else 2)

    compiled = core.compile(fn, backend="eager", recompile_limit=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(12):
            assert same(compiled(X, type("Fresh", (), {})), X + 2)
            gc.collect()
    assert core.stats()["frames"] <= 4


def test_reset_drops_entries_and_lifts_the_limit():
    def fn(x, key):
        return x + len(key)

    compiled = core.compile(fn, backend="eager", recompile_limit=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled(X, "a")
        compiled(X, "b")
    core.reset()
    assert compiled.entries() == []
    compiled(X, "b")
    assert core.stats()["frames"] == 1


def test_lambdas_made_for_each_call_share_an_entry():
    def fn(x, transform):
        return transform(x) * 2

    compiled = core.compile(fn, backend="eager")
    for k in range(10):
        assert same(compiled(X, lambda v: v + 1), fn(X, lambda v: v + 1))
        assert same(compiled(X, lambda v: v + 2), fn(X, lambda v: v + 2))
        assert same(compiled(X, lambda v, k=k: v * k), fn(X, lambda v, k=k: v * k))
    assert core.stats()["frames"] <= 5


def test_a_thousand_closures_of_one_code_have_their_own_entries_and_limits():
    def make(k):
        def closure(x):
            return x + k

        return closure

    closures = [make(float(k)) for k in range(1000)]
    compiled = [core.compile(closure, backend="eager") for closure in closures[:40]]
    for k, one in enumerate(compiled):
        assert torch.equal(one(X), X + k)
    assert core.stats()["frames"] == 40
    assert core.stats()["recompiles"] == 0
    for k, one in enumerate(compiled):
        assert torch.equal(one(X), X + k)
    assert core.stats()["frames"] == 40


def test_compiling_in_a_loop_compiles_once():
    def fn(x):
        return x * 2

    for _ in range(5):
        assert same(core.compile(fn, backend="eager")(X), X * 2)
    keep = core.compile(fn, backend="eager")
    frames = core.stats()["frames"]
    for _ in range(5):
        core.compile(fn, backend="eager")(X)
    keep(X)
    assert core.stats()["frames"] <= frames + 1


def test_one_function_with_two_backends_nested_in_each_other():
    used = []

    def first(gm, inputs):
        used.append("first")
        return gm

    def second(gm, inputs):
        used.append("second")
        return gm

    def inner(x):
        return x * 2

    with_second = core.compile(inner, backend=second)

    def outer(x):
        y = inner(x) + 1
        print(y.shape)
        return with_second(y) - 1

    with_first = core.compile(outer, backend=first)
    inner_first = core.compile(inner, backend=first)
    for _ in range(2):
        assert same(with_first(X), outer(X))
        assert same(inner_first(X), inner(X))
        assert same(with_second(X), inner(X))
    assert used.count("second") == 1
    assert used.count("first") >= 2


def test_a_dropped_model_is_freed_with_its_entry():
    def fn(model, x):
        return model(x)

    compiled = core.compile(fn, backend="eager")
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
    compiled(model, X)
    gone, weight = weakref.ref(model), weakref.ref(model[0].weight)
    del model
    gc.collect()
    assert gone() is None
    assert weight() is None
    assert compiled.entries() == []


def test_a_replaced_weight_is_freed_at_the_next_miss():
    def fn(model, x):
        return model(x)

    compiled = core.compile(fn, backend="eager")
    model = torch.nn.Linear(3, 3)
    compiled(model, X)
    weight = weakref.ref(model.weight)
    for _ in range(4):
        model.weight = torch.nn.Parameter(torch.randn(3, 3))
        assert same(compiled(model, X), model(X))
    gc.collect()
    assert weight() is None
    assert core.stats()["frames"] == 2


def test_a_compiled_function_is_freed():
    def make():
        big = torch.ones(10)

        def fn(x):
            return x + big.sum()

        return fn, weakref.ref(big)

    fn, big = make()
    compiled = core.compile(fn, backend="eager")
    compiled(X)
    gone = weakref.ref(compiled)
    del fn, compiled
    gc.collect()
    assert gone() is None
    assert big() is None


def run_script(body: str) -> str:
    """Run a script in a process of its own; what it printed."""
    prelude = "import gc, sys, torch, core\nX = torch.arange(6.0).reshape(2, 3)\n" + textwrap.dedent(
        """
        def resident_kb():
            gc.collect()
            for line in open("/proc/self/status"):
                if line.startswith("VmRSS"):
                    return int(line.split()[1])
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", prelude + textwrap.dedent(body)], capture_output=True, text=True, cwd=HERE.parents[1]
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
class TestMemory:
    def test_warm_calls_use_no_memory(self):
        out = run_script(
            """
            fn = core.compile(lambda x: x + 1, backend=lambda gm, inputs: lambda x: (x,))
            for _ in range(1000): fn(X)
            before = resident_kb()
            for _ in range(1_000_000): fn(X)
            print(resident_kb() - before)
            """
        )
        assert int(out) < 1500

    def test_misses_past_the_limit_use_no_memory(self):
        out = run_script(
            """
            import warnings
            warnings.simplefilter("ignore")
            fn = core.compile(lambda x, key: x, backend="eager", recompile_limit=2)
            for n in range(1000): fn(X, str(n))
            before = resident_kb()
            for n in range(100_000): fn(X, str(n))
            print(resident_kb() - before)
            """
        )
        assert int(out) < 1500

    def test_raising_ten_thousand_times_neither_captures_nor_leaks(self):
        out = run_script(
            """
            def fail(x):
                y = x + 1
                raise KeyError("always")
            fn = core.compile(fail, backend="eager")
            def call():
                try: fn(X)
                except KeyError: pass
            for _ in range(500): call()
            frames, before = core.stats()["frames"], resident_kb()
            for _ in range(10_000): call()
            print(core.stats()["frames"] - frames, resident_kb() - before)
            """
        )
        frames, kilobytes = map(int, out.split())
        assert frames == 0
        assert kilobytes < 1500

    def test_captures_that_are_dropped_leave_no_memory(self):
        out = run_script(
            """
            def cycle():
                fn = core.compile(lambda x: (x + 1) * 2, backend="eager")
                fn(X)
            for _ in range(60): cycle()
            before = resident_kb()
            for _ in range(200): cycle()
            print(resident_kb() - before)
            """
        )
        assert int(out) < 200 * 4  # torch.fx keeps the source of each graph module it made
