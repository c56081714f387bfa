"""The layouts of results as kernels give them, where the fakes' rules say something else.

A program sees strides, and whether a view is possible, while it is traced; kernels choose theirs by those of their
operands. So fakes must lie in memory as real tensors do. The iterator behind pointwise operators orders dimensions by
the operands' strides, but for operands that lie alike it copies their strides; on tensors without data it leaves that
shortcut out, which decides about strides of dimensions of size 1, and those decide what a convolution behind it takes
for channels-last. Others ask which of the two formats of an image their operand has, where the fakes keep its strides.
The rules were compared with real calls on the CPU, torch 2.11 and 2.13 (tests/cpu/test_kernel_layouts.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..torch_compat import fakes
from ..torch_compat.tracing import depends_on_data
from . import kernel_dtypes
from .geometry import is_static, same_numbers

Strides = tuple[int, ...]
Layout = Callable[[Sequence[int], Sequence[Any]], "Strides | None"]

_IMAGE_ORDERS = {4: (1, 3, 2, 0), 5: (1, 4, 3, 2, 0)}
"""Dimensions of channels-last images from the innermost in memory."""

_NUMBERS = frozenset(
    "add sub mul div rsub eq ne lt le gt ge remainder fmod xlogy bitwise_and bitwise_or bitwise_xor".split()
)
"""Operators that take a number of theirs for one more operand, without dimensions."""

_NORMS = (
    "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training _batch_norm_with_update "
    "_native_batch_norm_legit_functional _batch_norm_no_update".split()
)

_WRITING = ("batch_norm", "rrelu_with_noise")
"""Operators that write to an operand and give results beside it, by parts of their names."""

_KEEPING = ("hardtanh", "_prelu_kernel", "frexp", "fill", "_to_copy", "rand_like", "randn_like", "randint_like")
"""Operators that keep the strides of an operand without elements, beside those that always keep them."""

_SEVERAL = ("ldexp", "mvlgamma")
"""Operators that count as pointwise and call several."""

_GRADIENTS = (
    "elu gelu hardshrink hardsigmoid hardswish hardtanh log_sigmoid logit mish sigmoid silu softplus "
    "softshrink tanh".split()
)


def as_kernels_do(mode: Any, op: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> Any:
    """`result` of a call on fakes, with the strides that the kernel's would have.

    Sizes and strides that only a run can tell are left as they are. A result that the kernel leaves out is None.
    """
    if op is torch.ops.aten._native_multi_head_attention.default and not _argument(op, "need_weights", args, kwargs):
        return (result[0], None)  # the fakes make weights that no kernel gives
    result = kernel_dtypes.as_kernels_do(op, args, result)
    if op is torch.ops.aten.roll.default and _is_known(args[0]) and 0 not in args[0].shape:
        rolled = _rolled(args[0], args[1], _argument(op, "dims", args, kwargs) or ())
        return _laid_out(mode, result, tuple(args[0].shape), rolled)
    if op is torch.ops.aten.index.Tensor and _is_known(args[0]) and _is_known(result):
        picked = _indexed(mode, args[0], args[1], tuple(result.shape))
        return result if picked is None else _laid_out(mode, result, tuple(result.shape), picked)
    if kwargs.get("memory_format") not in (None, torch.preserve_format):
        return result
    if _keeps(op) and _is_known(args[0]) and 0 in args[0].shape:
        return _map_tensors(result, lambda item: _laid_out(mode, item, tuple(args[0].shape), tuple(args[0].stride())))
    layout = _layout_of(op)
    if layout is None:
        return result
    results = (result,) if isinstance(result, torch.Tensor) else tuple(result)
    first = results[0]
    if not isinstance(first, torch.Tensor) or not _is_known(first):
        return result
    pointwise = layout in (iterated, _iterated_back)
    if not pointwise and first.device.type != "cpu":
        return result
    operands = list(_tensors(args))
    if not operands or not all(map(_is_known, operands)):
        return result
    if pointwise and not is_static(first) and all(operand.is_contiguous() for operand in operands):
        return result  # the fakes' rule differs in dimensions of size 1 alone
    size = tuple(first.shape)
    if layout is iterated and _has_number(op, args):
        strides = iterated(size, operands, number=True)
    else:
        strides = layout(size, operands)
    if strides is None or 0 in size:
        return result
    made = [_laid_out(mode, item, size, strides) for item in results]
    return made[0] if isinstance(result, torch.Tensor) else type(result)(made)


def _argument(op: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What a call gives for an argument of the schema, its default included."""
    for place, argument in enumerate(op._schema.arguments):
        if argument.name == name:
            return args[place] if place < len(args) else kwargs.get(name, argument.default_value)
    return None


def _laid_out(mode: Any, item: Any, size: Sequence[int], strides: Strides) -> Any:
    """A result of this size with these strides; others have a layout of their own."""
    if not isinstance(item, torch.Tensor) or not same_numbers(item.shape, size) or same_numbers(item.stride(), strides):
        return item
    return fakes.new_fake(mode, size, item.dtype, item.device, strides)


def _has_number(op: Any, args: Sequence[Any]) -> bool:
    if op._schema.name.partition("::")[2] in _NUMBERS and op._overloadname.startswith("Scalar"):
        return True
    return any(type(arg) in (int, float, bool) and _is_tensor(at, op) for at, arg in enumerate(args))


def _is_tensor(place: int, op: Any) -> bool:
    return str(op._schema.arguments[place].type) == "Tensor"


def _tensors(values: Sequence[Any]) -> Any:
    for item in values:
        if isinstance(item, torch.Tensor):
            yield item
        elif isinstance(item, (list, tuple)):
            yield from _tensors(item)


def _is_known(fake: Any) -> bool:
    if not isinstance(fake, torch.Tensor) or fake.layout is not torch.strided:
        return False
    symbols = [number for number in (*fake.shape, *fake.stride()) if type(number) is not int]
    return not any(map(depends_on_data, symbols))


# -- formats ----------------------------------------------------------------------------------------------------------


def in_order(size: Sequence[int]) -> Strides:
    """Strides of elements in order."""
    strides, reach = [0] * len(size), 1
    for dim in reversed(range(len(size))):
        strides[dim], reach = reach, reach * max(size[dim], 1)
    return tuple(strides)


def lies_in_order(tensor: Any) -> bool:
    """Whether the strides are exactly those of elements in order, those of dimensions of size 1 or 0 included."""
    size = tensor.shape
    plain = 1 not in size and 0 not in size
    return tensor.is_contiguous() and (plain or same_numbers(tensor.stride(), in_order(size)))


def channels_last(size: Sequence[int]) -> Strides:
    """Strides of images whose channels lie together."""
    strides, reach = [0] * len(size), 1
    for dim in _IMAGE_ORDERS[len(size)]:
        strides[dim], reach = reach, reach * size[dim]
    return tuple(strides)


def is_channels_last(size: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether kernels take a tensor for channels-last: its strides grow in that order, and are not ambiguous."""
    order = _IMAGE_ORDERS.get(len(size))
    if order is None or strides[1] == 0:
        return False
    least = 0
    for dim in order:
        if size[dim] == 0 or strides[dim] < least:
            return False
        if dim == 0 and least == strides[1]:
            return False
        least = strides[dim] * max(size[dim], 1)
    return True


def _in_format(size: Sequence[int], last: bool) -> Strides:
    return channels_last(size) if last and len(size) in _IMAGE_ORDERS else in_order(size)


# -- the iterator -----------------------------------------------------------------------------------------------------


def iterated(size: Sequence[int], operands: Sequence[Any], number: bool = False) -> Strides | None:
    """Strides of a new result of the iterator over the operands, of which one more may be a number."""
    if all(map(lies_in_order, operands)):
        return in_order(size)
    if not number and all(same_numbers(operand.shape, size) for operand in operands):
        alike = _alike(size, operands)
        if alike is not None:
            return alike
    columns = [_spread(size, operand) for operand in operands]
    order = list(reversed(range(len(size))))
    for start in range(1, len(order)):
        at = start
        for before in reversed(range(start)):
            sign = _compared(size, columns, order[before], order[at])
            if sign > 0:
                order[before], order[at] = order[at], order[before]
                at = before
            elif sign < 0:
                break
    strides, reach = [0] * len(size), 1
    for dim in order:
        strides[dim], reach = reach, reach * size[dim]
    return tuple(strides)


def _iterated_back(size: Sequence[int], operands: Sequence[Any]) -> Strides | None:
    """That of an iterator that is given the operands from the last to the first."""
    return iterated(size, operands[::-1])


def _alike(size: Sequence[int], operands: Sequence[Any]) -> Strides | None:
    """Strides of a result whose operands all have one layout without gaps."""
    if all(operand.is_contiguous() for operand in operands):
        return in_order(size)
    if len(size) == 4 and all(o.is_contiguous(memory_format=torch.channels_last) for o in operands):
        return channels_last(size)
    strides = tuple(operands[0].stride())
    same = all(same_numbers(operand.stride(), strides) for operand in operands[1:])
    return strides if same and _is_dense(size, strides) else None


def _is_dense(size: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether elements fill their memory without gaps or overlaps."""
    reach = 1
    for stride, length in sorted((stride, length) for stride, length in zip(strides, size) if length != 1):
        if stride != reach:
            return False
        reach *= length
    return True


def _spread(size: Sequence[int], operand: Any) -> list[int]:
    """The operand's strides for each dimension of the result, 0 where it is repeated."""
    missing = len(size) - operand.dim()
    own = [
        0 if length == 1 and size[missing + dim] != 1 else stride
        for dim, (length, stride) in enumerate(zip(operand.shape, operand.stride()))
    ]
    return [0] * missing + own


def _compared(size: Sequence[int], columns: Sequence[Sequence[int]], inner: int, outer: int) -> int:
    """1 where two dimensions should change places, -1 where they should not, 0 where no operand tells."""
    for strides in columns:
        left, right = strides[inner], strides[outer]
        if left == 0 or right == 0:
            continue
        if left != right:
            return 1 if left > right else -1
        if size[inner] > size[outer]:
            return 1
    return 0


# -- elements picked by indices --------------------------------------------------------------------------------------


def _indexed(mode: Any, x: Any, indices: Sequence[Any], size: Sequence[int]) -> Strides | None:
    """The iterator's strides over the tensor, whose picked dimensions are repeated, and the indices."""
    picked = [at for at, index in enumerate(indices) if index is not None]
    wanted = [indices[at] for at in picked]
    if 0 in size or any(index.dtype in (torch.bool, torch.uint8) or not _is_known(index) for index in wanted):
        return None
    if not is_static(x) and all(one.is_contiguous() for one in (x, *wanted)):
        return None  # for the guards' sake: the fakes' rule differs in dimensions of size 1 alone
    rest = [at for at in range(x.dim()) if at not in picked]
    before = picked[0] if picked == list(range(picked[0], picked[-1] + 1)) else 0
    width = len(size) - len(rest)
    strides = [x.stride(at) for at in rest]
    strides[before:before] = [0] * width
    shape = size[before : before + width]
    operands = [fakes.new_fake(mode, size, x.dtype, x.device, strides)]
    placed = (*[1] * before, *shape, *[1] * (len(rest) - before))
    for index in wanted:
        strides_of_index = _viewed(shape, _repeated(shape, index), placed)
        operands.append(fakes.new_fake(mode, placed, index.dtype, index.device, strides_of_index))
    return iterated(size, operands)


def _repeated(shape: Sequence[int], index: Any) -> Strides:
    """Strides of an index that is expanded to the shape of all."""
    strides = [0] * len(shape)
    missing = len(shape) - index.dim()
    for dim in reversed(range(len(shape) if index.dim() else 0)):
        if dim < missing:
            length, stride = 1, shape[dim + 1] * strides[dim + 1]
        else:
            length, stride = index.shape[dim - missing], index.stride(dim - missing)
        strides[dim] = stride if length == shape[dim] else 0
    return tuple(strides)


def _viewed(size: Sequence[int], strides: Sequence[int], wanted: Sequence[int]) -> Strides:
    """Strides of a view with more dimensions of size 1, which belong to the run of elements behind them."""
    if not size:
        return (1,) * len(wanted)
    made, at = [0] * len(wanted), len(wanted) - 1
    step, count, reach = strides[-1], 1, 1
    for dim in reversed(range(len(size))):
        count *= size[dim]
        if dim == 0 or (size[dim - 1] != 1 and strides[dim - 1] != count * step):
            while at >= 0 and (reach < count or wanted[at] == 1):
                made[at], reach, at = reach * step, reach * wanted[at], at - 1
            if dim:
                step, count, reach = strides[dim - 1], 1, 1
    return tuple(made)


# -- kernels of the CPU that look at the format -----------------------------------------------------------------------


def _of(place: int) -> Layout:
    """The image format of the operand at a place."""

    def layout(size: Sequence[int], tensors: Sequence[Any]) -> Strides | None:
        owner = tensors[place]
        return _in_format(size, is_channels_last(owner.shape, owner.stride()))

    return layout


def _normalized(size: Sequence[int], tensors: Sequence[Any]) -> Strides | None:
    """The operand's own layout if it is one of the two formats, else what it is taken for."""
    operand = tensors[0]
    if operand.is_contiguous():
        return in_order(size)
    own = len(size) == 4 and operand.is_contiguous(memory_format=torch.channels_last)
    return _in_format(size, own or is_channels_last(operand.shape, operand.stride()))


def _normalized_back(size: Sequence[int], tensors: Sequence[Any]) -> Strides | None:
    """As forward, where gradient and operand agree."""
    gradient, operand = tensors[:2]
    if operand.is_contiguous() and gradient.is_contiguous():
        return in_order(size)
    own = len(size) == 4 and all(one.is_contiguous(memory_format=torch.channels_last) for one in tensors[:2])
    return _in_format(size, own or is_channels_last(operand.shape, operand.stride()))


def _of_all(size: Sequence[int], tensors: Sequence[Any]) -> Strides | None:
    """The image format that all operands share."""
    present = [tensor for tensor in tensors if tensor.dim() == len(size)]
    return _in_format(size, all(is_channels_last(tensor.shape, tensor.stride()) for tensor in present))


def _ordered(size: Sequence[int], tensors: Sequence[Any]) -> Strides | None:
    return in_order(size)


def _rolled(operand: Any, shifts: Sequence[int], dims: Sequence[int]) -> Strides:
    """The image format of both parts that a dimension is put together from, one dimension after the other."""
    size = tuple(operand.shape)
    strides = tuple(operand.stride()) if dims else in_order(size)
    for shift, dim in zip(shifts, dims):
        start = shift % size[dim]
        parts = [
            [part if at == dim % len(size) else length for at, length in enumerate(size)]
            for part in (start, size[dim] - start)
        ]
        strides = _in_format(size, all(is_channels_last(part, strides) for part in parts))
    return strides


def _kept(size: Sequence[int], tensors: Sequence[Any]) -> Strides | None:
    """The first operand's own strides, where its elements fill their memory."""
    strides = tuple(tensors[0].stride())
    return strides if _is_dense(size, strides) else None


_RULES: dict[str, Layout] = {
    **dict.fromkeys(_NORMS, _normalized),
    "native_batch_norm_backward": _normalized_back,
    **dict.fromkeys(("channel_shuffle", "max_unpool2d"), _of(0)),
    **dict.fromkeys(("reflection_pad3d", "replication_pad3d"), _of(0)),
    **dict.fromkeys(("upsample_nearest2d", "_upsample_nearest_exact2d", "upsample_bilinear2d"), _of(0)),
    **dict.fromkeys(("upsample_bicubic2d", "native_group_norm"), _of(0)),
    "native_group_norm_backward": _of(1),
    **dict.fromkeys(("log_sigmoid_forward", "masked_fill", "linalg_vector_norm", "tril", "triu", "isin"), _ordered),
    **dict.fromkeys(("mse_loss_backward", "smooth_l1_loss_backward", "huber_loss_backward"), _ordered),
    **dict.fromkeys(("_softmax", "_log_softmax", "rrelu_with_noise", "native_layer_norm"), _ordered),
    **dict.fromkeys(
        ("sort", "flip", "nan_to_num", "clone", "zeros_like", "ones_like", "empty_like", "full_like"), _kept
    ),
    **dict.fromkeys((f"{name}_backward" for name in _GRADIENTS), iterated),
    **dict.fromkeys(("_prelu_kernel", "floor_divide"), iterated),
    **dict.fromkeys(("threshold_backward", "leaky_relu_backward"), _iterated_back),
    "_prelu_kernel_backward": lambda size, tensors: iterated(size, (*tensors[1:], tensors[0])),
    "cat": _of_all,
}


@functools.cache
def _keeps(op: Any) -> bool:
    """Whether the result of an operand without elements has its strides, which eager takes for those of a full one."""
    name = op._schema.name.partition("::")[2]
    return op.namespace == "aten" and not op._schema.is_mutable and (name in _KEEPING or _RULES.get(name) is _kept)


def _map_tensors(result: Any, function: Callable[[Any], Any]) -> Any:
    return function(result) if isinstance(result, torch.Tensor) else type(result)(map(function, result))


@functools.cache
def _layout_of(op: Any) -> Layout | None:
    name = op._schema.name.partition("::")[2]
    if op.namespace != "aten" or op._schema.is_mutable and not any(part in name for part in _WRITING):
        return None
    if op is torch.ops.aten.pow.Scalar:  # its result is made before the iterator looks at the operand
        return _ordered
    if name in _RULES:
        return _RULES[name]
    return iterated if torch.Tag.pointwise in op.tags and name not in _SEVERAL else None
