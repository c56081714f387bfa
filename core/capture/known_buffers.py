"""Whole numbers that modules keep in buffers (a stride, the length of a window), known where a decision needs one.

A buffer is an input of the graph like others. Where tracing would have to refuse because a decision depends on numbers
that come from such buffers alone, it begins anew with the values of all buffers of these names known; they are guarded,
those of other buffers are not. A buffer whose number keeps changing is not taken for known again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from ..guards.checks import Predicate
from ..torch_compat import fakes
from ..variables.base import VariableTracker
from .breaks import TraceAgain
from .dynamic import is_buffer_source

VT = VariableTracker
MOST_NODES = 64  # between a buffer and the decision
FEW = 4  # so many numbers of one buffer are told apart
WHOLE = (torch.int64, torch.int32, torch.bool)


class SameNumber:
    """A predicate for guards: a tensor of one element holds this number."""

    __qualname__ = "SameNumber"

    def __init__(self, number: int) -> None:
        self.number = number

    def __call__(self, tensor: torch.Tensor) -> bool:
        return tensor.item() == self.number


def learn(tx: Any, values: Iterable[VT]) -> None:
    """Begin anew, knowing the buffers that these tensors are computed from; return where that would not help."""
    history = tx.trace.policy.history
    fresh: set[str] = set()
    for value in values:
        behind = tx.builder.inputs_behind(value.value, MOST_NODES)  # type: ignore[attr-defined]
        if not behind or not all(item.is_tensor for item in behind):
            return
        for item in behind:
            real = tx.builder.real_input(item)
            if not _may_be_known(real, item.source) or len(history.buffers.get(item.source.name(), ())) > FEW:
                return
            fresh.add(item.source.key)
    if fresh - history.known_buffers:
        history.known_buffers |= fresh
        raise TraceAgain


def numbers_among(tx: Any, values: Iterable[VT]) -> Iterator[VT]:
    """The tensors of no dimensions among arguments whose number is not known."""
    for value in values:
        value = value.realize(tx)
        if value.kind in ("list", "tuple"):
            yield from numbers_among(tx, value.unpack(tx))
        elif value.kind == "tensor" and value.fake.ndim == 0 and value.known_number() is None:  # type: ignore[attr-defined]
            yield value


def make_known(tx: Any, real: torch.Tensor, fake: Any, source: Any) -> bool:
    """Let the fake of an input know its number, and guard that, where a decision of this capture needs it."""
    history = tx.trace.policy.history
    if not history.known_buffers or not _may_be_known(real, source) or source.key not in history.known_buffers:
        return False
    number = real.item()
    seen = history.buffers.setdefault(source.name(), set())
    seen.add(number)
    if len(seen) > FEW:
        return False
    fakes.give_constant(tx.builder.fake_mode, fake, real.clone())
    tx.guard(source, Predicate((source,), SameNumber(number)), "a decision depends on the number in a buffer")
    return True


def _may_be_known(real: Any, source: Any) -> bool:
    return (
        source is not None
        and is_buffer_source(source)
        and type(real) in (torch.Tensor, torch.nn.Buffer)
        and real.ndim == 0
        and real.dtype in WHOLE
        and real.device.type == "cpu"
    )
