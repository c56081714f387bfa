"""Symbolic numbers written as nodes of a graph. Checked with torch 2.11 and 2.13."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch

LONGEST_PRODUCT = 64
"""Powers of symbols up to this one are written as products."""


def in_its_order(value: torch.SymFloat) -> torch.SymFloat:
    """The same number as a term that no later operation looks into.

    Symbolic arithmetic is that of real numbers, where sums cancel and products have no order: floats round after each
    operation.
    """
    from torch.fx.experimental.sym_node import SymNode

    node = value.node
    if not getattr(node.expr, "args", ()):  # a symbol or a literal
        return value
    return torch.SymFloat(SymNode(_whole_term()(node.expr), node.shape_env, float, node._hint))


@functools.cache
def _whole_term() -> Any:
    """The sympy function of one argument that is its argument, and stays around it until that is a number."""
    import sympy
    from torch.utils._sympy.functions import Identity
    from torch.utils._sympy.interp import handlers

    class Identity(Identity):  # type: ignore[no-redef]  # the name by which expressions are told apart
        @classmethod
        def eval(cls, term: Any) -> Any:
            if term.free_symbols:
                return term if isinstance(term, cls) else None
            return sympy.sympify(calculated(term))

    handlers()[Identity] = "identity"
    return Identity


def calculated(expr: Any) -> float:
    """The number that an expression without symbols is, each operation rounded."""
    if not expr.args:
        return float(expr)
    from torch.utils._sympy.interp import sympy_interp
    from torch.utils._sympy.reference import PythonReferenceAnalysis

    return float(sympy_interp(PythonReferenceAnalysis, {}, expr))


def known_difference(left: torch.SymInt, right: torch.SymInt) -> int | None:
    """left - right where it is the same for all values. torch decides comparisons of numbers that share an expression
    which sympy does not know to be real, as that of `a & b`, by the wrong side."""
    difference = left.node.expr - right.node.expr
    return int(difference) if difference.is_Integer else None


def write_expression(graph: Any, expr: Any, symbols: dict[Any, Any]) -> Any:
    """Write a sympy expression as call nodes; `symbols` maps its free symbols to nodes. Returns the last node."""
    import torch.fx as fx
    from torch.utils._sympy.interp import sympy_interp
    from torch.utils._sympy.reference import PythonReferenceAnalysis

    class Written(PythonReferenceAnalysis):
        @staticmethod
        def identity(x: Any) -> Any:
            return x

        @staticmethod
        def int_truediv(a: Any, b: Any) -> Any:
            return a / b  # on numbers of the call, so Python's own division

        @staticmethod
        def pow_by_natural(a: Any, b: Any) -> Any:
            # what sympy makes of products: of floats these are infinite where a power raises OverflowError
            if not isinstance(b, int) or not 1 <= b <= LONGEST_PRODUCT:
                return written(pow, a, b)  # fx writes `-2 ** x` for an operator, which is another number
            result = a
            for _ in range(b - 1):
                result = result * a
            return result

        @staticmethod
        def cos(x: Any) -> Any:
            return torch._sym_cos(x)

        @staticmethod
        def sin(x: Any) -> Any:
            return torch._sym_sin(x)

        @staticmethod
        def trunc_to_int(x: Any, dtype: Any) -> Any:
            return written(torch.sym_int, x)

        @staticmethod
        def floor_to_int(x: Any, dtype: Any) -> Any:
            return written(math.floor, x)

        @staticmethod
        def ceil_to_int(x: Any, dtype: Any) -> Any:
            return written(math.ceil, x)

        @staticmethod
        def floor(x: Any) -> Any:
            return written(torch.sym_float, written(math.floor, x))

        @staticmethod
        def ceil(x: Any) -> Any:
            return written(torch.sym_float, written(math.ceil, x))

        @staticmethod
        def round_to_int(x: Any, dtype: Any) -> Any:
            return written(round, x)

        @staticmethod
        def expr_cond_pair(value: Any, condition: Any) -> Any:
            return value, condition

        @staticmethod
        def piecewise(*pairs: Any) -> Any:
            *cases, (result, _) = pairs  # the last holds where no other does
            for value, condition in reversed(cases):
                result = written(torch.sym_ite, condition, value, result)
            return result

        @staticmethod
        def round_decimal(x: Any, digits: Any) -> Any:
            return written(round, x, digits)

    def written(fn: Any, *args: Any) -> Any:
        given = tuple(arg.node if isinstance(arg, fx.Proxy) else arg for arg in args)
        return fx.Proxy(graph.call_function(fn, given), tracer)

    tracer = fx.proxy.GraphAppendingTracer(graph)
    proxies = {symbol: fx.Proxy(node, tracer) for symbol, node in symbols.items()}
    result = sympy_interp(Written, proxies, expr)
    return result.node
