"""freeze=True: weights that a backend may treat as constants, and the check before each run that they still are.

Enters: a capture and the function that compiles it for given constants. Leaves: a callable that compiles anew when the
version or the memory of a frozen weight has changed. Frozen are the parameters and buffers that the entry itself holds,
unless the graph writes to them. What is written past torch (`.data`, numpy, DLPack) bumps no version: `refresh` is for
that, and config.check_frozen finds it.
State shared between threads: the graphs alive, in a weak set under the GIL; each graph compiles under its `_lock`.
"""

from __future__ import annotations

import hashlib
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch

from .. import _C
from ..errors import FrozenWeightChanged
from ..events import FellBack, emit
from ..graph.captured import CapturedGraph
from ..graph.functional import FunctionalGraph
from ..settings import config
from .generated import Code
from .tensor_bytes import tensor_bytes
from .wrapper import follow

RESTLESS = 8
"""After so many changes that were compiled anew (refresh() not counted) the graph reads its weights on each call: they
are being trained, and each change costs a compile."""

_graphs: weakref.WeakSet[FrozenGraph] = weakref.WeakSet()

Build = Callable[[Mapping[int, Any]], Callable[..., Any]]


def frozen_weights(captured: CapturedGraph, graph: FunctionalGraph) -> dict[int, Any]:
    """Position of an input -> the weight that may be frozen there."""
    try:
        _C.FrozenWeights(())
    except RuntimeError as missing:  # this torch can't be asked for versions: nothing may be baked in
        emit(FellBack("freeze", f"{missing}; weights are read on each call"))
        return {}
    written = {write.input for write in graph.epilogue.write_backs}
    return {
        item.index: item.real
        for item in captured.inputs
        if (item.is_parameter or item.is_buffer)
        and item.lifted
        and item.index not in written
        and _has_memory(item.real)
    }


def _has_memory(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided and not value.is_inference()


def frozen_run(weights: Mapping[int, Any], build: Build, name: str) -> Callable[..., Any]:
    """The callable that `build` makes for the weights, made anew when they change."""
    return FrozenGraph(weights, build, name).start()


def refresh(module: Any = None) -> int:
    """Have the frozen graphs that hold weights of `module` (None: all) compiled anew; how many there are."""
    wanted = None if module is None else {id(value) for value in (*module.parameters(), *module.buffers())}
    count = 0
    for graph in list(_graphs):
        if wanted is None or any(id(weight) in wanted for weight in graph.weights.values()):
            graph.stale()
            count += 1
    return count


class FrozenGraph:
    """One graph, the weights it was compiled for, and the function that is called.

    The function owns this object, not the other way round: it lives as long as the entry.
    """

    def __init__(self, weights: Mapping[int, Any], build: Build, name: str) -> None:
        self.weights = dict(weights)
        self._build = build
        self._name = name
        self._lock = threading.Lock()
        self._changes = 0
        self._checks = bool(config.check_frozen)
        self._sums: dict[int, bytes] = {}
        self._namespace: dict[str, Any] = {}
        self._function: Callable[[], Any] = lambda: None

    def start(self) -> Callable[..., Any]:
        """Compile; the function that checks the weights and runs the graph."""
        code = Code("compiled", ["*inputs"])
        code.line("if changed():")
        code.line("    renew()")
        if self._checks:
            code.line("verify()")
        code.line("return run(*inputs)")
        code.namespace.update(renew=self._renew, verify=self._verify)
        self._namespace = code.namespace
        compiled = code.finish()
        self._function = weakref.ref(compiled)
        self._compile()
        _graphs.add(self)
        return compiled

    def stale(self) -> None:
        """Compile anew before the next run."""
        self._namespace["changed"] = _yes

    def _compile(self) -> None:
        # remembered first: a write while the backend reads is seen by the next run
        self._namespace["changed"] = _C.FrozenWeights(tuple(self.weights.values()))
        if self._checks:
            self._sums = {place: _checksum(weight) for place, weight in self.weights.items()}
        self._adopt(self._build(self.weights))

    def _adopt(self, run: Callable[..., Any]) -> None:
        function = self._function()
        if function is not None:
            follow(function, self._namespace, "run", run)

    def _renew(self) -> None:
        with self._lock:
            changed = self._namespace["changed"]
            if not changed():
                return  # another thread was here
            if changed is not _yes:
                self._changes += 1
            if self._changes < RESTLESS:
                self._compile()
                return
            text = f"the weights of {self._name} changed {RESTLESS} times; it reads them on each call from now on"
            emit(FellBack("freeze", text))
            self._checks = False
            self._adopt(self._build({}))
            self._namespace["changed"] = _no
            self._namespace["verify"] = _no

    def _verify(self) -> None:
        for place, weight in self.weights.items():
            if _checksum(weight) != self._sums[place]:
                raise FrozenWeightChanged(
                    f"input {place} of {self._name}, a frozen {type(weight).__name__} of shape {tuple(weight.shape)}, "
                    "has other values than when it was compiled, with the version and memory of before",
                    instead="the graph was not run",
                    remedy="call core.refresh(model) after writes through .data, numpy or DLPack",
                )


def _yes() -> bool:
    return True


def _no() -> bool:
    return False


def _checksum(tensor: torch.Tensor) -> bytes:
    """A digest of the values."""
    plain = tensor.detach().cpu().contiguous().flatten()
    return hashlib.blake2b(tensor_bytes(plain), digest_size=16).digest()
