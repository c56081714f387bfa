"""What torch's symbolic sizes were assumed to be. Checked with torch 2.11 and 2.13."""

from __future__ import annotations

from typing import Any

import torch


def assumptions(env: Any) -> list[str]:
    """All that the ShapeEnv takes for granted about its symbols: guards, promises, equalities, ranges."""
    promised = [item.expr for items in env.deferred_runtime_asserts.values() for item in items]
    facts = [*(guard.expr for guard in env.guards), *promised, *env.replacements.items()]
    return [str(fact) for fact in facts] + sorted(f"{symbol} in {held}" for symbol, held in env.var_to_range.items())


def condition_as_made(env: Any, expr: Any) -> Any:
    """The SymBool of a condition; its `_expr` is the expression itself, whatever equalities were found since."""
    from torch.fx.experimental.sym_node import SymNode

    return torch.SymBool(SymNode(expr, env, bool, None))


def unknown_number(beside: Any) -> Any:
    """A SymInt of a new symbol without a value, in the ShapeEnv of a symbolic number."""
    env = beside.node.shape_env
    with env.ignore_fresh_unbacked_symbols():
        return env.create_unbacked_symint()
