"""FunctionalGraph and JointGraph: functional ATen graphs, the form that compilers take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch.fx as fx

from .autograd_reach import Reach
from .captured import GraphInput
from .node_groups import Groups
from .outputs import Epilogue, Output, SlotInfo
from .symbols import ShapeFacts
from .wrapper_tensors import Build


@dataclass(frozen=True)
class FunctionalGraph:
    """A graph of ATen calls that mutates nothing. Its placeholders are the inputs in order, its output a tuple of
    slots.

    Node meta: "val" (the fake with the strides that this very node has), "torch_node" (the torch-level node, or None),
    "user_line", "random" (True: draws from a generator; keep order, never drop, repeat or merge), "original_aten".
    Targets are OpOverloads, operator.getitem, functions of `operator` and torch.sym_* on symbolic ints, and
    `clone_mutate.clone_mutate` for operators that have no functional twin.
    """

    module: fx.GraphModule
    inputs: tuple[GraphInput, ...]
    epilogue: Epilogue
    shapes: ShapeFacts


@dataclass(frozen=True)
class CarriedRoot:
    """A wrapper tensor among the outputs that a backward starts at. output: of the capture; build: how its gradient is
    made; kinds: what it is made of itself; slots: those of them to which a tangent belongs, None for the others."""

    output: int
    build: Build
    slots: tuple[int | None, ...]
    kinds: tuple[Output, ...]

    def tangent_slots(self) -> dict[int, int]:
        """Slot -> its place among what the root is made of."""
        return {slot: at for at, slot in enumerate(self.slots) if slot is not None}


@dataclass(frozen=True)
class NumberPlace:
    """Where a number is read: "size" or "stride" of dimension `dim` of the tensor `tensor` among some."""

    tensor: int
    kind: str
    dim: int


@dataclass(frozen=True)
class CarriedGradient:
    """A gradient that is a wrapper tensor, or that of one: made of the `count` gradients from `first` on, its symbolic
    sizes read from those at `numbers`.

    input: the plain input that it is the gradient of, None for a wrapper; anchor: which one of those.
    """

    build: Build | None
    first: int
    count: int
    numbers: tuple[tuple[Any, NumberPlace], ...] = ()
    input: int | None = None
    anchor: int | None = None


@dataclass(frozen=True)
class Carried:
    """What autograd sees of a joint graph besides plain tensors. anchors: the wrappers among the capture's inputs that
    take gradients."""

    anchors: tuple[int, ...]
    roots: tuple[CarriedRoot, ...]
    gradients: tuple[CarriedGradient, ...]


@dataclass(frozen=True)
class JointGraph:
    """Forward and backward in one functional graph.

    module: placeholders are the inputs, then the tangents; the output is a tuple of the slots, then the gradients.
    tangents: positions of the placeholders that are incoming gradients; tangent_slots: the slot each belongs to;
    tangent_infos: the layout each was recorded with, to which what autograd hands in must be brought.
    forward_outputs: number of slots. gradients: per input the position of its gradient in the output, None for none;
    behind them the positions of what `carried` makes gradients of.
    reach: what the gradient of each tangent, by its place in `tangents`, reaches and uses up in eager; and for which
    tensors eager checks that they weren't written to: ("input" or "slot", index). Of inputs, their positions.
    groups: where several nodes of autograd are needed.
    Node meta as in FunctionalGraph, and "backward": True for what the backward recorded, which may include nodes that
    depend on no tangent.
    """

    module: fx.GraphModule
    inputs: tuple[GraphInput, ...]
    epilogue: Epilogue
    shapes: ShapeFacts
    tangents: tuple[int, ...]
    tangent_slots: tuple[int, ...]
    tangent_infos: tuple[SlotInfo, ...]
    forward_outputs: int
    gradients: tuple[int | None, ...]
    reach: Reach
    groups: Groups | None = None
    carried: Carried | None = None

    def outputs(self) -> tuple[Any, ...]:
        """The nodes of the output tuple (None where a gradient is absent)."""
        node = next(node for node in reversed(self.module.graph.nodes) if node.op == "output")
        return tuple(node.args[0])
