"""Compiling one functional graph with a lineup of backends: whole where the first takes everything, else by regions.

Enters: an fx graph of ATen calls and a Lineup. Leaves: a positional callable that returns a tuple, and the event
Partitioned where more than one backend or less than the whole graph is involved. A backend that takes all of a plain
graph is called directly: nothing of this file stands before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.fx as fx

from ..errors import BackendFailed, FallbackTooCostly, NodesUnclaimed
from ..events import BackendReported, FellBack, NodeRefused, Partitioned, RegionShare, emit
from ..graph.captured import CapturedGraph
from ..graph.decompose import decompose
from ..graph.node_memory import owns_memory
from ..plugin import CompileContext, Finding, Unsupported
from .artifact import artifact_call, build_artifact, compile_context, decomposition_table, first_line, graph_device
from .fallback import Lineup
from .first_run import checked_once, fresh_once
from .partition import Line, Plan, costs_most, make_plan, shares
from .partition_support import Verdicts, asks_nothing, is_work, partitions_itself, user_line
from .precision import in_precision
from .regions import RegionGraph, Stitch, extract, has_work, is_plain, needs_copies
from .resolved import ResolvedBackend

LISTED = 8
"""How many nodes a message names."""


@dataclass(frozen=True)
class Task:
    """One graph to compile. held: positions of the inputs that are parameters or buffers; claimants: those of the
    lineup that fit the capture; constants: position of an input -> its tensor, where weights are frozen; passing:
    positions of results that core itself reads and lets go."""

    captured: CapturedGraph
    module: fx.GraphModule
    lineup: Lineup
    claimants: Sequence[ResolvedBackend]
    name: str
    mode: str
    held: frozenset[int] = frozenset()
    constants: Any = None
    passing: frozenset[int] = frozenset()

    @property
    def device(self) -> str:
        return graph_device(self.captured)

    @property
    def placeholders(self) -> list[fx.Node]:
        return [node for node in self.module.graph.nodes if node.op == "placeholder"]


def compile_task(task: Task) -> Callable[..., Any]:
    """Compile a task. Raises BackendFailed, NodesUnclaimed, FallbackTooCostly."""
    precision = task.lineup.options.precision
    run = _whole_by_first(task) if _first_takes_all(task) else None
    if run is None:
        run = _by_regions(task)
    return in_precision(run, precision, guarded=task.mode != "backward")


# -- one backend ------------------------------------------------------------------------------------------------------


def _first_takes_all(task: Task) -> bool:
    """True where it is plain without asking about each node, and the graph needs nothing around it."""
    if not task.claimants or not asks_nothing(task.claimants[0]) or partitions_itself(task.claimants[0]):
        return False
    if not is_plain(task.module):
        return False
    verdicts = Verdicts(task.claimants[0], CompileContext())  # only of devices: it is asked nothing
    nodes = (node for node in task.module.graph.nodes if node.op == "call_function" and "device" in node.kwargs)
    return all(verdicts.of(node).kind != "no" for node in nodes)


def _whole_by_first(task: Task) -> Callable[..., Any] | None:
    """The graph through its first backend; None where it refused nodes, which are then struck by asking again."""
    resolved = task.claimants[0]
    try:
        return _whole(task, resolved)
    except BackendFailed as failed:
        if not isinstance(failed.__cause__, Unsupported) and not task.lineup.may_fall_back:
            raise
        return None  # compiling again by regions: the refusal is met there once more and handled


def _whole(task: Task, resolved: ResolvedBackend) -> Callable[..., Any]:
    nodes = task.placeholders
    results = next(node for node in reversed(task.module.graph.nodes) if node.op == "output").args[0]
    run = _compiled(task, resolved, task.module, nodes, list(results), task.name)
    return run


def _compiled(
    task: Task,
    resolved: ResolvedBackend,
    module: fx.GraphModule,
    inputs: Sequence[fx.Node],
    outputs: Sequence[Any],
    name: str,
    *,
    inner: frozenset[fx.Node] = frozenset(),
    final: bool = True,
) -> Callable[..., Any]:
    """One graph through one backend, its first results checked, its layouts kept.

    inputs, outputs: the nodes of the task's graph; inner: outputs that other regions take; final: results of the whole
    graph are among them, which must be memory of their own.
    """
    expected = [node.meta["val"] if isinstance(node, fx.Node) else node for node in outputs]
    position = {node: at for at, node in enumerate(task.placeholders)}
    places = {at: position[node] for at, node in enumerate(inputs) if node in position}
    ctx = _context(task, resolved, name, expected, places)
    fakes = [node.meta["val"] for node in inputs]
    where = next(filter(None, map(user_line, module.graph.nodes)), None) or first_line(task.captured)
    artifact = build_artifact(resolved, module, fakes, ctx, where)
    call = artifact_call(artifact)
    if "cudagraphs" in ctx.options:
        from .cuda_graphs import with_cuda_graphs

        passing = task.passing if final else frozenset()  # a region may stand in several places
        call = with_cuda_graphs(call, artifact, resolved, module, fakes, ctx, passing=passing, where=where)
    # autograd takes gradients of any layout; another region takes what its graph says
    keep = task.mode != "backward" or bool(inner)
    fresh = [at for at, node in enumerate(outputs) if isinstance(node, fx.Node) and owns_memory(node)] if final else []
    return checked_once(call, expected, resolved.label, restore_layout=keep, fresh=fresh, backend=resolved.name)


def _context(
    task: Task, resolved: ResolvedBackend, name: str, expected: Sequence[Any], places: dict[int, int]
) -> CompileContext:
    strides = [tuple(fake.stride()) if _is_strided(fake) else None for fake in expected]
    held = frozenset(at for at, place in places.items() if place in task.held)
    ctx = compile_context(
        task.captured,
        resolved,
        task.lineup.options_of(resolved),
        mode=task.mode,
        name=name,
        output_strides=strides,
        parameters=held,
    )
    if not task.constants:
        return ctx
    constants = {at: task.constants[place] for at, place in places.items() if place in task.constants}
    return replace(ctx, frozen=True, constants=constants)


def _is_strided(fake: Any) -> bool:
    return isinstance(fake, torch.Tensor) and fake.layout is torch.strided


# -- several backends -------------------------------------------------------------------------------------------------


class _Refused(Exception):
    """A backend can't compile a region: its position in the line, the nodes and the reason."""

    def __init__(self, position: int, nodes: Sequence[fx.Node], reason: str, failed: BackendFailed) -> None:
        super().__init__(reason)
        self.position, self.nodes, self.reason, self.failed = position, nodes, reason, failed


class _Team:
    """The backends of one task as a line of verdicts: the claimants, then the fallback, looked up when needed."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.line = Line(self._verdicts, len(task.claimants), closed=task.lineup.options.fullgraph_backend)
        self.calls: dict[Any, Callable[..., Any]] = {}  # compiled regions by what they compute
        self._rest: list[ResolvedBackend] | None = None

    def at(self, position: int) -> ResolvedBackend:
        """The backend at a position of the line that has one."""
        verdicts = self.line.at(position)
        assert verdicts is not None
        return verdicts.resolved

    def _verdicts(self, position: int) -> Verdicts | None:
        task = self.task
        if position < len(task.claimants):
            return Verdicts(task.claimants[position], _context(task, task.claimants[position], task.name, (), {}))
        if self._rest is None:
            kind = task.device.partition(":")[0]
            self._rest = task.lineup.rest(kind, training=task.captured.needs_grad)
        at = position - len(task.claimants)
        if at >= len(self._rest):
            return None
        return Verdicts(self._rest[at], _context(task, self._rest[at], task.name, (), {}))


def _by_regions(task: Task) -> Callable[..., Any]:
    if not has_work(task.module):
        return Stitch(task.module).write([], [], [])
    team = _Team(task)
    options = task.lineup.options
    refused: set[int] = set()
    last: BackendFailed | None = None
    while True:
        plan = make_plan(
            task.module,
            team.line,
            device=task.device.partition(":")[0],
            keep_small=options.fullgraph_backend,
            found=lambda position, text: _report(team.at(position), text),
        )
        _require_allowed(task, team, plan, last)
        try:
            run = _stitched(task, team, plan)
        except _Refused as refusal:
            last = refusal.failed
            again = refusal.position in refused
            asked = isinstance(refusal.failed.__cause__, Unsupported) and not again
            if not asked and not task.lineup.may_fall_back:
                raise refusal.failed from refusal.failed.__cause__
            refused.add(refusal.position)
            verdicts = team.line.at(refusal.position)
            assert verdicts is not None
            for node in refusal.nodes:
                verdicts.strike(node, refusal.reason)
            emit(FellBack("backend", refusal.failed.what, user_line(refusal.nodes[0])))
            continue
        _announce(task, team, plan)
        return run


def _report(resolved: ResolvedBackend, text: str) -> None:
    emit(BackendReported(resolved.name, Finding("warning", text, "report it to the backend's authors")))


def _stitched(task: Task, team: _Team, plan: Plan) -> Callable[..., Any]:
    """The regions compiled and written into one function; a single one that needs nothing around it is called as is."""
    only = plan.regions[0] if len(plan.regions) == 1 else None
    if only is not None and is_plain(task.module):
        resolved = team.at(only.owner)
        if resolved.capabilities.layouts == "any" or not needs_copies(task.placeholders):
            return _attempt(task, team, only.owner, only.nodes, lambda: _whole(task, resolved))
    order = {node: at for at, node in enumerate(task.module.graph.nodes)}
    graphs = [extract(task.module, region, order) for region in plan.regions]
    taken = frozenset(node for graph in graphs for node in graph.inputs)
    calls = []
    for at, (region, graph) in enumerate(zip(plan.regions, graphs)):
        resolved = team.at(region.owner)
        name = task.name if only is not None else f"{task.name}_region{at}"
        calls.append(_region_call(task, team, region.owner, region.nodes, resolved, graph, name, taken))
    contiguous = [team.at(region.owner).capabilities.layouts == "contiguous" for region in plan.regions]
    run = Stitch(task.module).write(graphs, calls, contiguous)
    outputs = _outputs(task.module)
    fresh = [at for at, node in enumerate(outputs) if isinstance(node, fx.Node) and owns_memory(node)]
    twice = [at for at in fresh if outputs.index(outputs[at]) < at]  # one object in two places, as the graph says
    label = " and ".join(dict.fromkeys(team.at(region.owner).name for region in plan.regions))
    return fresh_once(run, [at for at in fresh if at not in twice], label)


def _region_call(
    task: Task,
    team: _Team,
    owner: int,
    nodes: Sequence[fx.Node],
    resolved: ResolvedBackend,
    graph: RegionGraph,
    name: str,
    taken: frozenset[fx.Node],
) -> Callable[..., Any]:
    """A compiled region; one that computes the same as an earlier one of the same backend is that one."""
    inner = taken.intersection(graph.outputs)
    position = {node: at for at, node in enumerate(task.placeholders)}
    places = [position.get(node, -1) for node in graph.inputs]
    held = tuple((place in task.held, id((task.constants or {}).get(place))) for place in places)
    key = (owner, task.mode == "backward" and bool(inner), held, graph.key())
    call = team.calls.get(key)
    if call is None:
        module = _own_form(task, resolved, graph.module(), owner)
        call = team.calls[key] = _attempt(
            task,
            team,
            owner,
            nodes,
            lambda: _compiled(task, resolved, module, graph.inputs, graph.outputs, name, inner=inner, final=False),
        )
    return call


def _own_form(task: Task, resolved: ResolvedBackend, module: fx.GraphModule, owner: int) -> fx.GraphModule:
    """The region in the operators that a later backend asks for; the whole graph is in those of the first already."""
    if owner == 0 and task.claimants:
        return module
    table = decomposition_table(resolved, task.mode)
    symbolic = any(
        isinstance(size, torch.SymInt)
        for node in module.graph.nodes
        if isinstance(node.meta.get("val"), torch.Tensor)
        for size in node.meta["val"].shape
    )
    if not table or symbolic:
        return module
    return decompose(module, task.captured.fake_mode, task.captured.shape_env, table)


def _attempt(
    task: Task,
    team: _Team,
    owner: int,
    nodes: Sequence[fx.Node],
    build: Callable[[], Callable[..., Any]],
) -> Callable[..., Any]:
    """Compile; a failure names the nodes that the backend can't have."""
    before = list(task.module.graph.nodes)
    try:
        return build()
    except BackendFailed as failed:
        if list(task.module.graph.nodes) != before:
            raise  # it changed the graph before it refused: nobody else can be given what it was
        work = [node for node in nodes if is_work(node)]
        known = {node.name: node for node in work}
        cause = failed.__cause__
        named = (
            [known[str(item)] for item in cause.nodes if str(item) in known] if isinstance(cause, Unsupported) else []
        )
        reason = (cause.reason if isinstance(cause, Unsupported) else "") or failed.what
        raise _Refused(owner, named or work, reason, failed) from failed


def _outputs(module: fx.GraphModule) -> list[Any]:
    return list(next(node for node in reversed(module.graph.nodes) if node.op == "output").args[0])


# -- what is allowed and what is said ---------------------------------------------------------------------------------


def _require_allowed(task: Task, team: _Team, plan: Plan, last: BackendFailed | None) -> None:
    """Raise where nodes have no taker, or fall back although the options forbid it."""
    options = task.lineup.options
    if plan.unclaimed:
        what = f"{_listed(plan.unclaimed, plan, team)} supported by no backend that is allowed to take it"
        raise _unclaimed(what, plan.unclaimed, task, "add a fallback, as fallback=('inductor', 'eager')") from last
    claimants = len(task.claimants)
    fallen = [region for region in plan.regions if region.owner >= claimants]
    if not fallen:
        return
    nodes = [node for region in fallen for node in region.nodes if is_work(node)]
    if options.fullgraph_backend:
        what = f"{_listed(nodes, plan, team)} left to the fallback, which fullgraph_backend=True forbids"
        raise _unclaimed(what, nodes, task, "leave fullgraph_backend out, or change those lines") from last
    limit = options.max_fallback_cost
    if limit is None:
        return
    kind = task.device.partition(":")[0]
    share = sum(s for s, region in zip(shares(plan, kind), plan.regions) if region.owner >= claimants)
    if share > limit:
        dearest = costs_most(nodes, kind, LISTED)
        raise FallbackTooCostly(
            f"{share:.0%} of the graph's cost would fall back, more than max_fallback_cost={limit}: "
            f"{_listed(dearest, plan, team)}",
            where=next(filter(None, map(user_line, dearest)), first_line(task.captured)),
            instead="nothing was compiled",
            remedy="raise max_fallback_cost, name a second backend, or change those lines",
        )


def _unclaimed(what: str, nodes: Sequence[fx.Node], task: Task, remedy: str) -> NodesUnclaimed:
    where = next(filter(None, map(user_line, nodes)), first_line(task.captured))
    return NodesUnclaimed(what, where=where, instead="nothing was compiled", remedy=remedy)


def _listed(nodes: Sequence[fx.Node], plan: Plan, team: _Team) -> str:
    """`mm (aten.mm.default at f.py:3: no products)`, the first few."""
    texts = []
    for node in nodes[:LISTED]:
        line = user_line(node)
        against = plan.reasons.get(node, [])
        why = "; ".join(f"{team.at(position).name}: {reason}" for position, reason in against)
        texts.append(f"{node.name} ({node.target}{f' at {line}' if line else ''}{': ' + why if why else ''})")
    more = f" and {len(nodes) - LISTED} more" if len(nodes) > LISTED else ""
    return ", ".join(texts) + more + (" is" if len(nodes) == 1 else " are")


def _announce(task: Task, team: _Team, plan: Plan) -> None:
    """Say who got what, unless the only claimant got everything."""
    claimants = len(task.claimants)
    if len(plan.regions) == 1 and plan.regions[0].owner == 0 and claimants and not plan.reasons:
        return
    kind = task.device.partition(":")[0]
    regions = tuple(
        RegionShare(
            team.at(region.owner).name,
            tuple(node.name for node in region.nodes if is_work(node)),
            share,
            region.owner >= claimants,
        )
        for region, share in zip(plan.regions, shares(plan, kind))
    )
    refused = tuple(
        NodeRefused(node.name, str(node.target), user_line(node), team.at(position).name, reason)
        for node, against in plan.reasons.items()
        for position, reason in against
    )
    emit(Partitioned(task.name, task.mode, regions, refused))
