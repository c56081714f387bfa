"""One operation of a kernel as a C++ expression, by type.

Integer arithmetic wraps as eager's does: additions and products go through the unsigned type. Comparisons with NaN are
false, minimum and maximum pass NaN on, relu(NaN) is NaN.
"""

from __future__ import annotations

import math
from typing import Any

from ..ir.dtypes import FLOATING
from . import math_double, vector_calls

C_TYPES = {
    "bool": "bool",
    "uint8": "unsigned char",
    "int8": "signed char",
    "int16": "short",
    "int32": "int",
    "int64": "long",
    "float32": "float",
    "float64": "double",
}
"""C types of values in registers."""

MEMORY_TYPES = {**C_TYPES, "bool": "unsigned char", "bfloat16": "unsigned short", "float16": "unsigned short"}
"""C types of elements in memory. GCC 12 has no vectors of bool: a loop that reads one would stay scalar."""

UNSIGNED = {"int64": "unsigned long", "int32": "unsigned", "int16": "unsigned", "int8": "unsigned", "uint8": "unsigned"}

VECTOR_FUNCTIONS = frozenset(
    "exp exp2 expm1 log log2 log10 log1p sigmoid tanh erf erf_beside_one exp_beside_one exp_and_one".split()
)
"""Functions with a branch-free float32 form in math.py."""

DOUBLE_FORMS = {
    **{name: f"{name}_d" for name in math_double.NAMES},
    "log": "log_wide",
    "erf_beside_one": "erf_d",
    "exp_beside_one": "exp_d",
}
"""The forms of those that have one in float64; the others are libm's."""

SCALAR_FUNCTIONS = frozenset(
    "sin cos tan asin acos atan sinh cosh asinh acosh atanh erfc lgamma pow atan2 hypot nextafter fmod".split()
)
"""Functions that libm computes one element at a time in either type."""

CALLED_WITH_VECTORS = frozenset(vector_calls.NAMES)
"""Those of them that a vectorised loop of float32 calls all the same."""

SERIAL = SCALAR_FUNCTIONS | {"floordiv", "remainder", "check_index"}
"""Operations that keep a loop from being vectorised (on floats)."""

EXPENSIVE = SERIAL | VECTOR_FUNCTIONS | {"div", "sqrt", "rsqrt"}
"""Operations worth saving for a later walk."""

SYMBOLS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
BITWISE = {"bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^"}
FLOAT_BUILTINS = {
    "floor": "floor",
    "ceil": "ceil",
    "trunc": "trunc",
    "round": "nearbyint",
    "sqrt": "sqrt",
    "abs": "fabs",
}
FLOAT_PAIRS = {"copysign": "copysign"}


def literal(value: Any, dtype: str) -> str:
    """A constant of a compute type."""
    if dtype == "bool":
        return "true" if value else "false"
    if dtype in FLOATING:
        f = "f" if dtype == "float32" else ""
        if math.isnan(value):
            return f'__builtin_nan{f}("")'
        if math.isinf(value):
            return f"{'-' if value < 0 else ''}__builtin_inf{f}()"
        return (
            f"{float(value).hex()}{f}"
            if value != int(value) or abs(value) > 1e6 or _negative_zero(value)
            else f"{int(value)}.0{f}"
        )
    if dtype == "int64":
        return f"(-{2**63 - 1}L - 1)" if value == -(2**63) else f"{value}L"
    return f"(({C_TYPES[dtype]}){value})" if dtype != "int32" or value == -(2**31) else str(value)


def _negative_zero(value: float) -> bool:
    return value == 0 and math.copysign(1.0, value) < 0


class Expressions:
    """Prints operations and remembers which functions of math.py they call."""

    def __init__(self) -> None:
        self.used: set[str] = set()

    def call(self, name: str, *args: str) -> str:
        """A call of a function that the translation unit must hold."""
        self.used.add(name)
        return f"{name}({', '.join(args)})"

    def load(self, pointer: str, offset: str, dtype: str) -> str:
        """The element at an offset, widened."""
        element = f"{pointer}[{offset}]"
        if dtype in ("bfloat16", "float16"):
            return self.call(f"load_{dtype}", element)
        return f"({element} != 0)" if dtype == "bool" else element

    def store(self, value: str, dtype: str) -> str:
        """A value as an element of `dtype` in memory."""
        if dtype in ("bfloat16", "float16"):
            return self.call(f"store_{dtype}", value)
        return value

    def operation(self, name: str, args: list[str], types: list[str], dtype: str, attr: Any = None) -> str:
        """The expression of any operation except loads, indices and folds."""
        if name == "const":
            return literal(attr, dtype)
        if name == "cast":
            return self.cast(args[0], types[0], dtype)
        if name in COMPARISONS:
            return f"{args[0]} {COMPARISONS[name]} {args[1]}"
        if name == "where":
            return f"{args[0]} ? {args[1]} : {args[2]}"
        if name == "logical_not":
            return f"!{args[0]}"
        if name in BITWISE:
            return f"({C_TYPES[dtype]})({args[0]} {BITWISE[name]} {args[1]})"
        if name in ("round_bfloat16", "round_float16"):
            return self.call(name, args[0])
        if name == "check_index":
            return self.call("checked_index", args[0], args[1], str(attr), "&status")
        if dtype in FLOATING or (types and types[0] in FLOATING):
            return self.floating(name, args, types[0] if types else dtype)
        return self.integral(name, args, dtype)

    def cast(self, value: str, source: str, target: str) -> str:
        """A conversion as eager's `to`."""
        if target == "bool":
            return f"{value} != 0"
        if source in FLOATING and target in ("uint8", "int8", "int16"):
            return f"({C_TYPES[target]})(long){value}"
        return f"({C_TYPES[target]}){value}"

    def floating(self, name: str, args: list[str], dtype: str) -> str:
        """An operation on float32 or float64."""
        single = dtype == "float32"
        suffix = "f" if single else ""
        a = args[0]
        b = args[1] if len(args) > 1 else ""
        if name in SYMBOLS:
            return f"{a} {SYMBOLS[name]} {b}"
        if name in FLOAT_BUILTINS:
            return f"__builtin_{FLOAT_BUILTINS[name]}{suffix}({a})"
        if name == "neg":
            return f"-{a}"
        if name == "fma":
            return f"__builtin_fma{suffix}({a}, {b}, {args[2]})"
        if name == "rsqrt":
            return f"1.0{suffix} / __builtin_sqrt{suffix}({a})"
        if name == "relu":
            return f"{a} < 0.0{suffix} ? 0.0{suffix} : {a}"
        if name == "maximum":
            return f"({a} > {b} || {a} != {a}) ? {a} : {b}"
        if name == "minimum":
            return f"({a} < {b} || {a} != {a}) ? {a} : {b}"
        if name == "fmax":
            return f"({a} > {b} || {b} != {b}) ? {a} : {b}"
        if name == "fmin":
            return f"({a} < {b} || {b} != {b}) ? {a} : {b}"
        if name == "sign":
            return f"(float)({a} > 0) - (float)({a} < 0)" if single else f"(double)({a} > 0) - (double)({a} < 0)"
        if name == "signbit":
            # GCC 12 has no instruction for its own signbit of a vector of 16-bit floats
            return f"__builtin_copysign{suffix}(1.0{suffix}, {a}) < 0.0{suffix}"
        if name == "copysign":
            return f"__builtin_copysign{suffix}({a}, {b})"
        if name == "truncdiv":
            return f"__builtin_trunc{suffix}({a} / {b})"
        if name in ("floordiv", "remainder"):
            return self.call(f"{name}_{'f' if single else 'd'}", a, b)
        if name in VECTOR_FUNCTIONS:
            return self.call(f"{name}_f" if single else DOUBLE_FORMS.get(name, name), a)
        if single and name in CALLED_WITH_VECTORS:
            return self.call(f"{name}_any", a)
        if name in SCALAR_FUNCTIONS:
            return self.call(f"{name}{suffix}", *args)
        raise NotImplementedError(f"{name} on {dtype}")

    def integral(self, name: str, args: list[str], dtype: str) -> str:
        """An operation on integers or bool."""
        kind = C_TYPES[dtype]
        a = args[0]
        b = args[1] if len(args) > 1 else ""
        if name in ("add", "sub", "mul"):
            wide = UNSIGNED.get(dtype, "unsigned")
            return f"({kind})(({wide}){a} {SYMBOLS[name]} ({wide}){b})"
        if name == "neg":
            return f"({kind})(0 - ({UNSIGNED.get(dtype, 'unsigned')}){a})"
        if name == "abs":
            return a if dtype == "uint8" else f"({kind})({a} < 0 ? 0 - ({UNSIGNED[dtype]}){a} : ({UNSIGNED[dtype]}){a})"
        if name in ("maximum", "minimum"):
            return f"{a} {'>' if name == 'maximum' else '<'} {b} ? {a} : {b}"
        if name == "relu":
            return f"{a} < 0 ? ({kind})0 : {a}"
        if name == "sign":
            return f"({kind})(({a} > 0) - ({a} < 0))"
        if name == "bitwise_not":
            return f"({kind})~{a}"
        if name == "truncdiv":
            return f"({kind})({a} / {b})"
        if name == "fmod":
            return f"({kind})({a} % {b})"
        if name == "floordiv":
            return f"({kind}){self.call('floor_quotient', f'(long){a}', f'(long){b}')}"
        if name == "remainder":
            return f"({kind}){self.call('floor_remainder', f'(long){a}', f'(long){b}')}"
        raise NotImplementedError(f"{name} on {dtype}")
