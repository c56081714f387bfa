"""Pooling over windows of two dimensions: the elements of a window one after the other, in eager's order.

Windows of many elements, and those that ceil_mode lets hang over the end, are ATen's.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx

from ..ir import expr
from ..ir.body import BodyBuilder
from ..ir.dtypes import FLOATING, compute_type
from ..ir.expr import Index
from ..ir.nodes import View
from .index import masked_load
from .registry import lowers

MOST = 16
"""Elements of a window up to which the loop over it is written out."""


@dataclass
class Windows:
    """The windows over the last two dimensions of a tensor of known size. out: how many there are along each; inner:
    the dimension that the innermost loop walks."""

    x: View
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    out: tuple[int, int]
    inner: int

    def elements(
        self, body: BodyBuilder, variables: Sequence[Index], outside: int
    ) -> Iterator[tuple[tuple[int, int], int]]:
        """(steps from the window's first element, value) of each element of a window; `outside` stands for those in the
        border."""
        for i in range(self.kernel[0]):
            for j in range(self.kernel[1]):
                yield (i, j), self._element(body, variables, (i, j), outside)

    def _element(self, body: BodyBuilder, variables: Sequence[Index], steps: tuple[int, int], outside: int) -> int:
        """Where the innermost loop walks along the border, it is cut there; elsewhere the element at 0 is read in place
        of one in the border, so that reading takes no branch."""
        at = [*variables[:-2], *(self.along(variables, axis, step) for axis, step in enumerate(steps))]
        slots: list[int] = []
        masks: list[int] = []
        cut: list[int] = []
        for axis, step in enumerate(steps):
            inside = self._inside(body, variables, axis, step)
            if axis - 2 == self.inner or not inside:
                cut += inside
                continue
            mask = functools.reduce(lambda a, b: body.op("bitwise_and", a, b), inside)
            masks.append(mask)
            slots.append(body.where(mask, body.index(at[axis - 2]), body.const(0, "int64")))
            at[axis - 2] = expr.indirect(len(slots) - 1, self.x.sizes[axis - 2])
        if cut:
            within = functools.reduce(lambda a, b: body.op("bitwise_and", a, b), cut)
            value = masked_load(body, self.x, at, within, outside, tuple(slots))
        else:
            value = body.load_view(self.x, at, tuple(slots))
        for mask in masks:
            value = body.where(mask, value, outside)
        return value

    def _inside(self, body: BodyBuilder, variables: Sequence[Index], axis: int, step: int) -> list[int]:
        """What has to hold for an element not to lie in the border along an axis."""
        e, size = self.along(variables, axis, step), self.x.sizes[axis - 2]
        first = step * self.dilation[axis] - self.padding[axis]
        masks = [body.op("logical_not", body.index_below(e, 0))] if first < 0 else []
        if first + (self.out[axis] - 1) * self.stride[axis] >= size:  # type: ignore[operator]
            masks.append(body.index_below(e, size))
        return masks

    def along(self, variables: Sequence[Index], axis: int, step: int) -> Index:
        """The coordinate of an element of a window along an axis."""
        start = expr.mul(variables[axis - 2], self.stride[axis])
        return expr.add(start, step * self.dilation[axis] - self.padding[axis])


def _pair(value: Any, absent: Any = None) -> tuple[int, int] | None:
    numbers = list(value) or list(absent or ())
    if len(numbers) not in (1, 2) or not all(isinstance(n, int) for n in numbers):
        return None
    return numbers[0], numbers[-1]


def _windows(
    lowering: Any, fake: Any, x: View, kernel: Any, stride: Any, padding: Any, dilation: Any = (1,)
) -> Windows | None:
    pairs = _pair(kernel), _pair(stride, kernel), _pair(padding), _pair(dilation)
    known = len(x.sizes) in (3, 4) and all(isinstance(s, int) and s > 0 for s in x.sizes) and x.dtype in FLOATING
    if not known or any(p is None for p in pairs):
        return None
    sizes, strides = lowering.geometry(fake)
    inner = min(range(-len(sizes), 0), key=lambda k: (sizes[k] == 1, strides[k], -k))
    found = Windows(x, *pairs, sizes[-2:], inner)  # type: ignore[arg-type]
    return found if found.kernel[0] * found.kernel[1] <= MOST else None


@lowers("avg_pool2d")
def avg_pool2d(
    lowering: Any,
    node: fx.Node,
    x: View,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """The sum of a window by its number of elements, the border's included."""
    windows = _windows(lowering, node.meta["val"], x, kernel_size, stride, padding)
    if windows is None or ceil_mode or any(windows.padding) and not (count_include_pad or divisor_override):
        return NotImplemented
    if divisor_override is None and not _all_within(windows, lowering.sizes(node.meta["val"])):
        return NotImplemented
    compute = compute_type(x.dtype)
    divisor = divisor_override or windows.kernel[0] * windows.kernel[1]

    def build(body: BodyBuilder, variables: tuple[Index, ...]) -> int:
        total = body.const(0.0, compute)
        nothing = body.const(0.0, compute)
        for _, value in windows.elements(body, variables, nothing):
            total = body.op("add", total, value)
        return body.op("div", total, body.const(float(divisor), compute))

    return lowering.pointwise(node.meta["val"], build, origin=node)


def _all_within(windows: Windows, sizes: Sequence[Any]) -> bool:
    """Whether no window reaches past the border, where its divisor would be smaller."""
    for size, out, axis in zip(windows.x.sizes[-2:], sizes[-2:], (0, 1)):
        end = (out - 1) * windows.stride[axis] + windows.kernel[axis] - windows.padding[axis]
        if end > size + windows.padding[axis]:
            return False
    return True


@lowers("max_pool2d_with_indices")
def max_pool2d(
    lowering: Any,
    node: fx.Node,
    x: View,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> Any:
    """(the largest of a window, where it stands in the plane): the first of equal ones, the last NaN."""
    fake, fake_places = node.meta["val"]
    windows = _windows(lowering, fake, x, kernel_size, stride, padding, dilation)
    if windows is None or ceil_mode:
        return NotImplemented
    compute = compute_type(x.dtype)
    width = x.sizes[-1]
    if windows.kernel[0] * windows.dilation[0] * width >= 2**31:
        return NotImplemented

    def largest(body: BodyBuilder, variables: tuple[Index, ...]) -> tuple[int, int]:
        lowest = body.const(float("-inf"), compute)
        best, place = lowest, _first_place(body, windows, variables, width)
        for steps, value in windows.elements(body, variables, lowest):
            better = body.op("bitwise_or", body.compare("gt", value, best), body.compare("ne", value, value))
            best = body.where(better, value, best)
            place = body.where(better, _distance(body, windows, steps, width), place)
        return best, place

    def position(body: BodyBuilder, variables: tuple[Index, ...]) -> int:
        start = expr.add(expr.mul(windows.along(variables, 0, 0), width), windows.along(variables, 1, 0))
        return body.op("add", body.index(start), body.widen(largest(body, variables)[1], "int64"))

    return (
        lowering.pointwise(fake, lambda body, variables: largest(body, variables)[0], origin=node),
        lowering.pointwise(fake_places, position, origin=node),
    )


def _distance(body: BodyBuilder, windows: Windows, steps: tuple[int, int], width: Any) -> int:
    """How far behind a window's first element another lies in memory."""
    rows, columns = (step * dilation for step, dilation in zip(steps, windows.dilation))
    return body.const(rows * width + columns, "int32")


def _first_place(body: BodyBuilder, windows: Windows, variables: Sequence[Index], width: Any) -> int:
    """The distance of a window's first element that is not in the border, which it keeps when all are -inf."""
    distances = []
    for axis in (0, 1):
        steps = -(-windows.padding[axis] // windows.dilation[axis])  # so many at most lie in the border before it
        distance = _distance(body, windows, (steps, 0) if axis == 0 else (0, steps), width)
        for k in reversed(range(steps)):
            below = body.index_below(windows.along(variables, axis, k), 0)
            here = _distance(body, windows, (k, 0) if axis == 0 else (0, k), width)
            distance = body.where(below, distance, here)
        distances.append(distance)
    return body.op("add", *distances)
