"""Fake results of common operations on tensors that lie in memory in order and whose sizes are numbers.

torch's fake tensors are general: symbols, real values beside the fakes, results laid out as any operand is. Most calls
of a program need none of it, and their results follow from a rule of a line. Taking it costs a fraction of a general
call, and a process that never meets a symbol doesn't import sympy. What a rule doesn't know for certain, an error above
all, is left to torch's own dispatch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..torch_compat import fakes
from .kernel_layouts import lies_in_order

Made = tuple[Any, ...]  # sizes and dtype of a result, and its strides where its elements are not in order
Rule = Callable[..., "list[Made] | None"]

_RULES: dict[str, Rule] = {}
_ANY_LAYOUT: set[str] = set()  # the operators whose results are in order whatever the operands' layouts are
_FACTORIES: set[str] = set()  # the operators that make a tensor of no other
_PLAIN_FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
CPU = torch.device("cpu")
_SETTINGS = (int, float, str, torch.dtype, torch.device, torch.layout, torch.memory_format)
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
# Their kernels make views and know every layout: they run as they are, on the meta tensors inside the fakes.
_VIEWS = frozenset(
    f"aten::{name}"
    for name in "view t transpose.int permute expand unsqueeze squeeze.dim squeeze.dims alias detach slice.Tensor "
    "select.int split.Tensor split_with_sizes unbind.int diagonal".split()
)


def run(mode: Any, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The fake result of a call on fakes of the mode, or NotImplemented where torch's own dispatch has to give it."""
    name = op.name()
    rule = _RULES.get(name)
    if (rule is None and name not in _VIEWS) or mode.shape_env is not None:
        return NotImplemented
    if name in _FACTORIES:
        device = _asked_device(kwargs)
    else:
        device = _common_device(mode, (*args, *kwargs.values()), ordered=rule is not None and name not in _ANY_LAYOUT)
    if device is None:
        return NotImplemented
    if rule is None:
        with fakes.meta_kernels(mode):
            result = op(*args, **kwargs)
        if isinstance(result, torch.Tensor):
            return fakes.wrap_meta(mode, result, device)
        return type(result)(fakes.wrap_meta(mode, item, device) for item in result)
    made = rule(device, *args, **kwargs)
    if made is None:
        return NotImplemented
    results = [fakes.new_fake(mode, sizes, dtype, device, *strides) for sizes, dtype, *strides in made]
    return results[0] if len(op._schema.returns) == 1 else tuple(results)


def _common_device(mode: Any, values: Sequence[Any], *, ordered: bool) -> torch.device | None:
    """The device of all tensors; None where they differ or there is more to an argument than a rule looks at."""
    device = None
    waiting = list(values)
    while waiting:
        item = waiting.pop()
        if isinstance(item, torch.Tensor):
            if not fakes.is_bare_fake(mode, item) or (ordered and not lies_in_order(item)):
                return None
            if device is not None and item.device != device:
                return None
            device = item.device
        elif isinstance(item, (list, tuple)):
            waiting.extend(item)
        elif item is not None and not isinstance(item, _SETTINGS):
            return None
    return device


def _asked_device(kwargs: dict[str, Any]) -> torch.device | None:
    """The device of a new tensor in main memory, None for another place."""
    asked = kwargs.get("device")
    return CPU if asked is None or asked == CPU else None


def _is_plain_request(options: dict[str, Any]) -> bool:
    """Whether the options of a new tensor but its dtype are the usual ones."""
    return (
        options.get("layout") in (None, torch.strided)
        and not options.get("pin_memory")
        and not options.get("non_blocking")
        and options.get("memory_format") in (None, torch.contiguous_format, torch.preserve_format)
    )


def _rule(names: str, *, any_layout: bool = False, factory: bool = False) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        qualified = [f"aten::{name}" for name in names.split()]
        _RULES.update(dict.fromkeys(qualified, rule))
        _ANY_LAYOUT.update(qualified if any_layout else ())
        _FACTORIES.update(qualified if factory else ())
        return rule

    return register


def _broadcast(tensors: Sequence[Any]) -> Sequence[int] | None:
    sizes: Sequence[int] = tensors[0].shape
    for other in tensors[1:]:
        if other.shape != sizes:
            try:
                sizes = torch.broadcast_shapes(sizes, other.shape)
            except RuntimeError:
                return None  # torch's own dispatch raises it, with the operation's message
    return sizes


@_rule(
    "cos cosh erf erfc exp expm1 log log1p log2 reciprocal rsqrt sigmoid sin sinh sqrt tan tanh gelu silu relu "
    "leaky_relu hardtanh hardswish hardsigmoid neg abs floor ceil round trunc"
)
def _float_to_same(device: torch.device, /, x: Any, *settings: Any, **options: Any) -> list[Made] | None:
    return [(x.shape, x.dtype)] if x.dtype in _PLAIN_FLOATS else None


@_rule("add.Tensor sub.Tensor mul.Tensor maximum minimum rsub.Scalar")
def _ring_operation(device: torch.device, /, x: Any, y: Any, *settings: Any, **options: Any) -> list[Made] | None:
    """Of operands with one floating or integer dtype, or an operand and a number of its kind."""
    whole = all(isinstance(item, torch.Tensor) or type(item) is int for item in (x, y, *settings, *options.values()))
    if not isinstance(x, torch.Tensor) or x.dtype not in _INTEGERS:
        return _arithmetic(device, x, y, **options)
    if not whole or (isinstance(y, torch.Tensor) and y.dtype != x.dtype):
        return None
    sizes = _broadcast([item for item in (x, y) if isinstance(item, torch.Tensor)])
    return None if sizes is None else [(sizes, x.dtype)]


@_rule("div.Tensor pow.Tensor_Scalar")
def _arithmetic(device: torch.device, /, x: Any, y: Any, **options: Any) -> list[Made] | None:
    """Of operands with one floating dtype, or an operand and a number."""
    numbers = [item for item in (y, *options.values()) if not isinstance(item, torch.Tensor)]
    tensors = [item for item in (x, y) if isinstance(item, torch.Tensor)]
    if not isinstance(x, torch.Tensor) or any(type(item) not in (int, float) for item in numbers):
        return None
    if x.dtype not in _PLAIN_FLOATS or tensors[-1].dtype != x.dtype:
        return None
    sizes = _broadcast(tensors)
    return None if sizes is None else [(sizes, x.dtype)]


@_rule(" ".join(f"{name}.{kind}" for name in "eq ne lt le gt ge".split() for kind in ("Tensor", "Scalar")))
def _comparison(device: torch.device, /, x: Any, y: Any) -> list[Made] | None:
    tensors = [item for item in (x, y) if isinstance(item, torch.Tensor)]
    sizes = _broadcast(tensors)
    return None if sizes is None else [(sizes, torch.bool)]


@_rule("bitwise_and.Tensor bitwise_or.Tensor")
def _bitwise(device: torch.device, /, x: Any, y: Any) -> list[Made] | None:
    if x.dtype != y.dtype or x.dtype not in (torch.bool, *_INTEGERS):
        return None
    sizes = _broadcast((x, y))
    return None if sizes is None else [(sizes, x.dtype)]


@_rule("gelu_backward silu_backward sigmoid_backward tanh_backward threshold_backward")
def _gradient(device: torch.device, grad: Any, x: Any, *settings: Any, **options: Any) -> list[Made] | None:
    same = grad.shape == x.shape and grad.dtype == x.dtype and x.dtype in _PLAIN_FLOATS
    return [(x.shape, x.dtype)] if same else None


@_rule("mm bmm", any_layout=True)
def _product(device: torch.device, /, x: Any, y: Any) -> list[Made] | None:
    if x.dtype != y.dtype or x.dtype not in _PLAIN_FLOATS or x.dim() != y.dim() or x.dim() not in (2, 3):
        return None
    if x.shape[:-2] != y.shape[:-2] or x.shape[-1] != y.shape[-2]:
        return None
    return [((*x.shape[:-1], y.shape[-1]), x.dtype)]


@_rule("addmm baddbmm", any_layout=True)
def _product_and_sum(device: torch.device, added: Any, x: Any, y: Any, **factors: Any) -> list[Made] | None:
    made = None if factors or added.dtype != x.dtype else _product(device, x, y)
    if made is None or not 1 <= added.dim() <= x.dim():
        return None
    fits = all(size in (1, wanted) for size, wanted in zip(reversed(added.shape), reversed(made[0][0])))
    return made if fits else None


@_rule("_softmax _log_softmax")
def _softmax(device: torch.device, /, x: Any, dim: int, half_to_float: bool) -> list[Made] | None:
    fits = x.dtype in _PLAIN_FLOATS and not half_to_float and -x.dim() <= dim < x.dim()
    return [(x.shape, x.dtype)] if fits else None


@_rule("_softmax_backward_data _log_softmax_backward_data")
def _softmax_gradient(device: torch.device, grad: Any, y: Any, dim: int, dtype: torch.dtype) -> list[Made] | None:
    same = grad.shape == y.shape and grad.dtype == y.dtype == dtype and dtype in _PLAIN_FLOATS
    return [(y.shape, dtype)] if same else None


@_rule("sum.dim_IntList mean.dim amax amin")
def _reduction(
    device: torch.device, /, x: Any, dims: Sequence[int] | None = None, keepdim: bool = False, **options: Any
) -> list[Made] | None:
    """Over named dimensions of a tensor that has elements, in its own dtype."""
    if options or not dims or x.dtype not in _PLAIN_FLOATS or not x.numel():
        return None
    if any(not -x.dim() <= dim < x.dim() for dim in dims):
        return None
    gone = {dim % x.dim() for dim in dims}
    if len(gone) != len(dims):
        return None
    if keepdim:
        return [([1 if at in gone else size for at, size in enumerate(x.shape)], x.dtype)]
    return [([size for at, size in enumerate(x.shape) if at not in gone], x.dtype)]


@_rule("native_layer_norm")
def _layer_norm(
    device: torch.device, /, x: Any, shape: Sequence[int], weight: Any, bias: Any, eps: float
) -> list[Made] | None:
    """The result, and mean and reciprocal deviation with the normalised sizes 1."""
    kept = x.dim() - len(shape)
    affine = [item for item in (weight, bias) if item is not None]
    if device.type != "cpu" or x.dtype not in (torch.float32, torch.float64) or not shape or kept < 0:
        return None
    if list(x.shape[kept:]) != list(shape):
        return None
    if any(item.dtype != x.dtype or list(item.shape) != list(shape) for item in affine):
        return None
    sizes = [*x.shape[:kept], *[1] * len(shape)]
    return [(x.shape, x.dtype), (sizes, x.dtype), (sizes, x.dtype)]


@_rule("embedding", any_layout=True)
def _embedding(device: torch.device, weight: Any, indices: Any, *settings: Any) -> list[Made] | None:
    if weight.dim() != 2 or indices.dtype not in (torch.int64, torch.int32):
        return None
    return [((*indices.shape, weight.shape[1]), weight.dtype)]


@_rule("where.self")
def _choice(device: torch.device, condition: Any, x: Any, y: Any) -> list[Made] | None:
    if condition.dtype is not torch.bool or x.dtype != y.dtype:
        return None
    sizes = _broadcast((condition, x, y))
    return None if sizes is None else [(sizes, x.dtype)]


@_rule("gather")
def _gather(device: torch.device, /, x: Any, dim: int, index: Any, **options: Any) -> list[Made] | None:
    """Where no size of the index is larger than the tensor's."""
    if index.dtype is not torch.int64 or index.dim() != x.dim() or not -x.dim() <= dim < x.dim():
        return None
    fits = all(at == dim % x.dim() or index.shape[at] <= x.shape[at] for at in range(x.dim()))
    return [(index.shape, x.dtype)] if fits else None


@_rule("index.Tensor")
def _indexed(device: torch.device, /, x: Any, indices: Sequence[Any]) -> list[Made] | None:
    """By tensors of integers for the first dimensions."""
    if len(indices) > x.dim() or any(index is None or index.dtype is not torch.int64 for index in indices):
        return None
    if not x.numel() or not all(index.numel() for index in indices):
        return None
    sizes = _broadcast(indices)
    return None if sizes is None else [((*sizes, *x.shape[len(indices) :]), x.dtype)]


@_rule("cat")
def _joined(device: torch.device, tensors: Sequence[Any], dim: int = 0) -> list[Made] | None:
    first = tensors[0]
    if not -first.dim() <= dim < first.dim():
        return None
    dim %= first.dim()
    for other in tensors[1:]:
        rest = [(size, own) for at, (size, own) in enumerate(zip(other.shape, first.shape)) if at != dim]
        if other.dtype != first.dtype or other.dim() != first.dim() or any(size != own for size, own in rest):
            return None
    total = sum(tensor.shape[dim] for tensor in tensors)
    return [([total if at == dim else size for at, size in enumerate(first.shape)], first.dtype)]


@_rule("_to_copy")
def _converted(
    device: torch.device, /, x: Any, *, dtype: torch.dtype | None = None, **options: Any
) -> list[Made] | None:
    """To another dtype on the same device."""
    if options.pop("device", None) not in (None, device) or not _is_plain_request(options):
        return None
    return [(x.shape, dtype or x.dtype)]


@_rule("clone")
def _copied(device: torch.device, /, x: Any, **options: Any) -> list[Made] | None:
    return [(x.shape, x.dtype)] if _is_plain_request(options) else None


@_rule("zeros_like ones_like empty_like full_like")
def _like(
    device: torch.device, /, x: Any, *fill: Any, dtype: torch.dtype | None = None, **options: Any
) -> list[Made] | None:
    if options.pop("device", None) not in (None, device) or not _is_plain_request(options):
        return None
    return [(x.shape, dtype or x.dtype)]


@_rule("new_zeros new_ones new_empty new_full", any_layout=True)
def _new(
    device: torch.device, /, x: Any, sizes: Sequence[int], *fill: Any, dtype: torch.dtype | None = None, **options: Any
) -> list[Made] | None:
    if options.pop("device", None) not in (None, device) or not _is_plain_request(options) or min(sizes, default=0) < 0:
        return None
    return [(sizes, dtype or x.dtype)]


@_rule("zeros ones empty.memory_format", factory=True)
def _filled(
    device: torch.device, /, sizes: Sequence[int], *, dtype: torch.dtype | None = None, **options: Any
) -> list[Made] | None:
    options.pop("device", None)
    if not _is_plain_request(options) or any(type(size) is not int or size < 0 for size in sizes):
        return None
    return [(sizes, dtype or torch.get_default_dtype())]


@_rule("full", factory=True)
def _full(
    device: torch.device, /, sizes: Sequence[int], value: Any, *, dtype: torch.dtype | None = None, **options: Any
) -> list[Made] | None:
    return _filled(device, sizes, dtype=dtype, **options) if dtype is not None else None


@_rule("scalar_tensor", factory=True)
def _number(
    device: torch.device, /, value: Any, *, dtype: torch.dtype | None = None, **options: Any
) -> list[Made] | None:
    return _filled(device, (), dtype=dtype, **options) if type(value) in (int, float, bool) else None


@_rule("arange arange.start", factory=True)
def _counted(
    device: torch.device, /, *limits: Any, dtype: torch.dtype | None = None, **options: Any
) -> list[Made] | None:
    """Of whole numbers one apart."""
    low, high = (0, *limits) if len(limits) == 1 else limits
    if type(low) is not int or type(high) is not int or low > high:
        return None
    return _filled(device, (high - low,), dtype=dtype or torch.int64, **options)


@_rule("_scaled_dot_product_flash_attention_for_cpu", any_layout=True)
def _attention(device: torch.device, /, q: Any, k: Any, v: Any, *settings: Any, **options: Any) -> list[Made] | None:
    """Of [batch, heads, length, width] that lie as [batch, length, heads, width]: so does the result."""
    if device.type != "cpu" or not (q.dim() == k.dim() == v.dim() == 4) or not (q.dtype == k.dtype == v.dtype):
        return None
    batch, heads, length, width = q.shape
    alike = k.shape == v.shape and k.shape[:2] == (batch, heads) and k.shape[3] == width
    strides = (length * heads * width, width, heads * width, 1)
    if not alike or q.dtype not in _PLAIN_FLOATS or not q.numel() or not k.numel() or q.stride() != strides:
        return None
    kept = torch.float64 if q.dtype is torch.float64 else torch.float32
    return [(q.shape, q.dtype, strides), ((batch, heads, length), kept, (length * heads, 1, heads))]


@functools.cache
def operators() -> tuple[str, ...]:
    """The names of the operators with a rule here, and of the views that run their own kernel."""
    return tuple(sorted((*_RULES, *_VIEWS)))
