"""GraphBuilder: the one funnel through which torch operations enter a graph.

Enters: functions and arguments as trees of GraphValues and constants. Each call is run once, on fake tensors; the
result tells shapes and dtypes, the ATen calls beneath are recorded, and one torch-level fx node is written. Leaves: a
CapturedGraph. This folder must not know frames, bytecode, trackers or backends.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.fx as fx

from .. import torch_compat
from ..errors import Unsupported, UserLine
from ..torch_compat import fakes, tracing
from .captured import CapturedGraph, GraphInput
from .chance import Chance
from .constants import CONSTANT_TYPES, spelled_out, writable
from .constraints import Constraints
from .data_assertions import note_assertions
from .engine import ENGINE_CALLS, refuse_outer_gradients, spent_outputs
from .geometry import has_storage, storage_key
from .gradients import needs_gradients
from .graph_value import SYMBOLIC, GraphValue, annotate, fake_of_leaf, is_value
from .history import has_lost_history
from .inference_mode import in_mode_of_tensors
from .input_check import check_input, has_moved
from .mutation import fixed_offsets, mutated_inputs, written_arguments
from .overlapping_writes import refuse_overlapping_writes
from .real_state import RealState
from .recorder import AtenRecord, new_recorder
from .refusals import judge, no_place, open_size_refusal, quiet_fakes, refuse_by_name
from .region import Region, escaped
from .repeatable import EFFECT, callers_storages, has_effect
from .subgraph_call import subgraph_call
from .symbols import as_policy, cancelled, is_float, plain, rounded, symbolic_fake
from .tree import leaves, map_tree, rebuild, without_partial
from .unused_inputs import drop_unused
from .wrapper_tensors import is_fake

RECURRENT_FUNCTIONS = (torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu)


class GraphBuilder(RealState):
    """Builds one graph. Not for use by two threads; all real state it changes is put back by finish() or abort().

    record: also record ATen calls; scalar_outputs: `.item()` and sizes that depend on data become unbacked symbols;
    decompositions: operator -> function, applied while recording (None: the default table).
    """

    def __init__(
        self,
        *,
        record: bool = True,
        scalar_outputs: bool = False,
        decompositions: Mapping[Any, Callable[..., Any]] | None = None,
    ) -> None:
        super().__init__()
        self.scalar_outputs = scalar_outputs
        self._wants_record = record
        self._decompositions = decompositions
        self._mode: Any = None
        self._shape_env: Any = None
        self._record: AtenRecord | None = None
        self._recorder: Any = None
        self._root = torch.nn.Module()
        self._graph = fx.Graph()
        self._last_placeholder: fx.Node | None = None
        self._inputs: list[GraphInput] = []
        self._input_nodes: list[fx.Node] = []
        self._known: dict[int, GraphValue] = {}  # id of a fake tensor -> its value; values keep the fakes alive
        self._by_real: dict[int, GraphValue] = {}  # id of a real tensor -> its value
        self._kept: list[torch.Tensor] = []  # the real tensors: their ids must not be reused
        self._has_open_sizes = False  # an input has a size without a value
        self._constraints: Constraints | None = None  # there where a dimension is marked
        self._constants: dict[int, str] = {}
        self._lines: dict[str, UserLine] = {}
        self._region: Region | None = None
        self._rng_state: torch.Tensor | None = None
        self._engine_ran = False
        self.chance = Chance()
        self.ops = 0
        self.raised: Exception | None = None  # the last one that the program itself would see

    # -- what is created on first use ------------------------------------------------------------------------------

    @property
    def fake_mode(self) -> Any:
        """The FakeTensorMode of this capture."""
        if self._mode is None:
            if self.scalar_outputs:
                self._shape_env = torch_compat.shape_env(scalar_outputs=True)
            self._mode = torch_compat.fake_tensor_mode(self._shape_env, weakref.WeakMethod(self._environment))
            self._rng_state = torch.get_rng_state()
            if self._wants_record:
                self._record = AtenRecord(self._mode, self._shape_env)
                if self._decompositions is None:
                    from .decompositions import default_table

                    self._decompositions = default_table()
                self._record.decompositions = self._decompositions
                self._record.higher_order = subgraph_call
                self._recorder = new_recorder(self._record, asks=True)
        return self._mode

    @property
    def shape_env(self) -> Any:
        """The ShapeEnv of this capture; made when the first symbol needs it, for it brings sympy along."""
        mode = self.fake_mode
        if self._shape_env is None:
            self._shape_env = torch_compat.shape_env(scalar_outputs=False)
            torch_compat.attach_shape_env(mode, self._shape_env)
            if self._record is not None:
                self._record.shape_env = self._shape_env
        return self._shape_env

    def _environment(self) -> Any:
        return self.shape_env

    @property
    def recorded_calls(self) -> Sequence[Any]:
        """The ATen calls recorded so far, in order."""
        return self._record.calls if self._record is not None else ()

    def input_storages(self) -> frozenset[int]:
        """The storages of the inputs so far."""
        return callers_storages(self._record) if self._record is not None else frozenset()

    def real_input(self, item: GraphInput) -> torch.Tensor:
        """The real tensor that a tensor input was made from."""
        place = [other.index for other in self._inputs if other.is_tensor].index(item.index)
        return self._kept[place]

    def value_of(self, fake: torch.Tensor) -> GraphValue | None:
        """The value of a fake tensor of this graph."""
        return self._known.get(id(fake))

    @property
    def inputs(self) -> tuple[GraphInput, ...]:
        """The inputs so far."""
        return tuple(self._inputs)

    @property
    def has_symbols(self) -> bool:
        """True once a size or number is symbolic: what was decided about it holds for some calls only."""
        return self._shape_env is not None

    # -- inputs ----------------------------------------------------------------------------------------------------

    def add_tensor_input(
        self,
        example: torch.Tensor,
        source: Any,
        *,
        dynamic_dims: Mapping[int, Any] | None = None,
        lifted: bool = False,
        is_parameter: bool | None = None,
        is_buffer: bool = False,
        fake: Any = None,
    ) -> GraphValue:
        """A placeholder for a real tensor; the same tensor gives the same value (the caller guards the identity).

        dynamic_dims: dimension -> True, DimPolicy or (low, high); a size of 0 stays a number. lifted: the caller of the
        graph passes `example` itself. fake: the example's, where it is made of those of other inputs.
        """
        known = self._by_real.get(id(example))
        if known is not None:
            return known
        check_input(example)
        index = len(self._inputs)
        policies = {dim: as_policy(policy) for dim, policy in (dynamic_dims or {}).items()}
        # a size of 0 stays a number: sympy takes the symbol of a size as positive and decides by that without a guard
        policies = {
            dim: policy
            for dim, policy in policies.items()
            if policy is not None and (example.shape[dim] or policy.unbacked)
        }
        self._has_open_sizes = self._has_open_sizes or any(policy.unbacked for policy in policies.values())
        fake = fake if fake is not None else self._fake_of(example, index, policies)
        self._watch(fake, source, policies)
        value = self._add_placeholder(fake, source)
        self._inputs.append(
            GraphInput(
                index,
                source,
                fake,
                lifted=lifted,
                is_parameter=isinstance(example, torch.nn.Parameter) if is_parameter is None else is_parameter,
                is_buffer=is_buffer or isinstance(example, torch.nn.Buffer),
                requires_grad=example.requires_grad,
                is_leaf=example.is_leaf,
                real=example if lifted else None,
                dynamic_dims=tuple(sorted(policies)),
            )
        )
        self._by_real[id(example)] = value
        self._kept.append(example)
        return value

    def add_scalar_input(self, value: int | float, source: Any, within: tuple[Any, Any] | None = None) -> GraphValue:
        """A placeholder for a Python number that differs between calls: a SymInt or SymFloat. within: it is drawn at
        random between these two, and no guard may speak of it."""
        index = len(self._inputs)
        name = torch_compat.input_source_class()(index)
        if within is None:
            symbolic = torch_compat.symbolic_scalar(self.shape_env, value, name)
        else:
            symbolic = tracing.ranged_scalar(self.shape_env, value, name, within)
            self.chance.add(symbolic)
        result = self._add_placeholder(symbolic, source)
        self._inputs.append(GraphInput(index, source, symbolic))
        return result

    def inputs_behind(self, value: GraphValue, most: int) -> list[GraphInput]:
        """The inputs that a value is computed from; none where more than `most` nodes lie between, or within a
        region."""
        if self._region is not None:
            return []
        found, seen, pending = [], {value.node}, [value.node]
        while pending:
            node = pending.pop()
            if node.op == "placeholder":
                found.append(self._inputs[self._input_nodes.index(node)])
            before = [each for each in node.all_input_nodes if each not in seen]
            seen.update(before)
            pending += before
            if len(seen) > most:
                return []
        return found

    def constant_tensor(self, real: torch.Tensor) -> GraphValue:
        """A real tensor that no source reaches: an input that the graph's caller supplies."""
        return self.add_tensor_input(real, None, lifted=True)

    @in_mode_of_tensors
    def _fake_of(self, example: torch.Tensor, index: int, policies: Mapping[int, Any]) -> Any:
        mode = self.fake_mode
        source = torch_compat.input_source_class()(index)
        if not policies and fakes.is_plain_leaf(example):
            return fakes.plain_fake(mode, example)
        if has_moved(example):
            example = example.data
        if not policies:
            try:
                return torch_compat.fake_of(mode, example, source)
            except AssertionError as error:  # torch compares it with the tensor, which shares a base that has changed
                raise Unsupported(
                    "an input that is read for the first time shares memory with one that was written to",
                    remedy="read it before the write, or clone() one of the two",
                ) from error
        self.shape_env  # noqa: B018 - it must be there before the first symbol
        return symbolic_fake(mode, example, source, policies)

    def _watch(self, fake: Any, source: Any, policies: Mapping[int, Any]) -> None:
        for dim, policy in policies.items():
            if policy.strict:
                self._constraints = self._constraints or Constraints()
                self._constraints.add(fake, source, dim, policy)

    def _add_placeholder(self, fake: Any, source: Any) -> GraphValue:
        self.fake_mode  # noqa: B018 - the record exists from here on
        after = self._last_placeholder
        with self._graph.inserting_after(after) if after is not None else self._graph.inserting_before(self._first()):
            node = self._graph.placeholder(f"input_{len(self._inputs)}")
        self._last_placeholder = node
        self._input_nodes.append(node)
        annotate(node, fake, None)
        node.meta["source"] = source
        value = GraphValue(node, fake)
        if isinstance(fake, torch.Tensor):
            self._known[id(fake)] = value
        if self._record is not None:
            self._record.add_input(fake)
        return value

    def _first(self) -> fx.Node:
        return next(iter(self._graph.nodes), self._graph._root)

    # -- calls -----------------------------------------------------------------------------------------------------

    def call_function(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        line: UserLine | None = None,
        stays: bool | None = None,
    ) -> Any:
        """Add fn(*args, **kwargs); args and kwargs are trees of GraphValues and constants.

        The result is a tree: tensors and symbolic numbers are GraphValues, the rest is as it is. A tensor that comes
        back as the very object it was keeps its GraphValue. Raises Unsupported for what a graph can't hold, and
        otherwise the exception that eager raises for this call. stays: `fn` is the program's, and is called each time
        also where it gives nothing of a graph; True where the backend's graph makes such a call.
        """
        fn, args, kwargs = without_partial(fn, args, kwargs)
        refuse_by_name(fn, line)
        return self._call("call_function", fn, fn, args, kwargs, line, stays)

    def call_for_effect(
        self, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], *, line: UserLine | None = None
    ) -> None:
        """Add a call that returns None and is made for what the record does not show; it does not run now."""
        self.fake_mode  # noqa: B018 - the record exists from here on
        args, kwargs = map_tree(self._lift, (tuple(args), dict(kwargs)))
        node = self._new_node("call_function", fn, args, kwargs, len(self.recorded_calls), line)
        self._note_node(node, None, line)
        self._note_effect(node, fn.__name__, line)

    def _note_effect(self, node: fx.Node, name: str, line: UserLine | None) -> None:
        node.meta[EFFECT] = True
        if self._record is not None:
            self._record.refuse(f"{name}() is called for what it does outside of the graph", line)

    def call_method(
        self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], *, line: UserLine | None = None
    ) -> Any:
        """Add args[0].name(*args[1:], **kwargs); see call_function."""
        refuse_by_name(name, line)

        def method(receiver: Any, *rest: Any, **keywords: Any) -> Any:
            return getattr(receiver, name)(*rest, **keywords)

        method.__module__ = torch.Tensor.__module__
        return self._call("call_method", name, method, args, kwargs, line)

    def _call(
        self,
        kind: str,
        target: Any,
        fn: Callable[..., Any],
        args: Any,
        kwargs: Any,
        line: UserLine | None,
        stays: bool | None = None,
    ) -> Any:
        args, kwargs = map_tree(self._lift, (tuple(args), dict(kwargs)))
        fake_args, fake_kwargs = map_tree(fake_of_leaf, (args, kwargs))
        mark = len(self._record.calls) if self._record is not None else 0
        name = target if isinstance(target, str) else getattr(target, "__name__", type(target).__name__)
        if target is torch.autograd.grad:
            refuse_outer_gradients(self._inputs, self._kept, line)
        sequence = torch_compat.gradient_sequence_number()
        result = self._run(fn, name, fake_args, fake_kwargs, mark, line)
        if self.has_symbols:
            if cancelled(result, fake_args):
                args = [self.specialize(leaf, line) if is_float(fake_of_leaf(leaf)) else leaf for leaf in args]
                result = self._run(fn, name, [fake_of_leaf(leaf) for leaf in args], fake_kwargs, mark, line)
            if any(is_float(leaf) for leaf in leaves(result)):
                result = map_tree(rounded, result)
        if self._constraints is not None:
            self._constraints.look(line)
        if self.chance:
            self.chance.check(self.shape_env, name, line)
        self._check_result(name, result, line)
        has_values = any(is_value(leaf) for leaf in leaves(result))
        recorded = self._record is None or len(self._record.calls) > mark
        shown = stays is None or has_values or has_effect(self.recorded_calls[mark:], (fake_args, fake_kwargs))
        if not shown and not (stays and all(leaf is None for leaf in leaves(result))):
            if self._record is not None:
                del self._record.calls[mark:]
            raise no_place(name, line)
        if not has_values and not recorded and shown:
            return map_tree(plain, result)  # a question about metadata: no node
        node = self._new_node(kind, target, args, kwargs, mark, line)
        self._note_node(node, result, line)
        if not shown:
            self._note_effect(node, name, line)
        if self._record is not None:
            for call in self._record.calls[mark:]:
                call.node, call.line = node, line
            self._record.note_sequence(sequence, node)
        return self._values(result, node, line)

    def _note_node(self, node: fx.Node, result: Any, line: UserLine | None) -> None:
        annotate(node, result, line)
        if line is not None:
            self._lines[node.name] = line
        self.ops += 1

    def _new_node(self, kind: str, target: Any, args: Any, kwargs: Any, mark: int, line: UserLine | None) -> fx.Node:
        """The node of a call that has run; torch.fx takes most objects as arguments, and says so where it doesn't."""
        try:
            parts = spelled_out(kind, target, *map_tree(self._to_node, (args, kwargs)))
            return self._current_graph.create_node(*parts)
        except (NotImplementedError, TypeError, ValueError, RuntimeError, AssertionError) as error:
            if self._record is not None:
                del self._record.calls[mark:]
            raise Unsupported(
                f"a graph can't hold a call of {getattr(target, '__name__', target)}: {error}",
                where=line,
                remedy="call it outside the compiled function",
            ) from error

    def _run(self, fn: Any, name: str, args: Any, kwargs: Any, mark: int, line: UserLine | None) -> Any:
        refused = self._record is None or self._record.refused is not None
        if self._recorder is not None:
            self._recorder.line = line
        try:
            with ExitStack() as stack:
                stack.enter_context(quiet_fakes())
                if fn in RECURRENT_FUNCTIONS and torch.is_grad_enabled() and _any_requires_grad(args):
                    # oneDNN's layer hands autograd an undefined tensor, which can't pass through a dispatch mode
                    stack.enter_context(torch_compat.without_onednn())
                if fn in ENGINE_CALLS:  # this thread has the modes
                    self._engine_ran = True
                    stack.enter_context(torch.autograd.set_multithreading_enabled(False))
                if self.has_symbols:
                    stack.enter_context(fakes.symbolic_dispatch(fn))
                stack.enter_context(self.fake_mode)
                if self._recorder is not None:
                    stack.enter_context(self._recorder)
                result = fn(*args, **kwargs)
        except Unsupported:
            raise
        except Exception as error:  # told apart by judge: a break, or the program's own exception
            if self._record is not None:
                dropped = self._record.calls[mark:]
                del self._record.calls[mark:]
                if any(call.op._schema.is_mutable for call in dropped):
                    raise Unsupported(
                        f"{name} failed after it had changed a tensor",
                        where=line,
                        remedy="call it outside the compiled function",
                    ) from error
            if self._recorder is not None and error is self._recorder.raised:
                self.raised, self._recorder.raised = error.with_traceback(None), None
            elif self._has_open_sizes:  # eager can't be asked: there are no sizes to run it with
                self.raised = open_size_refusal(name, line)
            else:
                self.raised = judge(error, fn, name, args, kwargs, line)
            raise self.raised from None
        if self._record is not None:
            if self.has_symbols:
                note_assertions(self._record, mark, line)
            self.raised = refuse_overlapping_writes(self._record, mark, fn, name, args, kwargs, line)
            if self.raised is not None:
                raise self.raised
        if not refused and self._record is not None and self._record.refused is not None:
            raise Unsupported(
                self._record.refused, where=line, remedy="call it outside the compiled function, or pass the tensor in"
            )
        return result

    def _lift(self, leaf: Any) -> Any:
        """Real tensors among the arguments become inputs that the graph's caller supplies."""
        if isinstance(leaf, torch.Tensor) and not is_fake(leaf):
            return self.constant_tensor(leaf)
        return leaf

    def _to_node(self, leaf: Any) -> Any:
        if isinstance(leaf, GraphValue):
            return self._node_of(leaf)
        if writable(leaf):
            return leaf
        holder = self._region if self._region is not None else self
        constants, root = (self._constants, self._root) if holder is self else (holder.constants, holder.root)
        name = constants.get(id(leaf))
        if name is None:
            name = constants[id(leaf)] = f"constant_{len(constants)}"
            setattr(root, name, leaf)
        return self._current_graph.get_attr(name)

    @property
    def _current_graph(self) -> fx.Graph:
        return self._graph if self._region is None else self._region.graph

    def _node_of(self, value: GraphValue) -> fx.Node:
        if self._region is not None:
            return self._region.node_of(value)
        if value.region is not None:
            raise escaped(value)
        return value.node

    def _new_value(self, node: fx.Node, fake: Any) -> GraphValue:
        value = GraphValue(node, fake, self._region)
        if self._region is not None:
            self._region.own(value)
        return value

    def _check_result(self, name: str, result: Any, line: UserLine | None) -> None:
        for leaf in leaves(result):
            if isinstance(leaf, torch.Tensor):
                if leaf.device.type == "meta":
                    raise Unsupported(
                        f"{name} gives a tensor of the meta device", where=line, remedy="use it outside the function"
                    )
                if not is_fake(leaf) and id(leaf) not in self._by_real:
                    raise Unsupported(
                        f"{name} returned a tensor of class {type(leaf).__name__}",
                        where=line,
                        remedy="call it outside the compiled function",
                    )
            elif not isinstance(leaf, CONSTANT_TYPES + SYMBOLIC):
                raise Unsupported(
                    f"{name} returned an object of class {type(leaf).__name__}, which a graph can't hold",
                    where=line,
                    remedy="call it outside the compiled function",
                )

    def _values(self, result: Any, node: fx.Node, line: UserLine | None) -> Any:
        """`result` with GraphValues for tensors and symbolic numbers; elements of containers get getitem nodes."""
        if isinstance(result, (tuple, list)) and any(is_value(leaf) for leaf in leaves(result)):
            items = [self._element(item, node, at, line) for at, item in enumerate(result)]
            return rebuild(result, items) if isinstance(result, tuple) else items
        if isinstance(result, dict) and any(is_value(leaf) for leaf in leaves(result)):
            return {key: self._element(item, node, key, line) for key, item in result.items()}
        if not is_value(result):
            return map_tree(plain, result)
        if not isinstance(result, torch.Tensor):
            return self._new_value(node, result)
        known = self._known.get(id(result))
        if known is None:
            known = self._known[id(result)] = self._new_value(node, result)
        elif self._region is not None:
            self._region.set_node(known, node)
        else:
            self._node_of(known)
            known.node = node
        return known

    def _element(self, item: Any, node: fx.Node, key: Any, line: UserLine | None) -> Any:
        if not any(is_value(leaf) for leaf in leaves(item)):
            return map_tree(plain, item)
        element = self._current_graph.call_function(operator.getitem, (node, key))
        annotate(element, item, line)
        return self._values(item, element, line)

    @property
    def in_region(self) -> bool:
        """True while calls go to a graph inside the graph."""
        return self._region is not None

    def in_transform(self) -> bool:
        """True inside a region that runs under a transform of torch.func."""
        return self._region is not None and self._region.inside_transform()

    # -- regions -----------------------------------------------------------------------------------------------------

    @contextmanager
    def region(
        self, name: str, *, grad: bool | None = None, siblings: tuple[Region, ...] = (), writes: bool = False
    ) -> Iterator[Region]:
        """While open, calls go to a graph of their own; the caller closes that and adds a call of it.

        grad: the grad mode that the caller of the region's graph sets around it. writes: the region may write to
        tensors from outside that carry no gradients. What is recorded meanwhile is dropped: the call records it again.
        """
        self.fake_mode  # noqa: B018 - the record exists from here on
        before, grad_before, undo_before = self._region, torch.is_grad_enabled(), self._undo
        switch = torch_compat.set_grad_enabled_function()
        mark = len(self._record.calls) if self._record is not None else 0
        region = Region(name, before, siblings)
        self._region, self._undo = region, []
        if grad is not None:
            switch(grad)
        try:
            yield region
            self._restore_state(write=True)
            self._check_region_writes(region, mark, writes)
        except Unsupported as refusal:
            refusal.met_again = False  # without a graph its code runs elsewhere, and as Python would run it
            raise
        finally:
            self._restore_state(write=False)
            self._region, self._undo = before, undo_before
            switch(grad_before)
            if self._record is not None:
                del self._record.calls[mark:]
            torch.clear_autocast_cache()  # its casts were made by calls that are dropped here

    def _check_region_writes(self, region: Region, mark: int, writes: bool) -> None:
        outside = {storage_key(value.fake): value for value in region.inputs() if isinstance(value.fake, torch.Tensor)}
        for call in self._record.calls[mark:] if self._record is not None else ():
            for fake in written_arguments(call):
                if has_storage(fake) and storage_key(fake) in outside and (not writes or call.grad):
                    raise Unsupported(
                        f"{region.name} writes to a tensor from outside of it",
                        where=call.line,
                        remedy="return the new value in place of writing it",
                    )

    def add_region_input(self, region: Region, fake: torch.Tensor) -> GraphValue:
        """An input of the region itself, for which its caller passes something."""
        value = self._known[id(fake)] = GraphValue(None, fake, region)  # type: ignore[arg-type]
        value.node = region.add_input(value)
        region.own_inputs = (*region.own_inputs, value)
        return value

    def layout_is_open(self, value: GraphValue) -> bool:
        """True for a tensor that a region's caller will pass with strides not known yet: an incoming gradient."""
        return value.region is not None and value.region.open_layouts and value in value.region.own_inputs

    # -- decisions about symbolic numbers ----------------------------------------------------------------------------

    def truth(self, value: GraphValue, line: UserLine | None = None) -> bool:
        """The truth of a symbolic number for this call; the ShapeEnv guards the decision."""
        return bool(self._decide(value, bool, line))

    def specialize(self, value: GraphValue, line: UserLine | None = None) -> int | float | bool:
        """The value of a symbolic number for this call; the ShapeEnv guards it."""
        kind = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}[type(value.fake)]
        return self._decide(value, kind, line)

    def _decide(self, value: GraphValue, kind: type, line: UserLine | None) -> Any:
        decided = self.chance.decide(value.fake, kind, line)
        if self._constraints is not None:
            self._constraints.look(line)
        return decided

    def may_leave_product(self) -> bool:
        """Whether what was last raised comes from the kernel of a product, which raises as well when the graph runs."""
        return self._recorder is not None and self._recorder.is_product and not self._recorder.leaves_products

    @contextmanager
    def leaving_products(self) -> Iterator[None]:
        """Inside, kernels of products raise when the graph runs, not while it is made."""
        self._recorder.leaves_products = True
        try:
            yield
        finally:
            self._recorder.leaves_products = self._recorder.is_product = False

    # -- end -------------------------------------------------------------------------------------------------------

    def abort(self) -> None:
        """Put the real state back and drop everything."""
        self._restore_state(write=False)
        if self._record is not None:
            self._record.calls.clear()
        self._known.clear()
        self._by_real.clear()
        self.raised = None

    def finish(self, outputs: Sequence[GraphValue], *, keep_unused: bool = False) -> CapturedGraph:
        """Close the graph with these outputs. The real state is as it was when the builder was made.

        keep_unused: inputs that nothing reads stay inputs.
        """
        mode = self.fake_mode
        self._restore_state(write=True)
        if self._constraints is not None:
            self._constraints.check()
        spent = spent_outputs(outputs, self._record, mode) if self._engine_ran else {}
        if spent:
            pairs = enumerate(outputs)
            outputs = [self.call_method("detach", [v], {}) if at in spent else v for at, v in pairs]
        self._graph.output(tuple(self._node_of(value) for value in outputs))
        fakes = tuple(value.fake for value in outputs)
        record = self._record
        if record is not None:
            if any(isinstance(fake, torch.Tensor) and has_lost_history(fake) for fake in fakes):
                record.refuse("a view whose history is lost is returned")
            self._check_generators(record)
            record.checked()
        nodes = () if keep_unused else self._input_nodes
        inputs = drop_unused(self._graph, nodes, self._inputs, record)
        return CapturedGraph(
            module=fx.GraphModule(self._root, self._graph, "CapturedGraph"),
            inputs=inputs,
            outputs=fakes,
            record=record,
            fake_mode=mode,
            shape_env=self._shape_env,
            needs_grad=needs_gradients(self._inputs, fakes, record),
            mutated=self._mutated(),
            lines=self._lines,
            ops=self.ops,
            fixed_offsets=fixed_offsets(record) if record is not None else (),
            spent=spent,
            every_input=tuple(self._inputs),
        )

    def _mutated(self) -> frozenset[int]:
        if self._record is None:
            return frozenset()
        return mutated_inputs(self._record)

    def _check_generators(self, record: AtenRecord) -> None:
        if self._rng_state is not None and not torch.equal(self._rng_state, torch.get_rng_state()):
            torch.set_rng_state(self._rng_state)
            record.refuse("the global random generator moved during capture")


def _any_requires_grad(tree: Any) -> bool:
    return any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves(tree))
