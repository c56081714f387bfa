"""ReplayedCall: the call of one compiled graph, plain at first, then captured, once for each size.

What belongs to a device stands in DeviceGraphs: its lock, the stream of the last replay, the memory that captures
share. State shared between threads: everything in DeviceGraphs and in ReplayedCall, under that lock; `_graphs` under
`_graphs_lock`. A warm call reads the list of captures without it.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...errors import UserLine
from ...events import CallCaptured, FellBack, emit
from ..generated import Code, names
from .graph_device import KINDS, GraphDevice
from .graph_options import GraphOptions
from .recording import COPIED, NUMBER, PARAMETER, POOLED, SAME, CannotCapture, Order, Recording, record

MOVES = 2
"""How often a parameter may be found at another address before it is copied like any other input."""
ALL_MOVES = 64
"""How often parameters of one graph may be found at other addresses, all together, before all of them are copied."""
REMEMBERED = 1024
"""Sizes whose calls are counted before they are captured; the oldest is forgotten."""


class DeviceGraphs:
    """What the captures of one device share.

    pool: memory of captures whose results are all copied out: nobody's between two calls, so that each may use what
    the others did. A capture with results that stay has a pool of its own.
    """

    def __init__(self, device: GraphDevice) -> None:
        self.device = device
        self.lock = threading.RLock()
        self.order = Order()
        self.calls: weakref.WeakSet[ReplayedCall] = weakref.WeakSet()
        self.recordings: weakref.WeakSet[Recording] = weakref.WeakSet()
        self._pool: Any = None
        self._in_pool: weakref.WeakSet[Any] = weakref.WeakSet()

    def pool(self) -> Any:
        """The shared pool; a new one where no capture is left in it, since a pool ends with its last."""
        if self._pool is None or not len(self._in_pool):
            self._pool = self.device.new_pool()
        return self._pool

    def joined(self, work: Any) -> None:
        """Note a capture in the shared pool."""
        self._in_pool.add(work)

    def owns(self, address: int) -> bool:
        """Whether a result that stays in the memory of a capture lies there."""
        return any(address in made.kept for made in self.recordings)

    def clear(self) -> None:
        """Drop every capture and give memory back."""
        with self.lock:
            for call in list(self.calls):
                call.clear()
            self._pool = None
            self.device.trim()


_graphs: dict[torch.device, DeviceGraphs] = {}
_graphs_lock = threading.Lock()


def graphs_of(name: str) -> DeviceGraphs | None:
    """The captures of the device named; None for a device without."""
    device = torch.device(name)
    make = KINDS.get(device.type)
    if make is None:
        return None
    with _graphs_lock:
        found = _graphs.get(device)
        if found is None:
            interface = make(device)
            found = _graphs.get(interface.device)  # "cuda" means a device with a number
            if found is None:
                found = _graphs[interface.device] = DeviceGraphs(interface)
            _graphs[device] = found
        return found


def trim() -> None:
    """Drop every capture of the process and give its memory back; calls are captured anew."""
    with _graphs_lock:
        every = set(_graphs.values())
    for graphs in every:
        graphs.clear()


def statistics() -> list[dict[str, Any]]:
    """One row a compiled graph that was called since the last reset: its name, captures, their replays, plain calls,
    bytes of the captures, and why it is not captured any more ("" while it is)."""
    with _graphs_lock:
        every = set(_graphs.values())
    rows = [call.row() for graphs in every for call in list(graphs.calls)]
    return [row for row in rows if row["captures"] or row["plain"]]


class _Size:
    """One size of a graph: its captures, plain calls so far, and the tensors of the last of these."""

    def __init__(self) -> None:
        self.recordings: list[Recording] = []
        self.replays: list[Callable[..., Any]] = []
        self.calls = 0
        self.seen: list[Any] = []

    def add(self, made: Recording) -> None:
        self.recordings.append(made)
        self.replays.append(made.replay)

    def remove(self, gone: Sequence[Recording]) -> None:
        for made in gone:
            at = self.recordings.index(made)
            del self.recordings[at], self.replays[at]
            made.drop()


class ReplayedCall:
    """The call of one graph. `run(*inputs)` is what takes its place.

    call: the artifact's; sized: positions of tensors whose sizes may differ from call to call; numbers: positions of
    inputs that are no tensors; parameters: positions of those that are read where they lie; leased: positions of
    results that core lets go by itself; name, where: for reports.
    """

    def __init__(
        self,
        call: Callable[..., Any],
        graphs: DeviceGraphs,
        options: GraphOptions,
        *,
        count: int,
        sized: Sequence[int] = (),
        numbers: Sequence[int] = (),
        parameters: frozenset[int] = frozenset(),
        leased: frozenset[int] = frozenset(),
        name: str = "graph",
        where: UserLine | None = None,
    ) -> None:
        self.call, self.graphs, self.options = call, graphs, options
        self.count, self.sized, self.numbers = count, tuple(sized), tuple(numbers)
        self.parameters, self.leased = parameters, leased
        self.name, self.where = name, where
        self.refusal = ""
        self.plain = 0
        self._sizes: dict[Any, _Size] = {}
        self._replays: dict[Any, list[Callable[..., Any]]] = {}
        self._copied: set[int] = set()  # inputs that moved too often to be read where they lie
        self._moves: dict[int, int] = {}
        self._said: set[str] = set()
        self.run = self._write_run()
        graphs.calls.add(self)

    # -- the warm call ------------------------------------------------------------------------------------------------

    def _write_run(self) -> Callable[..., Any]:
        """Finds the captures of the size and asks one after the other."""
        inputs = names("i", self.count)
        arguments = ", ".join(inputs)
        code = Code("compiled", inputs)
        code.namespace.update(call=self.call, replays=self._replays, miss=self._miss)
        code.line(f"if {code.bind(self.graphs.device.capturing, 'capturing')}():")
        code.line(f"    return call({arguments})")
        parts = [f"i{at}.shape, i{at}.stride()" for at in self.sized]
        parts += [f"type(i{at}), repr(i{at})" for at in self.numbers]
        key = f"({', '.join(parts)},)" if parts else "()"
        code.line(f"key = {key}")
        code.line("for replay in replays.get(key, ()):")
        code.line(f"    results = replay({arguments})")
        code.line("    if results is not None:")
        code.line("        return results")
        code.line(f"return miss(key, ({''.join(f'{name}, ' for name in inputs)}))")
        return code.finish()

    # -- the others ---------------------------------------------------------------------------------------------------

    def _miss(self, key: Any, inputs: tuple[Any, ...]) -> Any:
        if not self.refusal:
            with self.graphs.lock:
                for replay in self._replays.get(key, ()):  # another thread may have captured it meanwhile
                    results = replay(*inputs)
                    if results is not None:
                        return results
                made = self._captured(key, inputs)
                if made is not None:
                    results = made.replay(*inputs)
                    if results is not None:
                        return results
        self.plain += 1
        return self.call(*inputs)

    def _captured(self, key: Any, inputs: tuple[Any, ...]) -> Recording | None:
        """A capture made for this call, None where it runs plainly."""
        size = self._size(key)
        if size is None or not self._warm(size, inputs):
            return None
        if not self._made_room(size, inputs):
            return None
        began = time.perf_counter()
        try:
            roles = self._roles(size, inputs)
            made = self._record(inputs, roles)
        except (CannotCapture, RuntimeError) as error:
            self._give_up(str(error).partition("\n")[0])
            return None
        size.add(made)
        self._replays.setdefault(key, size.replays)
        self.graphs.recordings.add(made)
        emit(
            CallCaptured(
                self.name,
                tuple(roles.count(role) for role in (COPIED, PARAMETER, SAME, POOLED)),
                made.size_bytes,
                time.perf_counter() - began,
                self.where,
            )
        )
        return made

    def _size(self, key: Any) -> _Size | None:
        """The size of a call; None where so many are captured that this one is not."""
        size = self._sizes.get(key)
        captured = sum(map(bool, self._replays.values()))
        if captured >= self.options.sizes and (size is None or not size.recordings):
            self._say(f"{captured} sizes of it are captured, as many as cudagraph_sizes allows")
            return None
        if size is not None:
            return size
        if len(self._sizes) >= REMEMBERED:
            oldest = next((key for key, each in self._sizes.items() if not each.recordings), None)
            self._sizes.pop(oldest, None)
        size = self._sizes[key] = _Size()
        return size

    def _warm(self, size: _Size, inputs: tuple[Any, ...]) -> bool:
        """Whether a size was run plainly often enough."""
        if size.calls >= self.options.warmup:
            return True
        size.calls += 1
        size.seen = [weakref.ref(value) if isinstance(value, torch.Tensor) else None for value in inputs]
        return False

    def _made_room(self, size: _Size, inputs: tuple[Any, ...]) -> bool:
        """Whether one more capture of a size may be made, now that none of those there fits the call."""
        gone: list[Recording] = []
        busy = 0
        for made in size.recordings:
            moved = made.moved(inputs)
            if not moved:
                busy += 1
                continue
            elsewhere = [at for at in moved if made.roles[at] != POOLED]
            for at in elsewhere:
                self._note_move(at, made.roles[at])
            if elsewhere or any(not self.graphs.owns(made.addresses[at]) for at in moved):
                gone.append(made)  # nothing will lie there again
            elif any(not self.graphs.owns(inputs[at].data_ptr()) for at in moved):
                return False  # the capture before this one ran plainly
        size.remove(gone)
        if len(size.recordings) < self.options.instances:
            return True
        held = f"results of {busy} calls" if busy else f"inputs in the memory of {len(size.recordings)} captures"
        self._say(f"{held} are held at once, as many as cudagraph_instances allows")
        return False

    def _note_move(self, at: int, role: str) -> None:
        self._moves[at] = self._moves.get(at, 0) + 1
        if role == SAME or self._moves[at] > MOVES:
            self._copied.add(at)
        elif sum(self._moves.get(parameter, 0) for parameter in self.parameters) > ALL_MOVES:
            self._copied |= self.parameters

    def _roles(self, size: _Size, inputs: tuple[Any, ...]) -> list[str]:
        """What each input is to a capture. Raises CannotCapture for one that it can't have."""
        roles = []
        for at, value in enumerate(inputs):
            if not isinstance(value, torch.Tensor):
                roles.append(NUMBER)
                continue
            if value.device != self.graphs.device.device:
                raise CannotCapture(f"input {at} is on {value.device}, not on {self.graphs.device.device}")
            if value.layout is not torch.strided:
                raise CannotCapture(f"input {at} has the layout {value.layout}")
            roles.append(self._role(at, value, size))
        return roles

    def _role(self, at: int, value: torch.Tensor, size: _Size) -> str:
        if value.numel() == 0 or value.is_conj() or value.is_neg():
            return COPIED
        if self.graphs.owns(value.data_ptr()):
            return POOLED
        if at in self._copied:
            return COPIED
        if at in self.parameters:
            return PARAMETER
        return SAME if size.seen and size.seen[at] is not None and size.seen[at]() is value else COPIED

    def _record(self, inputs: tuple[Any, ...], roles: Sequence[str]) -> Recording:
        graphs = self.graphs
        shared = not self.leased
        pool = graphs.pool() if shared else graphs.device.new_pool()
        made = record(self.call, inputs, roles, self.leased, graphs.device, pool, graphs.order, graphs.lock)
        if shared:
            graphs.joined(made.work)
        return made

    # -- reports ------------------------------------------------------------------------------------------------------

    def _give_up(self, reason: str) -> None:
        self.refusal = reason
        self._drop()
        self._say(f"it can't be captured: {reason}")

    def _say(self, reason: str) -> None:
        if reason not in self._said:
            self._said.add(reason)
            emit(FellBack("cudagraphs", f"{self.name} runs without a CUDA graph: {reason}", self.where))

    def row(self) -> dict[str, Any]:
        """What it did so far, see statistics()."""
        with self.graphs.lock:
            made = [each for size in self._sizes.values() for each in size.recordings]
            return {
                "name": self.name,
                "captures": len(made),
                "replays": sum(each.replays for each in made),
                "plain": self.plain,
                "bytes": sum(each.size_bytes for each in made),
                "refusal": self.refusal,
            }

    def clear(self) -> None:
        """Drop the captures; the next calls run plainly again, and are captured anew."""
        with self.graphs.lock:
            self._drop()
            self.plain = 0

    def _drop(self) -> None:
        for size in self._sizes.values():
            size.remove(list(size.recordings))
        self._sizes.clear()
        self._replays.clear()
