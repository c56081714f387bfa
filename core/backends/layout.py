"""Memory layout as source text: the test that a tensor has a recorded layout, and the copy that gives it.

Strides of dimensions of size 1 move no element: where they alone differ, a view gives them. With symbolic sizes a dense
layout is kept as its order of dimensions, which holds for every size; one with gaps as its strides where those are
plain numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import torch_compat
from ..graph.geometry import is_static
from .generated import Code, names, tuple_text


def layout_test(name: str, fake: Any) -> str:
    """An expression that is true when the tensor `name` lies in memory as `fake` does; empty where any layout does."""
    if not isinstance(fake, torch.Tensor) or fake.layout is not torch.strided:
        return ""
    if not is_static(fake):
        order = dense_order(fake)
        if order is None:
            strides = gapped_strides(fake)
            return f"{name}.stride() == {strides!r}" if strides else ""
        viewed = name if order == tuple(range(fake.dim())) else f"{name}.permute({tuple_text(map(str, order))})"
        return f"{viewed}.is_contiguous()"
    dims = [dim for dim, size in enumerate(fake.shape) if size > 1]
    if not dims or 0 in fake.shape or _overlaps(fake, dims):
        return ""
    if len(dims) == fake.dim():
        return f"{name}.stride() == {tuple(fake.stride())!r}"
    have = tuple_text(f"{name}.stride({dim})" for dim in dims)
    return f"{have} == {tuple(fake.stride(dim) for dim in dims)!r}"


def layout_copy(name: str, fake: Any, code: Code) -> str:
    """An expression for a tensor with the values of `name` in the layout of `fake`. For layouts that have a test."""
    like = f"dtype={name}.dtype, device={name}.device"
    make = code.bind(torch.empty_strided, "empty_strided")
    if not is_static(fake):
        order = dense_order(fake)
        if order is not None:
            make = code.bind(torch.empty_permuted, "empty_permuted")
            return f"{make}({name}.shape, {order!r}, {like}).copy_({name})"
        repeated = [dim for dim, step in enumerate(fake.stride()) if isinstance(step, int) and step == 0]
        whole, one = f"{name}.shape", {dim: f"min({name}.shape[{dim}], 1)" for dim in repeated}
        size = tuple_text(one.get(dim, f"{name}.shape[{dim}]") for dim in range(fake.dim()))
    else:
        repeated = [dim for dim, size in enumerate(fake.shape) if size > 1 and fake.stride(dim) == 0]
        whole, one = repr(tuple(fake.shape)), dict.fromkeys(repeated, "1")
        size = repr(tuple(1 if dim in repeated else size for dim, size in enumerate(fake.shape)))
    source = name + "".join(f".narrow({dim}, 0, {one[dim]})" for dim in repeated)
    made = f"{make}({size}, {tuple(fake.stride())!r}, {like}).copy_({source})"
    return f"{made}.expand({whole})" if repeated else made


def zeros_like_layout(like: str, fake: Any, code: Code) -> str:
    """An expression for zeros in the layout of `fake`; `like` names a shape where sizes are symbolic."""
    options = f"dtype={code.bind(fake.dtype, 'dtype')}, device={code.bind(fake.device, 'device')}"
    if not is_static(fake):
        order = dense_order(fake) or tuple(range(fake.dim()))
        sizes = like or repr(tuple(fake.shape))  # where only strides are symbolic, the sizes are known
        return f"{code.bind(torch.empty_permuted, 'empty_permuted')}({sizes}, {order!r}, {options}).zero_()"
    make = code.bind(torch.empty_strided, "empty_strided")
    return f"{make}({tuple(fake.shape)!r}, {tuple(fake.stride())!r}, {options}).zero_()"


def _overlaps(fake: Any, dims: Sequence[int]) -> bool:
    """True when two elements share memory other than through dimensions of stride 0."""
    reach = 1
    for stride, size in sorted((fake.stride(dim), fake.shape[dim]) for dim in dims if fake.stride(dim) != 0):
        if stride < reach:
            return True
        reach = stride * size
    return False


def dense_order(fake: Any) -> tuple[int, ...] | None:
    """The dimensions from the outermost in memory to the innermost; None for a layout with gaps or overlaps."""
    sizes, strides = ([_hint(number) for number in numbers] for numbers in (fake.shape, fake.stride()))
    order = sorted(range(fake.dim()), key=lambda dim: (-strides[dim], dim))
    expected = 1
    for dim in reversed(order):
        if sizes[dim] > 1 and strides[dim] != expected:
            return None
        expected *= max(sizes[dim], 1)
    return tuple(order)


def gapped_strides(fake: Any) -> tuple[int, ...] | None:
    """The strides of a layout with symbolic sizes that hold for every size: plain numbers, no element on another.

    Only the outermost dimension may have a symbolic size: of others the next stride would depend on it.
    """
    strides = tuple(fake.stride())
    if not all(isinstance(step, int) for step in strides):
        return None
    reach: int | None = 1
    for step, dim in sorted((step, dim) for dim, step in enumerate(strides) if step != 0):
        if reach is None or step < reach:
            return None
        size = fake.shape[dim]
        reach = step * size if isinstance(size, int) else None
    return strides


def _hint(value: Any) -> int:
    return value if isinstance(value, int) else int(torch_compat.hint_of(value))


def lies_as(tensor: Any, fake: Any) -> bool:
    """Whether a real tensor has the recorded layout (true where any layout will do)."""
    test = layout_test("t", fake)
    return not test or bool(eval(test, {"t": tensor}))  # noqa: S307 - our own expression


def named_strides(name: str, fake: Any) -> str:
    """A tuple: the strides that the tensor `name` is to tell where layout_test holds, which looks past sizes of 1.

    Empty where that test sees them all, or there is none. A symbolic stride of a size of 1 is left as it is.
    """
    if not isinstance(fake, torch.Tensor) or fake.layout is not torch.strided:
        return ""
    if any(isinstance(size, int) and size == 0 for size in fake.shape):
        return ""
    wide = [dim for dim, size in enumerate(fake.shape) if not isinstance(size, int) or size > 1]
    if is_static(fake):
        return "" if len(wide) == fake.dim() or _overlaps(fake, wide) else repr(tuple(fake.stride()))
    told = {dim: step for dim, step in enumerate(fake.stride()) if dim not in wide and isinstance(step, int)}
    if not told or not layout_test(name, fake):
        return ""
    return tuple_text(str(told.get(dim, f"{name}.stride({dim})")) for dim in range(fake.dim()))


def differs_in_name_only(tensor: Any, fake: Any) -> bool:
    """Strides of sizes 0 and 1 don't matter to anybody but who asks for them."""
    if is_static(fake) and 0 in fake.shape:
        return bool(tensor.stride() != tuple(fake.stride()))
    strides = named_strides("t", fake)
    return bool(strides) and tensor.stride() != eval(strides, {"t": tensor})  # noqa: S307 - our own expression


def relayout(fakes: Sequence[Any], which: Sequence[int], always: Sequence[int] = ()) -> Callable[..., tuple[Any, ...]]:
    """A generated function `(*outputs) -> outputs` that copies those at `which` whose layout is not their fake's.

    always: outputs that are copied whatever their layout is.
    """
    slots = names("s", len(fakes))
    code = Code("relayout", slots)
    for index in always:
        code.line(f"{slots[index]} = {slots[index]}.clone()")
    for index in which:
        test = layout_test(slots[index], fakes[index]) or f"{slots[index]}.stride() == {tuple(fakes[index].stride())!r}"
        code.line(f"if not ({test}):")
        code.line(f"    {slots[index]} = {layout_copy(slots[index], fakes[index], code)}")
        strides = named_strides(slots[index], fakes[index])
        if strides:
            code.line(f"elif {slots[index]}.stride() != {strides}:")
            code.line(f"    {slots[index]} = {slots[index]}.as_strided({slots[index]}.shape, {strides})")
    code.line(f"return {tuple_text(slots)}")
    return code.finish()
