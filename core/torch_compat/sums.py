"""Sums of symbolic numbers, one of which became known.

torch remembers that an expression adds different symbols, and then merges the terms of further sums by their order. It
goes on to believe so when a guard has made the expression a number or a product: `a + b`, known to be 9, plus `a` came
out as `a` (torch 2.11 and 2.13). Which sizes a program computes depends on it, so the belief is checked here.
"""

from __future__ import annotations

from typing import Any


def check_beliefs() -> None:
    """Let torch merge the terms of what is a sum of symbols only. The second call and later ones do nothing."""
    from torch.fx.experimental import sym_node

    merge = getattr(sym_node, "_optimized_add", None)
    if merge is None or getattr(merge, "checks_beliefs", False):
        return

    def merge_what_is_a_sum(left: Any, right: Any, left_is_sum: bool = False, right_is_sum: bool = False) -> Any:
        return merge(left, right, left_is_sum and _is_sum(left), right_is_sum and _is_sum(right))

    merge_what_is_a_sum.checks_beliefs = True  # type: ignore[attr-defined]
    sym_node._optimized_add = merge_what_is_a_sum


def _is_sum(expression: Any) -> bool:
    return expression.is_Add and all(term.is_symbol for term in expression.args)
