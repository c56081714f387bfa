"""CapturedGraph: what one capture produced, the object that the capture hands to the backends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch.fx as fx

from ..errors import UserLine
from .symbols import ShapeFacts, shape_facts

if TYPE_CHECKING:
    from .recorder import AtenRecord


@dataclass(frozen=True)
class GraphInput:
    """One placeholder of a graph.

    source: how the caller reaches the value (None for a lifted constant); fake: its FakeTensor, SymInt or SymFloat,
    with the metadata at the start of the graph; lifted: the capture holds the real tensor in `real` and passes it on
    each call; requires_grad, is_leaf: of the real tensor when it was captured; dynamic_dims: the dimensions given
    symbols.
    """

    index: int
    source: Any
    fake: Any
    lifted: bool = False
    is_parameter: bool = False
    is_buffer: bool = False
    requires_grad: bool = False
    is_leaf: bool = True
    real: Any = field(default=None, repr=False)
    dynamic_dims: tuple[int, ...] = ()

    @property
    def is_tensor(self) -> bool:
        """False for a symbolic number."""
        import torch

        return isinstance(self.fake, torch.Tensor)


@dataclass(frozen=True)
class CapturedGraph:
    """A torch-level graph, its inputs, and the record of the ATen calls that its one fake run made.

    module: runs with one argument an input, returns a tuple; it leaves grad mode and autocast as it found them.
    outputs: the fake of each output. needs_grad: an output or a mutated input carries gradients that the graph itself
    must provide. mutated: indices of inputs written to. lines: user line of each call node, by node name.
    ops: number of torch-level calls. spent: what autograd says to a backward from an output, by its place, where the
    graph itself has used up the history; the output comes detached.
    fixed_offsets: (input, storage offset) that the code relies on (as_strided). every_input: the inputs before those
    that no call of the graph reads were dropped; wrapper tensors consist of such.
    """

    module: fx.GraphModule
    inputs: tuple[GraphInput, ...]
    outputs: tuple[Any, ...]
    record: AtenRecord | None
    fake_mode: Any
    shape_env: Any
    needs_grad: bool
    mutated: frozenset[int]
    lines: Mapping[str, UserLine]
    ops: int = 0
    fixed_offsets: tuple[tuple[int, int], ...] = ()
    spent: Mapping[int, str] = field(default_factory=dict)
    every_input: tuple[GraphInput, ...] = field(default=(), repr=False)

    def shapes(self) -> ShapeFacts:
        """The symbols of the graph and the conditions on them, as they stand now (see symbols.shape_facts)."""
        return shape_facts(self.inputs, self.shape_env, self.fixed_offsets)
