"""Pooling over windows of two dimensions: the elements of a window one after the other, in eager's order.

Windows of many elements, and those that ceil_mode lets hang over the end, are ATen's.
"""

from __future__ import annotations

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
    """The windows over the last two dimensions of a tensor of known size."""

    x: View
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]

    def places(self, variables: Sequence[Index]) -> Iterator[tuple[list[Index], list[tuple[Index, int]]]]:
        """(index of an element, (coordinate, size) of those that may lie in the border) for each of a window."""
        for i in range(self.kernel[0]):
            for j in range(self.kernel[1]):
                at = [self._along(variables, axis, step) for axis, step in ((0, i), (1, j))]
                sizes: list[Any] = list(self.x.sizes[-2:])
                border = [(e, size) for e, size, padding in zip(at, sizes, self.padding) if padding]
                yield [*variables[:-2], *at], border

    def _along(self, variables: Sequence[Index], axis: int, step: int) -> Index:
        start = expr.mul(variables[axis - 2], self.stride[axis])
        return expr.add(start, step * self.dilation[axis] - self.padding[axis])

    def elements(
        self, body: BodyBuilder, variables: Sequence[Index], outside: int
    ) -> Iterator[tuple[list[Index], int]]:
        """(index, value) of each element of a window; `outside` stands for those in the border."""
        for at, border in self.places(variables):
            if not border:
                yield at, body.load_view(self.x, at)
                continue
            inside = [body.op("logical_not", body.index_below(e, 0)) for e, _ in border]
            inside += [body.index_below(e, size) for e, size in border]
            mask = inside[0]
            for other in inside[1:]:
                mask = body.op("bitwise_and", mask, other)
            yield at, masked_load(body, self.x, at, mask, outside)


def _pair(value: Any, absent: Any = None) -> tuple[int, int] | None:
    numbers = list(value) or list(absent or ())
    if len(numbers) not in (1, 2) or not all(isinstance(n, int) for n in numbers):
        return None
    return numbers[0], numbers[-1]


def _windows(x: View, kernel: Any, stride: Any, padding: Any, dilation: Any = (1,)) -> Windows | None:
    pairs = _pair(kernel), _pair(stride, kernel), _pair(padding), _pair(dilation)
    known = len(x.sizes) in (3, 4) and all(isinstance(s, int) and s > 0 for s in x.sizes) and x.dtype in FLOATING
    if not known or any(p is None for p in pairs):
        return None
    found = Windows(x, *pairs)  # type: ignore[arg-type]
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
    windows = _windows(x, kernel_size, stride, padding)
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
    windows = _windows(x, kernel_size, stride, padding, dilation)
    if windows is None or ceil_mode:
        return NotImplemented
    compute = compute_type(x.dtype)
    width = x.sizes[-1]

    def largest(body: BodyBuilder, variables: tuple[Index, ...]) -> tuple[int, int]:
        lowest = body.const(float("-inf"), compute)
        best, place = lowest, _first_place(body, windows, variables, width)
        for at, value in windows.elements(body, variables, lowest):
            better = body.op("bitwise_or", body.compare("gt", value, best), body.compare("ne", value, value))
            best = body.where(better, value, best)
            place = body.where(better, body.index(expr.add(expr.mul(at[-2], width), at[-1])), place)
        return best, place

    fake, fake_places = node.meta["val"]
    return (
        lowering.pointwise(fake, lambda body, variables: largest(body, variables)[0], origin=node),
        lowering.pointwise(fake_places, lambda body, variables: largest(body, variables)[1], origin=node),
    )


def _first_place(body: BodyBuilder, windows: Windows, variables: Sequence[Index], width: Any) -> int:
    """The place of a window's first element that is not in the border, which it keeps when all are -inf."""
    places = []
    for axis in (0, 1):
        place = body.index(windows._along(variables, axis, 0))
        step = windows.dilation[axis]
        for k in range(-(-windows.padding[axis] // step)):  # a step further for as long as it lies in the border
            later = body.index(windows._along(variables, axis, k + 1))
            place = body.where(body.index_below(windows._along(variables, axis, k), 0), later, place)
        places.append(place)
    row, column = places
    return body.op("add", body.op("mul", row, body.const(width, "int64")), column)
