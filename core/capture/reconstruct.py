"""CodeEmitter: bytecode that brings traced values back to Python (variables.protocols.Emitter).

Enters: trackers. Leaves: instructions for the replacement code. Each object is made once and kept in a temporary, so
identity and sharing survive; what the graph computes is read from temporaries that the graph call fills.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import _C
from ..bytecode import emit
from ..bytecode.instruction import Instruction
from ..errors import Unsupported
from ..graph.switches import switched
from ..guards import source as sources
from ..variables.base import LazyVariable, VariableTracker
from ..variables.cell import CellVariable
from ..variables.context import OUTER_MODES, AutocastVariable, InferenceModeVariable
from ..variables.function import NestedFunctionVariable
from ..variables.function_mode import enter_for_real
from .first_calls import temporary
from .raw_reads import raw_reader
from .side_effects import NotGivenBack

VT = VariableTracker
TEMPORARY = ".t"


class CodeEmitter:
    """Appends to `out`. `outputs` are the graph's outputs in the order of first use."""

    def __init__(
        self,
        frame: Any,
        grad_mode: bool = True,
        unreal: dict[int, int] | None = None,
        made_again: dict[int, VT] | None = None,
    ) -> None:
        self.frame = frame
        self.unreal = unreal or {}  # ids of what exists only while tracing
        self.made_again = made_again or {}  # trackers of those that the emitted code makes anew, by id
        self.grad_mode = grad_mode  # where the emitted code stands
        self.entered_inference = 0
        self.entered_regions = 0
        self.out: list[Instruction] = []
        self.outputs: list[Any] = []
        self.temporaries: dict[int, str] = {}
        self.kept: list[VT] = []
        self.loaded_by_source: list[VT] = []
        self._output_index: dict[int, int] = {}
        self._being_made: set[int] = set()
        self._made_inside: set[int] = set()
        self._count = 0
        self._builtin_class: type | None = None

    def add(self, instructions: Sequence[Instruction]) -> None:
        """Append."""
        self.out.extend(instructions)

    def temporary(self) -> str:
        """A fresh local name that no user code can have."""
        self._count += 1
        return f"{TEMPORARY}{self._count}"

    # -- values ----------------------------------------------------------------------------------------------------

    def load(self, tracker: VT) -> None:
        if isinstance(tracker, LazyVariable):
            if tracker.realized is None:
                self._load_unseen(tracker)
                return
            tracker = tracker.realized
        name = self.temporaries.get(id(tracker))
        if name is not None:
            self.add(emit.load_fast_bound(name))
            return
        if isinstance(tracker, CellVariable) and isinstance(tracker.source, sources.ClosureSource):
            self.add(emit.load_closure(tracker.source.variable))
            return
        if tracker.kind == "constant" and not getattr(tracker, "unread", False):
            self.load_const(tracker.as_constant())
            return
        if tracker.source is not None and not isinstance(tracker.source, sources.ConstSource):
            self.loaded_by_source.append(tracker)
            self.load_source(tracker.source)
            return
        held = getattr(tracker, "held", False) or tracker.source is not None and tracker.kind == "user_object"
        if held and getattr(tracker, "value", None) is not None and tracker.kind != "tensor":
            self.load_global_object(tracker.value)  # type: ignore[attr-defined]
            return
        start = len(self.out)
        outer, self._builtin_class = self._builtin_class, None
        if id(tracker) in self._being_made:
            self._made_inside.add(id(tracker))
        self._being_made.add(id(tracker))
        tracker.reconstruct(self)
        self._builtin_class = outer
        if id(tracker) in self._made_inside and id(tracker) in self.temporaries:
            self.pop_top()  # a part of it leads back to it, and the one that the part knows is the object
            self.add(emit.load_fast_bound(self.temporaries[id(tracker)]))
        is_one_object = tracker.mutable or len(self.out) - start > 1  # even [] must not be made twice
        if is_one_object and id(tracker) not in self.temporaries:
            self.remember(tracker)

    def _load_unseen(self, tracker: LazyVariable) -> None:
        # no guard is on the value, so it is read from where it is, before anything on the way there changes
        name = self.temporaries.get(id(tracker))
        if name is not None:
            self.add(emit.load_fast_bound(name))
        elif tracker.source is None:
            self.load_const(tracker.value)
        else:
            self.loaded_by_source.append(tracker)
            self.load_source(tracker.source)

    def is_made(self, tracker: VT) -> bool:
        """True when the object is in a temporary already."""
        return id(tracker) in self.temporaries

    def write_payload(self, payload: VT, owner: VT) -> None:
        """Write back the builtin container inside an object of a subclass, past what the subclass overrides."""
        self.load(owner)
        self.remember(payload)
        self.pop_top()
        self._builtin_class = payload.python_type()
        payload.write_back(self)
        self._builtin_class = None

    def remember(self, tracker: VT) -> None:
        name = self.temporaries.get(id(tracker))
        if name is None:
            name = self.temporaries[id(tracker)] = self.temporary()
            self.kept.append(tracker)
        self.add(emit.dup_top())
        self.add(emit.store_fast(name))

    def preload(self, tracker: VT) -> None:
        """Bring the object into a temporary now, before something it is reached through changes."""
        if isinstance(tracker, LazyVariable):
            tracker = tracker.realized or tracker
        known = tracker.kind == "constant" and not getattr(tracker, "unread", False)
        fixed = known or isinstance(tracker.source, sources.LocalSource)  # nobody stores there
        if not fixed and id(tracker) not in self.temporaries:
            self.load(tracker)
            if id(tracker) not in self.temporaries:
                self.remember(tracker)
            self.pop_top()

    def load_graph_output(self, value: Any) -> None:
        key = id(value)
        if key not in self._output_index:
            self._output_index[key] = len(self.outputs)
            self.outputs.append(value)
        self.add(emit.load_fast_bound(self.output_name(self._output_index[key])))

    def output_name(self, index: int) -> str:
        """The temporary that holds an output of the graph."""
        return f".g{index}"

    def load_const(self, value: Any) -> None:
        if id(value) in self.made_again:
            self.load(self.made_again[id(value)])
            return
        if self.unreal:
            self._refuse_unreal(value)
        self.add(emit.load_const(value))

    load_global_object = load_const

    def _refuse_unreal(self, value: Any) -> None:
        made_at = self.unreal.get(id(value), self.unreal.get(id(type(value))))
        if made_at is not None:
            name = getattr(value, "__qualname__", type(value).__qualname__)
            raise NotGivenBack(
                f"{name}, of a class that the traced code defines, can't be given back to Python",
                made_at,
                remedy="define the class outside the compiled function",
            )
        if isinstance(value, (tuple, frozenset)):
            for item in value:
                self._refuse_unreal(item)

    # -- sources ---------------------------------------------------------------------------------------------------

    def load_source(self, source: Any) -> None:
        SOURCE_LOADERS[type(source)](self, source)

    def _local(self, source: Any) -> None:
        self.add(emit.load_fast(source.local))

    def _global(self, source: Any) -> None:
        self.add(emit.load_global(source.global_name))

    def _builtin(self, source: Any) -> None:
        self.load_const(self.frame.builtins[source.builtin])

    def _closure(self, source: Any) -> None:
        self.add(emit.load_deref(source.variable))

    def _module(self, source: Any) -> None:
        import sys

        self.load_const(sys.modules[source.module])

    def _const(self, source: Any) -> None:
        self.load_const(source.value)

    def _drawn(self, source: Any) -> None:
        self.add(emit.load_fast_bound(temporary(source.index)))

    def _attribute(self, source: Any) -> None:
        self.load_source(source.base)
        self.load_attr(source.attr)

    def _raw_attribute(self, source: Any) -> None:
        reader = raw_reader(source, self.frame)
        if reader is None:
            self._attribute(source)
            return
        self.load_const(reader)
        self.load_source(source.base)
        self.call(1)

    def _instance_dict(self, source: Any) -> None:
        self.load_source(source.base)
        self.load_attr("__dict__")

    def _type(self, source: Any) -> None:
        self.load_const(type)
        self.load_source(source.base)
        self.call(1)

    def _dict_item(self, source: Any) -> None:
        if isinstance(source.base, sources.InstanceDictSource) and isinstance(source.key, str):
            root = source.base.base
            if isinstance(root, sources.ModuleSource):
                self.load_source(root)
                self.load_attr(source.key)
                return
        self.load_const(dict.__getitem__)
        self.load_source(source.base)
        self.load_const(source.key)
        self.call(2)

    def _list_item(self, source: Any) -> None:
        self.load_source(source.base)
        self.load_const(source.index)
        self.binary_subscr()

    def _item_ahead(self, source: Any) -> None:
        self.load_const(_C.iterator_ahead)
        self.load_source(source.base)
        self.load_const(source.index)
        self.call(2)

    def _iterator_part(self, source: Any) -> None:
        self.load_const(_C.iterator_part)
        self.load_source(source.base)
        self.load_const(source.index)
        self.call(2)

    def _called(self, source: Any) -> None:
        self.load_const(source.function)
        self.load_source(source.base)
        self.call(1)

    def _contents(self, source: Any) -> None:
        self.load_source(source.base)
        self.load_attr("cell_contents")

    def _part(self, source: Any) -> None:
        self.load_source(source.base)
        self.load_attr(f"__{source.part}__")

    # -- building --------------------------------------------------------------------------------------------------

    def build_tuple(self, count: int) -> None:
        self.add(emit.build_tuple(count))

    def build_list(self, count: int) -> None:
        self.add(emit.build_list(count))

    def build_map(self, count: int) -> None:
        self.add(emit.build_map(count))

    def build_set(self, count: int) -> None:
        self.add(emit.build_set(count))

    def build_slice(self, count: int) -> None:
        self.add(emit.build_slice(count))

    def push_null(self) -> None:
        """Nothing: `call` needs only the callable and its arguments."""

    def push_null_under(self, depth: int) -> None:
        """Nothing: see push_null."""

    def call(self, count: int) -> None:
        self.add(emit.call_function(count))

    def call_keywords(self, names: tuple[str, ...], count: int) -> None:
        self.add(emit.call_kw(count, names))

    def call_method(self, name: str, load_args: Sequence[VT]) -> None:
        if self._builtin_class is not None:
            self.load_const(getattr(self._builtin_class, name))
            self.swap(2)
            for argument in load_args:
                self.load(argument)
            self.call(1 + len(load_args))
            return
        self.load_attr(name)
        for argument in load_args:
            self.load(argument)
        self.call(len(load_args))

    def make_function(self, function: Any) -> None:
        assert isinstance(function, NestedFunctionVariable)
        annotations = function.annotations
        as_made = annotations if annotations is None or annotations.kind == "tuple" else None
        if function.globals_dict() is not self.frame.globals:
            self._make_foreign_function(function)
        else:
            parts = (function.defaults, function.kwdefaults, as_made)
            for part in parts:
                if part is not None:
                    self.load(part)
            if function.closure:
                for cell in function.closure:
                    self.load(cell)
                self.build_tuple(len(function.closure))
            self.add(
                emit.make_function(
                    function.code,
                    defaults=parts[0] is not None,
                    kwdefaults=parts[1] is not None,
                    annotations=parts[2] is not None,
                    closure=bool(function.closure),
                )
            )
        if annotations is not None and as_made is None:
            self._store_part("__annotations__", annotations)

    def _store_part(self, name: str, value: VT) -> None:
        # stack: function -> function
        self.copy_top()
        self.load(value)
        self.swap(2)
        self.store_attr(name)

    def _make_foreign_function(self, function: NestedFunctionVariable) -> None:
        if function.annotations is not None and function.annotations.kind == "tuple":
            raise Unsupported(
                f"{function.code.co_qualname}, made in another module's code, can't be given back to Python",
                remedy="call the function that makes it outside the compiled function",
            )
        self.load_const(types.FunctionType)
        self.load_const(function.code)
        self.load_const(function.globals_dict())
        self.load_const(function.code.co_name)
        if function.defaults is not None:
            self.load(function.defaults)
        else:
            self.load_const(None)
        for cell in function.closure:
            self.load(cell)
        self.build_tuple(len(function.closure))
        self.call(5)
        if function.kwdefaults is not None:
            self._store_part("__kwdefaults__", function.kwdefaults)

    def load_entered_exit(self, context: Any) -> None:
        if context.grad_modes is not None:
            before, inside = context.grad_modes
            self.set_grad_mode(before)  # what the manager restores when it exits
            self.grad_mode = inside
            self.entered_inference += context.cls is torch.inference_mode
        elif isinstance(context, AutocastVariable):
            self.entered_regions += 1
        context.reconstruct(self)
        if isinstance(context, InferenceModeVariable):
            self.copy_top()
            self.load_const(context.outer_modes)
            self.swap(2)
            self.store_attr(OUTER_MODES)
        self.add(emit.dup_top())
        self.load_attr("__enter__")
        self.call(0)
        self.pop_top()
        self.load_attr("__exit__")

    def leave_region(self, context: Any) -> None:
        """Leave the region of a real manager, which the graph has left already."""
        # in the graph it is a region that stays open
        if isinstance(context, InferenceModeVariable):
            self.entered_inference += 1
            self.grad_mode = getattr(context.real, OUTER_MODES)[1]  # from here on
        elif isinstance(context, AutocastVariable):
            self.entered_regions += 1
        self.load(context)
        self.load_attr("__exit__")
        for _ in range(3):
            self.load_const(None)
        self.call(3)
        self.pop_top()

    # -- attributes, items, stack ----------------------------------------------------------------------------------

    def settle_modes(self, builder: Any, function_modes: Sequence[VT]) -> None:
        """Leave grad mode, autocast, flags and modes where the traced code left them."""
        for flag in switched(builder):
            self.load_const(flag.apply)
            self.load_const(flag.mode)
            self.call(1)
            self.pop_top()
        if builder.open_regions != self.entered_regions:
            raise Unsupported(
                "an autocast region is entered in one place and left in another",
                remedy="use torch.autocast in a with statement",
            )
        if builder.open_inference_regions != self.entered_inference:
            raise Unsupported(
                "inference mode is entered in one place and left in another",
                remedy="use torch.inference_mode in a with statement",
            )
        self.set_grad_mode(torch.is_grad_enabled())
        enter_for_real(self, function_modes)

    def set_grad_mode(self, mode: bool) -> None:
        """Bring the process to this grad mode, if it is in the other."""
        if mode != self.grad_mode:
            self.load_const(torch.set_grad_enabled)
            self.load_const(mode)
            self.call(1)
            self.pop_top()
            self.grad_mode = mode

    def load_attr(self, name: str) -> None:
        self.add(emit.load_attr(name))

    def store_attr(self, name: str) -> None:
        self.add(emit.store_attr(name))

    def delete_attr(self, name: str) -> None:
        self.add(emit.delete_attr(name))

    def binary_subscr(self) -> None:
        self.add(emit.binary_subscr())

    def store_subscr(self) -> None:
        if self._builtin_class is None:
            self.add(emit.store_subscr())
            return
        # value, container, key -> function, container, key, value
        self.load_const(self._builtin_class.__setitem__)  # type: ignore[attr-defined]
        self.swap(4)
        self.call(3)
        self.pop_top()

    def delete_subscr(self) -> None:
        if self._builtin_class is None:
            self.add(emit.delete_subscr())
            return
        # container, key -> function, container, key
        self.load_const(self._builtin_class.__delitem__)  # type: ignore[attr-defined]
        self.swap(3)
        self.swap(2)
        self.call(2)
        self.pop_top()

    def pop_top(self) -> None:
        self.add(emit.pop_top())

    def copy_top(self) -> None:
        self.add(emit.dup_top())

    def swap(self, depth: int) -> None:
        self.add(emit.swap(depth))


SOURCE_LOADERS: dict[type, Callable[[CodeEmitter, Any], None]] = {
    sources.LocalSource: CodeEmitter._local,
    sources.GlobalSource: CodeEmitter._global,
    sources.BuiltinSource: CodeEmitter._builtin,
    sources.ClosureSource: CodeEmitter._closure,
    sources.ModuleSource: CodeEmitter._module,
    sources.ConstSource: CodeEmitter._const,
    sources.DrawnSource: CodeEmitter._drawn,
    sources.AttrSource: CodeEmitter._attribute,
    sources.InstanceAttrSource: CodeEmitter._raw_attribute,
    sources.SlotAttrSource: CodeEmitter._raw_attribute,
    sources.TypeAttrSource: CodeEmitter._raw_attribute,
    sources.InstanceDictSource: CodeEmitter._instance_dict,
    sources.TypeSource: CodeEmitter._type,
    sources.DictItemSource: CodeEmitter._dict_item,
    sources.ListItemSource: CodeEmitter._list_item,
    sources.TupleItemSource: CodeEmitter._list_item,
    sources.ItemAheadSource: CodeEmitter._item_ahead,
    sources.IteratorPartSource: CodeEmitter._iterator_part,
    sources.CallSource: CodeEmitter._called,
    sources.CellSource: CodeEmitter._contents,
    sources.FunctionPartSource: CodeEmitter._part,
    sources.MethodPartSource: CodeEmitter._part,
}
