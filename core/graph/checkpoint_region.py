"""A checkpointed region of a graph: its inner results are computed again when the backward wants them.

On real tensors torch's own checkpoint does that. On fakes, where the backward is recorded, the region does it itself:
torch's checkpoint sets the generator's state back for the second run, which a record can't hold. Here random results of
the first run are kept and used again, so the recorded backward draws no random numbers.
"""

from __future__ import annotations

import functools
import itertools
from contextlib import nullcontext
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from .. import torch_compat
from ..torch_compat import training
from ..torch_compat.tensor_hooks import hooks_aside
from .tree import leaves

_regions = itertools.count()


def checkpointed(graph: Any, options: dict[str, Any], *values: Any) -> Any:
    """graph(*values), its inner results not kept for the backward. options: keywords of torch's checkpoint."""
    fake_class = torch_compat.fake_tensor_class()
    if any(isinstance(value, fake_class) for value in values):
        return _RecordedCheckpoint(graph, values, options.get("context_fn")).run()
    if "context_fn" in options:
        options = {**options, "context_fn": functools.partial(_numbered, options["context_fn"])}
    return checkpoint(graph.forward, *values, use_reentrant=False, **options)


def _numbered(context_fn: Any) -> Any:
    """The two contexts. Where AOTAutograd traces the region, a partitioner tells regions apart by this number."""
    keeps, finds = context_fn()
    keeps.ac_graph_id = next(_regions)
    return keeps, finds


class _RecordedCheckpoint:
    """One checkpointed run on fakes. Its saved tensors are numbers until the first of them is asked for."""

    def __init__(self, graph: Any, values: tuple[Any, ...], context_fn: Any = None) -> None:
        # of selective checkpointing: what the first run keeps is what the second one finds; never a random result,
        # which the tape answers for
        self.selective = context_fn is not None
        self.keeps, self.finds = context_fn() if context_fn is not None else (nullcontext(), nullcontext())
        self.graph = graph
        self.values = values
        self.count = 0
        self.again: list[Any] = []
        self.random: list[Any] = []
        self.autocast = _autocast_state(values)

    def run(self) -> Any:
        hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)
        with hooks_aside(False), hooks, self.keeps, _random_tape()(self.random, False, self.selective):
            return self.graph.forward(*self.values)

    def _pack(self, tensor: torch.Tensor) -> int:
        self.count += 1
        return self.count - 1

    def _unpack(self, index: int) -> torch.Tensor:
        if not self.again:
            self._run_again()
        return self.again[index]

    def _run_again(self) -> None:
        hooks = torch.autograd.graph.saved_tensors_hooks(self._keep, _not_asked_for)
        tape = _random_tape()(list(self.random), True, self.selective)
        with hooks_aside(False), hooks, torch.enable_grad(), self.autocast, self.finds, tape:
            self.graph.forward(*self.values)

    def _keep(self, tensor: torch.Tensor) -> int:
        self.again.append(tensor.detach())
        return len(self.again) - 1


def _not_asked_for(index: int) -> Any:
    raise AssertionError("the second run of a checkpoint has no backward")


def _autocast_state(values: tuple[Any, ...]) -> Any:
    """A context manager that brings back the present autocast state of the values' device."""
    device = next((value.device.type for value in values if isinstance(value, torch.Tensor)), "cpu")
    return torch.autocast(
        device,
        dtype=torch.get_autocast_dtype(device),
        enabled=torch.is_autocast_enabled(device),
        cache_enabled=torch.is_autocast_cache_enabled(),
    )


@functools.cache
def _random_tape() -> type:
    """The RandomTape class, made on first use: its base brings the imports of FakeTensorMode."""
    mode_class = torch_compat.dispatch_mode_class()

    class RandomTape(mode_class):  # type: ignore[misc, valid-type]
        """Keeps what random operators give, as it is then: later calls may write to it. Replaying, gives that back."""

        def __init__(self, tape: list[Any], replay: bool, selective: bool) -> None:
            super().__init__()
            self.tape = tape
            self.replay = replay
            # the mode of selective checkpointing is the next one, and counts the calls of the program alone
            self.beneath = training.without_the_next_mode if selective else nullcontext

        def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if torch.Tag.nondeterministic_seeded not in getattr(op, "tags", ()):
                return op(*args, **kwargs)
            if not self.replay:
                result = op(*args, **kwargs)
                with self.beneath():
                    self.tape.append([leaf.clone() for leaf in leaves(result) if isinstance(leaf, torch.Tensor)])
                return result
            kept = self.tape.pop(0)
            with self.beneath():
                if op._schema.is_mutable:
                    return args[0].copy_(kept[0])
                copies = [tensor.clone() for tensor in kept]
            return copies[0] if len(copies) == 1 else tuple(copies)

    return RandomTape
