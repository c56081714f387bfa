"""The joint graph: the backward as the real autograd engine dispatches it on the fakes of the one run.

Hooks, detach, no_grad regions and custom functions come out as in eager, because it is eager's engine that meets them.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch
import torch.fx as fx

from .. import torch_compat
from ..errors import RecorderRefused
from .autograd_reach import Reach, Use, autograd_reach
from .captured import CapturedGraph
from .carrying import Carrying
from .desugar import Desugared
from .finish import close_graph, usable_record
from .functional import JointGraph
from .functionalize import Functionalizer, is_random
from .geometry import has_storage, is_dense, is_static, overlaps, storage_key
from .gradient_cuts import Cuts
from .held_views import held_views
from .history import history
from .node_groups import Groups, NodeGroup, groups_of
from .output_plan import OutputPlan, slot_info
from .recorder import AtenRecord, Call, new_recorder
from .refusals import quiet_fakes
from .tree import leaves
from .wrapper_tensors import plain_tensors

_OVERWRITTEN = "modified by an inplace operation"
"""What the engine's words have in common where a tensor that a gradient needs was written to."""


def joint_graph(captured: CapturedGraph, plain: Desugared | None = None) -> JointGraph:
    """Forward and backward of a captured graph. Consumes the fakes' autograd graph, unless the record is kept: then it
    may be asked for again, by each of several backends. plain: what `captured` is the plain capture of.

    Raises RecorderRefused for what the recorder doesn't handle.
    """
    record = usable_record(captured)
    if record.no_backward is not None:
        raise RecorderRefused(record.no_backward, instead="the graph is traced by AOTAutograd")
    _refuse_related_inputs(record)
    _refuse_leaves_made_inside(record, captured.outputs if plain is None else plain.original_outputs)
    _open_sizes_of_masks(record)
    functionalizer = Functionalizer(record, captured.outputs)
    for call in record.calls:
        functionalizer.process(call)
    functionalizer.emitter.provenance = {}
    plan = OutputPlan(functionalizer, captured.outputs)
    starts = [at for at, info in enumerate(plan.slot_infos) if info.differentiable]
    wanted = [at for at, facts in enumerate(record.facts) if facts is not None and facts.requires_grad]
    tangents = [_tangent(record, plan.slot_fakes[at]) for at in starts]
    carrying = Carrying(plain, plan, record.fake_mode, lambda fake: _tangent(record, fake))
    reach = Reach.unknown(len(starts) + len(carrying.slots), len(captured.inputs))
    groups: Groups | None = None
    hidden: tuple[Any, ...] = ()
    if plain is None and starts:
        reach, groups, hidden = _reach(record, plan, starts, wanted, captured.outputs)
        if not all(reach.inputs):  # its gradient arrives nowhere but at a tensor made inside
            _refuse_own_leaf(record)
    of_groups = groups.groups if groups is not None else ()
    cuts = Cuts([*(plan.slot_fakes[at] for at in starts), *hidden], of_groups)
    with cuts:
        calls, gradients = _run_backward(
            record,
            [*(plan.slot_fakes[at] for at in starts), *carrying.roots],
            [record.facts[at] for at in wanted] + carrying.wanted,
            [*tangents, *carrying.tangents],
        )
    if not cuts.complete:
        groups, cuts = None, Cuts((), ())
    starts, tangents = [*starts, *carrying.slots], [*tangents, *carrying.slot_tangents]
    placeholders = _add_tangents(functionalizer, starts, tangents)
    functionalizer.foresee(calls)
    for call in calls:
        functionalizer.process(call)
    functionalizer.emitter.provenance = {"backward": True}
    own = carrying.split(dict(zip(wanted, gradients)), gradients[len(wanted) :], len(captured.inputs))
    nodes = [_gradient_node(functionalizer, fake) for fake in own]
    results = (*plan.slots, *(node for node in nodes if node is not None))
    totals = cuts.results(lambda fake: _gradient_node(functionalizer, fake), len(results))
    results = (*results, *cuts.nodes)
    positions = itertools.count(len(plan.slots))
    close_graph(functionalizer, results)
    return JointGraph(
        module=functionalizer.emitter.module("JointGraph"),
        inputs=captured.inputs,
        epilogue=carrying.marked(plan.epilogue),
        shapes=captured.shapes(),
        tangents=tuple(len(captured.inputs) + at for at in range(len(placeholders))),
        tangent_slots=tuple(starts),
        tangent_infos=tuple(slot_info(fake, differentiable=False) for fake in tangents),
        forward_outputs=len(plan.slots),
        gradients=tuple(None if node is None else next(positions) for node in nodes),
        reach=reach,
        groups=groups and dataclasses.replace(groups, cuts=totals),
        carried=carrying.carried,
    )


def _reach(
    record: AtenRecord, plan: OutputPlan, starts: Sequence[int], wanted: Sequence[int], outputs: Sequence[Any]
) -> tuple[Reach, Groups | None, tuple[Any, ...]]:
    """What each start reaches and uses up, and which inputs and slots eager keeps for its gradient; the groups; and the
    edges of those of their starts that are no slots."""
    inputs = [facts for facts in (record.facts[at] for at in wanted) if facts is not None]
    edges = [facts.gradient_edge() for facts in inputs]
    fakes = [plan.slot_fakes[at] for at in starts]
    views = held_views(outputs, plan, starts, dict(zip(wanted, edges)))
    parting = groups_of(fakes, edges, [facts.is_leaf for facts in inputs], views, _hooked_edges(record))
    whole, found = autograd_reach(fakes, edges), autograd_reach([*fakes, *parting.edges], edges, parting.behind)
    groups = []
    for part in parting.parts:
        ends = frozenset().union(*(found.inputs[start] for start in part))
        cuts = frozenset().union(*(found.cuts[start] for start in part))
        groups.append(NodeGroup(tuple(part), tuple(wanted[end] for end in sorted(ends)), tuple(sorted(cuts))))
    places: dict[int, tuple[str, int]] = {}
    for at, fake in enumerate(plan.slot_fakes):
        if isinstance(fake, torch.Tensor) and has_storage(fake):
            places[storage_key(fake)] = ("slot", at)
    for at, facts in enumerate(record.facts):
        if facts is not None and has_storage(facts.fake):
            places[storage_key(facts.fake)] = ("input", at)

    def kept(keys: frozenset[Any]) -> frozenset[tuple[str, int]]:
        return frozenset(places[key] for key in keys if key in places)

    def led_to(ends: frozenset[int]) -> frozenset[int]:
        return frozenset(wanted[end] for end in ends)

    def placed(reach: Reach) -> Reach:
        return Reach(
            tuple(led_to(ends) for ends in reach.inputs),
            reach.frees,
            tuple(kept(keys) for keys in reach.keeps),
            reach.cuts,
            reach.alone,
            tuple(Use(use.starts, led_to(use.ends), use.cuts, kept(use.keeps)) for use in reach.uses),
        )

    if not groups:
        return placed(whole), None, ()
    hidden = tuple(dataclasses.replace(each, shape=plan.in_numbers(each.shape)) for each in parting.hidden)
    return placed(whole), Groups(tuple(groups), placed(found), (), hidden, parting.views), parting.edges


def _hooked_edges(record: AtenRecord) -> list[Any]:
    """The gradient edges of tensors that were given hooks in the program."""
    made = [leaf for call in record.calls for leaf in leaves(call.result) if isinstance(leaf, torch.Tensor)]
    hooked = [
        tensor for tensor in made if tensor._backward_hooks and isinstance(history(tensor), torch.autograd.graph.Node)
    ]
    return [torch.autograd.graph.get_gradient_edge(tensor) for tensor in hooked]


def _open_sizes_of_masks(record: AtenRecord) -> None:
    """The gradient of what was written through a boolean mask has a size that the data tells: it needs symbols."""
    if record.shape_env is None and any(_is_written_by_mask(call) for call in record.calls):
        record.shape_env = torch_compat.shape_env(scalar_outputs=True)
        torch_compat.attach_shape_env(record.fake_mode, record.shape_env)


def _is_written_by_mask(call: Call) -> bool:
    if not call.op._schema.name.endswith(("::index_put", "::index_put_", "::_index_put_impl_")):
        return False
    return any(isinstance(leaf, torch.Tensor) and leaf.dtype is torch.bool for leaf in call.args[1])


def _refuse_related_inputs(record: AtenRecord) -> None:
    """Of two inputs one may be a differentiable view of the other: its gradient would be counted twice."""
    by_storage: dict[int, list[Any]] = {}
    for facts in record.facts:
        if facts is not None and facts.requires_grad:
            by_storage.setdefault(facts.storage._cdata, []).append(facts)
    for sharers in by_storage.values():
        if len(sharers) > 1 and any(not facts.is_leaf and facts.fake._is_view() for facts in sharers):
            raise RecorderRefused(
                "an input is a differentiable view of the memory of another",
                instead="the graph is traced by AOTAutograd",
            )


def _refuse_leaves_made_inside(record: AtenRecord, outputs: tuple[Any, ...]) -> None:
    """A parameter that the program makes gets its gradient from autograd itself, which a compiled backward bypasses.

    One that nobody outside sees does no harm, as long as an input makes the results carry gradients.
    """
    inputs = {key: facts.requires_grad for key, facts in record.known_facts.items()}
    carrying = [fake for fake in outputs if isinstance(fake, torch.Tensor) and fake.requires_grad]
    bases = [fake._base if _inherits_gradients(fake) else fake for fake in carrying]
    leaf_seen = any(fake.is_leaf and id(fake) not in inputs for fake in bases)
    if leaf_seen or (carrying and not any(inputs.values())):
        _refuse_own_leaf(record)


def _refuse_own_leaf(record: AtenRecord) -> None:
    record.refuse("a tensor made in the graph takes gradients")
    raise RecorderRefused(str(record.refused), instead="the graph runs as captured")


def _inherits_gradients(fake: Any) -> bool:
    """Whether it is a view made with gradients off: it says that it requires them only because its base does."""
    return bool(fake.is_leaf and fake._is_view() and fake._base.requires_grad)


def _tangent(record: AtenRecord, fake: Any) -> Any:
    """A fresh fake of the incoming gradient, in the output's geometry if a call can be made to have it.

    Contiguous where elements share memory, and where strides that are symbolic leave gaps: what autograd hands in is
    brought to a layout that is known by numbers, or that is dense in an order of the dimensions.
    """
    with record.fake_mode, torch.no_grad():
        if overlaps(fake) or not (is_static(fake) or is_dense(fake)):
            return torch.empty(fake.shape, dtype=fake.dtype, device=fake.device)
        return torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device=fake.device)


def _run_backward(
    record: AtenRecord, outputs: list[Any], wanted: Sequence[Any], tangents: list[Any]
) -> tuple[list[Call], list[Any]]:
    """The calls of the backward, and a fake (or None) for each input whose facts are in `wanted`."""
    if not outputs or not wanted:
        return [], [None] * len(wanted)
    edges = []
    for facts in wanted:
        edges.append(
            facts.fake if facts.edge is None else facts.edge
        )  # the edge of a leaf is that of the tensor itself
    mark = len(record.calls)
    generator = torch.get_rng_state()
    try:
        with ExitStack() as stack:
            stack.enter_context(quiet_fakes())
            stack.enter_context(torch_compat.without_autocast())
            stack.enter_context(torch.autograd.set_multithreading_enabled(False))
            stack.enter_context(torch.autograd.set_detect_anomaly(False))  # it looks at values; it sees the real ones
            stack.enter_context(record.fake_mode)
            stack.enter_context(new_recorder(record, backward=True))
            gradients = torch.autograd.grad(outputs, edges, tangents, record.kept, allow_unused=True)
    except (RuntimeError, NotImplementedError, TypeError, ValueError, ArithmeticError) as error:
        reason = f"the backward can't be recorded: {error}"
        if _OVERWRITTEN in str(error):  # eager's backward, if there is one, has to say so too
            record.refuse(reason)
            raise RecorderRefused(reason, instead="the graph runs as captured") from error
        raise RecorderRefused(reason, instead="the graph is traced by AOTAutograd") from error
    finally:
        calls = record.calls[mark:]
        del record.calls[mark:]
        if not torch.equal(generator, torch.get_rng_state()):
            torch.set_rng_state(generator)
            record.refuse("the backward sets the global random generator")
    if any(is_random(call) for call in calls):
        record.refuse("the backward draws random numbers")
    if any(part.layout is not torch.strided for g in gradients if g is not None for part in plain_tensors(g)):
        record.refuse("a gradient is sparse")
    usable = record.refused
    if usable is not None:
        raise RecorderRefused(usable, where=record.refused_at, instead="the graph is traced by AOTAutograd")
    return calls, list(gradients)


def _add_tangents(functionalizer: Functionalizer, starts: list[int], tangents: list[Any]) -> list[fx.Node]:
    graph = functionalizer.emitter.graph
    last = [node for node in graph.nodes if node.op == "placeholder"][-1]
    nodes = []
    for slot, fake in zip(starts, tangents):
        with graph.inserting_after(last):
            last = functionalizer.add_fresh_input(f"tangent_{slot}", fake)
        nodes.append(last)
    return nodes


def _gradient_node(functionalizer: Functionalizer, fake: Any) -> fx.Node | None:
    return None if fake is None else functionalizer.memory.read(functionalizer.alias_of(fake))
