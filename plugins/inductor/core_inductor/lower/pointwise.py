"""Elementwise operations: a table of formulas and the driver that broadcasts, promotes and rounds.

A formula is `fn(body, *values) -> value` on operands that already have the type computed in. The result's dtype is the
recorded one, to which each operation rounds: what a formula does in between stays in the type computed in.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from ..ir import expr
from ..ir.body import BodyBuilder
from ..ir.dtypes import FLOATING, HALF, INTEGRAL
from ..ir.expr import Index
from ..ir.nodes import Scalar, View
from .promotion import dtype_name, number_dtype, result_dtype
from .registry import lowers

Formula = Callable[..., int]


def broadcast_index(view_sizes: Sequence[Index], variables: Sequence[Index]) -> tuple[Index, ...]:
    """The index at which a broadcast operand is read."""
    skip = len(variables) - len(view_sizes)
    return tuple(0 if size == 1 else variables[skip + k] for k, size in enumerate(view_sizes))


def operand(
    body: BodyBuilder, value: Any, variables: Sequence[Index], dtype: str, *, exact_number: bool = False
) -> int:
    """The value of a tensor or number at the loop variables, converted to `dtype`, in its compute type.

    exact_number: a number, and a tensor of no dimension, is not rounded to 16 bits before it is computed with.
    """
    if isinstance(value, View):
        loaded = body.load_view(value, broadcast_index(value.sizes, variables))
        if value.dtype == dtype or exact_number and not value.sizes:
            return body.widen(loaded, dtype)
        return body.cast(loaded, dtype)
    return body.widen(number(body, value), dtype) if exact_number else body.cast(number(body, value), dtype)


def number(body: BodyBuilder, value: Any) -> int:
    """A Python or symbolic number as a value: int64, float64 or bool."""
    if isinstance(value, Scalar):
        if value.expr is not None:
            return body.index(value.expr)
        return body.emit("scalar", (), "float64", value.name)
    return body.const(value, "bool" if isinstance(value, bool) else "int64" if isinstance(value, int) else "float64")


def is_number(value: Any) -> bool:
    """A real Python or symbolic number."""
    return isinstance(value, (bool, int, float)) or (
        isinstance(value, Scalar) and (value.expr is not None or (value.name or "").startswith(("a", "n")))
    )


def elementwise(
    lowering: Any,
    node: fx.Node,
    formula: Formula,
    operands: Sequence[Any],
    *,
    compute: str | None = None,
    exact_numbers: bool = False,
) -> Any:
    """A pointwise node: `formula` of the operands in type `compute` (the result's own when omitted).

    exact_numbers: numbers behind the first operand are not rounded to 16 bits, as eager's products don't.
    """
    fake = node.meta["val"]
    dtype = compute or dtype_name(fake.dtype)
    if not all(isinstance(o, View) or is_number(o) for o in operands):
        return NotImplemented

    def build(body: BodyBuilder, variables: tuple[Index, ...]) -> int:
        first, *rest = operands
        values = [operand(body, first, variables, dtype)]
        values += [operand(body, o, variables, dtype, exact_number=exact_numbers) for o in rest]
        return formula(body, *values)

    return lowering.pointwise(fake, build, origin=node)


# --- one operation of the IR an overload ------------------------------------------------------------------------------

FLOAT_UNARY = (
    "sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh "
    "erf erfc sigmoid lgamma"
).split()
"""Overloads `aten::NAME` whose result is floating for every input type."""

SAME_UNARY = "neg abs floor ceil trunc round sign".split()
"""Overloads whose result has the input's type; on integers floor, ceil, trunc and round do nothing."""


ONE_BY_ONE = frozenset(
    "sin cos tan asin acos atan sinh cosh asinh acosh atanh erfc lgamma pow atan2 hypot fmod remainder floordiv".split()
)
"""Functions of floats that generated code calls for one element after the other, where eager has vectors."""

WITH_VECTORS = frozenset({"sin", "cos"})
"""Those that a loop over values computed in float32 calls with whole vectors, on processors with AVX2."""


@functools.cache
def _has_vectors() -> bool:
    return torch.backends.cpu.get_cpu_capability().startswith("AVX")


FEW = 1024
"""Elements up to which one by one takes no longer than another call: some 5 us."""


def _in_vectors(lowering: Any, node: fx.Node, name: str) -> bool:
    """Whether eager's kernel computes the function of this many elements faster than a fused loop."""
    if name in WITH_VECTORS and dtype_name(node.meta["val"].dtype) != "float64" and _has_vectors():
        return False
    sizes = lowering.sizes(node.meta["val"])
    return name in ONE_BY_ONE and lowering.device == "cpu" and expr.hint(expr.product(sizes)) > FEW


def _float_unary(name: str) -> Callable[..., Any]:
    def lower(lowering: Any, node: fx.Node, x: View) -> Any:
        if _in_vectors(lowering, node, name):
            return NotImplemented
        return elementwise(lowering, node, lambda body, a: body.op(name, a), (x,))

    return lower


def _same_unary(name: str) -> Callable[..., Any]:
    def lower(lowering: Any, node: fx.Node, x: View) -> Any:
        if x.dtype == "bool":
            return NotImplemented
        if x.dtype in INTEGRAL and name in ("floor", "ceil", "trunc", "round"):
            return elementwise(lowering, node, lambda body, a: a, (x,))
        return elementwise(lowering, node, lambda body, a: body.op(name, a), (x,))

    return lower


for _name in FLOAT_UNARY:
    lowers(_name)(_float_unary(_name))
for _name in SAME_UNARY:
    lowers(_name)(_same_unary(_name))


@lowers("reciprocal")
def reciprocal(lowering: Any, node: fx.Node, x: View) -> Any:
    """1 / x."""
    return elementwise(lowering, node, lambda body, a: body.op("div", body.const(1, body.dtype(a)), a), (x,))


@lowers("square")
def square(lowering: Any, node: fx.Node, x: View) -> Any:
    """x * x."""
    return elementwise(lowering, node, lambda body, a: body.op("mul", a, a), (x,))


@lowers("frac")
def frac(lowering: Any, node: fx.Node, x: View) -> Any:
    """x - trunc(x)."""
    return elementwise(lowering, node, lambda body, a: body.op("sub", a, body.op("trunc", a)), (x,))


# --- binary ----------------------------------------------------------------------------------------------------------

BINARY = {
    "mul": "mul",
    "maximum": "maximum",
    "minimum": "minimum",
    "atan2": "atan2",
    "copysign": "copysign",
    "hypot": "hypot",
    "fmax": "fmax",
    "fmin": "fmin",
    "nextafter": "nextafter",
}


def _binary(name: str) -> Callable[..., Any]:
    def lower(lowering: Any, node: fx.Node, x: Any, y: Any) -> Any:
        dtype = dtype_name(node.meta["val"].dtype)
        if dtype == "bool":
            if name not in ("mul", "maximum", "minimum"):
                return NotImplemented
            op = "bitwise_or" if name == "maximum" else "bitwise_and"
            return elementwise(lowering, node, lambda body, a, b: body.op(op, a, b), (x, y))
        if name in ("fmax", "fmin", "nextafter", "copysign", "hypot", "atan2") and dtype not in FLOATING:
            return NotImplemented
        if name == "nextafter" and dtype not in ("float32", "float64"):
            return NotImplemented
        if _in_vectors(lowering, node, name):
            return NotImplemented
        exact = name == "mul"
        return elementwise(lowering, node, lambda body, a, b: body.op(name, a, b), (x, y), exact_numbers=exact)

    return lower


for _name, _op in BINARY.items():
    lowers(_name, f"{_name}.Tensor", f"{_name}.Scalar", f"{_name}.default")(_binary(_op))


def _scaled(body: BodyBuilder, value: int, alpha: Any) -> int:
    if isinstance(alpha, (int, float)) and alpha == 1:
        return value
    return body.op("mul", body.widen(number(body, alpha), body.dtype(value)), value)


def _plus_product(body: BodyBuilder, addend: int, value: int, factor: int) -> int:
    """addend + value * factor; of floats rounded once, as in eager's kernels."""
    if body.dtype(value) in FLOATING:
        return body.op("fma", value, factor, addend)
    return body.op("add", addend, body.op("mul", factor, value))


def _scaled_sum(lowering: Any, node: fx.Node, x: Any, y: Any, alpha: Any, *, negative: bool) -> Any:
    """x + alpha * y, or x - alpha * y."""
    dtype = dtype_name(node.meta["val"].dtype)

    def formula(body: BodyBuilder, a: int, b: int) -> int:
        if isinstance(alpha, (int, float)) and alpha == 1:
            return body.op("sub" if negative else "add", a, b)
        factor = body.cast(number(body, alpha), dtype)
        return _plus_product(body, a, b, body.op("neg", factor) if negative else factor)

    return elementwise(lowering, node, formula, (x, y))


@lowers("add.Tensor", "add.Scalar")
def add(lowering: Any, node: fx.Node, x: Any, y: Any, alpha: Any = 1) -> Any:
    """x + alpha * y; logical or on bool."""
    if dtype_name(node.meta["val"].dtype) == "bool":
        if alpha != 1:
            return NotImplemented
        return elementwise(lowering, node, lambda body, a, b: body.op("bitwise_or", a, b), (x, y))
    return _scaled_sum(lowering, node, x, y, alpha, negative=False)


@lowers("sub.Tensor", "sub.Scalar")
def sub(lowering: Any, node: fx.Node, x: Any, y: Any, alpha: Any = 1) -> Any:
    """x - alpha * y."""
    return _scaled_sum(lowering, node, x, y, alpha, negative=True)


@lowers("rsub.Tensor", "rsub.Scalar")
def rsub(lowering: Any, node: fx.Node, x: Any, y: Any, alpha: Any = 1) -> Any:
    """y - alpha * x."""
    return _scaled_sum(lowering, node, y, x, alpha, negative=True)


def _safe_divisor(dtype: str, divisor: Any) -> bool:
    """Integer division by an unknown value may be a division by zero, which eager reports; ATen takes those."""
    return dtype in FLOATING or (isinstance(divisor, int) and not isinstance(divisor, bool) and divisor not in (0, -1))


@lowers("div.Tensor", "div.Scalar")
def div(lowering: Any, node: fx.Node, x: Any, y: Any) -> Any:
    """True division, always floating."""
    return elementwise(lowering, node, lambda body, a, b: body.op("div", a, b), (x, y), exact_numbers=True)


@lowers("div.Tensor_mode", "div.Scalar_mode")
def div_mode(lowering: Any, node: fx.Node, x: Any, y: Any, rounding_mode: str | None = None) -> Any:
    """Division rounded to floor or towards zero."""
    if rounding_mode is None:
        return div(lowering, node, x, y)
    dtype = dtype_name(node.meta["val"].dtype)
    if not _safe_divisor(dtype, y) or dtype in HALF:  # whose quotients eager rounds in between
        return NotImplemented
    name = "floordiv" if rounding_mode == "floor" else "truncdiv"
    if dtype in FLOATING and _in_vectors(lowering, node, name):
        return NotImplemented
    return elementwise(lowering, node, lambda body, a, b: body.op(name, a, b), (x, y))


@lowers("floor_divide", "floor_divide.Scalar")
def floor_divide(lowering: Any, node: fx.Node, x: Any, y: Any) -> Any:
    """Python's //."""
    return div_mode(lowering, node, x, y, "floor")


def _modulus(name: str) -> Callable[..., Any]:
    def lower(lowering: Any, node: fx.Node, x: Any, y: Any) -> Any:
        dtype = dtype_name(node.meta["val"].dtype)
        if not _safe_divisor(dtype, y) or dtype in FLOATING and _in_vectors(lowering, node, name):
            return NotImplemented
        return elementwise(lowering, node, lambda body, a, b: body.op(name, a, b), (x, y))

    return lower


for _name in ("remainder", "fmod"):
    lowers(f"{_name}.Tensor", f"{_name}.Scalar")(_modulus(_name))


@lowers("pow.Tensor_Scalar")
def pow_scalar(lowering: Any, node: fx.Node, x: View, exponent: Any) -> Any:
    """x ** number: the exponents eager treats specially are products, roots and quotients here too."""
    dtype = dtype_name(node.meta["val"].dtype)
    if dtype == "bool" or not isinstance(exponent, (int, float)):
        return NotImplemented
    if dtype not in FLOATING and exponent not in (2, 3):
        return NotImplemented
    if exponent not in PRODUCTS and _in_vectors(lowering, node, "pow"):
        return NotImplemented
    return elementwise(lowering, node, lambda body, a: power(body, a, float(exponent), dtype), (x,))


PRODUCTS = (0.0, 1.0, 2.0, 3.0, 0.5, -0.5, -1.0, -2.0)
"""Exponents of which `power` makes products, roots and quotients."""


def power(body: BodyBuilder, a: int, exponent: float, dtype: str) -> int:
    """a ** exponent for a constant exponent, as eager computes it for values of `dtype`."""
    if exponent == 0.0:
        return body.const(1, dtype)
    if exponent == 1.0:
        return a
    if exponent == 2.0:
        return body.op("mul", a, a)
    if exponent == 3.0:
        return body.op("mul", _square(body, a, dtype), a)
    if exponent == 0.5:
        return body.op("sqrt", a)
    if exponent == -0.5:
        return body.op("rsqrt", a)
    if exponent == -1.0:
        return body.op("div", body.const(1, dtype), a)
    if exponent == -2.0:
        return body.op("div", body.const(1, dtype), _square(body, a, dtype))
    return body.op("pow", a, body.cast(body.const(exponent, "float64"), dtype))


def _square(body: BodyBuilder, a: int, dtype: str) -> int:
    """a * a as a step of a longer product: eager's vectors of bfloat16 round after each."""
    square = body.op("mul", a, a)
    return body.round(square, dtype) if dtype == "bfloat16" else square


@lowers("pow.Tensor_Tensor", "pow.Scalar")
def pow_tensor(lowering: Any, node: fx.Node, x: Any, y: Any) -> Any:
    """x ** y on floating types."""
    if dtype_name(node.meta["val"].dtype) not in FLOATING or _in_vectors(lowering, node, "pow"):
        return NotImplemented
    return elementwise(lowering, node, lambda body, a, b: body.op("pow", a, b), (x, y))


# --- comparisons and logic -------------------------------------------------------------------------------------------


def _comparison(name: str) -> Callable[..., Any]:
    def lower(lowering: Any, node: fx.Node, x: Any, y: Any) -> Any:
        compute = result_dtype((x, y))
        if isinstance(y, int) and compute in INTEGRAL and not _fits(y, compute):
            return NotImplemented
        return elementwise(lowering, node, lambda body, a, b: body.compare(name, a, b), (x, y), compute=compute)

    return lower


def _fits(value: int, dtype: str) -> bool:
    bits = {"uint8": 8, "int8": 7, "int16": 15, "int32": 31, "int64": 63}[dtype]
    return (0 if dtype == "uint8" else -(2**bits)) <= value < 2**bits


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    lowers(f"{_name}.Tensor", f"{_name}.Scalar")(_comparison(_name))


@lowers("logical_not")
def logical_not(lowering: Any, node: fx.Node, x: View) -> Any:
    """x == 0."""
    return elementwise(
        lowering,
        node,
        lambda body, a: body.op("logical_not", body.cast(a, "bool"), dtype="bool"),
        (x,),
        compute=x.dtype,
    )


def _logical(name: str) -> Callable[..., Any]:
    def lower(lowering: Any, node: fx.Node, x: View, y: View) -> Any:
        return elementwise(lowering, node, lambda body, a, b: body.op(name, a, b), (x, y), compute="bool")

    return lower


lowers("logical_and")(_logical("bitwise_and"))
lowers("logical_or")(_logical("bitwise_or"))
lowers("logical_xor")(_logical("bitwise_xor"))


def _bitwise(name: str) -> Callable[..., Any]:
    def lower(lowering: Any, node: fx.Node, x: Any, y: Any) -> Any:
        if dtype_name(node.meta["val"].dtype) in FLOATING:
            return NotImplemented
        return elementwise(lowering, node, lambda body, a, b: body.op(name, a, b), (x, y))

    return lower


for _name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    lowers(f"{_name}.Tensor", f"{_name}.Scalar")(_bitwise(_name))
    lowers(f"__{_name[8:]}__.Tensor", f"__{_name[8:]}__.Scalar")(_bitwise(_name))


@lowers("bitwise_not")
def bitwise_not(lowering: Any, node: fx.Node, x: View) -> Any:
    """~x; logical not on bool."""
    name = "logical_not" if x.dtype == "bool" else "bitwise_not"
    return elementwise(lowering, node, lambda body, a: body.op(name, a), (x,))


@lowers("isnan")
def isnan(lowering: Any, node: fx.Node, x: View) -> Any:
    """x != x."""
    return elementwise(lowering, node, lambda body, a: body.compare("ne", a, a), (x,), compute=x.dtype)


@lowers("isinf")
def isinf(lowering: Any, node: fx.Node, x: View) -> Any:
    """|x| == inf."""
    if x.dtype not in FLOATING:
        return NotImplemented

    def formula(body: BodyBuilder, a: int) -> int:
        return body.compare("eq", body.op("abs", a), body.const(float("inf"), body.dtype(a)))

    return elementwise(lowering, node, formula, (x,), compute=x.dtype)


@lowers("signbit")
def signbit(lowering: Any, node: fx.Node, x: View) -> Any:
    """The sign bit, that of -0.0 and NaN included."""
    if x.dtype not in ("float32", "float64", "bfloat16", "float16"):
        return NotImplemented
    return elementwise(lowering, node, lambda body, a: body.op("signbit", a, dtype="bool"), (x,), compute=x.dtype)


# --- selection -------------------------------------------------------------------------------------------------------


@lowers("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def where(lowering: Any, node: fx.Node, condition: View, x: Any, y: Any) -> Any:
    """x where condition, else y."""
    dtype = dtype_name(node.meta["val"].dtype)
    if not all(isinstance(o, View) or is_number(o) for o in (condition, x, y)):
        return NotImplemented

    def build(body: BodyBuilder, variables: tuple[Index, ...]) -> int:
        chosen = operand(body, condition, variables, "bool")
        return body.where(chosen, operand(body, x, variables, dtype), operand(body, y, variables, dtype))

    return lowering.pointwise(node.meta["val"], build, origin=node)


@lowers("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(lowering: Any, node: fx.Node, x: View, mask: View, value: Any) -> Any:
    """value where mask, else x."""
    return where(lowering, node, mask, value, x)


def _low(body: BodyBuilder, a: int, bound: int) -> int:
    if _is_number(body, bound):  # -0.0 is not below 0.0
        return body.where(body.compare("lt", a, bound), bound, a)
    return body.op("maximum", a, bound)


def _high(body: BodyBuilder, a: int, bound: int) -> int:
    if _is_number(body, bound):
        return body.where(body.compare("gt", a, bound), bound, a)
    return body.op("minimum", a, bound)


def _is_number(body: BodyBuilder, value: int) -> bool:
    """Whether a value is a literal other than NaN, which every bound of eager's hands on."""
    op = body.ops[value]
    return op.name == "const" and op.attr == op.attr or op.name.startswith("round_") and _is_number(body, op.args[0])


@lowers("clamp", "clamp.Tensor")
def clamp(lowering: Any, node: fx.Node, x: View, min: Any = None, max: Any = None) -> Any:
    """min(max(x, low), high); NaN stays NaN."""
    bounds = [b for b in (min, max) if b is not None]

    def formula(body: BodyBuilder, a: int, *rest: int) -> int:
        values = iter(rest)
        if min is not None:
            a = _low(body, a, next(values))
        if max is not None:
            a = _high(body, a, next(values))
        return a

    return elementwise(lowering, node, formula, (x, *bounds))


@lowers("clamp_min", "clamp_min.Tensor")
def clamp_min(lowering: Any, node: fx.Node, x: View, min: Any) -> Any:
    """max(x, low)."""
    return elementwise(lowering, node, _low, (x, min))


@lowers("clamp_max", "clamp_max.Tensor")
def clamp_max(lowering: Any, node: fx.Node, x: View, max: Any) -> Any:
    """min(x, high)."""
    return elementwise(lowering, node, _high, (x, max))


# --- three operands --------------------------------------------------------------------------------------------------


@lowers("addcmul")
def addcmul(lowering: Any, node: fx.Node, x: View, a: View, b: View, value: Any = 1) -> Any:
    """x + value * a * b."""

    def formula(body: BodyBuilder, x: int, a: int, b: int) -> int:
        return _plus_product(body, x, _scaled(body, a, value), b)

    return elementwise(lowering, node, formula, (x, a, b))


@lowers("addcdiv")
def addcdiv(lowering: Any, node: fx.Node, x: View, a: View, b: View, value: Any = 1) -> Any:
    """x + value * a / b."""

    def formula(body: BodyBuilder, x: int, a: int, b: int) -> int:
        return body.op("add", x, body.op("div", _scaled(body, a, value), b))

    if dtype_name(node.meta["val"].dtype) not in FLOATING:
        return NotImplemented
    return elementwise(lowering, node, formula, (x, a, b))


@lowers("lerp.Scalar", "lerp.Tensor")
def lerp(lowering: Any, node: fx.Node, start: View, end: View, weight: Any) -> Any:
    """start + weight * (end - start), from the nearer end."""

    def formula(body: BodyBuilder, s: int, e: int, w: int) -> int:
        dtype = body.dtype(s)
        difference = body.op("sub", e, s)
        near = body.compare("lt", body.op("abs", w), body.const(0.5, dtype))
        from_start = body.op("fma", w, difference, s)
        from_end = body.op("fma", body.op("neg", difference), body.op("sub", body.const(1, dtype), w), e)
        return body.where(near, from_start, from_end)

    return elementwise(lowering, node, formula, (start, end, weight), exact_numbers=not isinstance(weight, View))


# --- conversion ------------------------------------------------------------------------------------------------------


@lowers("prims::convert_element_type")
def convert_element_type(lowering: Any, node: fx.Node, x: View, dtype: Any) -> Any:
    """x in another type."""
    return convert(lowering, node, x)


def convert(lowering: Any, node: fx.Node, x: View) -> Any:
    """x in the recorded type of the result, values in 16-bit types rounded."""
    fake = node.meta["val"]
    target = dtype_name(fake.dtype)

    def build(body: BodyBuilder, variables: tuple[Index, ...]) -> int:
        return body.cast(body.load_view(x, broadcast_index(x.sizes, variables)), target)

    return lowering.pointwise(fake, build, origin=node)


__all__ = ["broadcast_index", "convert", "elementwise", "is_number", "number", "number_dtype", "operand", "power"]
