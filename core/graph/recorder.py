"""The recorder: a dispatch mode above FakeTensorMode that writes down each ATen call of the one fake run.

It sits below autograd and autocast, so composite functions arrive taken apart, casts arrive as calls, and the backward
arrives as what the real autograd engine dispatches. It must never raise on its own account: an exception thrown beneath
the engine can end the process. What makes the record worthless is noted in `AtenRecord.refused` and looked at later.
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from .. import torch_compat
from ..errors import RecorderRefused, UserLine
from . import kernel_layouts, static_fakes
from .absent_kernels import is_product, raised_by_kernel
from .geometry import has_storage, same_geometry, storage_key
from .history import history, is_leaf
from .tree import leaves
from .twins import out_names

_FRESH_CONSTANT = torch.ops.aten.lift_fresh.default
_UNCOUNTED = ("aten::_foreach_", "aten::_fused_")
"""Operators whose real kernels count their writes, which kernels of fake tensors don't."""
_STORAGE_CHANGES = frozenset(("aten::set_", "aten::resize_", "aten::resize_as_", "aten::_resize_output_"))


class Call:
    """One recorded ATen call.

    before: for operators that change metadata in place, a fake with the first argument's metadata before the call.
    storages keep the storages of the results alive: an address must not be reused while it names a value.
    node: the torch-level node that made the call (in backward: whose gradient it computes), None when unknown.
    raises: True when its kernel is known to raise.
    """

    __slots__ = ("op", "args", "kwargs", "result", "before", "storages", "node", "line", "grad", "backward", "raises")

    def __init__(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        self.op = op
        self.args = args
        self.kwargs = kwargs
        self.result = result
        self.before: Any = None
        self.storages: tuple[Any, ...] = ()
        self.node: Any = None
        self.line: UserLine | None = None
        self.grad = torch.is_grad_enabled()
        self.backward = False
        self.raises = False

    def __repr__(self) -> str:
        return f"Call({self.op}{' backward' if self.backward else ''} at {self.line})"


@dataclass
class InputFacts:
    """What is true of an input before the first call; the checks after the record compare with it.

    edge: where gradients of the input's first value arrive, for inputs that are no leaves (a leaf's edge can't move).
    """

    fake: Any
    size: tuple[Any, ...]
    stride: tuple[Any, ...]
    offset: Any
    storage: Any
    version: int | None
    requires_grad: bool
    is_leaf: bool
    edge: Any
    grad: Any

    @staticmethod
    def of(fake: Any) -> InputFacts:
        """The facts of a fake as it is now."""
        moved = fake.requires_grad and not fake.is_leaf
        return InputFacts(
            fake,
            tuple(fake.shape),
            tuple(fake.stride()),
            fake.storage_offset(),
            fake.untyped_storage(),
            None if fake.is_inference() else fake._version,
            fake.requires_grad,
            fake.is_leaf,
            torch.autograd.graph.GradientEdge(fake.grad_fn, fake.output_nr) if moved else None,
            fake.grad if fake.is_leaf else None,
        )

    def gradient_edge(self) -> Any:
        """The edge at which the gradient with respect to the input's first value arrives."""
        return self.edge if self.edge is not None else torch.autograd.graph.get_gradient_edge(self.fake)

    def edge_moved(self) -> bool:
        """True when an in-place operation gave the input a new gradient history."""
        if is_leaf(self.fake):
            return self.requires_grad and not self.is_leaf
        return (
            self.edge is None or history(self.fake) is not self.edge.node or self.fake.output_nr != self.edge.output_nr
        )


@dataclass
class AtenRecord:
    """The calls of one capture in order, with what is needed to replay them as a functional graph.

    inputs: fakes, SymInts and SymFloats of the graph's inputs; facts: one entry an input, None for numbers.
    known_facts: by id of the fake, also those of inputs that were dropped since.
    refused: why the record can't be used, None while it can; no_backward: why no backward can be recorded from it.
    higher_order: makes a call to record of a higher-order operator's; see subgraph_call. Without it they are refused.
    asserted: conditions on the data that are in the record; see data_assertions.py.
    kept: several backends compile the capture, so recording one backward must leave the autograd graph for the next.
    """

    fake_mode: Any
    shape_env: Any
    inputs: list[Any] = field(default_factory=list)
    facts: list[InputFacts | None] = field(default_factory=list)
    known_facts: dict[int, InputFacts] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    refused: str | None = None
    refused_at: UserLine | None = None
    no_backward: str | None = None
    decompositions: Mapping[Any, Callable[..., Any]] = field(default_factory=dict)
    higher_order: Callable[..., Any] | None = None
    sequence_starts: list[int] = field(default_factory=list)
    sequence_nodes: list[Any] = field(default_factory=list)
    kept: bool = False
    asserted: set[Any] = field(default_factory=set)
    default_dtype: torch.dtype = field(default_factory=torch.get_default_dtype)  # the one that the graph runs under

    def with_dtype(self, op: Any, args: Any, kwargs: Any, result: Any, line: UserLine | None) -> Any:
        """The keywords of a call under a default dtype that the program has set: what that decided is written out."""
        chosen = torch.get_default_dtype()
        if chosen is self.default_dtype or not isinstance(result, torch.Tensor) or not result.is_floating_point():
            return kwargs
        if any(isinstance(leaf, torch.Tensor) and leaf.is_floating_point() for leaf in leaves((args, kwargs))):
            return kwargs
        if not any(argument.name == "dtype" for argument in getattr(getattr(op, "_schema", None), "arguments", ())):
            self.refuse(f"{op} depends on the default dtype, which the program has set", line)
            return kwargs
        return kwargs if kwargs.get("dtype") is not None else {**kwargs, "dtype": result.dtype}

    def refuse(self, reason: str, line: UserLine | None = None) -> None:
        """Note the first reason for which the record can't be used."""
        if self.refused is None:
            self.refused, self.refused_at = reason, line

    def add_input(self, fake: Any) -> None:
        """Register a graph input before it is used."""
        self.inputs.append(fake)
        self.facts.append(InputFacts.of(fake) if isinstance(fake, torch.Tensor) else None)
        if self.facts[-1] is not None:
            self.known_facts[id(fake)] = self.facts[-1]

    def note_sequence(self, start: int, node: Any) -> None:
        """Autograd nodes numbered from `start` on belong to the torch-level `node`."""
        self.sequence_starts.append(start)
        self.sequence_nodes.append(node)

    def node_of_sequence(self, number: int) -> Any:
        """The torch-level node in whose call the autograd node `number` was made."""
        at = bisect.bisect_right(self.sequence_starts, number) - 1
        return self.sequence_nodes[at] if at >= 0 else None

    def checked(self) -> str | None:
        """The reason to refuse, after comparing the inputs with what they were before the first call."""
        for index, facts in enumerate(self.facts):
            if facts is not None and self.refused is None:
                _check_input(self, index, facts)
        return self.refused


def _check_input(record: AtenRecord, index: int, facts: InputFacts) -> None:
    fake = facts.fake
    if storage_key(fake) != facts.storage._cdata:
        record.refuse(f"input {index} was given other storage")
    elif (
        tuple(fake.shape) != facts.size or tuple(fake.stride()) != facts.stride or fake.storage_offset() != facts.offset
    ):
        record.refuse(f"the shape or strides of input {index} were changed in place")
    elif is_leaf(fake) and fake.grad is not facts.grad:
        record.refuse(f"the .grad of input {index} was changed")
    elif is_leaf(fake) and fake.requires_grad != facts.requires_grad:
        record.refuse(f"requires_grad of input {index} was changed")


@functools.cache
def _recorder_type() -> type:
    """The Recorder class, made on first use: its base brings the imports of FakeTensorMode."""
    fake_class = torch_compat.fake_tensor_class()
    mode_class = torch_compat.dispatch_mode_class()

    class Recorder(mode_class):  # type: ignore[misc, valid-type]
        """Appends to `record` what is dispatched while it is entered above the record's FakeTensorMode."""

        supports_higher_order_operators = True

        def __init__(self, record: AtenRecord, *, backward: bool, asks: bool) -> None:
            super().__init__()
            self.record = record
            self.backward = backward
            self.asks = asks
            self.leaves_products = False
            self.is_product = False  # what `raised` comes from
            self.line: UserLine | None = None
            self.raised: Exception | None = None  # what the program sees raised, as its kernels raise it

        def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if not isinstance(op, torch_compat.OpOverload):
                return self._higher_order(op, args, kwargs)
            if op.namespace == "prim":
                return op(*args, **kwargs)
            for kind in types:
                if not issubclass(kind, fake_class):
                    return NotImplemented
            if op._schema.is_mutable:
                self._ask_kernel(op, args, kwargs, None)
            result = self._decompose(op, args, kwargs)
            if result is NotImplemented:
                result = self._run(op, args, kwargs)
            if not op._schema.is_mutable:
                self._ask_kernel(op, args, kwargs, result)
            return result

        def _ask_kernel(self, op: Any, args: Any, kwargs: Any, result: Any) -> None:
            if not self.asks or torch_compat.current_gradient_node_number() is not None:
                return  # beneath the engine nothing may be raised
            self.raised = raised_by_kernel(op, args, kwargs, result)
            if self.raised is None:
                return
            self.is_product = is_product(op) and not op._schema.is_mutable
            if not (self.is_product and self.leaves_products):
                raise self.raised
            self.raised, self.record.calls[-1].raises = None, True

        def _higher_order(self, op: Any, args: Any, kwargs: Any) -> Any:
            reason = ""
            if self.record.higher_order is not None:
                try:
                    call, values, result = self.record.higher_order(self.record, op, args, kwargs)
                    self._append(call, values, {}, result, None)
                    return result
                except RecorderRefused as refusal:
                    reason = f": {refusal.what}"
            self.record.refuse(f"the higher-order operator {op} is not recorded{reason}", self.line)
            return op(*args, **kwargs)

        def _decompose(self, op: Any, args: Any, kwargs: Any) -> Any:
            decomposition = self.record.decompositions.get(op)
            if decomposition is not None:
                with self:
                    result = decomposition(*args, **kwargs)
                if result is not NotImplemented:
                    return result
            if torch_compat.is_composite(op):
                with self:
                    return op.decompose(*args, **kwargs)
            return NotImplemented

        def _run(self, op: Any, args: Any, kwargs: Any) -> Any:
            before = sizes = None
            if torch.Tag.inplace_view in op.tags:
                before = torch.ops.aten.alias.default(args[0])
                if op._schema.name in _STORAGE_CHANGES:
                    self.record.refuse(f"{op} changes a tensor's storage", self.line)
            elif out_names(op):
                sizes = [(leaf, tuple(leaf.shape)) for leaf in leaves(kwargs) if isinstance(leaf, torch.Tensor)]
            if op is not _FRESH_CONSTANT:
                for leaf in leaves((args, kwargs)):
                    if isinstance(leaf, torch.Tensor) and not isinstance(leaf, fake_class):
                        self.record.refuse(f"{op} was given a tensor that is no input of the graph", self.line)
                    elif isinstance(leaf, torch.Generator):
                        self.record.refuse(f"{op} was given a random generator", self.line)
            result = static_fakes.run(self.record.fake_mode, op, args, kwargs)
            if result is NotImplemented:
                result = kernel_layouts.as_kernels_do(self.record.fake_mode, op, args, kwargs, op(*args, **kwargs))
                if isinstance(result, torch.Tensor) and result.requires_grad and not op._schema.is_mutable:
                    result = (
                        result.detach()
                    )  # autograd is above; torch's rule for padding hands the flag on all the same
            if before is not None and not self.backward and not same_geometry(before, args[0]):
                if self.record.no_backward is None and args[0]._is_view():
                    # the engine takes views of subclasses again by their first function, not by their strides
                    self.record.no_backward = f"{op} changed the shape of a differentiable tensor in place"
            if sizes is not None and any(tuple(leaf.shape) != size for leaf, size in sizes):
                self.record.refuse(f"{op} resized its out= argument", self.line)
            self._append(op, args, kwargs, result, before)
            if op._schema.is_mutable and op._schema.name.startswith(_UNCOUNTED):
                _count_writes(op, args)
            return result

        def _append(self, op: Any, args: Any, kwargs: Any, result: Any, before: Any) -> None:
            call = Call(op, args, self.record.with_dtype(op, args, kwargs, result, self.line), result)
            call.before = before
            call.line = self.line
            call.storages = tuple(
                leaf.untyped_storage()
                for leaf in leaves(result)
                if isinstance(leaf, torch.Tensor) and has_storage(leaf)
            )
            if self.backward:
                call.backward = True
                number = torch_compat.current_gradient_node_number()
                call.node = None if number is None else self.record.node_of_sequence(number)
                if call.node is not None:
                    call.line = call.node.meta.get("user_line")
            self.record.calls.append(call)

    return Recorder


def _count_writes(op: Any, args: Any) -> None:
    for argument, value in zip(op._schema.arguments, args):
        if argument.alias_info is not None and argument.alias_info.is_write:
            for leaf in leaves(value):
                if isinstance(leaf, torch.Tensor) and not leaf.is_inference():
                    torch.autograd.graph.increment_version(leaf)


def new_recorder(record: AtenRecord, *, backward: bool = False, asks: bool = False) -> Any:
    """A Recorder that appends to `record`. asks: what runs is the program for the first time, so it raises what only
    kernels know to raise."""
    return _recorder_type()(record, backward=backward, asks=asks)
