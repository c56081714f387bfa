"""Single operations of a body as Triton expressions.

Precision: division is IEEE division (the same speed where memory decides), what eager takes from libdevice is taken
from libdevice here, and contraction is switched off when the kernel is compiled, so that chains of +, -, * give eager's
bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..ir.dtypes import FLOATING

TRITON_TYPES = {
    "bool": "tl.int1",
    "uint8": "tl.uint8",
    "int8": "tl.int8",
    "int16": "tl.int16",
    "int32": "tl.int32",
    "int64": "tl.int64",
    "float16": "tl.float16",
    "bfloat16": "tl.bfloat16",
    "float32": "tl.float32",
    "float64": "tl.float64",
}


class UnsupportedOperation(Exception):
    """Triton has no code for an operation; whoever holds the group gives it to another generator."""


INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "bitwise_and": "&",
    "bitwise_or": "|",
    "bitwise_xor": "^",
}

CALLS = {
    "abs": "tl.abs",
    "sqrt": "tl.sqrt",
    "rsqrt": "tl.rsqrt",
    "exp": "tl.exp",
    "exp2": "tl.exp2",
    "log": "tl.log",
    "log2": "tl.log2",
    "sin": "tl.sin",
    "cos": "tl.cos",
    "erf": "tl.erf",
    "erf_beside_one": "tl.erf",
    "exp_beside_one": "tl.exp",
    "exp_and_one": "exp_and_one",
    "floor": "tl.floor",
    "ceil": "tl.ceil",
    "where": "tl.where",
    "fma": "tl.fma",
    "tanh": "tanh",
    "trunc": "trunc",
    "sign": "sign",
    "sigmoid": "sigmoid",
}

LIBDEVICE = {
    "round": "rint",
    **{
        name: name
        for name in (
            "acos acosh asin asinh atan atan2 atanh copysign cosh erfc expm1 fmod hypot lgamma log10 log1p nextafter "
            "pow sinh tan"
        ).split()
    },
}
"""Functions that Triton takes from the GPU's math library; its interpreter has none of them."""


def literal(value: Any, dtype: str) -> str:
    """A constant of a compute type. tl.full, because a bare float64 literal would become a float32."""
    if isinstance(value, float) and not math.isfinite(value):
        text = f'float("{value}")'
    else:
        text = repr(value)
    return f"tl.full((), {text}, {TRITON_TYPES[dtype]})"


def operation(name: str, args: list[str], dtype: str, operand_dtype: str) -> str:
    """The expression of an operation on named values. Raises UnsupportedOperation.

    dtype is the result's compute type, operand_dtype that of the last operand.
    """
    if name in INFIX:
        return f"{args[0]} {INFIX[name]} {args[1]}"
    if name == "tanh" and dtype == "float64":
        return f"libdevice.tanh({args[0]})"  # the prelude's own one has the precision of float32
    if name == "sqrt" and dtype == "float32":
        return f"tl.sqrt_rn({args[0]})"
    if name in CALLS:
        return f"{CALLS[name]}({', '.join(args)})"
    if name in LIBDEVICE:
        return f"libdevice.{LIBDEVICE[name]}({', '.join(args)})"
    special = _SPECIAL.get(name)
    if special is None:
        raise UnsupportedOperation(f"Triton has no code for the operation {name!r}")
    return special(args, dtype, operand_dtype)


def _div(args: list[str], dtype: str, operand: str) -> str:
    return f"tl.div_rn({args[0]}, {args[1]})" if dtype == "float32" else f"{args[0]} / {args[1]}"


def _cast(args: list[str], dtype: str, operand: str) -> str:
    if dtype == "bool":
        return f"{args[0]} != 0"
    return f"{args[0]}.to({TRITON_TYPES[dtype]})"


def _extreme(name: str) -> Any:
    def text(args: list[str], dtype: str, operand: str) -> str:
        if dtype in FLOATING:
            return f"tl.{name}({args[0]}, {args[1]}, propagate_nan=tl.PropagateNan.ALL)"
        return f"tl.{name}({args[0]}, {args[1]})"

    return text


def _quotient(args: list[str], dtype: str, operand: str) -> str:
    return f"{'float_floordiv' if dtype in FLOATING else 'floor_quotient'}({args[0]}, {args[1]})"


def _remainder(args: list[str], dtype: str, operand: str) -> str:
    return f"{'float_remainder' if dtype in FLOATING else 'floor_remainder'}({args[0]}, {args[1]})"


def _truncdiv(args: list[str], dtype: str, operand: str) -> str:
    return f"trunc({_div(args, dtype, operand)})" if dtype in FLOATING else f"{args[0]} // {args[1]}"


_SPECIAL: dict[str, Callable[[list[str], str, str], str]] = {
    "div": _div,
    "cast": _cast,
    "neg": lambda args, dtype, operand: f"-{args[0]}",
    "relu": lambda args, dtype, operand: f"tl.where({args[0]} < 0, 0, {args[0]})",
    "square": lambda args, dtype, operand: f"{args[0]} * {args[0]}",
    "isnan": lambda args, dtype, operand: f"{args[0]} != {args[0]}",
    "logical_not": lambda args, dtype, operand: f"{args[0]} == 0",
    "bitwise_not": lambda args, dtype, operand: f"~{args[0]}",
    "maximum": _extreme("maximum"),
    "minimum": _extreme("minimum"),
    "fmax": lambda args, dtype, operand: f"tl.maximum({args[0]}, {args[1]})",
    "fmin": lambda args, dtype, operand: f"tl.minimum({args[0]}, {args[1]})",
    "floordiv": _quotient,
    "remainder": _remainder,
    "truncdiv": _truncdiv,
    "round_bfloat16": lambda args, dtype, operand: f"{args[0]}.to(tl.bfloat16).to(tl.float32)",
    "round_float16": lambda args, dtype, operand: f"{args[0]}.to(tl.float16).to(tl.float32)",
}

PRELUDE = """\
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def floor_quotient(a, b):
    q = a // b
    return tl.where((a % b != 0) & ((a < 0) != (b < 0)), q - 1, q)


@triton.jit
def floor_remainder(a, b):
    r = a % b
    return tl.where((r != 0) & ((r < 0) != (b < 0)), r + b, r)


@triton.jit
def trunc(x):
    return tl.where(x < 0, tl.ceil(x), tl.floor(x))


@triton.jit
def sign(x):
    return ((x > 0).to(tl.int32) - (x < 0).to(tl.int32)).to(x.dtype)


@triton.jit
def exp_and_one(x):
    return tl.full((), 1.0, x.dtype) + tl.exp(x)


@triton.jit
def sigmoid(x):
    return tl.full((), 1.0, x.dtype) / exp_and_one(-x)


@triton.jit
def tanh(x):
    # Near zero the odd polynomial of the Cephes library (float32), elsewhere 1 - 2 / (exp(2|x|) + 1).
    one = tl.full((), 1.0, x.dtype)
    size = tl.abs(x)
    far = one - 2 / (tl.exp(2 * size) + one)
    z = x * x
    p = (((-5.70498872745e-3 * z + 2.06390887954e-2) * z - 5.37397155531e-2) * z + 1.33314422036e-1) * z
    near = x + x * z * (p - 3.33332819422e-1)
    return tl.where(size < 0.625, near, tl.where(x < 0, -far, far))


@triton.jit
def float_remainder(a, b):
    r = a % b
    return tl.where((r != 0) & ((r < 0) != (b < 0)), r + b, r)


@triton.jit
def float_floordiv(a, b):
    r = a % b
    q = (a - r) / b
    q = tl.where((r != 0) & ((r < 0) != (b < 0)), q - 1, q)
    whole = tl.floor(q)
    whole = tl.where(q - whole > 0.5, whole + 1, whole)
    return tl.where(b == 0, a / b, whole)


@triton.jit
def larger(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def smaller(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def times(a, b):
    return a * b


@triton.jit
def first_largest(a, i, b, j):
    left = ((a > b) | ((a != a) & (b == b))) | (((a == b) | ((a != a) & (b != b))) & (i < j))
    return tl.where(left, a, b), tl.where(left, i, j)


@triton.jit
def first_smallest(a, i, b, j):
    left = ((a < b) | ((a != a) & (b == b))) | (((a == b) | ((a != a) & (b != b))) & (i < j))
    return tl.where(left, a, b), tl.where(left, i, j)
"""
"""What every printed program begins with: functions that Triton lacks, and the folds of reductions."""
