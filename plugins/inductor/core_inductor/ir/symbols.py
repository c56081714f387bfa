"""The one edge to sympy: sizes of fake tensors become index expressions.

Enters: ints and torch.SymInt. Leaves: `Index` values, and which symbol a run-time value binds. Static graphs never
import sympy here.
"""

from __future__ import annotations

from typing import Any

import torch

from .. import torch_compat
from . import expr
from .expr import Index


class SymbolTable:
    """Converts the symbolic sizes of one graph, each expression once."""

    def __init__(self) -> None:
        self._converted: dict[Any, Index] = {}
        self.names: dict[str, Any] = {}

    def index(self, value: int | torch.SymInt) -> Index:
        """The index expression of a size."""
        if isinstance(value, int):
            return int(value)
        node = value.node
        known = node.maybe_as_int()
        if known is not None:
            return int(known)
        e = node.expr
        if e not in self._converted and not e.is_Symbol and torch_compat.is_surely_one(value):
            self._converted[e] = 1  # it was asked when shapes were broadcast, and is guarded
        return self._convert(e, node)

    def _convert(self, e: Any, node: Any) -> Index:
        known = self._converted.get(e)
        if known is None:
            known = self._converted[e] = self._build(e, node)
        return known

    def _build(self, e: Any, node: Any) -> Index:
        if e.is_Integer:
            return int(e)
        if e.is_Symbol:
            name = str(e)
            self.names[name] = e
            return expr.size_var(name, _hint_of(e, node))
        if any(map(_is_identity, e.args)):  # by which torch keeps a part from being expanded; it is the part itself
            return self._convert(e.func(*(a.args[0] if _is_identity(a) else a for a in e.args)), node)
        if _is_function(e) and (any(not a.is_integer for a in e.args) or _may_be_negative(e, node)):
            # an integer made of a real number (int(x)), or by a function for which index expressions take sizes only
            return self._opaque(e)
        args = [self._convert(a, node) for a in e.args]
        if e.is_Add:
            return expr.total(args)
        if e.is_Mul:
            return expr.product(args)
        if e.is_Pow and isinstance(args[1], int) and args[1] >= 0:
            return expr.product([args[0]] * args[1])
        kind = type(e).__name__
        if kind in ("FloorDiv", "CleanDiv"):
            return expr.floordiv(args[0], args[1])
        if kind in ("Mod", "PythonMod"):
            return expr.mod(args[0], args[1])
        if kind == "ModularIndexing":
            return expr.mod(expr.floordiv(args[0], args[1]), args[2])
        if kind == "Abs":
            return expr.extremum(True, args[0], expr.product([-1, args[0]]))
        if kind in ("Max", "Min"):
            result = args[0]
            for a in args[1:]:
                result = expr.extremum(kind == "Max", result, a)
            return result
        return self._opaque(e)

    def _opaque(self, e: Any) -> Index:
        """A symbol for what index expressions can't say: known where it is computed, a size like others from there."""
        name = f"whole{len(self.names)}"
        self.names[name] = e
        return expr.size_var(name, 64)


def _hint_of(symbol: Any, node: Any) -> int:
    environment = node.shape_env
    table = "backed_var_to_val" if hasattr(environment, "backed_var_to_val") else "var_to_val"  # 2.13 and 2.11
    value = getattr(environment, table).get(symbol)
    return 64 if value is None else int(value)


def may_be_zero(size: Index) -> bool:
    """Whether a size is 0, or holds a symbol of torch's that has no value while compiling and may turn out to be it."""
    if isinstance(size, int):
        return size == 0
    return any(isinstance(atom, expr.SizeVar) and atom.name.startswith("u") for atom in expr.atoms_of(size))


def lone_size(size: Index) -> expr.SizeVar | None:
    """The symbol, where a size is one symbol and nothing else."""
    if isinstance(size, expr.Expr) and len(size.terms) == 1:
        ((monomial, coefficient),) = size.terms.items()
        if coefficient == 1 and len(monomial) == 1 and isinstance(monomial[0], expr.SizeVar):
            return monomial[0]
    return None


def size_in(size: Index) -> tuple[expr.SizeVar, str] | None:
    """The symbol of a size that is one symbol times a number plus another, and the text behind the size's that solves
    for it."""
    lone = lone_size(size)
    if lone is not None:
        return lone, ""
    if not isinstance(size, expr.Expr):
        return None
    rest = size.terms.get((), 0)
    factors = [(monomial, factor) for monomial, factor in size.terms.items() if monomial]
    if len(factors) != 1 or len(factors[0][0]) != 1:
        return None
    (atom,), factor = factors[0]
    if not isinstance(atom, expr.SizeVar):
        return None
    return atom, f".__sub__({rest})" + (f".__floordiv__({factor})" if factor != 1 else "")


def _is_identity(e: Any) -> bool:
    return type(e).__name__ == "Identity"


def _is_function(e: Any) -> bool:
    return bool(e.is_Function) or type(e).__name__ in ("Max", "Min", "Abs")


def _may_be_negative(e: Any, node: Any) -> bool:
    """True when a symbol of `e` stands for a number that is no size."""
    ranges = node.shape_env.var_to_range
    return any(symbol not in ranges or ranges[symbol].lower < 0 for symbol in e.free_symbols)
