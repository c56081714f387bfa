"""Convolutions, in one to three dimensions, and transposed ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tvm import tirx

from ..arithmetic import Num, computing, guarded, number
from ..kernel import Kernel, Value, added
from ..registry import Refused, converts


@converts("aten.convolution.default")
def convolution(
    k: Kernel,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Sequence[Any],
    padding: Sequence[Any],
    dilation: Sequence[Any],
    transposed: bool,
    output_padding: Sequence[Any],
    groups: int,
) -> Value:
    spatial = x.rank - 2
    if weight.rank != x.rank or not 1 <= spatial <= 3:
        raise Refused("a convolution without a batch")
    settings = (*stride, *padding, *dilation, groups)
    if not all(isinstance(one, int) for one in (*settings, *weight.shape)):
        raise Refused("a convolution whose settings are known only at run time")
    if not x.dtype.is_floating_point:
        raise Refused("a convolution of whole numbers")
    stride, padding, dilation = (_each(one, spatial) for one in (stride, padding, dilation))
    make = _transposed if transposed else _direct
    made = make(k, x, weight, stride, padding, dilation, groups)

    def element(*places: Any) -> Num:
        found = made.at(places)
        return found if bias is None else found + bias.at(places[1:2]).to(made.dtype)

    return k.compute(element)


def _each(setting: Sequence[int], spatial: int) -> list[int]:
    return list(setting) * spatial if len(setting) == 1 else list(setting)


def _direct(k: Kernel, x: Value, weight: Value, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    kind = computing(x.dtype)
    padded = _padded(k, x, padding, kind)
    channels, each = weight.shape[1], weight.shape[0] // groups

    def inner(places: Any, reduced: Any) -> Num:
        batch, out, *at = places
        channel, *window = reduced
        if groups > 1:
            channel = channel + tirx.floordiv(out, k.size(each)) * k.size(channels)
        own = [a * k.size(s) + w * k.size(d) for a, s, w, d in zip(at, stride, window, dilation)]
        return padded.at((batch, channel, *own)) * weight.at((out, reduced[0], *window)).to(kind)

    sizes, over = k.sizes(k.result.shape), k.sizes(weight.shape[1:])
    return k.reduce(sizes, over, inner, added, 0, kind, "product")


def _padded(k: Kernel, x: Value, padding: Sequence[int], kind: torch.dtype) -> Any:
    if not any(padding):
        return x
    sizes = [*k.sizes(x.shape[:2]), *(k.size(size) + k.size(2 * pad) for size, pad in zip(x.shape[2:], padding))]

    def element(*places: Any) -> Num:
        own, inside = list(places), tirx.const(True, "bool")
        for axis, pad in enumerate(padding, start=2):
            if pad:
                own[axis] = places[axis] - k.size(pad)
                within = tirx.And(tirx.GE(own[axis], k.size(0)), tirx.LT(own[axis], k.size(x.shape[axis])))
                inside = tirx.And(inside, within)
        return guarded(Num(inside, torch.bool), x.at(own).to(kind), number(0, kind))

    return k.make(sizes, kind, element, "pad")


def _transposed(k: Kernel, x: Value, weight: Value, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    """Each output gathers the inputs that reach it: those whose distance is a multiple of the stride."""
    kind = computing(x.dtype)
    each, own_channels = weight.shape[1], weight.shape[0] // groups

    def inner(places: Any, reduced: Any) -> Num:
        batch, out, *at = places
        channel, *window = reduced
        from_channel = channel + tirx.floordiv(out, k.size(each)) * k.size(own_channels)
        source, inside = [batch, from_channel], tirx.const(True, "bool")
        for axis, (place, step, pad, w, d) in enumerate(zip(at, stride, padding, window, dilation), start=2):
            reach = place + k.size(pad) - w * k.size(d)
            position = tirx.floordiv(reach, k.size(step))
            fits = tirx.EQ(tirx.floormod(reach, k.size(step)), k.size(0))
            within = tirx.And(tirx.GE(position, k.size(0)), tirx.LT(position, k.size(x.shape[axis])))
            inside = tirx.And(inside, tirx.And(fits, within))
            source.append(position)
        factor = weight.at((from_channel, tirx.floormod(out, k.size(each)), *window)).to(kind)
        return guarded(Num(inside, torch.bool), x.at(source).to(kind) * factor, number(0, kind))

    sizes, over = k.sizes(k.result.shape), k.sizes([own_channels, *weight.shape[2:]])
    return k.reduce(sizes, over, inner, added, 0, kind, "product")


@converts("aten.im2col.default")
def im2col(k: Kernel, x: Value, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Value:
    """Windows of an image as columns."""
    if x.rank != 4 or not all(isinstance(size, int) for size in x.shape):
        raise Refused("windows of one image, or of sizes known only at run time")
    across = (x.shape[3] + 2 * padding[1] - dilation[1] * (kernel[1] - 1) - 1) // stride[1] + 1
    padded = _padded(k, x, padding, computing(x.dtype))

    def element(batch: Any, row: Any, column: Any) -> Num:
        size = k.size(kernel[0] * kernel[1])
        channel, window = tirx.floordiv(row, size), tirx.floormod(row, size)
        down, right = tirx.floordiv(window, k.size(kernel[1])), tirx.floormod(window, k.size(kernel[1]))
        top, left = tirx.floordiv(column, k.size(across)), tirx.floormod(column, k.size(across))
        at = (
            top * k.size(stride[0]) + down * k.size(dilation[0]),
            left * k.size(stride[1]) + right * k.size(dilation[1]),
        )
        return padded.at((batch, channel, *at))

    return k.compute(element)
