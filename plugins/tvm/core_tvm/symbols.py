"""Sizes that are known only at run time: torch's symbolic numbers as expressions of TVM and as Python text."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch

from .registry import Refused

Forms = Mapping[str, Callable[..., Any]]
"""How one notation writes numbers ("number"), sums ("+"), products ("*"), floor quotients ("//"), remainders ("%") and
the extremes ("max", "min")."""

PYTHON: Forms = {
    "number": str,
    "+": lambda x, y: f"({x} + {y})",
    "*": lambda x, y: f"({x} * {y})",
    "//": lambda x, y: f"({x} // {y})",
    "%": lambda x, y: f"({x} % {y})",
    "max": lambda x, y: f"max({x}, {y})",
    "min": lambda x, y: f"min({x}, {y})",
}
_QUOTIENTS = ("FloorDiv", "CleanDiv")
_REMAINDERS = ("Mod", "PythonMod")


def expression_of(size: Any) -> Any:
    """The sympy expression of a symbolic integer. Raises Refused for other numbers that are known only at run time."""
    if not isinstance(size, torch.SymInt):
        raise Refused(f"a {type(size).__name__} that is known only at run time is left to the fallback")
    return size.node.expr


def symbols_of(size: Any) -> set[str]:
    """Names of the symbols in a size; none for a number."""
    if isinstance(size, int):
        return set()
    return {symbol.name for symbol in expression_of(size).free_symbols}


def written(size: Any, symbol: Callable[[str], Any], forms: Forms) -> Any:
    """A size in the notation of `forms`; `symbol` gives a symbol by its name. Raises Refused for what has no form."""
    if isinstance(size, int):
        return forms["number"](size)
    return _written(expression_of(size), symbol, forms)


def _written(expression: Any, symbol: Callable[[str], Any], forms: Forms) -> Any:
    if expression.is_Integer:
        return forms["number"](int(expression))
    if expression.is_Symbol:
        return symbol(expression.name)
    name = type(expression).__name__
    if expression.is_Pow and expression.exp.is_Integer and int(expression.exp) > 0:
        base = _written(expression.base, symbol, forms)
        return functools.reduce(forms["*"], [base] * int(expression.exp))
    if name == "ModularIndexing":
        base, divisor, modulus = (_written(part, symbol, forms) for part in expression.args)
        return forms["%"](forms["//"](base, divisor), modulus)
    form = {"Add": "+", "Mul": "*", "Max": "max", "Min": "min"}.get(name)
    form = form or ("//" if name in _QUOTIENTS else "%" if name in _REMAINDERS else None)
    if form is None:
        raise Refused(f"the size {expression} has no form here")
    return functools.reduce(forms[form], [_written(part, symbol, forms) for part in expression.args])


@functools.cache
def tvm_forms() -> Forms:
    """The notation of TVM's expressions of int64."""
    from tvm import tirx

    return {
        "number": lambda value: tirx.IntImm("int64", value),
        "+": lambda x, y: x + y,
        "*": lambda x, y: x * y,
        "//": tirx.floordiv,
        "%": tirx.floormod,
        "max": tirx.max,
        "min": tirx.min,
    }
