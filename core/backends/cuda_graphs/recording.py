"""Recording: one capture of a graph's call, for one size and one set of addresses.

Enters: the call, inputs, what each of them is to the capture. Leaves: a function that replays it, generated for exactly
these inputs and results, which gives None where the capture does not fit a call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .graph_device import GraphDevice
from .memory import Result, buffer_like, plan_results
from .replay_source import write_replay

NUMBER, COPIED, PARAMETER, SAME, POOLED = "number", "copied", "parameter", "same", "pooled"
"""What an input is to a capture: a number, which is part of it; a tensor whose values are copied into a buffer on each
call; or one that is read where it lies, as long as it lies there: because it is a parameter, because it was the same
object on the calls before, or because it is the result of another capture."""
HELD = frozenset((PARAMETER, SAME, POOLED))


class CannotCapture(Exception):
    """A call can't be captured; the text says why."""


@dataclass
class Order:
    """On which stream a device's captures ran last: `stream` is its handle, 0 also before the first."""

    stream: int = 0


class Recording:
    """A capture. `replay(*inputs)` gives the results, or None where an address differs or results are still held.

    roles: what each input is; addresses: position of a held input -> where it must lie; lease: gives what keeps the
    results of the last replay, None once no tensor lies there any more; replays: how often it ran.
    """

    def __init__(self, roles: Sequence[str], addresses: dict[int, int]) -> None:
        self.roles = tuple(roles)
        self.addresses = addresses
        self.lease: Callable[[], Any] = _nothing
        self.stream = 0
        self.replays = 0
        self.results: tuple[Result, ...] = ()
        self.buffers: dict[int, torch.Tensor] = {}
        self.work: Any = None
        self.replay: Callable[..., tuple[Any, ...] | None] = _nothing

    def moved(self, inputs: Sequence[Any]) -> list[int]:
        """Positions of held inputs that lie somewhere else now."""
        return [at for at, address in self.addresses.items() if inputs[at].data_ptr() != address]

    @property
    def kept(self) -> set[int]:
        """Addresses of results that stay in its memory."""
        return {result.tensor.data_ptr() for result in self.results if result.kind == "leased"}

    @property
    def size_bytes(self) -> int:
        """Bytes of its buffers and results; what lies between them is shared with others."""
        tensors = [*self.buffers.values(), *(each.tensor for each in self.results if each.kind in ("copied", "leased"))]
        return sum(tensor.nbytes for tensor in tensors)

    def drop(self) -> None:
        """Let go of everything. Results of the program that lie in its memory keep that themselves."""
        self.replay, self.work, self.buffers, self.results = _nothing, None, {}, ()


def _nothing(*inputs: Any) -> None:
    return None


def record(
    call: Callable[..., Any],
    inputs: Sequence[Any],
    roles: Sequence[str],
    leased: frozenset[int],
    device: GraphDevice,
    pool: Any,
    order: Order,
    lock: threading.RLock,  # type: ignore[valid-type]  # a factory function for type checkers
) -> Recording:
    """Capture one call. leased: positions of results that stay in the graph's memory; pool: theirs alone if there are.

    Raises CannotCapture, or RuntimeError with what CUDA or an operator says.
    """
    addresses = {at: inputs[at].data_ptr() for at, role in enumerate(roles) if role in HELD}
    made = Recording(roles, addresses)
    now = device.stream()
    if now != order.stream:  # what ran there last may be gone, and its memory about to be this one's
        device.wait_for(order.stream)
        order.stream = now
    with device.aside():
        made.buffers = {at: buffer_like(inputs[at]) for at, role in enumerate(roles) if role == COPIED}
        arguments = [made.buffers.get(at, value) for at, value in enumerate(inputs)]
        before = device.random_state()
        call(*arguments)  # what libraries set up on this stream must not be part of the capture
        device.set_random_state(before)
        made.work, results = device.capture(call, arguments, pool)
    _require_results(results, device)
    made.results = plan_results(results, arguments, leased)
    made.replay = write_replay(made, device, order, lock)
    return made


def _require_results(results: Any, device: GraphDevice) -> None:
    if not isinstance(results, (tuple, list)):
        raise CannotCapture(f"it returns a {type(results).__name__}")
    for at, value in enumerate(results):
        if not isinstance(value, torch.Tensor):
            continue
        if value.device != device.device:
            raise CannotCapture(f"result {at} is on {value.device}")
        if value.layout is not torch.strided:
            raise CannotCapture(f"result {at} has the layout {value.layout}")
        if value.is_conj() or value.is_neg():
            raise CannotCapture(f"result {at} is a lazily changed view")
