"""TracerServices: what trackers ask of the interpreter (variables.protocols.Tracer), implemented over the Trace."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, NoReturn

import torch

from .. import torch_compat
from ..bytecode.opcodes import LOOP_EXIT, SEND_KEEPS_RECEIVER, TABLE
from ..errors import Unsupported
from ..graph.builder import GraphValue
from ..graph.refusals import NeedsSymbols
from ..graph.wrapper_tensors import is_wrapper
from ..guards.checks import DictKeys, Is, Length, NotSameAs
from ..guards.source import DictItemSource, InstanceDictSource, ModuleSource
from ..variables import function_mode, operators, tensor_subclass, unread
from ..variables import named_tuple as _named_tuple  # noqa: F401  named tuples register their kind
from ..variables.base import LazyVariable, ObservedException, VariableTracker
from ..variables.builtin import BuiltinVariable
from ..variables.cell import CellVariable
from ..variables.exception import ExceptionVariable
from ..variables.host_number import NumberAsArgument, call_with_numbers
from ..variables.iterator import IteratorVariable
from ..variables.mapping import DictVariable
from ..variables.object import SuperVariable, UserObjectVariable
from ..variables.range import SliceVariable
from ..variables.sequence import ListVariable, tuple_of
from ..variables.set import SetVariable
from ..variables.symbolic import SymbolicVariable
from ..variables.tensor import TensorVariable
from ..variables.wrapper_class import check_class
from ..variables.wrapper_tensor import WrapperTensorVariable
from . import input_numbers, known_buffers, policy, wrapping
from .caught_errors import may_come_later, refuse_uncatchable
from .first_calls import refuse_drawing
from .opcodes.host import Host
from .tracebacks import passed_unseen, runs_python

VT = VariableTracker


def _result(tx: TracerServices, value: GraphValue) -> TensorVariable:
    if is_wrapper(value.fake):
        check_class(tx, type(value.fake))
        return WrapperTensorVariable(value, type(value.fake))
    return TensorVariable(value, torch.nn.Parameter if isinstance(value.fake, torch.nn.Parameter) else torch.Tensor)


class TracerServices(Host):
    """Trackers' view of the interpreter."""

    observed_exception = ObservedException
    null_before_callable = TABLE.null_before_callable
    for_iter_pops = LOOP_EXIT == 0
    send_keeps_receiver = SEND_KEEPS_RECEIVER

    def skip_end_for(self) -> None:
        """Step over what ends a loop; FOR_ITER at its end does so."""
        self.index += LOOP_EXIT

    # -- trackers --------------------------------------------------------------------------------------------------

    def wrap(self, value: Any, source: Any, constant: bool = False) -> VT:
        if self.trace.reads is not None:
            self.trace.reads.setdefault(id(value), self.line)
        return wrapping.wrap(self, value, source, constant)

    def lazy(self, value: Any, source: Any) -> VT:
        known = self.trace.known.get(id(value))
        if known is not None and (source is None or known.source == source):
            return known
        return LazyVariable(value, source, self)

    def constant(self, value: Any) -> VT:
        return wrapping.constant(self, value)

    def is_untouched(self, value: Any) -> bool:
        """True for a real object that the traced code has not changed."""
        known = self.trace.known.get(id(value))
        parts = (known, getattr(known, "payload", None))
        return not any(part is not None and self.side_effects.is_mutated(part) for part in parts)

    def real_cell(self, cell: Any, name: str, source: Any) -> CellVariable:
        known = self.trace.known.get(id(cell))
        if isinstance(known, CellVariable):
            return known
        try:
            contents = wrapping.cell_contents(self, cell, source)
        except ValueError:
            contents = None
        tracker = CellVariable(name, contents, source)
        self.trace.remember(cell, tracker)
        return tracker

    def new_list(self, items: Iterable[VT]) -> VT:
        return ListVariable(list(items))

    def new_tuple(self, items: Iterable[VT], cls: type = tuple) -> VT:
        return tuple_of(list(items), cls)

    def new_dict(self, pairs: Iterable[tuple[VT, VT]], cls: type = dict) -> VT:
        result = DictVariable({}, cls)
        for key, value in pairs:
            result.set_item(self, key, value)
        return result

    def new_set(self, items: Iterable[VT], cls: type = set) -> VT:
        made = SetVariable(list(items), cls)
        made.tokens(self)  # hashes the items, which may raise
        return made

    def new_slice(self, start: VT, stop: VT, step: VT | None) -> VT:
        return SliceVariable(start, stop, step if step is not None else self.constant(None))

    def enter_device(self, device: VT) -> VT:
        if function_mode.is_asked(self):  # what torch makes of the device calls torch.device
            function_mode.dispatch(self, self.wrap(torch.device, None, constant=True).realize(self), [device], {})
        function_mode.enter(self, device)
        return device

    def leave_mode(self) -> VT:
        function_mode.leave(self)
        return self.constant(None)

    def text_later(self, function: Callable[..., str], parts: Sequence[VT]) -> VT | None:
        return unread.text_later(self, function, parts)

    def new_iterator(self, produce: Callable[[Any], VT | None], cls: type) -> VT:
        return IteratorVariable(produce, cls)

    def make_super(self, cls: VT, receiver: VT) -> VT:
        """super(cls, receiver)."""
        start, kind = cls.as_constant(), receiver.python_type()
        if issubclass(kind, type) and receiver.is_constant() and issubclass(receiver.as_constant(), start):
            kind = receiver.as_constant()
        elif start not in kind.__mro__:
            self.raise_exception(TypeError, "super(type, obj): obj must be an instance or subtype of type")
        return SuperVariable(start, receiver, kind)

    def build_class(self, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        """What a class statement makes."""
        from .class_body import build_class

        return build_class(self, args, kwargs)

    def call_enum(self, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        """EnumType.__call__."""
        from .class_body import call_enum

        return call_enum(self, args, kwargs)

    def register_class(self, cls: type) -> VT:
        """The tracker of a class that was made for the traced code."""
        from .class_body import register

        return register(self, cls)

    def make_class(self, meta: type, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        from .class_body import make_class

        return make_class(self, meta, args, kwargs)

    def descriptor(self, cls: type, args: Sequence[VT]) -> VT:
        from .stand_ins import descriptor

        return descriptor(self, cls, args)

    def learn(self, values: Iterable[VT]) -> None:
        known_buffers.learn(self, values)

    def decision(self, tensor: Any) -> bool | None:
        return input_numbers.decision(self, tensor)

    def draw(self, generator: VT, method: str, values: Sequence[Any], keywords: dict[str, Any]) -> VT:
        from .first_calls import draw

        return draw(self, generator, method, values, keywords)

    def seeds(self, generator: VT) -> None:
        from .first_calls import Seeded

        self.trace.before_graph.append(Seeded(generator))

    def is_unreal(self, value: Any) -> bool:
        return id(value) in self.trace.unreal

    # -- the graph -------------------------------------------------------------------------------------------------

    def graph_result(self, value: Any, derived: bool = False) -> VT:
        if isinstance(value, GraphValue):
            return self._graph_leaf(value)
        if isinstance(value, tuple):
            return self.new_tuple([self.graph_result(item, derived) for item in value], type(value))
        if isinstance(value, list):
            return self.new_list([self.graph_result(item, derived) for item in value])
        if isinstance(value, dict):
            return self.new_dict(
                [(self.constant(key), self.graph_result(item, derived)) for key, item in value.items()]
            )
        return self.wrap(value, None, constant=True)

    def _graph_leaf(self, value: GraphValue) -> VT:
        known = self.trace.known.get(id(value))
        if known is None:
            if isinstance(value.fake, torch.Tensor):
                known = _result(self, value)
            else:
                known = SymbolicVariable(value)
            self.trace.remember(value, known)
        return known

    def is_in_a_variable(self, tracker: VT) -> bool:
        frame: Any = self
        while frame is not None:
            if any(value is tracker or getattr(value, "realized", None) is tracker for value in frame.locals.values()):
                return True
            frame = frame.parent
        return False

    def stands_for(self, value: GraphValue, tracker: VT) -> None:
        self.trace.remember(value, tracker)

    def graph_call(self, fn: Callable[..., Any], args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        return self.add_to_graph(self.builder.call_function, fn, args, kwargs)

    def graph_method(self, name: str, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        return self.add_to_graph(self.builder.call_method, name, args, kwargs)

    def register_hook(self, tensor: TensorVariable, method: str, hook: VT) -> VT:
        from .tensor_hooks import register

        return register(self, tensor, method, hook)

    def add_to_graph(self, call: Callable[..., Any], target: Any, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        if self.trace.function_modes and any(holds_tensor(self, value) for value in (*args, *kwargs.values())):
            function_mode.refuse(self, "this operation")
        try:
            values = [arg.look_inside(self).as_proxy() for arg in args]
            keywords = {key: value.look_inside(self).as_proxy() for key, value in kwargs.items()}
        except NumberAsArgument:
            return call_with_numbers(self, target, args, kwargs)
        except tensor_subclass.ClassDecides:
            fn = getattr(torch.Tensor, target) if isinstance(target, str) else target
            return tensor_subclass.dispatch(self, self.wrap(fn, None, constant=True), args, kwargs)
        mark = len(self.builder.recorded_calls)
        try:
            result = call(target, values, keywords, line=self.line)
        except Unsupported as refusal:
            if isinstance(refusal, NeedsSymbols):
                self.learn(known_buffers.numbers_among(self, (*args, *kwargs.values())))
                read = input_numbers.with_numbers(self, target, list(args), kwargs)
                if read is not None:
                    with suppress(Unsupported, ObservedException):
                        return self.add_to_graph(call, target, *read)
            raise
        except Exception as error:
            if error is not self.builder.raised:
                raise
            self.builder.raised = None
            if self.builder.may_leave_product() and may_come_later(self):
                with self.builder.leaving_products():
                    return self.add_to_graph(call, target, args, kwargs)
            # eager raises it too: it is the traced program's exception
            raised = self.new_exception(type(error), *error.args)
            if isinstance(target, str) and runs_python(target):
                passed_unseen(self, raised)
            raise ObservedException(raised) from None
        if self.trace.forks_over:
            refuse_drawing(self, mark)
        refuse_uncatchable(self, mark)
        return self.graph_result(result)

    def run_on_fakes(self, fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        with self.builder.fake_mode:
            return fn(*args, **kwargs)

    def answer(self, fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        try:
            return fn(*args, **kwargs)
        except Exception as error:  # a question about state that fails for eager as well
            self.raise_exception(type(error), *error.args)

    # -- guards ----------------------------------------------------------------------------------------------------

    def guard(self, source: Any, check: Any, reason: str = "") -> None:
        if source is None and not hasattr(check, "snapshot"):
            return
        if source is not None and self.is_void(source, check):
            return
        self.trace.guard(source, check, self.line, reason)

    def is_void(self, source: Any, check: Any) -> bool:
        """True for the identity of what nobody replaces: the functions of core's own that stand for others."""
        return isinstance(check, Is) and self._is_trusted(source)

    def _is_trusted(self, source: Any) -> bool:
        root = source.root()
        return isinstance(root, ModuleSource) and root.module.startswith(policy.POLYFILLS)

    def guard_instance_keys(self, owner: VT) -> None:
        assert isinstance(owner, UserObjectVariable)
        self.guard(InstanceDictSource(owner.source), DictKeys(tuple(owner.value.__dict__)))

    def global_module_hooks(self) -> bool:
        module_file = torch.nn.modules.module
        found = False
        for name in torch_compat.GLOBAL_MODULE_HOOKS:
            hooks = getattr(module_file, name)
            source = DictItemSource(InstanceDictSource(ModuleSource(module_file.__name__)), name)
            self.guard(source, Length(len(hooks)))
            found = found or bool(hooks)
        return found

    # -- running ---------------------------------------------------------------------------------------------------

    def truth(self, tracker: VT) -> bool:
        return tracker.realize(self).truth(self)

    def call_function(self, fn: VT, args: Sequence[VT], kwargs: dict[str, VT] | None = None) -> VT:
        from .inline import call_function, is_run

        fn = fn.realize(self)
        try:
            return call_function(self, fn, [arg.realize(self) for arg in args], kwargs or {})
        except ObservedException as raised:
            if runs_python(fn) and not is_run(fn):
                self.passed_unseen(raised.value)
            raise

    def passed_unseen(self, error: VT) -> None:
        passed_unseen(self, error)

    def trace_into(self, fn: VT, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        """Run the function's own code, whatever handler or verdict there is for calls of it."""
        from .inline import run_function

        return run_function(self, fn, list(args), kwargs)

    def call_builtin(self, fn: Callable[..., Any], args: Sequence[VT]) -> VT:
        """Call a builtin function."""
        return BuiltinVariable(fn).call(self, args, {})

    def inline(self, function: Callable[..., Any], args: Sequence[VT], kwargs: dict[str, VT] | None = None) -> VT:
        return self.call_function(self.wrap(function, None, constant=True), args, kwargs)

    def binary(self, op: Callable[..., Any], left: VT, right: VT) -> VT:
        left, right = left.realize(self), right.realize(self)
        if op in (operator.is_, operator.is_not) and left is not right and (left.mutable or right.mutable):
            if left.source is not None and right.source is not None and left.kind == right.kind:
                self.guard(left.source, NotSameAs(right.source))
        return operators.binary(self, op, left, right)

    def unary(self, op: Callable[..., Any], operand: VT) -> VT:
        return operators.unary(self, op, operand.realize(self))

    def compare_equal(self, left: VT, right: VT) -> bool:
        left, right = left.realize(self), right.realize(self)
        return operators.is_one_value(left, right) or self.truth(self.binary(operator.eq, left, right))

    def raise_exception(self, cls: type[BaseException], *args: Any) -> NoReturn:
        raise ObservedException(self.new_exception(cls, *args))

    def new_exception(self, cls: type[BaseException], *args: Any) -> ExceptionVariable:
        """The exception that C code of Python's raises."""
        values = [arg if isinstance(arg, VariableTracker) else self.wrap(arg, None, constant=True) for arg in args]
        exception = ExceptionVariable(cls, values)
        exception.raised_by_python = True
        if self.trace.exceptions:
            exception.context = self.trace.exceptions[-1]
        return exception

    def stop_iteration_error(self, exception: VT) -> VT:
        """PEP 479: StopIteration leaving a generator's body is RuntimeError."""
        if not issubclass(exception.python_type(), StopIteration):
            return exception
        error = ExceptionVariable(RuntimeError, [self.constant("generator raised StopIteration")])
        error.cause = error.context = exception
        error.suppress_context = True
        return error

    def special_method(self, tracker: VT, name: str) -> VT | None:
        """The special method of any tracker, bound; None when its class has none."""
        return tracker.lookup_special(self, name)

    def mapping_keys(self, mapping: VT) -> list[VT]:
        """list(mapping.keys())."""
        return mapping.call_method(self, "keys", [], {}).unpack(self)

    def iterate_by_index(self, tracker: VT) -> VT:
        position = 0

        def produce(tx: Any) -> VT | None:
            nonlocal position
            try:
                item = tracker.get_item(tx, tx.constant(position))
            except ObservedException as raised:
                if issubclass(raised.value.python_type(), IndexError):
                    return None
                raise
            position += 1
            return item

        return self.new_iterator(produce, type(iter([])))

    def until_stop(self, next_method: VT | None) -> VT | None:
        if next_method is None:
            self.raise_exception(TypeError, "the object is not an iterator")
        try:
            return next_method.call(self, [], {})
        except ObservedException as raised:
            if issubclass(raised.value.python_type(), StopIteration):
                return None
            raise

    def send_to(self, receiver: VT, value: VT) -> tuple[str, VT]:
        """One step of `yield from`: ("yield", item) or ("return", result)."""
        from .generators import GeneratorVariable

        if isinstance(receiver, GeneratorVariable):
            return receiver.send(self, value)
        receiver = receiver.realize(self)
        starts = self.is_none(value.realize(self))
        if starts and not isinstance(receiver, UserObjectVariable):
            item = receiver.next_item(self)
            return ("yield", item) if item is not None else ("return", self.constant(None))
        method = self.special_method(receiver, "__next__") if starts else receiver.get_attr(self, "send")
        if method is None:
            self.raise_exception(TypeError, "the object is not an iterator")
        try:
            return "yield", self.call_function(method, [] if starts else [value])
        except ObservedException as raised:
            if not issubclass(raised.value.python_type(), StopIteration):
                raise
            return "return", raised.value.get_attr(self, "value")

    def unsupported(self, what: str, remedy: str) -> Unsupported:
        """A graph break at the current line."""
        return Unsupported(what, where=self.line, remedy=remedy)


def holds_tensor(tx: Any, value: VT) -> bool:
    """True for a tensor, and for a list or tuple with one in it."""
    value = value.realize(tx)
    return (
        value.kind == "tensor"
        or value.kind in ("list", "tuple")
        and any(holds_tensor(tx, item) for item in value.unpack(tx))
    )
