"""Functionalisation: one pass over the record, in order, that replaces writes by new values.

Enters: an AtenRecord. Leaves: nodes of a functional graph, the memory model at its end, and which inputs were written
to. The pass adds no guards. What it can't express raises RecorderRefused, and the graph goes to the fallback.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx as fx

from .alias import Alias, Store
from .clone_mutate import clone_mutate
from .constants import has_text
from .data_assertions import is_assertion
from .data_errors import may_raise
from .emitter import NodeEmitter, tensor_nodes
from .foreach_calls import interferes, one_by_one
from .geometry import has_storage, is_contiguous, is_dense, overlaps, same_geometry, storage_key
from .inverse import Refused
from .memory import Memory
from .mutation import UNDECLARED
from .recorder import AtenRecord, Call
from .shared_inputs import owners
from .symbol_nodes import SymbolNodes
from .tree import leaves, map_tree
from .twins import functional_twin, out_names, twin_call
from .unread_calls import MAY_RAISE, has_effect
from .unsafe_views import SEPARATE, joined_calls

aten = torch.ops.aten
SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_IDENTITY_VIEWS = frozenset("aten::detach aten::alias aten::lift_fresh".split())
_METADATA_CHECKS = frozenset(("aten::_assert_tensor_metadata", "aten::is_same_size"))
_TRUTHS = frozenset(
    "aten::" + name + "_" for name in "eq ne lt le gt ge logical_and logical_or logical_xor logical_not".split()
)
"""Operators that write truths to tensors of any dtype, where their twins give tensors of bool."""
_BLANK = frozenset("aten::" + name for name in "empty empty_like empty_strided new_empty new_empty_strided".split())
_FILLS = frozenset(("aten::fill_", "aten::zero_"))


class Functionalizer:
    """The state of the pass. Feed the record's calls to `process`; then ask `memory` and `alias_of` for results.

    outputs: what the program returns of the record's tensors.
    """

    def __init__(self, record: AtenRecord, outputs: Sequence[Any]) -> None:
        self.record = record
        self._joined = joined_calls(record, outputs)
        self.emitter = NodeEmitter(record.fake_mode, record.shape_env)
        self.symbols = SymbolNodes(self.emitter)
        static = not any(
            isinstance(fake, SYMBOLIC) or any(isinstance(size, SYMBOLIC) for size in fake.shape)
            for fake in record.inputs
        )
        self.memory = Memory(self.emitter, self.number, static)
        self.written: set[int] = set()
        self._env: dict[int, Alias] = {}
        self._by_storage: dict[int, list[Store]] = {}
        self._snapshots: dict[int, deque[Any]] = {}
        env = record.shape_env
        self._bind_data_symbols = env is not None and env.settings.allow_scalar_outputs
        self.foresee(record.calls)
        self.owned = owners(record)
        nodes = [self._add_input(index, fake) for index, fake in enumerate(record.inputs)]
        for index in sorted(range(len(nodes)), key=self.owned.__contains__):
            if isinstance(record.inputs[index], torch.Tensor):
                self._add_memory(index, nodes[index])

    def foresee(self, calls: Sequence[Call]) -> None:
        """Note which tensors calls to come change in shape: what is made before such a call has the shape before."""
        for call in calls:
            if call.before is not None:
                self._snapshots.setdefault(id(call.args[0]), deque()).append(call.before)

    # -- inputs ----------------------------------------------------------------------------------------------------

    def _add_input(self, index: int, fake: Any) -> fx.Node:
        node = self.emitter.placeholder(f"input_{index}", fake)
        if isinstance(fake, torch.Tensor):
            self.symbols.bind_tensor(node, fake)
        else:
            self.symbols.bind_number(node, fake)
        return node

    def _add_memory(self, index: int, node: fx.Node) -> None:
        """Memory of an input's own, or a view of the input that covers it."""
        fake = self.record.inputs[index]
        if index in self.owned:
            owner = self._env[id(self.record.inputs[self.owned[index]])]
            self._strided_view(fake, node, owner.store, version=0)
        else:
            self._new_root(fake, node, index)

    def add_fresh_input(self, name: str, fake: Any) -> fx.Node:
        """A placeholder that isn't one of the record's inputs: an incoming gradient."""
        node = self.emitter.placeholder(name, fake)
        self._new_root(fake, node, None)
        return node

    def number(self, value: Any) -> Any:
        """The node, or the plain number, for a number of the recorded program."""
        return self.symbols.node(value) if isinstance(value, SYMBOLIC) else value

    # -- the memory model ------------------------------------------------------------------------------------------

    def alias_of(self, fake: Any) -> Alias:
        """The alias of a tensor of the recorded program. An unknown fake means that a call went by unseen."""
        alias = self._env.get(id(fake))
        if alias is None:
            raise Refused("a tensor of the program was made by a call that was not recorded")
        return alias

    def _recorded_val(self, fake: Any) -> Any:
        """The fake with the metadata that the tensor has at this place of the program."""
        later = self._snapshots.get(id(fake))
        return later[0] if later else fake

    def _new_root(self, fake: Any, node: fx.Node, index: int | None) -> None:
        val = self._recorded_val(fake)
        store = Store(input=index, offset=val.storage_offset() if has_storage(val) else 0)
        store.root = self._env[id(fake)] = Alias(store, val, node, fake=fake)
        if has_storage(fake):
            self._by_storage.setdefault(storage_key(fake), []).append(store)

    def _mark_written(self, alias: Alias) -> None:
        index = alias.store.input
        if index is None:
            return
        facts = self.record.facts[index]
        assert facts is not None
        if overlaps(facts.fake):
            raise Refused(f"input {index} was written to, although its elements share memory")
        if facts.requires_grad and facts.fake._is_view() and facts.edge_moved():
            raise Refused(f"input {index} is a view of a tensor outside the graph and was written to")
        if len([store for store in self._by_storage[facts.storage._cdata] if store.input is not None]) > 1:
            raise Refused(f"input {index} was written to and shares memory with another input")
        self.written.add(index)

    # -- one call --------------------------------------------------------------------------------------------------

    def process(self, call: Call) -> None:
        """Translate one recorded call."""
        self.emitter.provenance = {
            "torch_node": call.node,
            "user_line": call.line,
            "original_aten": call.op,
            **({"backward": True} if call.backward else {}),
            **({"random": True} if is_random(call) else {}),
            **({MAY_RAISE: True} if not call.backward and may_raise(call) else {}),
        }
        schema = call.op._schema
        if call.op is aten.lift_fresh.default and id(call.args[0]) not in self._env:
            self._constant(call)
        elif call.before is not None:
            self._change_metadata(call)
        elif schema.name in UNDECLARED and call.args[5]:
            self._batch_norm(call)
        elif schema.is_mutable:
            self._mutate(call)
        elif is_assertion(call):
            self.emitter.emit(call.op, (self.symbols.condition(call.args[0]), call.args[1]), val=None)
        else:
            self._compute(call)

    def _nodes(self, tree: Any) -> Any:
        """Arguments of the recorded call as nodes and constants."""
        return map_tree(self._node_or_constant, tree)

    def _node_or_constant(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return self.memory.read(self.alias_of(leaf))
        return self.number(leaf)

    def _exact(self, *trees: Any) -> bool:
        """True when each tensor among the recorded arguments has, as a node, the strides it was recorded with."""
        for leaf in leaves(trees):
            if isinstance(leaf, torch.Tensor):
                alias = self.alias_of(leaf)
                if not same_geometry(alias.node.meta["val"], alias.val):
                    return False
        return True

    def _constant(self, call: Call) -> None:
        """torch.tensor(...) in the program: a fresh copy each time the graph runs."""
        real = call.args[0]
        held = getattr(real, "constant", None)  # a fake of a constant keeps the tensor it stands for
        real = real if held is None else held
        val = self._recorded_val(call.result)
        if real.numel() == 1:
            options = {"dtype": real.dtype, "device": real.device, "pin_memory": False}
            node = self.emitter.emit(aten.full.default, (list(real.shape), real.item()), options, val=val)
        else:
            constant = self.emitter.attribute(real)
            constant.meta["val"] = val
            node = self.emitter.emit(aten.clone.default, (constant,), val=val)
        self._new_root(call.result, node, None)

    def _change_metadata(self, call: Call) -> None:
        """t_(), unsqueeze_() and their kin: the same tensor object becomes a view of what it was."""
        fake = call.args[0]
        self._snapshots[id(fake)].popleft()
        name = call.op._schema.name.rstrip("_")
        if name == "aten::detach" or same_geometry(call.before, self._recorded_val(fake)):
            return
        packet = getattr(aten, name.partition("::")[2], None)
        overload = None if packet is None else getattr(packet, call.op._overloadname, getattr(packet, "int", None))
        if overload is None:
            raise Refused(f"{call.op} changes metadata in a way that is not known")
        old = self.alias_of(fake)
        self._view(overload, call, old, 0, fake, None)

    def _compute(self, call: Call) -> None:
        """A call that writes to nothing."""
        results = [leaf for leaf in leaves(call.result) if isinstance(leaf, torch.Tensor)]
        if all(id(leaf) in self._env for leaf in results) and results:
            return
        schema = call.op._schema
        source = 0 if id(call) in self._joined else _view_position(schema)
        if source is not None and isinstance(call.args[source], torch.Tensor):
            self._views(call, source)
            return
        if not results and not self._keeps_effect(call):
            return
        if results and not is_random(call) and not self._knows_operands(call):
            return  # torch's own bookkeeping on fakes of its own; whoever uses the result after all is refused
        args, kwargs = self._nodes((call.args, call.kwargs))
        exact = self._exact(call.args, call.kwargs)
        if not exact and not _stride_blind(call.op):
            args, kwargs = self._recorded_strides(args, kwargs, call)
            exact = True
        node = self.emitter.emit(call.op, args, kwargs, val=self._result_val(call) if exact else None)
        self._bind(call.result, node, call)

    def _knows_operands(self, call: Call) -> bool:
        return all(id(leaf) in self._env for leaf in leaves((call.args, call.kwargs)) if isinstance(leaf, torch.Tensor))

    def _result_val(self, call: Call) -> Any:
        return map_tree(lambda leaf: self._recorded_val(leaf) if isinstance(leaf, torch.Tensor) else leaf, call.result)

    def _keeps_effect(self, call: Call) -> bool:
        """Whether a call without tensor results stays: assertions and foreign operators do, questions don't."""
        if any(isinstance(leaf, SYMBOLIC) for leaf in leaves(call.result)):
            return self._bind_data_symbols and call.op is aten._local_scalar_dense.default
        return call.op._schema.name not in _METADATA_CHECKS and not call.op._schema.returns

    def _recorded_strides(self, args: Any, kwargs: Any, call: Call) -> tuple[Any, Any]:
        """Operators outside the core set may have been chosen for the strides they met: give them those."""
        want = {
            id(self.alias_of(leaf).node): self.alias_of(leaf).val
            for leaf in leaves((call.args, call.kwargs))
            if isinstance(leaf, torch.Tensor)
        }
        return map_tree(
            lambda leaf: self.memory.restride(leaf, want[id(leaf)]) if id(leaf) in want else leaf, (args, kwargs)
        )

    def _bind(self, result: Any, node: fx.Node, call: Call) -> None:
        """Name the results of `node`; results may be nested one list deep."""
        if isinstance(result, (tuple, list)):
            for at, item in enumerate(result):
                if any(isinstance(leaf, (torch.Tensor, *SYMBOLIC)) for leaf in leaves(item)):
                    self._bind(item, self.emitter.item(node, at), call)
        elif isinstance(result, torch.Tensor):
            self._bind_tensor(result, node, call)
        elif isinstance(result, SYMBOLIC):
            self.symbols.bind_number(node, result)

    def _bind_tensor(self, fake: Any, node: fx.Node, call: Call) -> None:
        if id(fake) in self._env:
            return
        if self._bind_data_symbols:
            self.symbols.bind_tensor(node, fake)
        shared = self._shared_store(fake, call)
        if shared is None:
            self._new_root(fake, node, None)
            return
        self._strided_view(fake, node, shared, version=-1).grad = call.grad

    def _strided_view(self, fake: Any, node: fx.Node, store: Store, version: int) -> Alias:
        """A part of a store that no recorded view leads to; `node` has its value as of `version`."""
        val = self._recorded_val(fake)
        alias = Alias(store, val, node, parent=store.root, op=aten.as_strided.default, version=version, fake=fake)
        alias.recorded_args = (store.root.val, val.shape, val.stride(), val.storage_offset())
        alias.args = (None, *self._nodes((list(val.shape), list(val.stride()), val.storage_offset())))
        self._env[id(fake)] = alias
        return alias

    def _shared_store(self, fake: Any, call: Call) -> Store | None:
        """The store of an argument with whose storage an undeclared alias lives; None for memory of its own."""
        if call.op._schema.name in SEPARATE or not has_storage(fake):
            return None
        key = storage_key(fake)
        for leaf in leaves((call.args, call.kwargs)):
            if isinstance(leaf, torch.Tensor) and has_storage(leaf) and storage_key(leaf) == key:
                return self.alias_of(leaf).store
        return None

    # -- views -----------------------------------------------------------------------------------------------------

    def _views(self, call: Call, hole: int) -> None:
        if not self._knows_operands(call):
            return
        base = self.alias_of(call.args[hole])
        if not isinstance(call.result, (tuple, list)):
            self._view(call.op, call, base, hole, call.result, None)
            return
        for at, fake in enumerate(call.result):
            if id(fake) not in self._env:
                self._view(call.op, call, base, hole, fake, at)

    def _view(self, op: Any, call: Call, base: Alias, hole: int, fake: Any, item: int | None) -> None:
        args = tuple(None if at == hole else self._nodes(arg) for at, arg in enumerate(call.args))
        alias = Alias(base.store, self._recorded_val(fake), base.node, parent=base, op=op, hole=hole, item=item)
        alias.args, alias.kwargs = args, self._nodes(call.kwargs)
        alias.recorded_args = call.args
        alias.fake, alias.grad, alias.is_data = fake, call.grad, _reads_data(call)
        if op._schema.name in _IDENTITY_VIEWS:
            alias.node = self.memory.read(base)
        else:
            alias.node = self.memory.take_view(alias, self.memory.read(base))
        alias.version = base.store.version
        self._env[id(fake)] = alias

    # -- writes ----------------------------------------------------------------------------------------------------

    def _mutate(self, call: Call) -> None:
        name = call.op._schema.name
        targets = _written(call)
        for fake in targets:
            self._mark_written(self.alias_of(fake))
        if name == "aten::copy_":
            self._copy(call)
        elif name in _FILLS and not isinstance(call.args[-1], torch.Tensor) or name == "aten::zero_":
            self._fill(call)
        else:
            self._run_twin(call, targets)

    def _copy(self, call: Call) -> None:
        target = self.alias_of(call.args[0])
        source = self._node_or_constant(call.args[1])
        val = source.meta["val"]
        if val.dtype != target.val.dtype or val.device != target.val.device:
            options = {"dtype": target.val.dtype, "device": target.val.device}
            source = self.emitter.emit(aten._to_copy.default, (source,), options)
        if val.is_conj():
            source = self.emitter.emit(aten.clone.default, (source,))
        self.memory.write(target, source)

    def _fill(self, call: Call) -> None:
        target = self.alias_of(call.args[0])
        value = self._nodes(call.args[1]) if len(call.args) > 1 else 0
        base = self.memory.read(target)
        options = {"pin_memory": False}
        self.memory.write(target, self.emitter.emit(aten.full_like.default, (base, value), options))

    def _run_twin(self, call: Call, targets: list[Any]) -> None:
        if interferes(call) and len(targets) > 1:
            for single, target in zip(one_by_one(call), targets):
                self._run_twin(single, [target])
            return
        if is_random(call):
            for fake in targets:  # the order of the draws follows the target's strides
                alias = self.alias_of(fake)
                if not same_geometry(self.memory.read(alias).meta["val"], alias.val):
                    raise Refused(f"{call.op} fills a tensor whose strides changed")
                if not is_dense(alias.val):
                    raise Refused(f"{call.op} fills a tensor with gaps between its elements")
        twin = functional_twin(call.op)
        permuted = is_random(call) and not all(is_contiguous(self.alias_of(fake).val) for fake in targets)
        # a random twin's result is contiguous: it would draw in another order
        if twin is None or permuted or not has_text(twin):
            self._run_clones(call, targets)
            return
        recorded = twin_call(call.op, twin, call.args, call.kwargs)
        args, kwargs = self._nodes(recorded)
        exact = self._exact(recorded)
        if not exact and not _stride_blind(twin):
            args, kwargs = self._recorded_strides(args, kwargs, call)
            exact = True
        several = len(call.op._schema.returns) > 1
        if (several or out_names(call.op)) and self._casts(twin, args, kwargs, targets):
            self._run_clones(call, targets)  # what is cast to the dtype written to, and when, is the kernel's affair
            return
        node = self.emitter.emit(twin, args, kwargs, val=self._twin_val(twin, args, call, exact))
        produced = self._result_items(node)
        fresh = self._fresh_results(call)
        for fake, item in zip(fresh, produced):
            self._bind(fake, item, call)
        values = [leaf for item in produced[len(fresh) :] for leaf in self._flat(item)]
        self._store_all(targets, values)

    def _casts(self, twin: Any, args: Any, kwargs: Any, targets: list[Any]) -> bool:
        """Whether the twin's results have other dtypes than the tensors that they are to be written to."""
        try:
            made = self.emitter.run(twin, args, kwargs)
        except (RuntimeError, TypeError, ValueError, IndexError):
            return False  # told where the twin is emitted
        results = [leaf for leaf in leaves(made) if isinstance(leaf, torch.Tensor)]
        wanted = [self.alias_of(fake).val.dtype for fake in targets]
        return [result.dtype for result in results[len(results) - len(wanted) :]] != wanted

    def _twin_val(self, twin: Any, args: Any, call: Call, exact: bool) -> Any:
        """The target's own fake where the twin surely gives the same geometry; None to run the twin."""
        if not exact or not call.args or call.result is not call.args[0] or torch.Tag.pointwise not in twin.tags:
            return None
        if out_names(call.op) or not isinstance(call.result, torch.Tensor) or call.op._schema.name in _TRUTHS:
            return None
        target = self.alias_of(call.result).val
        vals = [node.meta["val"] for node in tensor_nodes(args)]
        alike = all(val.dtype == target.dtype and val.ndim <= target.ndim and is_contiguous(val) for val in vals)
        return target if alike and is_contiguous(target) else None

    def _run_clones(self, call: Call, targets: list[Any]) -> None:
        positions = _written_positions(call)
        args, kwargs = self._nodes((tuple(call.args), dict(call.kwargs)))
        args, kwargs = self._recorded_strides(args, kwargs, call)
        operator = call.op if has_text(call.op) else str(call.op)
        blank = tuple(at for at in positions if _is_blank((kwargs if isinstance(at, str) else args)[at]))
        node = self.emitter.emit(clone_mutate, (operator, positions, args, kwargs, *((blank,) if blank else ())))
        fresh = [leaf for item in self._fresh_results(call) for leaf in leaves(item) if isinstance(leaf, torch.Tensor)]
        for at, fake in enumerate(fresh):
            self._bind(fake, self.emitter.item(node, at), call)
        self._store_all(targets, [self.emitter.item(node, len(fresh) + at) for at in range(len(targets))])

    def _batch_norm(self, call: Call) -> None:
        """Training batch norm writes its running statistics without saying so."""
        targets = [call.args[at] for at in UNDECLARED[call.op._schema.name] if call.args[at] is not None]
        if not targets:
            self._compute(call)
            return
        for fake in targets:
            self._mark_written(self.alias_of(fake))
        if call.op is aten.native_batch_norm.default and len(targets) == 2:
            args = self._nodes(call.args)
            node = self.emitter.emit(aten._native_batch_norm_legit_functional.default, args)
            for at, fake in enumerate(call.result):
                self._bind(fake, self.emitter.item(node, at), call)
            self._store_all(targets, [self.emitter.item(node, 3), self.emitter.item(node, 4)])
            return
        args, kwargs = self._nodes((tuple(call.args), dict(call.kwargs)))
        args, kwargs = self._recorded_strides(args, kwargs, call)
        positions = tuple(at for at in UNDECLARED[call.op._schema.name] if call.args[at] is not None)
        node = self.emitter.emit(clone_mutate, (call.op, positions, args, kwargs))
        for at, fake in enumerate(call.result):
            self._bind(fake, self.emitter.item(node, at), call)
        count = len(call.result)
        self._store_all(targets, [self.emitter.item(node, count + at) for at in range(len(targets))])

    def _store_all(self, targets: list[Any], values: list[fx.Node]) -> None:
        if len(targets) != len(values):
            raise Refused("an operator gave other results than its schema says")
        for fake, value in zip(targets, values):
            self.memory.write(self.alias_of(fake), value)

    def _fresh_results(self, call: Call) -> list[Any]:
        """The results of the call that are no arguments, by schema."""
        returns = call.op._schema.returns
        results = call.result if len(returns) != 1 else (call.result,)
        return [result for result, item in zip(results or (), returns) if item.alias_info is None]

    def _result_items(self, node: fx.Node) -> list[fx.Node]:
        """One node for each result of a twin's schema."""
        count = len(node.target._schema.returns)  # type: ignore[union-attr]
        return [node] if count == 1 else [self.emitter.item(node, at) for at in range(count)]

    def _flat(self, node: fx.Node) -> list[fx.Node]:
        val = node.meta["val"]
        return [self.emitter.item(node, at) for at in range(len(val))] if isinstance(val, (list, tuple)) else [node]


def _written(call: Call) -> list[Any]:
    """The tensors that a call writes to, in the order of its schema."""
    found: list[Any] = []
    for position in _written_positions(call):
        value = call.kwargs[position] if isinstance(position, str) else call.args[position]
        found += [leaf for leaf in leaves(value) if isinstance(leaf, torch.Tensor)]
    return found


def _written_positions(call: Call) -> tuple[int | str, ...]:
    found: list[int | str] = []
    for position, argument in enumerate(call.op._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            if argument.name in call.kwargs:
                found.append(argument.name)
            elif position < len(call.args):
                found.append(position)
    return tuple(found)


def _is_blank(value: Any) -> bool:
    """True for memory that nobody has written to since it was made."""
    return (
        isinstance(value, fx.Node)
        and getattr(value.target, "_schema", None) is not None
        and (value.target._schema.name in _BLANK)
    )


def _reads_data(call: Call) -> bool:
    return call.node is not None and call.node.target is getattr and call.node.args[1] == "data"


def _view_position(schema: Any) -> int | None:
    """The argument of which the results are declared views."""
    if schema.name in SEPARATE:
        return None
    if not any(result.alias_info is not None for result in schema.returns):
        return None
    for position, argument in enumerate(schema.arguments):
        if argument.alias_info is not None:
            return position
    return None


def _stride_blind(op: Any) -> bool:
    """Core and pointwise operators take any strides."""
    return torch.Tag.pointwise in op.tags or torch.Tag.core in op.tags or op._schema.name in ("aten::_to_copy",)


def is_random(call: Call) -> bool:
    """True when the call draws from a generator. Operators with a dropout probability of zero don't."""
    if torch.Tag.nondeterministic_seeded not in call.op.tags:
        return False
    given = {argument.name: value for argument, value in zip(call.op._schema.arguments, call.args)}
    given.update(call.kwargs)
    defaults = {
        argument.name: argument.default_value for argument in call.op._schema.arguments if argument.has_default_value()
    }
    for name in ("dropout_p", "dropout"):
        if name in defaults or name in given:
            return given.get(name, defaults.get(name)) != 0
    for name in ("train", "training"):
        if name in given and given[name] is False:
            return False
    return True


def drop_unused(graph: fx.Graph) -> None:
    """Erase nodes that nobody uses and that have no effect."""
    for node in reversed(list(graph.nodes)):
        if node.op in ("call_function", "get_attr") and not node.users and not has_effect(node):
            graph.erase_node(node)
