"""Calls that take a number where the program gives a tensor of no dimension.

Eager reads the tensor's value, which no graph can; the same arithmetic on tensors needs no reading. The number takes no
part in gradients, so the tensor is detached.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from .base import VariableTracker

if TYPE_CHECKING:
    from .protocols import Tracer

VT = VariableTracker
SCALED_SUMS = {  # name -> (name of the number, how the operands are joined, how the product meets the first operand)
    "add": ("alpha", None, "add"),
    "sub": ("alpha", None, "sub"),
    "addcmul": ("value", operator.mul, "add"),
    "addcdiv": ("value", operator.truediv, "add"),
}


LONGEST_LIST = 256


def listed(tx: Tracer, tensor: Any) -> VT | None:
    """tolist() of a tensor of known sizes: each number is one of the data's; None for a tensor that is too large."""
    sizes = tensor.fake.shape
    if not all(isinstance(size, int) for size in sizes) or tensor.fake.numel() > LONGEST_LIST:
        return None
    if not sizes:
        return tensor.call_method(tx, "item", [], {})
    return tx.new_list([listed(tx, row) for row in tensor.iterate(tx).unpack(tx)] if sizes[0] else [])


def takes_number(name: str, kwargs: dict[str, VT]) -> bool:
    """True for calls among which some take a number that the program may give as a tensor."""
    return "alpha" in kwargs or "value" in kwargs or name.startswith("_foreach_")


def rewrite(tx: Tracer, name: str, args: Sequence[VT], kwargs: dict[str, VT]) -> VT | None:
    """The result of the call made of tensor operations alone, None for calls that take no tensor as a number."""
    sums = SCALED_SUMS.get(name.removesuffix("_"))
    if sums is not None and sums[0] in kwargs:
        return _scaled_sum(tx, name, sums, args, kwargs)
    handler = LISTS.get(name)
    if handler is None or kwargs or len(args) not in (2, 3):
        return None
    return handler(tx, name, [arg.realize(tx) for arg in args])


def _number(tx: Tracer, tracker: VT | None) -> VT | None:
    """The tensor without its history, where a tracker stands for one that eager would read as a real number."""
    if tracker is None or tracker.realize(tx).kind != "tensor":
        return None
    fake = tracker.realize(tx).fake  # type: ignore[attr-defined]
    if fake.ndim != 0 or not fake.dtype.is_floating_point:
        return None
    return tx.graph_method("detach", [tracker.realize(tx)], {})


def _is_real(tx: Tracer, tracker: VT) -> bool:
    tracker = tracker.realize(tx)
    return tracker.kind == "tensor" and tracker.fake.dtype.is_floating_point  # type: ignore[attr-defined]


def _scaled_sum(
    tx: Tracer, name: str, parts: tuple[str, Callable[..., Any] | None, str], args: Sequence[VT], kwargs: dict[str, VT]
) -> VT | None:
    keyword, join, meet = parts
    count = 2 if join is None else 3
    if set(kwargs) != {keyword} or len(args) != count or not all(_is_real(tx, arg) for arg in args):
        return None
    number = _number(tx, kwargs[keyword])
    if number is None:
        return None
    term = tx.binary(operator.mul, args[1], number)
    if join is not None:
        term = tx.binary(join, term, args[2])
    return tx.graph_method(meet + ("_" if name.endswith("_") else ""), [args[0].realize(tx), term], {})


def _pow(tx: Tracer, name: str, args: Sequence[VT]) -> VT | None:
    """torch._foreach_pow(number, tensors)."""
    number = _number(tx, args[0]) if args[1].kind in ("list", "tuple") else None
    if number is None:
        return None
    exponents = args[1].unpack(tx)
    if not all(_is_real(tx, exponent) for exponent in exponents):
        return None
    return tx.new_tuple([tx.graph_call(torch.pow, [number, exponent.realize(tx)], {}) for exponent in exponents])


def _lerp(tx: Tracer, name: str, args: Sequence[VT]) -> VT | None:
    """torch._foreach_lerp(starts, ends, number), in place too."""
    if len(args) != 3 or not all(arg.kind in ("list", "tuple") for arg in args[:2]):
        return None
    starts, ends = args[0].unpack(tx), args[1].unpack(tx)
    if len(starts) != len(ends) or not all(_is_real(tx, item) for item in (*starts, *ends)):
        return None
    weight = _number(tx, args[2])
    if weight is None:
        return None
    method = name.removeprefix("_foreach_")
    results = []
    for start, end in zip(starts, ends):
        same = tx.graph_method("to", [weight, tx.constant(start.realize(tx).fake.dtype)], {})  # type: ignore[attr-defined]
        results.append(tx.graph_method(method, [start.realize(tx), end.realize(tx), same], {}))
    return args[0] if name.endswith("_") else tx.new_tuple(results)


LISTS: dict[str, Callable[[Tracer, str, Sequence[VT]], VT | None]] = {
    "_foreach_pow": _pow,
    "_foreach_lerp": _lerp,
    "_foreach_lerp_": _lerp,
}
