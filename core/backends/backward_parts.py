"""One backward, many calls: which of its incoming gradients arrive, and what eager would have freed by then.

A compiled graph is one node of autograd, where eager has many. `Backwards` knows the backward for each set of incoming
gradients that arrives; `Releases` says which of them a backward leaves unusable and keeps what the others still need.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx

from ..graph.absent_gradients import partial_backward
from ..graph.autograd_reach import Use
from ..graph.functional import JointGraph
from ..graph.geometry import has_storage, storage_key
from ..graph.partition import Partition
from ..torch_compat import saved

COMPILED = 8
"""So many parts of one backward are compiled; further ones run node by node."""


@dataclass(frozen=True)
class BackwardPart:
    """The backward for the tangents `present`. module: kept numbers, kept tensors, then `tangents` -> `gradients`.

    numbers, tensors: which of those that the forward saves it takes; tangents: which it takes, of those that arrive or,
    where it is the whole backward, zeros; gradients: per input the position of its gradient among the results.
    """

    module: fx.GraphModule
    present: frozenset[int]
    asked: frozenset[int] | None
    numbers: tuple[int, ...]
    tensors: tuple[int, ...]
    tangents: tuple[int, ...]
    gradients: tuple[int | None, ...]


class Backwards:
    """The backward of a joint graph, and the parts of it that some of the incoming gradients need."""

    def __init__(self, joint: JointGraph, parts: Partition, reached: Sequence[frozenset[int]] | None = None) -> None:
        """reached: by tangent the arguments that it reaches, where they are others than the inputs."""
        self._joint = joint
        self._parts = parts
        self._inputs = joint.reach.inputs if reached is None else reached
        self._beyond = range(len(joint.inputs) if reached is None else len(parts.gradients), len(parts.gradients))
        self._numbers = sum(value.is_number for value in parts.saved)
        self._found: dict[tuple[frozenset[int], frozenset[int] | None], BackwardPart] = {}
        self.every = frozenset(range(len(joint.tangents)))
        self.arguments = frozenset(at for at, place in enumerate(parts.gradients) if place is not None)

    def part(self, present: frozenset[int], asked: frozenset[int] | None = None) -> BackwardPart:
        """What runs where the tangents at `present` arrive and gradients of the arguments at `asked` are asked for."""
        found = self._found.get((present, asked))
        if found is None:
            whole = present == self.every and asked is None
            found = self._found[present, asked] = self._whole() if whole else self._part(present, asked)
        return found

    def tensors_of(self, present: frozenset[int]) -> frozenset[int]:
        """Which saved tensors that part, or a smaller one, takes."""
        return frozenset(self.part(present).tensors) if present else frozenset()

    def _whole(self, present: frozenset[int] | None = None, asked: frozenset[int] | None = None) -> BackwardPart:
        tensors = range(len(self._parts.saved) - self._numbers)
        tangents = tuple(range(len(self._joint.tangents)))
        gradients = self._parts.gradients
        if present is not None:
            reached = self._reached(present, asked)
            gradients = tuple(place if at in reached else None for at, place in enumerate(gradients))
        return BackwardPart(
            self._parts.backward,
            self.every if present is None else present,
            asked,
            tuple(range(self._numbers)),
            tuple(tensors),
            tangents,
            gradients,
        )

    def _part(self, present: frozenset[int], asked: frozenset[int] | None) -> BackwardPart:
        reached = self._reached(present, asked)
        places = {at: place for at, place in enumerate(self._parts.gradients) if place is not None and at in reached}
        found = partial_backward(
            self._parts.backward, len(self._parts.saved), self.every - present, frozenset(places.values())
        )
        if found is None:
            return self._whole(present, asked)
        numbers = tuple(at for at in found.saved if at < self._numbers)
        tensors = tuple(at - self._numbers for at in found.saved if at >= self._numbers)
        gradients = tuple(places.get(at) for at in range(len(self._parts.gradients)))
        return BackwardPart(found.module, present, asked, numbers, tensors, found.tangents, gradients)

    def _reached(self, present: frozenset[int], asked: frozenset[int] | None = None) -> frozenset[int]:
        """The inputs to which a gradient comes; behind them, what wrapper tensors' gradients are made of."""
        reached = frozenset().union(*(self._inputs[at] for at in present), self._beyond)
        return reached if asked is None else reached & asked

    def leads_to(self, tangent: int) -> frozenset[int]:
        """The arguments that a tangent reaches."""
        return self._inputs[tangent] & self.arguments


class Releases:
    """What a backward through some results leaves to later ones through others, as eager's many nodes would."""

    def __init__(
        self,
        joint: JointGraph,
        parts: Partition,
        backwards: Backwards,
        in_group: bool = False,
    ) -> None:
        self._frees = joint.reach.frees
        self._uses = joint.reach.uses
        self._every = backwards.every
        self._backwards = backwards
        self._places = [(value.kind, value.index) for value in parts.saved if not value.is_number]
        self._kinds = [kind for kind, _ in self._places]
        self._keeps_graph = saved.keeps_graph_function()
        self.by_argument = len(backwards.arguments) > 1 and joint.carried is None
        """Whether a backward may be for some of the arguments only."""
        # a node below others runs without any gradient where their backward leads elsewhere, and is freed all the same
        apart = in_group or self.by_argument or any(freed != self._every for freed in self._frees)
        self.apart = apart and bool(self._kinds or any(self._frees))
        """Whether some backward leaves some other one possible: then contexts have `rest`, None at first."""

    def freed_by(self, present: frozenset[int]) -> frozenset[int]:
        """The tangents that no backward may be given after one through `present` for all arguments."""
        return frozenset().union(*(self._frees[at] for at in present))

    def used_by(self, present: frozenset[int], asked: frozenset[int] | None) -> frozenset[int]:
        """Which of the nodes with saved tensors run in a backward through `present` for the arguments `asked`."""
        return frozenset(at for at, use in enumerate(self._uses) if is_met(use, present, asked))

    def looked_at(self, part: BackwardPart) -> list[int]:
        """The saved tensors that a part for some arguments does not take, though the nodes that it runs in eager do."""
        if part.asked is None:
            return []
        kept = frozenset().union(*(use.keeps for use in self._uses if is_met(use, part.present, part.asked)))
        return [at for at, place in enumerate(self._places) if place in kept and at not in part.tensors]

    def take(
        self, ctx: Any, present: frozenset[int], wanted: Sequence[int], asked: frozenset[int] | None = None
    ) -> tuple[Any, ...]:
        """The saved tensors at `wanted`, for a backward through `present`, after which autograd frees all of them.

        Raises autograd's errors: what was freed, and what was written to.
        """
        used, kept = ctx.rest or (frozenset(), None)
        runs = self.used_by(present, asked)
        if used & runs:
            saved.raw_saved_tensors(ctx)  # autograd's own words; a retained graph never comes here
        values = self._opened(ctx, kept, wanted)
        if not self._keeps_graph():
            used |= runs
            later = self._backwards.tensors_of(frozenset(at for at in self._every if self._is_usable(at, used)))
            ctx.rest = (used, self._kept(ctx, kept, later))
        return values

    def leave(self, ctx: Any) -> None:
        """Keep what is saved where autograd frees it though no gradient has come; what is freed already stays so."""
        self.take(ctx, frozenset(), ())

    def _is_usable(self, tangent: int, used: frozenset[int]) -> bool:
        """Whether a backward through a tangent is possible for some argument once nodes are used up."""
        met = [self._uses[at].ends for at in used if tangent in self._uses[at].starts]
        return not met or bool(self._backwards.leads_to(tangent).difference(*met))

    def for_replay(self, ctx: Any, present: frozenset[int]) -> Sequence[Any]:
        """The saved tensors for a run of the graph in eager; None for those that are no longer there."""
        if not self.apart:
            return ctx.saved_tensors if self._kinds or any(self._frees) else ()  # type: ignore[no-any-return]
        needed = sorted(self._backwards.tensors_of(present))
        found: list[Any] = [None] * len(self._kinds)
        kept = (ctx.rest or (frozenset(), None))[1]
        for at in set(range(len(self._kinds))).difference(needed):
            with contextlib.suppress(RuntimeError):  # freed, or written to: another part needs it, perhaps
                (found[at],) = self._opened(ctx, kept, (at,))
        for at, value in zip(needed, self.take(ctx, present, needed)):
            found[at] = value
        return found

    def _opened(self, ctx: Any, kept: dict[int, Any] | None, wanted: Sequence[int]) -> tuple[Any, ...]:
        if kept is not None:
            return tuple(kept[at].get() if at in kept else None for at in wanted)
        return open_alone(ctx, wanted)

    def _kept(self, ctx: Any, kept: dict[int, Any] | None, later: frozenset[int]) -> dict[int, Any]:
        found: dict[int, Any] = {}
        for at, kind in enumerate(self._kinds):
            if at not in later and kind != "input":
                continue
            try:  # an output leads to its context, which must not lead back to it; inputs may be asked for by a replay
                (value,) = self._opened(ctx, kept, (at,))
                if value is not None:
                    value = value if kind == "input" else value.detach()
                    found[at] = saved.KeptTensor(value, weak=at not in later)
            except RuntimeError as error:
                found[at] = _Lost(error)
        return found


class Watched:
    """Tensors that eager keeps for a backward and the compiled graph does not: writing to one is an error all the same.

    places: ("input" or "slot", index), each with the tangents and arguments between which it is needed.
    """

    def __init__(self, joint: JointGraph, parts: Partition) -> None:
        saved_too = {(value.kind, value.index) for value in parts.saved}
        changed = {*(write.input for write in joint.epilogue.write_backs), *joint.epilogue.counted}
        fakes = {at: item.fake for at, item in enumerate(joint.inputs) if item.is_tensor and has_storage(item.fake)}
        memory = {storage_key(fakes[at]) for at in changed if at in fakes}
        sharers = Counter(storage_key(fake) for fake in fakes.values())
        # by the graph itself, through whichever of several inputs
        written = {
            ("input", at)
            for at, fake in fakes.items()
            if sharers[storage_key(fake)] > 1 and storage_key(fake) in memory
        }
        # statistics of a batch norm and their kin, which eager's operators write to uncounted
        written |= {
            ("input", w.input)
            for w in joint.epilogue.write_backs
            if w.mode == "data" and joint.inputs[w.input].is_buffer
        }
        needed: dict[tuple[str, int], list[Use]] = {}
        for use in joint.reach.uses:
            for place in use.keeps - saved_too - written:
                needed.setdefault(place, []).append(use)
        self.places = {place: needed[place] for place in sorted(needed) if not _is_exempt(joint, place)}

    def of(self, present: frozenset[int], asked: frozenset[int] | None = None) -> list[int]:
        """Which of the places a backward through `present` for the arguments `asked` needs."""
        return [at for at, uses in enumerate(self.places.values()) if any(is_met(use, present, asked) for use in uses)]


def is_met(use: Use, present: frozenset[int], asked: frozenset[int] | None) -> bool:
    """Whether a backward through the tangents `present` for the arguments `asked` (None: all) runs these nodes."""
    return bool(use.starts & present) and (asked is None or bool(use.ends & asked))


def _is_exempt(joint: JointGraph, place: tuple[str, int]) -> bool:
    """Inference tensors have no versions; parameters are written to between steps, and what needs them keeps them."""
    kind, index = place
    return kind == "input" and (joint.inputs[index].is_parameter or joint.inputs[index].fake.is_inference())


def refuse_written(ctx: Any, tensor: torch.Tensor, expected: int) -> None:
    """Raise for a watched tensor that was written to, as eager does that keeps it."""
    if not saved.has_unpack_hooks(ctx):
        raise saved.written_to(tensor.shape, tensor._version, expected)


class _Lost:
    """In the place of a kept tensor that was written to before it was asked for."""

    def __init__(self, error: RuntimeError) -> None:
        self._words = str(error)

    def get(self) -> Any:
        raise RuntimeError(self._words)


def open_alone(ctx: Any, wanted: Sequence[int]) -> tuple[Any, ...]:
    """The saved tensors at `wanted`, whatever was done to the others. Raises autograd's errors about them."""
    try:
        values = ctx.saved_tensors
    except RuntimeError as error:
        raws = saved.raw_saved_tensors(ctx)  # where all are freed, this says so
        return tuple(_opened_alone(raws[at], error) for at in wanted)
    return tuple(values[at] for at in wanted)


def _opened_alone(raw: Any, error: RuntimeError) -> Any:
    """One saved tensor, where not all of them can be opened."""
    try:
        return raw.unpack()
    except (RuntimeError, AttributeError):
        value = getattr(raw, "data", None)  # a result of the graph itself, which only its context opens
        if value is None or value._version != 0:
            raise error from None
        return value


def function_of(
    part: BackwardPart, compiled: int, compile_backward: Callable[[fx.GraphModule], Callable[..., Any]]
) -> Callable[..., Any]:
    """The part's graph as a function: compiled, or node by node where `compiled` others were."""
    return compile_backward(part.module) if compiled < COMPILED else part.module
