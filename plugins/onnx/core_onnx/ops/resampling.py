"""Images of another size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy

from ..builder import ModelBuilder, Value
from ..errors import ConversionError
from ..registry import converts


def _places(have: int, want: int, aligned: bool, scale: float | None) -> tuple[list[int], list[float]]:
    """For each pixel of the result the one before it, and its distance from that. In float32, as torch counts."""
    single, ratio = numpy.float32, _ratio(have, want, aligned, scale)
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


def _refuse_open(x: Value, size: Sequence[int]) -> None:
    if not all(isinstance(one, int) for one in (*x.shape, *size)) or not x.dtype.is_floating_point:
        raise ConversionError("an image of a symbolic size, or of integers, between its pixels")


def _ratio(have: int, want: int, aligned: bool, scale: float | None) -> numpy.float32:
    """Pixels of the image for a pixel of the result, in float32 as torch has it."""
    single = numpy.float32
    if aligned:
        return single(have - 1) / single(want - 1) if want > 1 else single(0)
    return single(1 / scale) if scale is not None and scale > 0 else single(have) / single(want)


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
    _refuse_open(x, size)
    wide = _interpolated(b, x, 3, size[1], align_corners, scale_w)
    return _interpolated(b, wide.like(x.fake), 2, size[0], align_corners, scale_h)


_BEND = numpy.float32(-0.75)  # of the cubic curves that torch draws through four pixels


def _cubic_shares(share: Any) -> list[Any]:
    """What each of four neighbours counts, the place being `share` behind the second. In float32, as torch counts."""
    one, two = numpy.float32(1), numpy.float32(2)

    def near(x: Any) -> Any:
        return ((_BEND + two) * x - (_BEND + numpy.float32(3))) * x * x + one

    def far(x: Any) -> Any:
        return ((_BEND * x - numpy.float32(5) * _BEND) * x + numpy.float32(8) * _BEND) * x - numpy.float32(4) * _BEND

    rest = one - share
    return [far(share + one), near(share), near(rest), far(rest + one)]


def _curved(b: ModelBuilder, x: Value, axis: int, want: int, aligned: bool, scale: float | None) -> Value:
    single, have = numpy.float32, x.fake.shape[axis]
    ratio, at = _ratio(have, want, aligned, scale), numpy.arange(want, dtype=numpy.float32)
    exact = ratio * at if aligned else ratio * (at + single(0.5)) - single(0.5)
    before = numpy.floor(exact)
    shares = _cubic_shares(exact - before)
    shape = [1] * x.rank
    shape[axis] = want
    total = None
    for step, counts in enumerate(shares):
        places = numpy.clip(before.astype(numpy.int64) - 1 + step, 0, have - 1)
        pixels = b.node("Gather", x, b.ints([int(one) for one in places]), axis=axis)
        part = b.node("Mul", pixels, b.constant([float(one) for one in counts], x.dtype, shape))
        total = part if total is None else b.node("Add", total, part)
    assert total is not None
    return total


@converts("aten.upsample_bicubic2d.default")
def bicubic(
    b: ModelBuilder,
    x: Value,
    size: Sequence[int],
    align_corners: bool,
    scale_h: float | None = None,
    scale_w: float | None = None,
) -> Value:
    """Columns first, then rows, each a curve through its four neighbours; those beyond the edge are the edge's."""
    _refuse_open(x, size)
    wide = _curved(b, x, 3, size[1], align_corners, scale_w)
    sizes = (*x.fake.shape[:3], size[1])
    return _curved(b, wide.like(x.fake.new_empty(sizes)), 2, size[0], align_corners, scale_h)
