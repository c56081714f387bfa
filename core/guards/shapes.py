"""Symbolic sizes: sympy relations of a ShapeEnv as postfix tokens for the guard program.

Sizes are integers; a relation that needs an operation without a token (bitwise or, an unknown function) raises
ShapeNotExpressible, and the caller asks sympy instead. Importing this module does not import sympy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .binding import Binding, Register

Token = tuple[Any, ...]

INT64 = range(-(2**63), 2**63)

RELATIONS = {
    "Equality": "eq",
    "Unequality": "ne",
    "StrictLessThan": "lt",
    "LessThan": "le",
    "StrictGreaterThan": "gt",
    "GreaterThan": "ge",
}
FOLDED = {"Add": "add", "Mul": "mul", "Min": "min", "Max": "max", "And": "and", "Or": "or"}
PAIRS = {"Mod": "mod", "PythonMod": "mod", "FloorDiv": "floordiv", "CleanDiv": "floordiv", "IntTrueDiv": "truediv"}
SYMBOLS_FOR_PEOPLE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


class ShapeNotExpressible(ValueError):
    """A relation uses an operation that the guard program does not have."""


def tokens(expr: Any, bindings: Mapping[str, Binding], register: Register) -> tuple[Token, ...]:
    """Postfix tokens of a sympy expression; `register(source)` gives the register that holds a source's value."""
    out: list[Token] = []
    _Postfix(bindings, register, out).visit(expr)
    return tuple(out)


def readable(expr: Any, bindings: Mapping[str, Binding]) -> str:
    """The relation with the symbols replaced by what they stand for: `L['x'].shape[0] < 8`."""
    import sympy

    names = {
        symbol: sympy.Symbol(bindings[symbol.name].name()) for symbol in expr.free_symbols if symbol.name in bindings
    }
    renamed = expr.xreplace(names)
    kind = RELATIONS.get(type(renamed).__name__)
    if kind is not None:
        return f"{renamed.lhs} {SYMBOLS_FOR_PEOPLE[kind]} {renamed.rhs}"
    return str(renamed)


class _Postfix:
    """One walk over one expression."""

    def __init__(self, bindings: Mapping[str, Binding], register: Callable[[Any], int], out: list[Token]) -> None:
        self.bindings = bindings
        self.register = register
        self.out = out

    def visit(self, expr: Any) -> None:
        kind = type(expr).__name__
        if expr is True or expr is False or kind in ("BooleanTrue", "BooleanFalse"):
            self.out.append(("const", int(bool(expr))))
        elif getattr(expr, "is_Symbol", False):
            self._symbol(expr)
        elif getattr(expr, "is_Number", False) or isinstance(expr, (int, float)):
            self._number(expr)
        elif kind in RELATIONS:
            self._fold(RELATIONS[kind], (expr.lhs, expr.rhs))
        elif kind == "Not":
            self._apply(("not",), expr.args)
        elif kind in FOLDED:
            self._fold(FOLDED[kind], self._ordered(expr))
        elif kind in PAIRS:
            self._fold(PAIRS[kind], expr.args)
        else:
            self._other(kind, expr)

    def _other(self, kind: str, expr: Any) -> None:
        if kind in ("Pow", "PowByNatural", "FloatPow"):
            self._power(*expr.args)
        elif kind == "Abs":
            self._apply(("abs",), expr.args)
        elif kind == "ModularIndexing":
            base, divisor, modulus = expr.args
            self._fold("floordiv", (base, divisor))
            self.visit(modulus)
            self.out.append(("mod",))
        elif kind == "CeilToInt" and type(expr.args[0]).__name__ == "IntTrueDiv":
            self._ceiling_division(*expr.args[0].args)
        elif kind in ("FloorToInt", "floor") and type(expr.args[0]).__name__ == "IntTrueDiv":
            self._fold("floordiv", expr.args[0].args)
        elif kind == "FloatTrueDiv":
            self._fold("truediv", expr.args)
        elif kind in ("ToFloat", "Identity"):
            self.visit(expr.args[0])
        elif kind == "CeilDiv":
            self._ceiling_division(*expr.args)
        elif kind in ("floor", "Floor"):
            self._floor(expr.args[0])
        else:
            raise ShapeNotExpressible(f"{kind} in {expr}")

    def _ordered(self, expr: Any) -> tuple[Any, ...]:
        # sympy's own order of arguments is canonical; constants last keeps intermediate sums small.
        return tuple(sorted(expr.args, key=lambda arg: bool(getattr(arg, "is_Number", False))))

    def _fold(self, op: str, args: tuple[Any, ...]) -> None:
        self.visit(args[0])
        for arg in args[1:]:
            self.visit(arg)
            self.out.append((op,))

    def _apply(self, token: Token, args: tuple[Any, ...]) -> None:
        self.visit(args[0])
        self.out.append(token)

    def _ceiling_division(self, numerator: Any, denominator: Any) -> None:
        self._apply(("neg",), (numerator,))
        self.visit(denominator)
        self.out.append(("floordiv",))
        self.out.append(("neg",))

    def _floor(self, arg: Any) -> None:
        numerator, denominator = arg.as_numer_denom()
        if denominator == 1:
            raise ShapeNotExpressible(f"floor({arg})")
        self._fold("floordiv", (numerator, denominator))

    def _power(self, base: Any, exponent: Any) -> None:
        if getattr(exponent, "is_integer", False) and getattr(exponent, "is_negative", False):
            self.out.append(("const", 1.0))
            self._power(base, -exponent) if exponent != -1 else self.visit(base)
            self.out.append(("truediv",))
            return
        self._fold("pow", (base, exponent))

    def _symbol(self, symbol: Any) -> None:
        binding = self.bindings.get(symbol.name)
        if binding is None:
            raise ShapeNotExpressible(f"the symbol {symbol} stands for no input")
        reg = self.register(binding.source)
        if binding.kind in ("size", "stride"):
            self.out.append((binding.kind, reg, binding.dim))
        else:
            self.out.append(("offset" if binding.kind == "offset" else "int", reg))

    def _number(self, number: Any) -> None:
        if isinstance(number, float) or getattr(number, "is_Float", False):
            self.out.append(("const", float(number)))
        elif isinstance(number, int) or getattr(number, "is_Integer", False):
            if int(number) not in INT64:
                raise ShapeNotExpressible(f"{number} is beyond 64 bits")
            self.out.append(("const", int(number)))
        elif getattr(number, "is_Rational", False):
            self._fold("truediv", (number.p, number.q))
        else:
            self._unbounded(number)

    def _unbounded(self, number: Any) -> None:
        # int_oo and its kin compare as infinities do.
        kind = type(number).__name__
        if kind in ("IntInfinity", "Infinity"):
            self.out.append(("const", float("inf")))
        elif kind in ("NegativeIntInfinity", "NegativeInfinity"):
            self.out.append(("const", float("-inf")))
        else:
            raise ShapeNotExpressible(f"the number {number}")
