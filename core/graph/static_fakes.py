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

Made = tuple[Sequence[int], torch.dtype]  # sizes and dtype of a result in order
Rule = Callable[..., "list[Made] | None"]

_RULES: dict[str, Rule] = {}
_ANY_LAYOUT: set[str] = set()  # the operators whose results are in order whatever the operands' layouts are
_PLAIN_FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
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
    results = [fakes.new_fake(mode, sizes, dtype, device) for sizes, dtype in made]
    return results[0] if len(op._schema.returns) == 1 else tuple(results)


def _common_device(mode: Any, values: Sequence[Any], *, ordered: bool) -> torch.device | None:
    """The device of all tensors; None where they differ or there is more to an argument than a rule looks at."""
    device = None
    waiting = list(values)
    while waiting:
        item = waiting.pop()
        if isinstance(item, torch.Tensor):
            if not fakes.is_bare_fake(mode, item) or (ordered and not item.is_contiguous()):
                return None
            if device is not None and item.device != device:
                return None
            device = item.device
        elif isinstance(item, (list, tuple)):
            waiting.extend(item)
        elif item is not None and not isinstance(item, (int, float, str, torch.dtype)):
            return None
    return device


def _rule(names: str, *, any_layout: bool = False) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        qualified = [f"aten::{name}" for name in names.split()]
        _RULES.update(dict.fromkeys(qualified, rule))
        _ANY_LAYOUT.update(qualified if any_layout else ())
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
def _float_to_same(device: torch.device, x: Any, *settings: Any, **options: Any) -> list[Made] | None:
    return [(x.shape, x.dtype)] if x.dtype in _PLAIN_FLOATS else None


@_rule("add.Tensor sub.Tensor mul.Tensor div.Tensor maximum minimum pow.Tensor_Scalar rsub.Scalar")
def _arithmetic(device: torch.device, x: Any, y: Any, **options: Any) -> list[Made] | None:
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
def _comparison(device: torch.device, x: Any, y: Any) -> list[Made] | None:
    tensors = [item for item in (x, y) if isinstance(item, torch.Tensor)]
    sizes = _broadcast(tensors)
    return None if sizes is None else [(sizes, torch.bool)]


@_rule("bitwise_and.Tensor bitwise_or.Tensor")
def _bitwise(device: torch.device, x: Any, y: Any) -> list[Made] | None:
    if x.dtype != y.dtype or x.dtype not in (torch.bool, *_INTEGERS):
        return None
    sizes = _broadcast((x, y))
    return None if sizes is None else [(sizes, x.dtype)]


@_rule("gelu_backward silu_backward sigmoid_backward tanh_backward threshold_backward")
def _gradient(device: torch.device, grad: Any, x: Any, *settings: Any, **options: Any) -> list[Made] | None:
    same = grad.shape == x.shape and grad.dtype == x.dtype and x.dtype in _PLAIN_FLOATS
    return [(x.shape, x.dtype)] if same else None


@_rule("mm bmm", any_layout=True)
def _product(device: torch.device, x: Any, y: Any) -> list[Made] | None:
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
def _softmax(device: torch.device, x: Any, dim: int, half_to_float: bool) -> list[Made] | None:
    fits = x.dtype in _PLAIN_FLOATS and not half_to_float and -x.dim() <= dim < x.dim()
    return [(x.shape, x.dtype)] if fits else None


@_rule("_softmax_backward_data _log_softmax_backward_data")
def _softmax_gradient(device: torch.device, grad: Any, y: Any, dim: int, dtype: torch.dtype) -> list[Made] | None:
    same = grad.shape == y.shape and grad.dtype == y.dtype == dtype and dtype in _PLAIN_FLOATS
    return [(y.shape, dtype)] if same else None


@_rule("sum.dim_IntList mean.dim amax amin")
def _reduction(
    device: torch.device, x: Any, dims: Sequence[int] | None = None, keepdim: bool = False, **options: Any
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
    device: torch.device, x: Any, shape: Sequence[int], weight: Any, bias: Any, eps: float
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


@_rule("embedding")
def _embedding(device: torch.device, weight: Any, indices: Any, *settings: Any) -> list[Made] | None:
    if weight.dim() != 2 or indices.dtype not in (torch.int64, torch.int32):
        return None
    return [((*indices.shape, weight.shape[1]), weight.dtype)]


@functools.cache
def operators() -> tuple[str, ...]:
    """The names of the operators with a rule here, and of the views that run their own kernel."""
    return tuple(sorted((*_RULES, *_VIEWS)))
