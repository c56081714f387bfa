"""FunctionalGraph and JointGraph: functional ATen graphs, the form that compilers take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch.fx as fx

from .captured import GraphInput
from .outputs import Epilogue, SlotInfo
from .symbols import ShapeFacts


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
class JointGraph:
    """Forward and backward in one functional graph.

    module: placeholders are the inputs, then the tangents; the output is a tuple of the slots, then the gradients.
    tangents: positions of the placeholders that are incoming gradients; tangent_slots: the slot each belongs to;
    tangent_infos: the layout each was recorded with, to which what autograd hands in must be brought.
    forward_outputs: number of slots. gradients: per input the position of its gradient in the output, None for none.
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

    def outputs(self) -> tuple[Any, ...]:
        """The nodes of the output tuple (None where a gradient is absent)."""
        node = next(node for node in reversed(self.module.graph.nodes) if node.op == "output")
        return tuple(node.args[0])
