"""An import inside compiled code runs its module as written: nothing of it is captured."""

from __future__ import annotations

import sys

import torch

import core
from core import events

MODULE = """
def helper(n):
    return n + 1

VALUES = [helper(i) for i in range(3)]
"""


def test_functions_that_run_while_a_module_is_imported_are_left_alone(tmp_path, monkeypatch):
    (tmp_path / "imported_inside.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "imported_inside", raising=False)

    def fn(x):
        import imported_inside

        return x * imported_inside.helper(len(imported_inside.VALUES))

    captured: list[str] = []
    unsubscribe = events.subscribe(
        lambda event: captured.append(event.function) if isinstance(event, events.FrameCaptured) else None
    )
    try:
        assert torch.equal(core.compile(fn, backend="eager")(torch.ones(2)), torch.full((2,), 4.0))
    finally:
        unsubscribe()
    assert core.stats()["breaks"] == 1 and core.stats()["graphs"] == 1
    assert len(captured) == 2 and all("<locals>.fn" in name for name in captured), captured
