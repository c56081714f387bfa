"""Tensors made from nothing: constants, ranges, triangles. They have no loads, so every reader computes them in
place."""

from __future__ import annotations

from typing import Any

from torch import fx

from ..ir.body import BodyBuilder
from ..ir.dtypes import FLOATING
from ..ir.expr import Index
from ..ir.nodes import View
from .pointwise import broadcast_index, is_number, number
from .promotion import dtype_name
from .registry import lowers


def filled(lowering: Any, node: fx.Node, value: Any) -> Any:
    """A tensor of one value."""
    if not is_number(value):
        return NotImplemented
    dtype = dtype_name(node.meta["val"].dtype)

    def build(body: BodyBuilder, variables: tuple[Index, ...]) -> int:
        return body.cast(number(body, value), dtype)

    return lowering.pointwise(node.meta["val"], build, origin=node)


@lowers("full")
def full(lowering: Any, node: fx.Node, size: Any, fill_value: Any, **kwargs: Any) -> Any:
    """full(size, value)."""
    return filled(lowering, node, fill_value)


@lowers("full_like")
def full_like(lowering: Any, node: fx.Node, x: View, fill_value: Any, **kwargs: Any) -> Any:
    """full of x's shape."""
    return filled(lowering, node, fill_value)


@lowers("fill.Scalar")
def fill(lowering: Any, node: fx.Node, x: View, value: Any) -> Any:
    """full of x's shape."""
    return filled(lowering, node, value)


@lowers("new_full")
def new_full(lowering: Any, node: fx.Node, x: View, size: Any, fill_value: Any, **kwargs: Any) -> Any:
    """full with x's type by default."""
    return filled(lowering, node, fill_value)


@lowers("scalar_tensor")
def scalar_tensor(lowering: Any, node: fx.Node, value: Any, **kwargs: Any) -> Any:
    """A 0-dim tensor."""
    return filled(lowering, node, value)


def _constant(value: int) -> Any:
    def lower(lowering: Any, node: fx.Node, *args: Any, **kwargs: Any) -> Any:
        return filled(lowering, node, value)

    return lower


lowers("zeros", "zeros_like", "new_zeros", "zero")(_constant(0))
lowers("ones", "ones_like", "new_ones")(_constant(1))


@lowers("arange.start_step", "arange.start", "arange")
def arange(lowering: Any, node: fx.Node, *args: Any, **kwargs: Any) -> Any:
    """start + i * step: exact in integers, in the type eager computes in otherwise."""
    start, step = (0, 1) if len(args) == 1 else (args[0], args[2] if len(args) > 2 else kwargs.get("step", 1))
    if not is_number(start) or not is_number(step):
        return NotImplemented
    dtype = dtype_name(node.meta["val"].dtype)
    compute = "float64" if dtype in FLOATING else "int64"
    if compute == "float64" and not all(
        float(v).is_integer() if isinstance(v, (int, float)) else False for v in (start, step)
    ):
        # Eager's vectorised fill accumulates differently for fractions from one torch to the next.
        return NotImplemented
    if compute == "int64" and not (isinstance(start, int) and isinstance(step, int)):
        if any(isinstance(v, float) for v in (start, step)):
            return NotImplemented

    def build(body: BodyBuilder, variables: tuple[Index, ...]) -> int:
        position = body.widen(body.index(variables[0]), compute)
        scaled = body.op("mul", position, body.widen(number(body, step), compute))
        return body.cast(body.op("add", scaled, body.widen(number(body, start), compute)), dtype)

    return lowering.pointwise(node.meta["val"], build, origin=node)


@lowers("prims::iota")
def iota(lowering: Any, node: fx.Node, length: Any, **kwargs: Any) -> Any:
    """start + i * step as integers."""
    start, step = kwargs["start"], kwargs["step"]
    dtype = dtype_name(node.meta["val"].dtype)

    def build(body: BodyBuilder, variables: tuple[Index, ...]) -> int:
        scaled = body.op("mul", body.index(variables[0]), number(body, step))
        return body.cast(body.op("add", scaled, number(body, start)), dtype)

    return lowering.pointwise(node.meta["val"], build, origin=node)


def _triangle(keep_low: bool) -> Any:
    def lower(lowering: Any, node: fx.Node, x: View, diagonal: Any = 0) -> Any:
        if not isinstance(diagonal, int):
            return NotImplemented

        def build(body: BodyBuilder, variables: tuple[Index, ...]) -> int:
            row, column = body.index(variables[-2]), body.index(variables[-1])
            limit = body.op("add", row, body.const(diagonal, "int64"))
            keep = body.compare("le" if keep_low else "ge", column, limit)
            value = body.load_view(x, broadcast_index(x.sizes, variables))
            return body.where(keep, value, body.const(0, body.dtype(value)))

        return lowering.pointwise(node.meta["val"], build, origin=node)

    return lower


lowers("tril")(_triangle(True))
lowers("triu")(_triangle(False))


@lowers("eye", "eye.m")
def eye(lowering: Any, node: fx.Node, *args: Any, **kwargs: Any) -> Any:
    """1 where row equals column."""
    dtype = dtype_name(node.meta["val"].dtype)

    def build(body: BodyBuilder, variables: tuple[Index, ...]) -> int:
        return body.cast(body.compare("eq", body.index(variables[0]), body.index(variables[1])), dtype)

    return lowering.pointwise(node.meta["val"], build, origin=node)
