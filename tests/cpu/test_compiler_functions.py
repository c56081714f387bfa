"""Functions that core has under the names of torch.compiler: artifacts in bytes, NumPy functions, and the rest."""

from __future__ import annotations

import operator
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

import core

COMPILES = """
import sys, torch, core
core.compile(lambda x: torch.sin(x) * 3 + x.cos(), backend="inductor")(torch.ones(8))
given = core.save_cache_artifacts()
open(sys.argv[1], "wb").write(given[0])
print(sorted(given[1].artifacts))
"""
LOADS = """
import sys, torch, core
info = core.load_cache_artifacts(open(sys.argv[1], "rb").read())
assert info and info.artifacts["inductor"], info
x = torch.ones(8)
assert torch.allclose(core.compile(lambda x: torch.sin(x) * 3 + x.cos(), backend="inductor")(x), x.sin() * 3 + x.cos())
print("loaded")
"""


def run(program, bundle, cache, **environment):
    variables = {**os.environ, "CORE_CACHE_DIR": str(cache), **environment}
    done = subprocess.run(
        [sys.executable, "-c", program, str(bundle)], capture_output=True, text=True, timeout=240, env=variables
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()


@pytest.mark.slow
def test_artifacts_of_one_process_serve_another_that_has_no_compiler(tmp_path):
    bundle = tmp_path / "bundle"
    assert "inductor" in run(COMPILES, bundle, tmp_path / "first")
    before = bundle.read_bytes()
    assert run(LOADS, bundle, tmp_path / "second", CXX="/nowhere/c++") == "loaded"
    assert os.stat(tmp_path / "second" / "inductor").st_mode & 0o077 == 0
    assert bundle.read_bytes() == before


def test_damaged_bundles_and_names_that_lead_out_are_not_loaded(tmp_path, monkeypatch):
    from core.cache import bundle

    monkeypatch.setenv("CORE_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "cache" / "artifacts").mkdir(parents=True)
    (tmp_path / "cache" / "artifacts" / "one.bin").write_bytes(b"content")
    whole, info = bundle.saved(0)
    assert info.artifacts == {"artifacts": ["one.bin"]}
    with pytest.warns(UserWarning, match="no whole bundle"):
        assert core.load_cache_artifacts(whole[:-1]) is None
    monkeypatch.setattr(bundle, "_files", lambda root: [root / "artifacts" / ".." / ".." / "outside"])
    (tmp_path / "outside").write_bytes(b"other")
    leading_out, _ = bundle.saved(0)
    with pytest.warns(UserWarning, match="no whole bundle"):
        assert core.load_cache_artifacts(leading_out) is None
    with pytest.raises(core.InvalidOption, match="takes bytes"):
        core.load_cache_artifacts("text")


def test_without_anything_compiled_there_is_no_bundle(tmp_path, monkeypatch):
    monkeypatch.setenv("CORE_CACHE_DIR", str(tmp_path))
    assert core.save_cache_artifacts() is None


def test_what_has_no_meaning_says_what_to_do_instead():
    assert core.set_enable_guard_collectives(False) is False
    with pytest.raises(core.InvalidOption, match="no collectives"):
        core.set_enable_guard_collectives(True)
    with pytest.raises(core.InvalidOption, match="save_cache_artifacts"):
        core.load_compiled_function(None)


def test_core_has_every_function_of_torch_compiler():
    assert [name for name in torch.compiler.__all__ if not hasattr(core, name)] == []


def test_a_function_of_arrays_is_one_graph_over_tensors():
    def fn(a, b, k=2):
        return np.sum(a * b), {"x": (a + k, [b])}

    core.reset()
    wrapped = core.wrap_numpy(fn)
    x, y = torch.randn(3), torch.randn(3)
    result = core.compile(wrapped, backend="eager", fullgraph=True)(x, y, k=3)
    expected = wrapped(x, y, k=3)
    assert torch.equal(result[0], expected[0]) and result[0].dtype is torch.float32
    assert torch.equal(result[1]["x"][0], x + 3)
    assert result[1]["x"][1][0].data_ptr() == y.data_ptr()
    assert core.stats()["graphs"] == 1
    with pytest.raises(RuntimeError, match="requires grad"):
        core.compile(wrapped, backend="eager")(x.requires_grad_(), y)


def test_what_torch_registered_to_be_traced_in_place_of_a_c_function_is():
    @torch.compiler.substitute_in_graph(operator.length_hint, skip_signature_check=True)
    def always_seven(value, default=0, /):
        return 7

    core.reset()
    fast = core.compile(lambda x: x + operator.length_hint([1, 2]), backend="eager", fullgraph=True)
    assert torch.equal(fast(torch.zeros(2)), torch.full((2,), 7.0))


SETTINGS = {
    "warnings": (torch.set_warn_always, torch.is_warn_always_enabled, False, True),
    "debug mode": (torch.set_deterministic_debug_mode, torch.get_deterministic_debug_mode, 0, 1),
    "autocast": (
        lambda on: torch.set_autocast_enabled("cpu", on),
        lambda: torch.is_autocast_enabled("cpu"),
        False,
        True,
    ),
    "autocast cache": (torch.set_autocast_cache_enabled, torch.is_autocast_cache_enabled, True, False),
    "conversion": (
        torch.__future__.set_swap_module_params_on_conversion,
        torch.__future__.get_swap_module_params_on_conversion,
        False,
        True,
    ),
    "stance": (torch.compiler.set_stance, lambda: core.stance.current().name, "default", "eager_on_recompile"),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_of_torch_is_changed_by_each_call(name):
    change, ask, before, after = SETTINGS[name]

    def fn(x):
        y = x + 1
        change(after)
        return y * 2

    core.reset()
    x, fast = torch.arange(3.0), core.compile(fn, backend="eager")
    try:
        for _ in range(3):
            assert torch.equal(fast(x), fn(x)) and ask() == after
            change(before)
            fast(x)
            assert ask() == after
            change(before)
    finally:
        change(before)
    with pytest.raises(core.Unsupported):
        core.compile(fn, backend="eager", fullgraph=True)(x)
    assert ask() == before


def test_a_stance_of_torch_inside_is_undone_where_its_block_ends():
    def fn(x):
        with torch.compiler.set_stance("force_eager"):
            y = x * 3
        return y + 1

    x, fast = torch.arange(3.0), core.compile(fn, backend="eager")
    for _ in range(2):
        assert torch.equal(fast(x), fn(x)) and core.stance.current().name == "default"
