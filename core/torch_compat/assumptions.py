"""What torch's symbolic sizes were assumed to be. Checked with torch 2.11 and 2.13."""

from __future__ import annotations

from typing import Any


def assumptions(env: Any) -> list[str]:
    """All that the ShapeEnv takes for granted about its symbols: guards, promises, equalities, ranges."""
    promised = [item.expr for items in env.deferred_runtime_asserts.values() for item in items]
    facts = [*(guard.expr for guard in env.guards), *promised, *env.replacements.items()]
    return [str(fact) for fact in facts] + sorted(f"{symbol} in {held}" for symbol, held in env.var_to_range.items())
