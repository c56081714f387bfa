"""Images of another size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy

from ..builder import ModelBuilder, Value
from ..errors import ConversionError
from ..registry import converts


def _places(have: int, want: int, aligned: bool, scale: float | None) -> tuple[list[int], list[float]]:
    """For each pixel of the result the one before it, and its distance from that. In float32, as torch counts."""
    single = numpy.float32
    ratio = single(0)
    if not aligned and scale is not None and scale > 0:
        ratio = single(1 / scale)
    elif not aligned:
        ratio = single(have) / single(want)
    elif want > 1:
        ratio = single(have - 1) / single(want - 1)
    at = numpy.arange(want, dtype=single)
    exact = ratio * at if aligned else numpy.maximum(ratio * (at + single(0.5)) - single(0.5), single(0))
    before = numpy.minimum(exact.astype(numpy.int64), have - 1)
    share = numpy.clip(exact - before.astype(single), 0, 1)
    return [int(one) for one in before], [float(one) for one in share]


def _interpolated(b: ModelBuilder, x: Value, axis: int, want: int, aligned: bool, scale: float | None) -> Value:
    have = x.fake.shape[axis]
    before, share = _places(have, want, aligned, scale)
    shape = [1] * x.rank
    shape[axis] = want
    low = b.node("Gather", x, b.ints(before), axis=axis)
    high = b.node("Gather", x, b.ints([min(one + 1, have - 1) for one in before]), axis=axis)
    rest = [float(numpy.float32(1) - numpy.float32(one)) for one in share]
    one, two = b.constant(rest, x.dtype, shape), b.constant(share, x.dtype, shape)
    return b.node("Add", b.node("Mul", low, one), b.node("Mul", high, two))


@converts("aten.upsample_bilinear2d.default")
def bilinear(
    b: ModelBuilder,
    x: Value,
    size: Sequence[int],
    align_corners: bool,
    scale_h: float | None = None,
    scale_w: float | None = None,
) -> Value:
    """Columns first, then rows, each between its two neighbours."""
    if not all(isinstance(one, int) for one in (*x.shape, *size)) or not x.dtype.is_floating_point:
        raise ConversionError("an image of a symbolic size, or of integers, between its pixels")
    wide = _interpolated(b, x, 3, size[1], align_corners, scale_w)
    return _interpolated(b, wide.like(x.fake), 2, size[0], align_corners, scale_h)
