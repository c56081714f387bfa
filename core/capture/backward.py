"""backward() in captured code: the engine's run is one call of the graph, and .grad changes as autograd changes it.

Each leaf that the engine reaches gets its gradient here: the first one is assigned, others are added in place (out of
place where the gradients have a graph of their own). Histories and hooks outside the graph are left to Python.
"""

from __future__ import annotations

import gc
import operator
from typing import Any

import torch
from torch.autograd.graph import get_gradient_edge
from torch.utils.hooks import RemovableHandle

from ..errors import Unsupported
from ..graph.engine import engine_gradients, known_storages, leaves_behind
from ..graph.geometry import extent, has_storage, hint, is_contiguous, overlaps, same_geometry, storage_key
from ..guards.checks import Is, Length, Predicate
from ..guards.source import AttrSource
from ..variables.base import VariableTracker
from ..variables.tensor import TensorVariable
from .special_calls import function
from .tensor_hooks import refuse_pending

VT = VariableTracker

OUTSIDE = "call backward() outside the compiled function"
METHOD_NAMES = ("gradient", "retain_graph", "create_graph", "inputs")
NAMES = ("tensors", "grad_tensors", "retain_graph", "create_graph", "grad_variables", "inputs")
LEAF_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")


@function(torch.Tensor.backward)
def tensor_backward(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """tensor.backward(gradient, retain_graph, create_graph, inputs)."""
    given = {"tensors": args[0], **dict(zip(METHOD_NAMES, args[1:])), **kwargs}
    if "gradient" in given:
        given["grad_tensors"] = given.pop("gradient")
    return backward(tx, [], given)


@function(torch.autograd.backward)
def backward(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """torch.autograd.backward."""
    given = dict(zip(NAMES, args)) | kwargs
    given = {name: value.realize(tx) for name, value in given.items() if not _is_none(tx, value)}
    if not given.keys() <= set(NAMES) or "grad_variables" in given:
        raise Unsupported("backward() with these arguments is not traced", remedy=OUTSIDE)
    roots = _tensors(tx, given["tensors"])
    seeds = _seeds(tx, given.get("grad_tensors"), len(roots))
    create = "create_graph" in given and tx.truth(given["create_graph"])
    retain = tx.truth(given["retain_graph"]) if "retain_graph" in given else create
    Backward(tx, roots, seeds, retain, create).run(given.get("inputs"))
    return tx.constant(None)


def guard_hooks(tx: Any, source: Any, real: torch.Tensor, name: str) -> None:
    """Assume that a tensor goes on having no hooks of this kind."""
    hooks = getattr(real, name, None)
    if hooks:
        raise Unsupported("backward() meets a tensor with hooks", remedy=OUTSIDE)
    if source is not None:
        tx.guard(AttrSource(source, name), Is(None) if hooks is None else Length(0))


def _is_none(tx: Any, value: VT) -> bool:
    value = value.realize(tx)
    return value.is_constant() and value.as_constant() is None if value.kind == "constant" else False


def _tensors(tx: Any, value: VT) -> list[TensorVariable]:
    items = [value] if value.kind == "tensor" else [item.realize(tx) for item in value.unpack(tx)]
    for item in items:
        if not isinstance(item, TensorVariable):
            raise Unsupported("backward() of this object is not traced", remedy=OUTSIDE)
    return items  # type: ignore[return-value]


def _seeds(tx: Any, value: VT | None, count: int) -> list[VT]:
    if value is None:
        return [tx.constant(None)] * count
    return [value] if value.kind == "tensor" else [item.realize(tx) for item in value.unpack(tx)]


class Backward:
    """One run of the engine being traced."""

    def __init__(self, tx: Any, roots: list[TensorVariable], seeds: list[VT], retain: bool, create: bool) -> None:
        self.tx = tx
        self.roots = roots
        self.seeds = seeds
        self.retain = retain
        self.create = create

    def run(self, inputs: VT | None) -> None:
        """Run the engine and change .grad of the leaves."""
        tx = self.tx
        fakes = [root.fake for root in self.roots]
        refuse_pending(tx)
        if tx.builder.in_region:
            raise Unsupported("backward() inside a function under a transform is not traced", remedy=OUTSIDE)
        leaves = [self._leaf(fake) for fake in leaves_behind(fakes, tx.line)]
        if inputs is not None:
            leaves = self._chosen(_tensors(tx, inputs), leaves)
        self._guard_nodes(leaves)
        for leaf in leaves:
            self._guard(leaf)
        if not leaves:
            self._raise_as_eager(fakes)
        known = known_storages(tx.builder.inputs, tx.builder.recorded_calls)
        arguments = [tx.new_tuple(self.roots), tx.new_tuple(leaves), tx.new_tuple(self.seeds)]
        flags = [tx.constant(self.retain), tx.constant(self.create)]
        gradients = tx.graph_call(engine_gradients, [*arguments, *flags], {}).unpack(tx)
        before = torch.is_grad_enabled()
        tx.builder.set_grad_enabled(self.create, line=tx.line)
        try:
            for leaf, gradient in zip(leaves, gradients):
                if isinstance(gradient, TensorVariable):
                    self._accumulate(leaf, gradient, known)
        finally:
            tx.builder.set_grad_enabled(before, line=tx.line)

    def _leaf(self, fake: torch.Tensor) -> TensorVariable:
        value = self.tx.builder.value_of(fake)
        if value is None:
            raise Unsupported("backward() reaches a tensor from outside the graph", remedy=OUTSIDE)
        found = self.tx.graph_result(value)
        assert isinstance(found, TensorVariable)
        return found

    def _chosen(self, inputs: list[TensorVariable], reached: list[TensorVariable]) -> list[TensorVariable]:
        if not inputs or any(item.fake.grad_fn is not None or not item.fake.requires_grad for item in inputs):
            raise Unsupported("backward(inputs=...) for tensors that are no leaves is not traced", remedy=OUTSIDE)
        return inputs

    def _guard(self, leaf: TensorVariable) -> None:
        if leaf.real is None:
            return
        for name in LEAF_HOOKS:
            guard_hooks(self.tx, leaf.source, leaf.real, name)
        if hasattr(leaf.real, "grad_dtype"):
            if leaf.real.grad_dtype is not leaf.real.dtype:
                raise Unsupported("a leaf that takes gradients of another dtype is not traced", remedy=OUTSIDE)
            if leaf.source is not None:
                self.tx.guard(AttrSource(leaf.source, "grad_dtype"), Is(leaf.real.dtype))

    def _guard_nodes(self, leaves: list[TensorVariable]) -> None:
        """Assume that the nodes which accumulate gradients go on having no hooks."""
        unhooked = UnhookedNodes()
        if any(leaf.real is not None and _has_node_hooks(leaf.real) for leaf in leaves):
            raise Unsupported("backward() meets a leaf with hooks on the node of its gradient", remedy=OUTSIDE)
        trace = self.tx.trace
        named = (leaf.source for leaf in leaves if leaf.real is not None and leaf.source is not None)
        sources = tuple(source for source in named if not trace.is_unreal(source))
        if sources:
            trace.guard(None, Predicate(sources, unhooked), self.tx.line, "hooks on the nodes of gradients")

    def _raise_as_eager(self, fakes: list[torch.Tensor]) -> None:
        """Nothing requires gradients: autograd says so."""
        self.tx.answer(self.tx.run_on_fakes, [torch.autograd.backward, [fakes], {}], {})
        raise Unsupported("backward() reaches no leaf", remedy=OUTSIDE)

    # -- what autograd does when a gradient arrives at a leaf ----------------------------------------------------------

    def _accumulate(self, leaf: TensorVariable, gradient: TensorVariable, known: set[int]) -> None:
        tx = self.tx
        if not has_storage(gradient.fake):
            raise Unsupported("a sparse gradient is not traced", remedy=OUTSIDE)
        old = leaf.get_attr(tx, "grad").realize(tx)
        if isinstance(old, TensorVariable):
            if not self.create:
                tx.graph_method("add_", [old, gradient], {})
                return
            new = tx.binary(operator.add, old, gradient)
        elif old.is_constant() and old.as_constant() is None:
            new = self._owned(leaf, gradient, known)
        else:
            raise Unsupported(f"adding to a .grad that is {old.describe()} is not traced", remedy=OUTSIDE)
        leaf.assign_grad(tx, new)

    def _owned(self, leaf: TensorVariable, gradient: TensorVariable, known: set[int]) -> VT:
        """The gradient as a tensor that nothing else shares, laid out like the leaf."""
        key = storage_key(gradient.fake)
        shared = key in known
        known.add(key)
        if self.create:
            return self.tx.graph_method("clone", [gradient], {})
        dense = not overlaps(leaf.fake) and _is_dense(leaf.fake)
        fits = same_geometry(gradient.fake, leaf.fake) if dense else is_contiguous(gradient.fake)
        if fits and not shared:
            return gradient
        layout = torch.preserve_format if dense else torch.contiguous_format
        options = {"memory_format": self.tx.constant(layout)}
        return self.tx.graph_method("copy_", [self.tx.graph_call(torch.empty_like, [leaf], options), gradient], {})


class UnhookedNodes:
    """Whether the nodes that accumulate the gradients of some leaves have no hooks.

    Each registration in the process numbers its handle, so the nodes are looked at when that number has moved.
    """

    def __init__(self) -> None:
        self.handles = RemovableHandle.next_id

    def __call__(self, *leaves: torch.Tensor) -> bool:
        handles = RemovableHandle.next_id
        if handles != self.handles:
            if any(map(_has_node_hooks, leaves)):
                return False
            self.handles = handles
        return True


def _has_node_hooks(leaf: torch.Tensor) -> bool:
    """Whether the node that accumulates a leaf's gradient has hooks.

    They are found by the collector, which a node lets see them while no graph holds it.
    """
    if not leaf.requires_grad or not leaf.is_leaf:
        return False
    with torch.enable_grad():
        node = get_gradient_edge(leaf).node
    return any(isinstance(held, dict) and held for held in gc.get_referents(node))


def _is_dense(fake: Any) -> bool:
    """Whether the elements fill the memory from the first to the last."""
    count = 1
    for size in fake.shape:
        count *= hint(size)
    return extent(fake) == count
