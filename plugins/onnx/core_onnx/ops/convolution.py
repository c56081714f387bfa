"""Convolutions and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..builder import ModelBuilder, Value
from ..errors import ConversionError
from ..registry import converts


@converts("aten.convolution.default")
def convolution(
    b: ModelBuilder,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Value:
    dims = weight.rank - 2
    if x.rank != weight.rank:
        raise ConversionError("a convolution of an input without a batch")
    if any(isinstance(size, int) and size == 0 for size in (*x.shape, *b.result.shape)):
        raise ConversionError("a convolution without elements")
    settings: dict[str, Any] = {
        "strides": _full(stride, dims),
        "pads": _full(padding, dims) * 2,
        "dilations": _full(dilation, dims),
        "group": groups,
    }
    if not transposed:
        return b.node("Conv", x, weight, bias, **settings)
    extra = _full(output_padding, dims)
    if any(more >= step for more, step in zip(extra, settings["strides"])):
        return _transposed_far(b, x, weight, bias, extra, settings)
    return b.node("ConvTranspose", x, weight, bias, output_padding=extra, **settings)


def _transposed_far(
    b: ModelBuilder, x: Value, weight: Value, bias: Value | None, extra: list[int], settings: dict[str, Any]
) -> Value:
    """A transposed convolution padded by its stride or more: the whole of it, then the part that is asked for."""
    if not all(isinstance(size, int) for size in (*x.shape, *b.result.shape)):
        raise ConversionError("a transposed convolution of a symbolic size, padded by its stride or more")
    dims = len(extra)
    first = settings["pads"][:dims]
    whole = b.node("ConvTranspose", x, weight, **{**settings, "pads": [0] * 2 * dims})
    whole = b.node("Pad", whole, b.ints([0] * (dims + 4) + extra), b.scalar(0, x.dtype), mode="constant")
    lasts = [at + size for at, size in zip(first, b.result.shape[2:])]
    part = b.node("Slice", whole, b.ints(first), b.ints(lasts), b.ints(range(2, dims + 2)))
    return part if bias is None else b.node("Add", part, b.reshape(bias, [1, -1, *[1] * dims]))


def _full(values: Sequence[int], dims: int) -> list[int]:
    given = [int(value) for value in values]
    return given * dims if len(given) == 1 else given


@converts("aten.convolution_backward.default")
def convolution_backward(
    b: ModelBuilder,
    gradient: Value,
    x: Value,
    weight: Value,
    bias_sizes: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Value | None, Value | None, Value | None]:
    """The gradients by convolutions: transposed for the input, with batch and channels swapped for the weight."""
    if transposed or groups != 1:
        raise ConversionError("the gradient of a transposed or grouped convolution")
    dims = weight.rank - 2
    sizes = (*x.shape, *weight.shape, *gradient.shape)
    if not all(isinstance(size, int) and size for size in sizes):
        raise ConversionError("the gradient of a convolution of symbolic sizes")
    strides, pads, steps = _full(stride, dims), _full(padding, dims), _full(dilation, dims)
    of_x = of_weight = of_bias = None
    if output_mask[0]:
        of_x = _input_gradient(b, gradient, x, weight, strides, pads, steps)
    if output_mask[1]:
        swapped = [1, 0, *range(2, weight.rank)]
        moved = b.node(
            "Conv",
            b.node("Transpose", x, perm=swapped),
            b.node("Transpose", gradient, perm=swapped),
            strides=steps,
            dilations=strides,
            pads=pads * 2,
        )
        of_weight = b.node("Transpose", moved, perm=swapped)
        axes = list(range(2, weight.rank))
        ends = b.ints([weight.shape[axis] for axis in axes])
        of_weight = b.node("Slice", of_weight, b.ints([0] * dims), ends, b.ints(axes))
    if output_mask[2]:
        of_bias = b.node("ReduceSum", gradient, b.ints([0, *range(2, gradient.rank)]), keepdims=0)
    return of_x, of_weight, of_bias


def _input_gradient(
    b: ModelBuilder, gradient: Value, x: Value, weight: Value, strides: list[int], pads: list[int], steps: list[int]
) -> Value:
    extra = []
    for at in range(len(strides)):
        reached = (gradient.shape[2 + at] - 1) * strides[at] - 2 * pads[at] + steps[at] * (weight.shape[2 + at] - 1) + 1
        extra.append(x.shape[2 + at] - reached)
    if any(more >= step for more, step in zip(extra, strides)):
        raise ConversionError("the gradient of a convolution that leaves out a stride or more of its input")
    return b.node(
        "ConvTranspose", gradient, weight, strides=strides, pads=pads * 2, dilations=steps, output_padding=extra
    )
