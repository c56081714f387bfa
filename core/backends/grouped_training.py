"""Training with several nodes of autograd: the graph runs once, and each group of its results gets its history.

Enters: a JointGraph whose groups say which results belong together, its Partition, the forward's call. Leaves: a
callable `(*inputs) -> outputs of the program`. What one group leads to goes through the results of another, where
callers have their hooks and ask for gradients.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx as fx

from .. import torch_compat
from ..graph.absent_gradients import group_backward
from ..graph.autograd_reach import Use
from ..graph.captured import CapturedGraph
from ..graph.functional import JointGraph
from ..graph.held_views import HeldView
from ..graph.hidden_cuts import HiddenStart
from ..graph.node_groups import Groups, NodeGroup
from ..graph.outputs import SlotRef
from ..graph.partition import Partition, is_impure
from ..torch_compat import saved
from .backward_parts import Backwards, Releases, Watched
from .double_backward import EagerBackward
from .epilogue import EpilogueCode
from .generated import Code, names, tuple_text
from .result_hooks import telling_slots, write_tables
from .training import TrainingGraph, with_gradients, write_backward, write_keeping
from .wrapper import CallState, follow, write_run


class GroupGraph(TrainingGraph):
    """What the functions of one group are written from: its slots and tangents are numbered for themselves.

    gives: the names of its results; everything: names of all values of a run.
    """

    beyond = ("None",)

    def __init__(
        self,
        joint: JointGraph,
        parts: Partition,
        state: CallState,
        group: NodeGroup,
        part: Partition,
        values: Histories,
    ) -> None:
        super().__init__(joint, parts, state)
        groups, self._values = values.groups, values
        self.everything = (*self.inputs, *self.slots, *self.extras)
        numbers, first = {start: at for at, start in enumerate(group.starts)}, len(joint.tangent_slots)
        self.hidden = {_name(joint, at): groups.hidden[at - first] for at in group.starts if at >= first}
        self.given = [groups.place(joint.tangent_slots, start) for start in group.starts]
        self.cut_slots = [groups.place(joint.tangent_slots, cut) for cut in group.cuts]
        self.gives = [_name(joint, start) for start in group.starts]
        outputs = joint.outputs()
        behind = {cut: outputs[place] for cut, _, place in groups.cuts}
        tangents = {at: self.tangents[joint.tangent_slots[start]] for start, at in numbers.items() if start < first}
        tangents.update((at, behind[start].meta["val"]) for start, at in numbers.items() if start in behind)
        reach = groups.reach
        reached = [
            frozenset(at for at, index in enumerate(group.inputs) if index in reach.inputs[start])
            | frozenset(at for at, cut in enumerate(group.cuts, len(group.inputs)) if cut in reach.cuts[start])
            for start in group.starts
        ]
        frees = tuple(
            frozenset(numbers[other] for other in reach.frees[start] if other in numbers) for start in numbers
        )
        uses = tuple(
            Use(
                frozenset(numbers[start] for start in use.starts if start in numbers),
                frozenset(at for at, index in enumerate(group.inputs) if index in use.ends)
                | frozenset(at for at, cut in enumerate(group.cuts, len(group.inputs)) if cut in use.cuts),
                keeps=use.keeps,
            )
            for use in reach.uses
        )
        self.joint = dataclasses.replace(
            joint,
            reach=dataclasses.replace(reach, frees=frees, uses=uses),
            tangents=tuple(range(len(numbers))),
            tangent_slots=tuple(range(len(numbers))),
        )
        self.parts = part
        self.tangents = tangents
        self.slots = self.gives
        self.edges = {at: at for at in range(len(group.inputs) + len(group.cuts))}
        self.backwards = Backwards(self.joint, self.parts, reached)
        self.releases = Releases(self.joint, self.parts, self.backwards, in_group=True)
        self.watched = Watched(self.joint, self.parts)

    def writes_to_come(self, place: tuple[str, int]) -> int:
        return int(place[0] == "input" and place[1] in self._values.unwritten)


def _name(joint: JointGraph, start: int) -> str:
    """The name of a start's value in the generated code."""
    first = len(joint.tangent_slots)
    return f"s{joint.tangent_slots[start]}" if start < first else f"h{start - first}"


def group_partitions(joint: JointGraph, parts: Partition) -> list[Partition] | None:
    """The partition as each group sees it; None where the backward of one can't be told apart.

    Results with a history that leads nowhere, as views taken without it have, need inputs of others to take part.
    """
    groups = joint.groups
    if groups is None or any(not group.inputs and not group.cuts for group in groups.groups):
        return None
    first = joint.forward_outputs
    before = {cut: place - first for cut, place, _ in groups.cuts}
    behind = {cut: place - first for cut, _, place in groups.cuts}
    found = []
    for group in groups.groups:
        places = [parts.gradients[at] for at in group.inputs] + [before[cut] for cut in group.cuts]
        wanted = [place for place in places if place is not None]
        part = group_backward(parts.backward, len(parts.saved), group.starts, behind, wanted)
        if part is None:
            return None
        gradients = tuple(None if place is None else wanted.index(place) for place in places)
        saved_by_it = tuple(parts.saved[at] for at in part.saved)
        found.append(dataclasses.replace(parts, backward=part.module, saved=saved_by_it, gradients=gradients))
    return found


def without_cuts(joint: JointGraph, parts: Partition) -> Partition:
    """The partition for one node: its backward gives the gradients of the inputs alone."""
    graph = copy.deepcopy(parts.backward.graph)
    output = next(node for node in reversed(graph.nodes) if node.op == "output")
    output.args = (tuple(output.args[0])[: sum(place is not None for place in joint.gradients)],)
    graph.eliminate_dead_code(lambda node: node.op in ("placeholder", "output") or is_impure(node))
    return dataclasses.replace(parts, backward=fx.GraphModule(parts.backward, graph, "BackwardGraph"))


def wrap_groups(
    joint: JointGraph,
    parts: Partition,
    of_groups: Sequence[Partition],
    captured: CapturedGraph,
    run_forward: Callable[..., Any],
    compile_backward: Callable[[fx.GraphModule], Callable[..., Any]],
    state: CallState,
) -> Callable[..., tuple[Any, ...]]:
    """Wrap a forward artifact, and the backward artifacts of the groups to come, each with its partition."""
    groups = joint.groups
    assert groups is not None
    inputs, slots = names("i", len(joint.inputs)), names("s", joint.forward_outputs)
    extras = [f"s{value.index}" for value in parts.saved if value.kind == "extra"]
    code = Code("compiled", inputs)
    code.namespace["run"] = run_forward
    guards = [torch_compat.below_autograd_guard()]
    if state.autocast:
        guards.append(torch_compat.without_autocast_guard())
    write_run(code, [*slots, *extras], inputs, guards)
    requires_grad = [item.requires_grad for item in joint.inputs]
    written = EpilogueCode(code, joint.epilogue, captured.outputs, grad_enabled=True, requires_grad=requires_grad)
    values = Histories(code, joint, groups, written)
    for at, (group, part) in enumerate(zip(groups.groups, of_groups)):
        graph = GroupGraph(joint, parts, state, group, part, values)
        code.namespace[f"apply{at}"], passed = _function(graph, captured, joint, group, compile_backward, state)
        takes = values.taken(group)
        code.line(f"{tuple_text(graph.gives)} = apply{at}({', '.join([*takes, tuple_text(passed)])})")
        write_tables(code, telling_slots(joint, group.starts))
        values.given(group, groups.groups[at + 1 :])
    written.results()
    compiled = code.finish()
    follow(compiled, code.namespace, "run", run_forward)
    return compiled if state.grad_enabled else with_gradients(compiled)


class Histories:
    """The values that carry the histories of groups: an input that the graph writes to with autograd has another one
    from then on, and a view is taken of what its base is by then. unwritten: such inputs before it."""

    def __init__(self, code: Code, joint: JointGraph, groups: Groups, written: EpilogueCode) -> None:
        self.groups, self._code, self._joint, self._written = groups, code, joint, written
        self._writes = {write.slot: write.input for write in joint.epilogue.write_backs if write.mode == "grad"}
        self._before: dict[int, str] = {}
        self.unwritten = set(self._writes.values())
        written.untracked_writes()
        self._views(None)

    def taken(self, group: NodeGroup) -> list[str]:
        """The names of a group's arguments."""
        return [*(self._before.get(at, f"i{at}") for at in group.inputs), *(self._value(cut) for cut in group.cuts)]

    def _value(self, start: int) -> str:
        place = self.groups.place(self._joint.tangent_slots, start)
        if isinstance(place, HeldView):
            return self._written.output(place.output)
        written = None if isinstance(place, HiddenStart) else self._writes.get(place)
        return _name(self._joint, start) if written is None else f"i{written}"

    def given(self, group: NodeGroup, later: Sequence[NodeGroup]) -> None:
        """Lines behind a group: what it gives is written to the inputs, and views of it are taken."""
        slots = self._joint.tangent_slots
        for slot in (slots[start] for start in group.starts if start < len(slots)):
            written = self._writes.get(slot)
            if written is None:
                continue
            if any(written in other.inputs for other in later):  # these take what it was before, with its history
                apart = self._code.bind(torch.ops.aten._unsafe_view.default, "apart")
                self._code.line(f"p{written} = {apart}(i{written}, i{written}.shape)")
                self._before[written] = f"p{written}"
            self._written.tracked_write(written, slot)
            self.unwritten.remove(written)
        for start in group.starts:
            self._views(start)

    def _views(self, start: int | None) -> None:
        for view in self.groups.views:
            if view.start == start:
                self._written.output(view.output)


def _function(
    graph: GroupGraph,
    captured: CapturedGraph,
    joint: JointGraph,
    group: NodeGroup,
    compile_backward: Callable[[fx.GraphModule], Callable[..., Any]],
    state: CallState,
) -> tuple[Callable[..., Any], list[str]]:
    """`apply` of the autograd function of one group: `(*takes, values) -> its results`; and the names of the values."""
    replay = EagerBackward(captured, joint, graph.parts, state, (graph.given, group.inputs, graph.cut_slots))
    code = Code("forward", ["ctx", *names("x", len(graph.edges)), "values"])
    values = _values(graph, replay)
    if values:
        code.line(f"{tuple_text(values)} = values")
    for name, known in graph.hidden.items():  # for autograd alone: it has the shape, and one element
        made = code.bind(torch.empty_strided, "empty_strided")
        facts = f"dtype={code.bind(known.dtype, 'dtype')}, device={code.bind(known.device, 'device')}"
        code.line(f"{name} = {made}({_shape_text(known.shape)}, {(0,) * len(known.shape)!r}, {facts})")
    write_keeping(code, graph, replay)
    code.line(f"return {tuple_text(graph.gives)}")
    backward = write_backward(graph, compile_backward, replay)
    members = {"forward": staticmethod(code.finish()), "backward": staticmethod(backward)}
    function = type("CompiledGraph", (torch.autograd.Function,), members)
    saved.defaults_of(function).rest = None  # type: ignore[attr-defined]
    return torch_compat.function_apply(function), values


def _shape_text(shape: Sequence[int | SlotRef]) -> str:
    return tuple_text(f"s{size.index}" if isinstance(size, SlotRef) else str(size) for size in shape)


def _values(graph: GroupGraph, replay: EagerBackward) -> list[str]:
    """The values of a run that a group gives back or keeps something of: no other is passed to it."""
    sizes = [f"s{size.index}" for each in graph.hidden.values() for size in each.shape if isinstance(size, SlotRef)]
    wanted = graph.kept_names(replay).union(graph.gives, sizes)
    return [name for name in graph.everything if name in wanted]
