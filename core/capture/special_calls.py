"""Calls that need the interpreter itself or know more than tracing the callee would find: a table by callable."""

from __future__ import annotations

import builtins
import contextlib
import functools
import inspect
import logging
import os
import types
import typing
import warnings
import weakref
from collections.abc import Callable
from typing import Any, NoReturn

import torch

from .. import options, step, torch_compat
from ..errors import Unsupported
from ..graph.switches import switch
from ..guards.checks import Is, Predicate
from ..guards.source import ConstSource, InstanceAttrSource, LocalSource
from ..torch_compat import function_modes, newer
from ..variables import function_mode, tensor_subclass
from ..variables.answers import guard_answer
from ..variables.base import VariableTracker
from ..variables.block import BlockVariable
from ..variables.builtin import BuiltinVariable
from ..variables.context import CONTEXT_CLASSES
from ..variables.function import MethodVariable, UserFunctionVariable
from ..variables.object import UserObjectVariable
from ..variables.partial import PartialVariable
from ..variables.weak_reference import WeakReferenceVariable
from .breaks import NeedsFrame
from .frame_locals import frame_locals

VT = VariableTracker
Handler = Callable[[Any, list[VT], dict[str, VT]], VT]

FUNCTIONS: dict[types.FunctionType, Handler] = {}  # Python functions
OBJECTS: dict[Any, Handler] = {}  # classes and C functions
WRAPPERS: dict[types.CodeType, Callable[[Any, Any, list[VT], dict[str, VT]], VT]] = {}  # what decorators of torch make


def function(*targets: Any) -> Callable[[Handler], Handler]:
    """Register a handler for Python functions."""

    def add(handler: Handler) -> Handler:
        FUNCTIONS.update(dict.fromkeys(targets, handler))
        return handler

    return add


def callable_object(*targets: Any) -> Callable[[Handler], Handler]:
    """Register a handler for classes and C functions."""

    def add(handler: Handler) -> Handler:
        OBJECTS.update(dict.fromkeys(targets, handler))
        return handler

    return add


def lookup(fn: VT) -> Handler | None:
    """The handler of a tracker of a class or builtin."""
    target = fn.as_python_object()  # type: ignore[attr-defined]
    return OBJECTS.get(target)


def constant_source(value: Any) -> Any:
    """A source that always gives this object."""
    return ConstSource(value)


@function(options.is_compiling)
def is_compiling(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    return tx.constant(True)


@function(options.is_exporting)
def is_exporting(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    return tx.constant(False)


@function(step.cudagraph_mark_step_begin)
def mark_step(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """A step that begins inside begins when the graph has run."""
    tx.side_effects.defer(step.cudagraph_mark_step_begin, [], {})
    return tx.constant(None)


@function(torch.library.wrap_triton)
def wrap_kernel(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """A kernel as functions of torch.library.triton_op launch it; any launch is an operation of the graph."""
    return args[0]


@callable_object(super)
def make_super(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """super() finds the class in the caller's __class__ cell and the object in its first argument."""
    if len(args) >= 2:
        return tx.make_super(args[0], args[1])
    cell = tx.cells.get("__class__")
    if cell is None or not tx.code.co_argcount:
        tx.raise_exception(RuntimeError, "super(): no arguments")
    name = tx.code.co_varnames[0]
    receiver = tx.cells[name].get(tx) if name in tx.cells else tx.locals[name].realize(tx)
    return tx.make_super(cell.get(tx), receiver)


@callable_object(builtins.__build_class__)
def build_class(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """A class statement."""
    return tx.build_class(args, kwargs)


@callable_object(functools.partial)
def make_partial(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    fn, *rest = args
    return PartialVariable.make(tx, fn, rest, kwargs)


@callable_object(object)
def make_object(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    return UserObjectVariable(object)


@callable_object(builtins.input)
def run_python(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    raise Unsupported("this builtin is not traced", remedy="call it outside the compiled function")


def _frame_reader(fn: Any, own_arguments: int) -> None:
    """A builtin that looks at its caller's variables unless it has more than so many arguments."""

    @callable_object(fn)
    def read_frame(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
        if len(args) > own_arguments:
            return BuiltinVariable(fn).call(tx, args, kwargs)
        if fn in (locals, vars, dir) and not kwargs and (tx.parent is not None or tx.options.fullgraph):
            names = frame_locals(tx)
            if fn is not dir or names is None:
                return names or _refuse_frame(tx, fn)
            return BuiltinVariable(sorted).call(tx, [names], {})
        return _refuse_frame(tx, fn)


def _refuse_frame(tx: Any, fn: Any) -> NoReturn:
    kind = NeedsFrame if tx.parent is None else Unsupported
    raise kind(f"{fn.__name__}() looks at the real frame", remedy="call it outside the compiled function")


for _reader, _own in ((locals, 0), (vars, 0), (dir, 0), (exec, 1), (breakpoint, 9)):
    _frame_reader(_reader, _own)


@callable_object(weakref.ref)
def make_reference(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """weakref.ref(object) of an object that the program holds in any case."""
    target = args[0]
    held = isinstance(target.source, LocalSource) or target.source is not None and target.kind != "tensor"
    if len(args) != 1 or kwargs or not held or target.kind not in REFERABLE:
        raise Unsupported("making this weak reference is not traced", remedy="make it outside the compiled function")
    references = tx.trace.references
    if id(target) not in references:
        references[id(target)] = WeakReferenceVariable(target=target)
    return references[id(target)]


@callable_object(torch_compat.set_grad_enabled_function())
def set_grad_enabled(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """What torch's own managers of grad mode call, called by a manager of the user's."""
    if function_mode.is_asked(tx):
        setter = tx.wrap(torch_compat.set_grad_enabled_function(), None, constant=True).realize(tx)
        return function_mode.dispatch(tx, setter, args, kwargs)
    mode = args[0].realize(tx)
    if kwargs or not mode.is_constant():
        raise Unsupported("setting grad mode by this value is not traced", remedy="use torch.set_grad_enabled")
    tx.builder.set_grad_enabled(bool(mode.as_constant()), line=tx.line)
    return tx.constant(None)


@function(torch.set_default_dtype)
def set_default_dtype(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """From here on, in the graph and behind it."""
    function_mode.refuse(tx, "setting the default dtype")
    (wanted,) = (*args, *kwargs.values())
    dtype = wanted.realize(tx)
    if not dtype.is_constant() or type(dtype.as_constant()) is not torch.dtype:
        raise Unsupported("setting the default dtype by this value is not traced", remedy="pass a torch.dtype")
    if not dtype.as_constant().is_floating_point:
        raise Unsupported("this default dtype is refused by torch", remedy="pass a dtype of floating point numbers")
    switch(tx.builder, torch.set_default_dtype, dtype.as_constant(), torch.get_default_dtype(), tx.line)
    return tx.constant(None)


@callable_object(os.fspath)
def file_path(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """os.fspath(path): text is its own path, other objects are asked."""
    path = (args or [kwargs["path"]])[0].realize(tx)
    if issubclass(path.python_type(), (str, bytes)):
        return path
    method = path.lookup_special(tx, "__fspath__")
    if method is None:
        name = path.python_type().__name__
        tx.raise_exception(TypeError, f"expected str, bytes or os.PathLike object, not {name}")
    return tx.call_function(method, [])


@callable_object(torch_compat.profiler_enabled)
def profiler_enabled(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """Whether a profiler runs: no part of torch's state that each entry guards anyway."""
    found = torch_compat.profiler_enabled()
    tx.trace.guard(None, Predicate((), _profiler_is_on if found else _profiler_is_off), tx.line)
    return tx.constant(found)


def _profiler_is_on() -> bool:
    return bool(torch_compat.profiler_enabled())


def _profiler_is_off() -> bool:
    return not torch_compat.profiler_enabled()


@callable_object(warnings.catch_warnings)
def catch_warnings(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """warnings.catch_warnings(record=...) around code that does nothing with warnings."""
    record = kwargs.get("record", tx.constant(False)).realize(tx)
    if args or kwargs.keys() - {"record"} or not record.is_constant():
        raise Unsupported("these arguments of warnings.catch_warnings are not traced", remedy="use it outside")
    return CatchWarningsVariable(bool(record.as_constant()))


@function(warnings.simplefilter, warnings.filterwarnings, warnings.resetwarnings)
def set_filter(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """In a block that catches warnings, and ends in the traced code, a filter meets no warning."""
    known = [value.look_inside(tx) for value in (*args, *kwargs.values())]
    action = (args or [*kwargs.values()] or [tx.constant("default")])[0].realize(tx)
    if not tx.trace.catching_warnings or not all(value.is_constant() for value in known):
        raise Unsupported("setting a filter of warnings is not traced", remedy="set it outside the function")
    if action.as_constant() not in ("ignore", "always", "default", "module", "once"):
        raise Unsupported("a filter that makes warnings exceptions is not traced", remedy="set it outside")
    return tx.constant(None)


REFERABLE = ("tensor", "user_object", "module", "function")


@function(inspect.signature)
def signature(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """The signature of a function that exists outside the traced code; its identity is guarded."""
    target, bound = args[0], 0
    while isinstance(target, MethodVariable):
        target, bound = target.function, bound + 1
    if kwargs or not isinstance(target, UserFunctionVariable):
        raise Unsupported("inspect.signature of this object is not traced", remedy="take it outside the function")
    found = inspect.signature(target.fn)
    if bound:
        found = found.replace(parameters=list(found.parameters.values())[bound:])
    tx.trace.kept.append(found)
    return tx.wrap(found, ConstSource(found))


def _part_of_type(part: Callable[[Any], Any]) -> Handler:
    def handler(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
        if (
            not kwargs
            and len(args) == 1
            and args[0].realize(tx).kind in ("function", "method", "user_object", "tensor")
        ):
            return tx.wrap(part(None), None, constant=True)  # no type expression
        if kwargs or len(args) != 1 or not args[0].is_constant():
            raise Unsupported("looking into this type is not traced", remedy="do it outside the function")
        return tx.constant(part(args[0].as_constant()))  # type expressions never change

    return handler


@function(torch.Tensor.__torch_function__.__func__)  # type: ignore[attr-defined]
def default_torch_function(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """What subclasses of Tensor inherit, and call through super()."""
    return tensor_subclass.default(tx, args, kwargs)


@function(torch.overrides.handle_torch_function)
def handle_torch_function(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """A Python function of torch leaves a call to a mode, or to the classes of its arguments."""
    if tx.trace.function_modes:
        return function_mode.dispatch(tx, args[0].realize(tx), args[2:], kwargs)
    return tensor_subclass.dispatch(tx, args[0].realize(tx), args[2:], kwargs)


@callable_object(torch.device.__enter__, torch.device.__exit__)
def enter_or_leave_device(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """As exit stacks call them."""
    return tx.enter_device(args[0].realize(tx)) if len(args) == 1 else tx.leave_mode()


@function(function_modes.TorchFunctionMode.__init__)
def make_mode(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    return tx.constant(None)


@function(function_modes.TorchFunctionMode.__enter__)
def enter_mode(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """What modes of the program's inherit, and call through super()."""
    mode = args[0].realize(tx)
    if mode.kind != "user_object":
        raise mode.refuse("use as a mode")
    function_mode.enter(tx, mode)
    return mode


@function(function_modes.TorchFunctionMode.__exit__)
def leave_mode(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    return tx.leave_mode()


@function(function_modes.BaseTorchFunctionMode.__torch_function__)
def base_mode(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """A mode that changes nothing: func(*args, **kwargs)."""
    _, target, _, *rest = args
    words = rest[1].realize(tx) if len(rest) > 1 else kwargs.get("kwargs", tx.constant(None)).realize(tx)
    named = {} if words.is_constant() and words.as_constant() is None else dict(tensor_subclass.keywords(tx, words))
    return tx.call_function(target.realize(tx), rest[0].realize(tx).unpack(tx) if rest else [], named)


@callable_object(types.MethodType)
def bound_method(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """A method made by hand, as contextlib.ExitStack makes them."""
    if kwargs or len(args) != 2:
        tx.raise_exception(TypeError, f"method expected 2 arguments, got {len(args)}")
    function, receiver = args
    if not any("__call__" in base.__dict__ for base in function.python_type().__mro__):
        tx.raise_exception(TypeError, "first argument must be callable")
    if receiver.is_constant() and receiver.as_constant() is None:
        tx.raise_exception(TypeError, "instance must not be None")
    return MethodVariable(function, receiver)


@callable_object(typing.NewType.__call__)
def new_type(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """An object of a NewType is the value itself."""
    return args[0]


FUNCTIONS.update({part: _part_of_type(part) for part in (typing.get_origin, typing.get_args)})


@function(*newer.GRAPH_NOTES)
def annotate(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """Notes on the nodes of another tracer's graph."""
    return tx.inline(contextlib.nullcontext, [])  # type: ignore[no-any-return]


@function(contextlib.suppress.__init__)
def suppress(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    receiver, *exceptions = args
    receiver.set_attr(tx, "_exceptions", tx.new_tuple(exceptions))
    return tx.constant(None)


@function(torch.nn.Module.__setattr__)
def set_module_attribute(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """Module.__setattr__ for values that are no parameter, buffer or module: the plain store that it ends in."""
    module, name, value = args
    text = name.as_constant()
    value = value.realize(tx)
    kind = value.python_type()
    registered = any(
        registry is not None and registry.contains(tx, name)
        for registry in (module.own_attribute(tx, part) for part in ("_parameters", "_buffers", "_modules"))  # type: ignore[attr-defined]
    )
    if registered or issubclass(kind, (torch.nn.Module, torch.nn.Parameter, torch.nn.Buffer)):
        setter = tx.wrap(torch.nn.Module.__setattr__, None, constant=True)
        return tx.trace_into(setter, [module, name, value], {})
    module.plain_set_attr(tx, text, value)  # type: ignore[attr-defined]
    return tx.constant(None)


def call_graph_module(tx: Any, wrapper: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """GraphModule.__call__: what it wraps is Module.__call__, or that of a class that had its own."""
    module = args[0]
    own = getattr(getattr(type(getattr(module, "value", None)), "_wrapped_call", None), "cls_call", wrapper)
    if own is wrapper:
        raise Unsupported("a graph module made while tracing is not traced", remedy="make it outside the function")
    inner = torch.nn.Module.__call__ if own is None else own
    return tx.call_function(tx.wrap(inner, None, constant=True), args, kwargs)


_recompile = inspect.unwrap(torch.fx.GraphModule.recompile).__code__
WRAPPERS.update(
    (code, call_graph_module)
    for code in _recompile.co_consts
    if isinstance(code, types.CodeType) and code.co_name == "call_wrapped"
)


@function(torch.nn.RNNBase._weights_have_changed)
def recurrent_weights_have_changed(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """Whether a recurrent module's weights are still those that it keeps weak references to; each is guarded."""
    module = args[0]
    if (
        not isinstance(module, UserObjectVariable)
        or module.value is None
        or not module.written.keys().isdisjoint(_REFS)
    ):
        raise Unsupported("a recurrent module made while tracing is not traced", remedy="make it outside the function")
    names, references = (getattr(module.value, name) for name in _REFS)
    if module.source is not None:
        for name in _REFS:
            tx.guard(InstanceAttrSource(module.source, name), Is(getattr(module.value, name)))
    for name, reference in zip(names, references):
        weight = reference() if reference is not None else None
        if weight is not None and hasattr(module.value, name):
            if getattr(module.get_attr(tx, name), "real", None) is not weight:
                return tx.constant(True)
    return tx.constant(False)


_REFS = ("_flat_weights_names", "_flat_weight_refs")
LOGGER_METHODS = ("debug", "info", "warning", "warn", "error", "exception", "critical", "log")


class CatchWarningsVariable(BlockVariable):
    """A block in which warnings are caught. Nothing that traced code may do inside gives a warning."""

    kind = "catch_warnings"
    cls = warnings.catch_warnings

    def __init__(self, record: bool) -> None:
        super().__init__()
        self.record = record
        self.entered = False

    def call_method(self, tx: Any, name: str, args: Any, kwargs: dict[str, VT]) -> VT:
        if name not in ("__enter__", "__exit__"):
            raise self.refuse(f"calling {name!r}")
        self.entered = True
        tx.trace.catching_warnings += 1 if name == "__enter__" else -1
        return tx.new_list([]) if name == "__enter__" and self.record else tx.constant(None)

    def reconstruct(self, emit: Any) -> None:
        if self.entered:
            raise self.refuse("giving the object back to Python")
        emit.push_null()
        emit.load_global_object(warnings.catch_warnings)
        emit.load_const(self.record)
        emit.call_keywords(("record",), 1)


def _defer(fn: Any) -> Handler:
    def handler(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
        return defer_call(tx, fn, args, kwargs)

    return handler


def defer_call(tx: Any, fn: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """Say it when the graph has run; only for what is known already, as tensors may change until then."""
    for value in (*args, *kwargs.values()):
        outside = value.source is not None or getattr(value, "held", False)
        if not (value.is_constant() or outside and value.kind == "user_object"):
            raise Unsupported("logging a value that only a run can tell", remedy="log it outside the compiled function")
    tx.side_effects.defer(fn, args, kwargs)
    return tx.constant(None)


@function(torch.Tensor.__len__)
def tensor_length(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    tensor = args[0].realize(tx)
    if tensor.kind != "tensor":
        return tensor_protocol(tx, args, kwargs)
    return tensor.length(tx)


@function(torch.Tensor.__contains__, torch.Tensor.__iter__)
def tensor_protocol(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    raise Unsupported("calling a special method of a tensor by name is not traced", remedy="use the operator")


def _of_manager(name: str) -> Handler:
    """`__enter__` or `__exit__` as a function, which exit stacks call so."""

    def handler(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
        manager = args[0].realize(tx)
        if manager.kind != "context":
            raise manager.refuse(f"a call of {name}() of torch")
        return manager.call_method(tx, name, args[1:], kwargs)

    return handler


for _name in ("__enter__", "__exit__"):
    for _cls in CONTEXT_CLASSES:
        FUNCTIONS[getattr(_cls, _name)] = _of_manager(_name)


for _name in LOGGER_METHODS:
    FUNCTIONS[getattr(logging.Logger, _name)] = _defer(getattr(logging.Logger, _name))
    if hasattr(logging, _name):
        FUNCTIONS[getattr(logging, _name)] = _defer(getattr(logging, _name))


@callable_object(warnings.warn)
def warn(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """A warning is given when the graph has run, unless a filter makes it an exception."""
    if tx.trace.catching_warnings:
        raise Unsupported("a warning that the program catches is not traced", remedy="warn outside")
    category = _category(tx, args, kwargs)
    raises = _is_raised(category)
    guard_answer(tx, _is_raised, [category], raises)
    if raises:
        raise Unsupported("a warning that a filter turns into an exception is not traced", remedy="warn outside")
    return defer_call(tx, warnings.warn, args, kwargs)


def _category(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> type[Warning]:
    """The class of a warning: the one given, or that of a message which is a warning itself."""
    given = (args[1] if len(args) > 1 else kwargs.get("category") or tx.constant(None)).realize(tx)
    found = given.as_python_object() if given.kind in ("class", "builtin") else None
    if found is None and args:
        found = args[0].realize(tx).python_type()
    return found if isinstance(found, type) and issubclass(found, Warning) else UserWarning


def _is_raised(category: type[Warning]) -> bool:
    """Whether some filter raises warnings of this category, or of some class below or above it."""
    return any(
        action == "error" and (issubclass(category, kind) or issubclass(kind, category))
        for action, _, kind, *_ in warnings.filters
    )
