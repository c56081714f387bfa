"""set_stance: how compiled callables run, without compiling them anew."""

import importlib
import sys
from types import SimpleNamespace

import pytest
import torch

import core
import core.bridge
from core import events
from core.stance import current
from core.torch_compat import peer_stance

X = torch.arange(3.0)


def add(x, k=1):
    return x + k


@pytest.fixture(autouse=True)
def default_stance():
    yield
    core.set_stance("default")


def test_force_eager_runs_everything_as_written():
    compiled = core.compile(add, backend="eager")
    module = core.compile(torch.nn.Linear(3, 3), backend="eager")
    with core.set_stance("force_eager"):
        assert torch.equal(compiled(X), add(X))
        module(X)
    assert core.stats()["frames"] == 0
    compiled(X)
    assert core.stats()["frames"] == 1


def test_eager_on_recompile_uses_what_there_is_and_makes_nothing():
    compiled = core.compile(add, backend="eager")
    compiled(X)
    with core.set_stance("eager_on_recompile"):
        hits = compiled.hits
        compiled(X)
        assert compiled.hits == hits + 1
        assert torch.equal(compiled(torch.ones(5)), torch.full((5,), 2.0))
    assert len(compiled.entries()) == 1 and core.stats()["recompiles"] == 0


def test_fail_on_recompile_raises_with_the_guard_that_failed():
    compiled = core.compile(add, backend="eager")
    with core.set_stance("fail_on_recompile"):
        with pytest.raises(core.RecompileRefused, match="no entry yet"):
            compiled(X)
    compiled(X)
    with core.set_stance("fail_on_recompile"):
        compiled(X)
        with pytest.raises(RuntimeError, match=r"L\['x'\].shape\[0\] was 3, now 5") as raised:
            compiled(torch.ones(5))
    assert raised.value.id == "CORE-C004" and raised.value.where.function == "add"
    assert len(compiled.entries()) == 1


def test_fail_on_recompile_raises_also_past_the_limit():
    compiled = core.compile(lambda x, key: x + len(key), backend="eager", recompile_limit=1)
    compiled(X, "a")
    with pytest.warns(UserWarning, match="recompile_limit=1"):
        compiled(X, "b")
    assert compiled.frozen
    with core.set_stance("fail_on_recompile"), pytest.raises(core.RecompileRefused):
        compiled(X, "c")
    assert torch.equal(compiled(X, "cc"), X + 2)


def test_eager_then_compile_learns_sizes_and_numbers_from_the_first_call():
    compiled = core.compile(lambda x, n, more: x * n + more[0], backend="eager")
    with core.set_stance("eager_then_compile"):
        for size, n in ((3, 2), (4, 3), (5, 4)):
            assert torch.equal(compiled(torch.ones(size), n, [n]), torch.ones(size) * n + n)
    assert len(compiled.entries()) == 1
    assert core.stats()["frames"] == 1 and core.stats()["recompiles"] == 0


def test_skipped_guards_are_not_asked_while_there_is_one_entry():
    asked = core.compile(add, backend="eager")
    asked(X, 1)
    with core.set_stance(skip_guard_eval_unsafe=True):
        assert torch.equal(asked(X, 5), X + 1)  # wrong, as promised
        fresh = core.compile(lambda x: x * 2, backend="eager")
        assert torch.equal(fresh(X), X * 2)  # a first call compiles
    asked(X, 5)
    with core.set_stance(skip_guard_eval_unsafe=True):
        assert torch.equal(asked(X, 1), X + 1) and torch.equal(asked(X, 5), X + 5)
        with pytest.raises(core.RecompileRefused, match="skip_guard_eval_unsafe"):
            asked(X.to(torch.float64), 5)


def test_a_forced_backend_takes_the_place_of_each_callables_own():
    seen = []
    stop = events.subscribe(lambda e: seen.append(e.backend) if isinstance(e, events.GraphCaptured) else None)
    compiled = core.compile(add, backend="eager")
    try:
        compiled(X)
        with core.set_stance(force_backend="aot_eager"):
            for _ in range(2):
                assert torch.equal(compiled(X), add(X))
        compiled(X)
    finally:
        stop()
    assert seen == ["eager", "aot_eager"]
    with pytest.raises(core.InvalidOption, match="force_backend"):
        core.set_stance("force_eager", force_backend="eager")


def test_a_stance_is_a_statement_a_block_or_a_decorator():
    core.set_stance("force_eager")
    assert current().name == "force_eager"
    with core.set_stance("eager_on_recompile"):
        with core.set_stance("default"):
            assert current().name == "default"
        assert current().name == "eager_on_recompile"
    assert current().name == "force_eager"
    core.set_stance("default")

    @core.set_stance("fail_on_recompile")
    def inside():
        return current().name

    assert current().name == "default"
    assert (inside(), current().name, inside.__name__) == ("fail_on_recompile", "default", "inside")
    change = core.set_stance("force_eager")
    with change:
        pass
    assert current().name == "default"
    with change, change:
        assert current().name == "force_eager"
    assert current().name == "default"


def test_an_unknown_stance_is_an_error_and_changes_nothing():
    with pytest.raises(core.InvalidOption, match="force_eager"):
        core.set_stance("eager")
    assert current().name == "default"


def test_a_stance_that_is_set_inside_compiled_code_holds_from_there():
    def switches(x):
        y = x + 1
        core.set_stance("force_eager")
        return y * 2

    compiled = core.compile(switches, backend="eager")
    assert torch.equal(compiled(X), (X + 1) * 2)
    assert current().name == "force_eager"


def test_the_stance_of_torch_compile_is_followed():
    compiled = core.compile(add, backend="eager", dynamic=False)
    compiled(X)
    with torch.compiler.set_stance("force_eager"):
        hits = compiled.hits
        assert torch.equal(compiled(X), add(X)) and compiled.hits == hits
    with torch.compiler.set_stance("fail_on_recompile"):
        compiled(X)
        with pytest.raises(RuntimeError, match="fail_on_recompile"):
            compiled(torch.ones(5))

    @torch.compiler.set_stance("eager_on_recompile")
    def run():
        return compiled(torch.ones(5))

    assert torch.equal(run(), torch.full((5,), 2.0)) and len(compiled.entries()) == 1
    torch.compiler.set_stance("eager_then_compile")
    try:
        later = core.compile(lambda x: x * 2, backend="eager")
        for size in (3, 4, 5):
            assert torch.equal(later(torch.ones(size)), torch.full((size,), 2.0))
    finally:
        torch.compiler.set_stance("default")
    assert len(later.entries()) == 1 and current() == core.stance.Stance()
    compiled(torch.ones(5))
    assert len(compiled.entries()) == 2


def test_a_backend_that_torch_compile_is_forced_to_is_one_of_core():
    compiled = core.compile(add, backend="eager")
    for name, own in (("aot_eager", "aot_eager"), ("core_eager", "eager"), ("core", None)):
        with torch.compiler.set_stance(force_backend=name):
            assert current().force_backend == own
            assert torch.equal(compiled(X), add(X))
    with torch.compiler.set_stance(force_backend=core.bridge.backend_for("eager")):
        assert current().force_backend == "eager"
    with torch.compiler.set_stance(force_backend="missing"), pytest.raises(core.BackendNotInstalled):
        compiled(X)


def test_cores_own_stance_decides_where_both_are_set():
    with torch.compiler.set_stance("force_eager"), core.set_stance("fail_on_recompile"):
        assert current().name == "fail_on_recompile"
        core.set_stance("default")
        assert current().name == "force_eager"
    assert current().name == "default"


def test_a_stance_is_followed_before_and_after_the_module_that_keeps_it_is_loaded(monkeypatch, tmp_path):
    (tmp_path / "keeper.py").write_text(
        """
from types import SimpleNamespace
_stance = SimpleNamespace(stance="default")
def _set_stance(stance):
    global _stance
    before, _stance = _stance, stance
    return before
"""
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(peer_stance, "_SETTER", "keeper")
    monkeypatch.setattr(peer_stance, "_KEEPER", "keeper")
    told, finders = [], list(sys.meta_path)
    for _ in range(2):
        peer_stance.follow_stance(lambda *stance: told.append(stance))
    assert len(sys.meta_path) == len(finders) + 1 and not told
    keeper = importlib.import_module("keeper")
    monkeypatch.setitem(sys.modules, "keeper", keeper)
    assert sys.meta_path == finders and keeper.__loader__ is keeper.__spec__.loader
    before = keeper._set_stance(SimpleNamespace(stance="force_eager", skip_guard_eval_unsafe=True, backend=None))
    assert before.stance == "default" and told == [("default", False, None), ("force_eager", True, None)]
    keeper._set_stance = keeper._set_stance.__wrapped__  # as when it was loaded before core
    peer_stance.follow_stance(lambda *stance: told.append(stance))
    assert told[2:] == [("force_eager", True, None)]
    keeper._set_stance(before)
    assert told[-1] == ("default", False, None)
