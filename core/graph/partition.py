"""Min-cut partition of a joint graph into forward and backward: which values the forward keeps for the backward.

Enters: a JointGraph, which computes outputs from primals and gradients from primals and tangents. Leaves: two graph
modules and the list of saved values. What depends on tangents is backward. The rest is a minimum cut: a value is
saved at the price of its bytes, or computed again from saved ones where its operator is cheap.

Rules beyond the price, each of which is about results, not speed:
- a random or otherwise impure operator is never run twice, and stays on the side it was recorded on;
- views are never saved, their base is: a saved view of an output would not notice that the user writes to that output;
- an input or output is saved only if the recorded backward uses that very tensor (or a view of it), since the user may
  write to it after the forward where eager didn't keep it; nor is another value computed again from it for a gradient
  that eager doesn't keep it for. Parameters are exempt: they are written between steps;
- an input that the forward itself mutates is saved as a clone.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx

from .. import torch_compat
from .clone_mutate import clone_mutate
from .functional import JointGraph
from .max_flow import UNLIMITED, Network
from .symbols import expression

LONGEST_RECOMPUTE = 24
"""A chain of more recomputed operators than this is broken by a value that must be saved or found otherwise."""

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool)

_RECOMPUTABLE = frozenset(
    (
        "cat", "stack", "where", "copy", "clone", "_to_copy", "constant_pad_nd", "flip", "roll", "repeat",
        "slice_scatter", "select_scatter", "diagonal_scatter", "as_strided_scatter", "tril", "triu", "index_select",
        "zeros", "ones", "full", "empty", "arange", "eye", "scalar_tensor", "linspace", "zeros_like", "ones_like",
        "full_like", "empty_like", "new_zeros", "new_ones", "new_full", "new_empty", "new_empty_strided",
        "empty_strided", "lift_fresh", "lift_fresh_copy",
    )
)  # fmt: skip
"""Operators without torch's pointwise tag that cost no more than reading their operands and writing their result."""

_HIDDEN_VIEWS = frozenset(("_unsafe_view", "unsafe_split", "unsafe_split_with_sizes", "_reshape_alias", "lift_fresh"))
"""Operators whose result shares memory with an operand although their schema does not say so."""


@dataclass(frozen=True)
class SavedValue:
    """One value handed from forward to backward. kind: "input" or "slot" `index`, or "extra": a result of its own."""

    node: fx.Node
    kind: str
    index: int

    @property
    def is_number(self) -> bool:
        return is_number(self.node)


@dataclass(frozen=True)
class Partition:
    """forward: inputs -> slots, then the extra saved values; backward: saved values, then tangents -> gradients.

    saved: numbers first, then tensors, each in the graph's order. gradients: per input the position of its
    gradient in the backward's output, None for none. recomputed: nodes of the forward that the backward runs again.
    """

    forward: fx.GraphModule
    backward: fx.GraphModule
    saved: tuple[SavedValue, ...]
    gradients: tuple[int | None, ...]
    recomputed: int

    @property
    def saved_bytes(self) -> int:
        """Bytes of the saved tensors, inputs of the graph left out: they live anyway."""
        return sum(size_bytes(value.node) for value in self.saved if value.kind != "input")


@dataclass(frozen=True)
class JointNodes:
    """The roles of a joint graph's nodes. backward_outputs: None where no gradient arrives.

    recorded_backward: nodes that the record made while the backward ran; parameters: primals that are parameters
    (buffers are not among them: programs write to those between forward and backward);
    mutated: primals that the epilogue writes to; keeps: by tangent, the primals and results that eager keeps for it.
    """

    graph: fx.Graph
    primals: tuple[fx.Node, ...]
    tangents: tuple[fx.Node, ...]
    forward_outputs: tuple[Any, ...]
    backward_outputs: tuple[fx.Node | None, ...]
    recorded_backward: frozenset[fx.Node] = frozenset()
    parameters: frozenset[fx.Node] = frozenset()
    mutated: frozenset[fx.Node] = frozenset()
    keeps: tuple[frozenset[fx.Node], ...] = ()

    @staticmethod
    def of(joint: JointGraph) -> JointNodes:
        """The roles in a recorded joint graph."""
        graph = joint.module.graph
        placeholders = [node for node in graph.nodes if node.op == "placeholder"]
        tangents = frozenset(joint.tangents)
        primals = [node for at, node in enumerate(placeholders) if at not in tangents]
        outputs = joint.outputs()
        return JointNodes(
            graph=graph,
            primals=tuple(primals),
            tangents=tuple(placeholders[at] for at in joint.tangents),
            forward_outputs=outputs[: joint.forward_outputs],
            backward_outputs=outputs[joint.forward_outputs :],
            recorded_backward=frozenset(node for node in graph.nodes if node.meta.get("backward")),
            parameters=frozenset(n for n, i in zip(primals, joint.inputs) if i.is_parameter),
            mutated=frozenset(primals[write.input] for write in joint.epilogue.write_backs),
            keeps=tuple(
                frozenset(primals[at] if kind == "input" else outputs[at] for kind, at in places)
                for places in joint.reach.keeps
            ),
        )


def partition(joint_graph: JointGraph, *, save_everything: bool = False) -> Partition:
    """Split a joint graph. `save_everything` keeps each value the backward uses, as eager does: the reference."""
    joint = JointNodes.of(joint_graph)
    backward = _backward_nodes(joint)
    forward = _needed(_as_nodes(joint.forward_outputs) + _pinned(joint, backward), backward)
    saved = _direct(joint, backward, forward) if save_everything else _cut(joint, backward, forward)
    saved |= _symbols_behind(joint, saved, backward)
    order = {node: at for at, node in enumerate(joint.graph.nodes)}
    numbers = sorted((node for node in saved if is_number(node)), key=order.__getitem__)
    tensors = sorted((node for node in saved if not is_number(node)), key=order.__getitem__)
    kept = (*numbers, *tensors)
    values = _origins(joint, kept)
    inside = _needed(_as_nodes(joint.backward_outputs), frozenset(), stop=frozenset(kept))
    again = inside & forward - frozenset(kept)
    return Partition(
        forward=_extract_forward(joint, joint_graph.module, values, forward),
        backward=_extract_backward(joint, joint_graph.module, kept, inside),
        saved=values,
        gradients=tuple(None if at is None else at - joint_graph.forward_outputs for at in joint_graph.gradients),
        recomputed=sum(node.op == "call_function" for node in again),
    )


def _origins(joint: JointNodes, saved: Sequence[fx.Node]) -> tuple[SavedValue, ...]:
    """Where the executor finds each saved value once the forward has run."""
    inputs = {node: at for at, node in enumerate(joint.primals) if node not in joint.mutated}
    slots = {node: at for at, node in enumerate(joint.forward_outputs) if isinstance(node, fx.Node)}
    values, extras = [], 0
    for node in saved:
        if node in inputs:
            values.append(SavedValue(node, "input", inputs[node]))
        elif node in slots:
            values.append(SavedValue(node, "slot", slots[node]))
        else:
            values.append(SavedValue(node, "extra", len(joint.forward_outputs) + extras))
            extras += 1
    return tuple(values)


# -- what a node is ---------------------------------------------------------------------------------------------------


def is_number(node: fx.Node) -> bool:
    """True for a symbolic number."""
    return isinstance(node.meta.get("val"), _SYMBOLIC)


def is_random(node: fx.Node) -> bool:
    """True for an operator that draws random numbers."""
    return bool(node.meta.get("random")) or torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def is_impure(node: fx.Node) -> bool:
    """True for an operator that must run exactly once: it draws random numbers or writes to something."""
    if node.op != "call_function":
        return False
    schema = getattr(node.target, "_schema", None)
    return is_random(node) or node.target is clone_mutate or (schema is not None and schema.is_mutable)


def is_view(node: fx.Node) -> bool:
    """True when the result shares memory with an operand."""
    if node.op != "call_function":
        return False
    if node.target is operator.getitem:
        return isinstance(node.args[0], fx.Node) and is_view(node.args[0])
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    schema = node.target._schema
    return operator_name(node) in _HIDDEN_VIEWS or any(r.alias_info is not None for r in schema.returns)


def operator_name(node: fx.Node) -> str:
    """The name of an ATen operator without namespace and overload, empty for other targets."""
    schema = getattr(node.target, "_schema", None)
    return schema.name.split("::")[-1] if schema is not None else ""


def _is_recomputable(node: fx.Node) -> bool:
    if node.op == "get_attr":
        return True
    if node.op != "call_function" or is_impure(node):
        return False
    if node.meta.get("recompute"):
        return True
    if not isinstance(node.target, torch._ops.OpOverload):
        return True  # getitem and arithmetic on sizes
    tagged = torch.Tag.pointwise in node.target.tags
    return is_number(node) or is_view(node) or tagged or operator_name(node) in _RECOMPUTABLE


def size_bytes(node: fx.Node) -> int:
    """Bytes of the tensor a node gives, by its example sizes; dimensions of stride 0 take no memory."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return 0
    count = value.element_size()
    for size, stride in zip(value.shape, value.stride() if value.layout is torch.strided else value.shape):
        count *= 1 if _hint(stride) == 0 else max(_hint(size), 1)
    return count


def _hint(value: Any) -> int:
    return value if isinstance(value, int) else int(torch_compat.hint_of(value) or 4096)


# -- the two sides ----------------------------------------------------------------------------------------------------


def _as_nodes(values: Iterable[Any]) -> list[fx.Node]:
    return [value for value in values if isinstance(value, fx.Node)]


def _backward_nodes(joint: JointNodes) -> frozenset[fx.Node]:
    """What depends on tangents, and what is impure and was recorded while the backward ran."""
    found: set[fx.Node] = set(joint.tangents)
    for node in joint.graph.nodes:
        impure = node in joint.recorded_backward and is_impure(node)
        if node.op != "output" and (impure or any(operand in found for operand in node.all_input_nodes)):
            found.add(node)
    return frozenset(found)


def _pinned(joint: JointNodes, backward: frozenset[fx.Node]) -> list[fx.Node]:
    """Impure nodes of the forward: they run there, used or not, as the generator's state depends on them."""
    return [node for node in joint.graph.nodes if is_impure(node) and node not in backward]


def _needed(
    roots: Iterable[fx.Node], barred: frozenset[fx.Node], stop: frozenset[fx.Node] = frozenset()
) -> frozenset[fx.Node]:
    """`roots` and their operands, without passing `barred` nodes or going behind `stop` nodes (which are included)."""
    found: set[fx.Node] = set()
    pending = list(roots)
    while pending:
        node = pending.pop()
        if node in found or node in barred:
            continue
        found.add(node)
        if node not in stop:
            pending.extend(node.all_input_nodes)
    return frozenset(found)


def _direct(joint: JointNodes, backward: frozenset[fx.Node], forward: frozenset[fx.Node]) -> set[fx.Node]:
    """What the backward uses of the forward as it was recorded; views and tuples as what they come from or hold."""
    saved: set[fx.Node] = set()
    pending = [operand for node in backward for operand in node.all_input_nodes]
    pending += _as_nodes(joint.backward_outputs)
    seen: set[fx.Node] = set()
    while pending:
        node = pending.pop()
        if node in seen or node in backward:
            continue
        seen.add(node)
        savable = is_number(node) or (isinstance(node.meta.get("val"), torch.Tensor) and not is_view(node))
        if savable and node.op != "get_attr" and (node in forward or node.op == "placeholder"):
            saved.add(node)
        else:
            pending.extend(node.all_input_nodes)
    return saved


def _symbols_behind(joint: JointNodes, saved: Iterable[fx.Node], backward: frozenset[fx.Node]) -> set[fx.Node]:
    """The numbers that are one symbol each, for what saved numbers are expressions of.

    A backend reads a symbol off an argument that is that symbol alone; `s + 1` would not say what `s` is.
    """
    missing: set[Any] = set()
    for node in saved:
        if isinstance(node.meta.get("val"), torch.SymInt):
            value = expression(node.meta["val"])
            missing.update(() if value.is_symbol else value.free_symbols)
    found: dict[Any, fx.Node] = {}
    for node in joint.graph.nodes if missing else ():
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt) and node not in backward and expression(value) in missing:
            found.setdefault(expression(value), node)
    return set(found.values())


def _seen_by_eager(joint: JointNodes, backward: frozenset[fx.Node]) -> frozenset[fx.Node]:
    """Values that the recorded backward itself holds, and what those are views of: eager keeps the same memory."""
    found = {operand for node in backward for operand in node.all_input_nodes if operand not in backward}
    found.update(node for node in _as_nodes(joint.backward_outputs) if node not in backward)
    pending = list(found)
    while pending:
        node = pending.pop()
        recorded_later = node in joint.recorded_backward
        for operand in node.all_input_nodes if is_view(node) or recorded_later else ():
            if operand not in found:
                found.add(operand)
                pending.append(operand)
    return frozenset(found)


# -- the cut ----------------------------------------------------------------------------------------------------------


def _cut(joint: JointNodes, backward: frozenset[fx.Node], forward: frozenset[fx.Node]) -> set[fx.Node]:
    """The nodes to save: the minimum cut that lies nearest to the backward."""
    targets = [node for node in joint.graph.nodes if node in backward]
    boundary = {operand for node in targets for operand in node.all_input_nodes if operand not in backward}
    boundary.update(node for node in _as_nodes(joint.backward_outputs) if node not in backward)
    candidates = _needed(boundary, backward)
    fixed = _fixed_points(joint, backward, forward, candidates)
    network = Network()
    source, sink = network.vertex(), network.vertex()
    ends = {node: (network.vertex(), network.vertex()) for node in joint.graph.nodes if node in candidates}
    prices = _prices(joint, backward)
    for node, (entry, exit_) in ends.items():
        network.edge(entry, exit_, prices(node))
        if node in fixed:
            network.edge(source, entry, UNLIMITED)
        else:
            for operand in node.all_input_nodes:
                network.edge(ends[operand][1], entry, UNLIMITED)
        if node in boundary:
            network.edge(exit_, sink, UNLIMITED)
    network.saturate(source, sink)
    behind = network.sink_side(sink)
    return {node for node, (entry, exit_) in ends.items() if not behind[entry] and behind[exit_]}


def _fixed_points(
    joint: JointNodes, backward: frozenset[fx.Node], forward: frozenset[fx.Node], candidates: frozenset[fx.Node]
) -> frozenset[fx.Node]:
    """Nodes that the backward can't compute: inputs, sizes, and what the forward computes at a cost (or after a
    long chain).

    A value that only the backward needs is computed there once, whatever it costs. `must_recompute` in a node's meta (a
    checkpointed region) makes it cheap by decree.
    """
    fixed = _not_kept_by_eager(joint, backward, candidates)
    length: dict[fx.Node, int] = {}
    for node in joint.graph.nodes:
        if node not in candidates:
            continue
        chain = max((length[operand] for operand in node.all_input_nodes if operand in length), default=0)
        placed = node.op == "placeholder" or (node in forward and is_impure(node)) or _is_read_off(node)
        savable = isinstance(node.meta.get("val"), torch.Tensor) and not is_view(node)
        dear = not _is_recomputable(node) or (chain >= LONGEST_RECOMPUTE and savable)
        if placed or (node in forward and dear and not node.meta.get("must_recompute")):
            fixed.add(node)
        length[node] = 0 if node in fixed else chain + (0 if is_view(node) or is_number(node) else 1)
    return frozenset(fixed)


def _is_read_off(node: fx.Node) -> bool:
    """True for a size of a tensor: eager keeps the number, and a program may write to the tensor."""
    return is_number(node) and any(not is_number(operand) for operand in node.all_input_nodes)


def _not_kept_by_eager(joint: JointNodes, backward: frozenset[fx.Node], candidates: frozenset[fx.Node]) -> set[fx.Node]:
    """Values that the backward may not compute of an input or a result, because eager does not keep that for each
    gradient that they are needed for: a program may write to it before that backward."""
    if len(joint.keeps) < 2 or not any(joint.keeps):  # of a single gradient the prices tell
        return set()
    every = (1 << len(joint.keeps)) - 1
    cheap = _seen_by_eager(joint, backward) - joint.parameters - joint.mutated
    keepers = {node: 0 for node in (*joint.primals, *_as_nodes(joint.forward_outputs)) if node in cheap}
    for tangent, kept in enumerate(joint.keeps):
        for node in kept & keepers.keys():
            keepers[node] |= 1 << tangent
    needed = _needed_for(joint, candidates)
    found: set[fx.Node] = set()
    for node in joint.graph.nodes:
        if node not in candidates or node in joint.recorded_backward or node.op == "placeholder":
            continue
        known = [keepers[operand] for operand in node.all_input_nodes if operand in keepers and not is_number(operand)]
        if is_view(node):
            keepers.setdefault(node, functools.reduce(operator.and_, known, every))
        elif not is_number(node) and any(needed[node] & ~kept for kept in known):
            found.add(node)
    return found


def _needed_for(joint: JointNodes, candidates: frozenset[fx.Node]) -> dict[fx.Node, int]:
    """The tangents for whose gradients each value is needed, as bits."""
    found = {node: 1 << at for at, node in enumerate(joint.tangents)}
    for node in joint.graph.nodes:
        if node not in candidates and node.op != "output":
            found[node] = functools.reduce(
                operator.or_, (found.get(o, 0) for o in node.all_input_nodes), found.get(node, 0)
            )
    for node in reversed(joint.graph.nodes):
        if node.op != "output":
            for operand in node.all_input_nodes:
                if operand in candidates:
                    found[operand] = found.get(operand, 0) | found.get(node, 0)
    return dict.fromkeys(candidates, 0) | found


def _prices(joint: JointNodes, backward: frozenset[fx.Node]) -> Any:
    """The price of saving a node: twice its bytes (written, then read), next to nothing for what lives anyway."""
    outputs = frozenset(_as_nodes(joint.forward_outputs))
    kept_by_eager = _seen_by_eager(joint, backward)

    def price(node: fx.Node) -> int:
        if is_number(node):
            return 1
        if node.op == "get_attr" or not isinstance(node.meta.get("val"), torch.Tensor) or is_view(node):
            return UNLIMITED if node.op != "get_attr" else 0
        if node.op == "placeholder":
            reachable = node in joint.parameters or node in kept_by_eager or node in joint.mutated
            if not reachable:
                return UNLIMITED >> 20  # dearer than any tensor, still possible: the only way to some values
            return 2 * size_bytes(node) + 1 if node in joint.mutated else size_bytes(node) // 64 + 1
        if node in outputs and node not in kept_by_eager:
            return UNLIMITED >> 20
        return 2 * size_bytes(node) + 1

    return price


# -- the two graphs ---------------------------------------------------------------------------------------------------


def _extract_forward(
    joint: JointNodes, root: torch.nn.Module, saved: Sequence[SavedValue], forward: frozenset[fx.Node]
) -> fx.GraphModule:
    needed = _needed([value.node for value in saved], frozenset()) | forward
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in joint.primals:
        copies[node] = graph.node_copy(node)
    for node in joint.graph.nodes:
        if node in needed and node not in copies:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    results = [copies[value] if isinstance(value, fx.Node) else value for value in joint.forward_outputs]
    for value in saved:
        if value.kind != "extra":
            continue
        result = copies[value.node]
        if value.node in joint.mutated:
            result = graph.call_function(torch.ops.aten.clone.default, (result,))
            result.meta.update(value.node.meta)
        results.append(result)
    graph.output(tuple(results))
    return fx.GraphModule(root, graph, "ForwardGraph")


def _extract_backward(
    joint: JointNodes, root: torch.nn.Module, saved: Sequence[fx.Node], inside: frozenset[fx.Node]
) -> fx.GraphModule:
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in (*saved, *joint.tangents):
        placeholder = graph.placeholder(node.name)
        placeholder.meta.update(node.meta)
        copies[node] = placeholder
    for node in joint.graph.nodes:
        if node in inside and node not in copies:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple(copies[node] if node is not None else None for node in joint.backward_outputs))
    return fx.GraphModule(root, graph, "BackwardGraph")
