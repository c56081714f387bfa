"""Windows over an image as constants: which values each window of a pool holds."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy
import torch

from ..builder import ModelBuilder, Value
from ..errors import ConversionError

_MOST = 2**21
"""Places in all windows together, which become a constant of the model."""

Spans = list[tuple[int, ...]]
"""Along one axis: the places that each window holds."""


def spans(have: int, count: int, kernel: int, stride: int, padding: int, dilation: int = 1) -> Spans:
    """The windows of a pool along one axis, without what lies outside."""
    starts = [at * stride - padding for at in range(count)]
    reach = range(0, kernel * dilation, dilation)
    return [tuple(start + step for step in reach if 0 <= start + step < have) for start in starts]


def adaptive_spans(have: int, count: int) -> Spans:
    """`count` windows that cover an axis, as evenly as whole numbers allow."""
    return [tuple(range(at * have // count, -(-(at + 1) * have // count))) for at in range(count)]


def flat_windows(sizes: Sequence[int], along: Sequence[Spans]) -> list[list[int]]:
    """For each place of the result, in order, the flat indices of what its window holds, in order."""
    total = 1
    for one in along:
        total *= sum(len(span) for span in one)
    if total > _MOST:
        raise ConversionError("windows that together hold more values than a model should list")
    strides = [int(numpy.prod(sizes[at + 1 :])) for at in range(len(sizes))]
    found = []
    for window in itertools.product(*along):
        places = [sum(at * step for at, step in zip(point, strides)) for point in itertools.product(*window)]
        if not places:
            raise ConversionError("a window that lies outside of the image")
        found.append(places)
    return found


def gathered(b: ModelBuilder, x: Value, dims: int, windows: list[list[int]]) -> tuple[Value, int]:
    """The values of every window, side by side in a last axis; shorter windows begin with their first value again.

    Returns also how long the longest is.
    """
    length = max(len(window) for window in windows)
    return b.node("Gather", flattened(b, x, dims), table(b, windows, length), axis=x.rank - dims), length


def flattened(b: ModelBuilder, x: Value, dims: int) -> Value:
    """The last `dims` axes as one."""
    return b.reshape(x, [*x.shape[: x.rank - dims], -1])


def table(b: ModelBuilder, windows: list[list[int]], length: int) -> Value:
    """The windows' flat indices as a constant of [windows, length]."""
    rows = numpy.array([[window[0]] * (length - len(window)) + window for window in windows], dtype="<i8")
    return b.initializer(rows.tobytes(), torch.int64, rows.shape)


def averaged(b: ModelBuilder, x: Value, dims: int, windows: list[list[int]], divisors: list[float]) -> Value:
    """The sum of each window over its divisor, with one axis in place of `dims`. Each value is divided before it is
    added: OpenVINO's sum, fused with a division behind it, takes divisors of one axis for those of another."""
    values, length = gathered(b, x, dims, windows)
    rank = x.rank - dims + 1
    if any(len(window) < length for window in windows):
        real = numpy.array([[at >= length - len(window) for at in range(length)] for window in windows])
        mask = b.initializer(real.tobytes(), torch.bool, real.shape)
        values = b.node("Where", mask, values, b.scalar(0, x.dtype))
    shares = b.node("Div", values, b.constant(divisors, x.dtype, [len(divisors), 1]))
    return b.node("ReduceSum", shares, b.ints([rank]), keepdims=0)
