"""wrap: the tracker of a real object, with the guards that its kind needs."""

from __future__ import annotations

import collections
import contextvars
import functools
import inspect
import random
import sys
import threading
import types
import weakref
from typing import Any

import torch

from .. import _C, torch_compat
from ..errors import Unsupported
from ..graph.symbols import plain
from ..graph.wrapper_tensors import is_wrapper
from ..guards.checks import DictKeys, Equals, Is, Length, SameAs, TensorMatch, TypeIs
from ..guards.source import (
    AttrSource,
    CallSource,
    CellSource,
    ClosureSource,
    FunctionPartSource,
    LocalSource,
)
from ..guards.tensor_spec import TensorSpec
from ..variables import (
    array,
    array_class,
    context,
    deque,
    immutable,
    limits,
    lock,
    mapping,
    outside_iterator,
    random_generator,
    sequence,
    weak_reference,
)
from ..variables import constant as constants
from ..variables import range as ranges
from ..variables import set as sets
from ..variables.base import VariableTracker
from ..variables.builtin import GETTERS, BuiltinVariable, getter_from_value
from ..variables.class_ import ClassVariable, payload_base
from ..variables.classed_tensor import ClassedTensorVariable
from ..variables.compiled_function import CompiledFunctionVariable
from ..variables.constant import ConstantVariable
from ..variables.context import CONTEXT_CLASSES, TorchContextClassVariable
from ..variables.function import CodeVariable, MethodVariable, UserFunctionVariable
from ..variables.literal import is_literal
from ..variables.namespace import NamespaceVariable
from ..variables.nn_module import ModuleVariable
from ..variables.object import UserObjectVariable
from ..variables.partial import PartialVariable
from ..variables.process_group import GroupOfNameVariable, finds_groups
from ..variables.python_module import OpaqueVariable, PythonModuleVariable
from ..variables.random_generator import RandomGeneratorVariable
from ..variables.scripted import ScriptedFunctionVariable
from ..variables.tensor import TensorVariable
from ..variables.tensor_subclass import TensorAttributeVariable
from ..variables.thread_local import ThreadLocalVariable
from ..variables.torch_function import CustomOperatorVariable, TorchClassVariable, TorchFunctionVariable
from ..variables.type_expression import from_value as type_expression
from ..variables.type_expression import is_type_expression
from ..variables.typed_tensor import TYPED
from ..variables.untraced_tensor import is_own_parameter, reason_against, untraced
from ..variables.user_kernel import from_value as user_kernel
from ..variables.user_kernel import is_host_function, is_kernel
from . import context_variable, policy
from .cached_function import CachedFunctionVariable
from .dynamic import is_buffer_source
from .known_buffers import make_known

VT = VariableTracker

TORCH_CONSTANTS = (torch.dtype, torch.device, torch.layout, torch.memory_format)
TORCH_INFO = (torch.finfo, torch.iinfo, torch.Generator)


def wrap(tx: Any, value: Any, source: Any, constant: bool = False) -> VT:
    """The one tracker of a real object. `constant`: other guards already fix the object; none is made."""
    if constant:
        source = None
    if isinstance(value, VariableTracker):
        return value
    if is_literal(value):
        return _literal(tx, value, source)
    known = tx.trace.known.get(id(value))
    if known is not None:
        if id(value) in tx.trace.unreal:
            return known
        if source is not None and known.source is None:
            tx.guard(source, Is(value))  # met before by other means, such as a class attribute
        elif source is not None and source != known.source:
            tx.guard(source, SameAs(known.source))
        return known
    tracker = _build(tx, value, source)
    if constant or source is None:
        tracker.held = True  # type: ignore[attr-defined]
    return tx.trace.remember(value, tracker)


def constant(tx: Any, value: Any) -> VT:
    """The tracker of a value that the traced code made."""
    if is_literal(value):
        return ConstantVariable(value)
    if isinstance(value, types.CodeType):
        return CodeVariable(value)
    if type(value) in (tuple, frozenset, list, set, dict, slice):
        return wrap_container_value(tx, value)
    return wrap(tx, value, None, constant=True)


def wrap_container_value(tx: Any, value: Any) -> VT:
    """A container of constants, as a fresh object of the traced program."""
    if isinstance(value, tuple):
        return tx.new_tuple([constant(tx, item) for item in value], type(value))
    if isinstance(value, list):
        return tx.new_list([constant(tx, item) for item in value])
    if isinstance(value, (set, frozenset)):
        return tx.new_set([constant(tx, item) for item in value], type(value))
    if isinstance(value, slice):
        return tx.new_slice(constant(tx, value.start), constant(tx, value.stop), constant(tx, value.step))
    return tx.new_dict([(constant(tx, key), constant(tx, item)) for key, item in value.items()])


def _literal(tx: Any, value: Any, source: Any) -> VT:
    if source is not None and type(value) in (int, float):
        node = tx.trace.policy.symbolic_number(tx, value, source)
        if node is not None:
            return node
    check = constants.check_of(value)
    if source is None or value is None or tx.trace.is_unreal(source) or tx.is_void(source, check):
        return constants.from_value(tx, value, source)
    return tx.trace.unread_literal(value, source, check, tx.line)


def cell_contents(tx: Any, cell: Any, source: Any) -> VT:
    """The lazy tracker of what a real cell holds. Raises ValueError when it is empty."""
    contents = cell.cell_contents
    if source is None:
        return tx.lazy(contents, None)
    return tx.lazy(contents, source if isinstance(source, ClosureSource) else CellSource(source))


def _build(tx: Any, value: Any, source: Any) -> VT:
    if isinstance(value, torch.Tensor):
        return tensor(tx, value, source)
    cls = type(value)
    builder = BY_TYPE.get(cls)
    if builder is not None:
        return builder(tx, value, source)
    if random_generator.is_of_numpy(value):
        return _random_generator(tx, value, source)
    if random_generator.is_numpy_function(value):
        tx.guard(source, Is(value))
        return random_generator.GeneratorFunctionVariable(value, source)
    if "numpy" in sys.modules and array.is_of_numpy(value):
        return array.from_value(tx, value, source)
    if cls in CONTEXT_CLASSES:
        found = context.from_value(tx, value, source)
        if found is not None:
            tx.guard(source, TypeIs(cls))
            return found
    if is_type_expression(value):
        return type_expression(tx, value, source)
    if isinstance(value, type):
        return _class(tx, value, source)
    if isinstance(value, types.ModuleType):
        tx.guard(source, Is(value))
        return PythonModuleVariable(value, source)
    if isinstance(value, tuple) and (sequence.is_namedtuple(cls) or cls is torch.Size or _is_struct(cls)):
        return sequence.from_value(tx, value, source)
    if isinstance(value, types.BuiltinMethodType) and isinstance(value.__self__, torch.Tensor):
        return _builtin_function(tx, value, source)
    if policy.is_torch_callable(value):
        tx.guard(source, Is(value))
        return TorchFunctionVariable(value, source)
    if is_kernel(value) or is_host_function(value):
        return user_kernel(tx, value, source)
    if isinstance(value, types.BuiltinFunctionType):
        return _builtin_function(tx, value, source)
    return _object(tx, value, source)


def _is_struct(cls: type) -> bool:
    return hasattr(cls, "n_sequence_fields")


# -- tensors -------------------------------------------------------------------------------------------------------


def tensor(tx: Any, value: torch.Tensor, source: Any) -> VT:
    """An input of the graph, its metadata guarded; the entry itself passes parameters of a guarded module."""
    refusal = reason_against(value)
    if refusal is not None:
        return untraced(tx, value, refusal, source)
    if is_wrapper(value):
        from .wrapper_inputs import wrapper_input

        return wrapper_input(tx, value, source)
    lifted = source is None or tx.trace.policy.is_lifted(value, source)
    free = tx.trace.policy.dynamic_dims(value, source) if source is not None and not lifted else {}
    result = tx.builder.add_tensor_input(
        value, source, dynamic_dims=free, lifted=lifted, is_buffer=is_buffer_source(source)
    )
    if free and tx.trace.policy.relations is not None:
        tx.trace.policy.relations.tensor(tx.builder.shape_env, value, result.fake)
    if source is not None:
        moving = (
            [dim for dim, stride in enumerate(result.fake.stride()) if type(plain(stride)) is not int] if free else ()
        )
        spec = TensorSpec.of(value, free_sizes=frozenset(free), free_strides=moving)
        tx.guard(source, TensorMatch(spec))
        if lifted:
            tx.guard(source, Is(value))
    kind = ClassedTensorVariable if is_own_parameter(value) else TensorVariable
    tracker = kind(result, type(value), source, value)
    tracker.known = make_known(tx, value, result.fake, source)
    tx.trace.remember(result, tracker)
    return tracker


# -- callables and classes -----------------------------------------------------------------------------------------


def _function(tx: Any, value: types.FunctionType, source: Any) -> VT:
    if value.__module__ == "numpy":
        return array.from_value(tx, value, source)
    result = UserFunctionVariable(value, source)
    if source is None or not _is_made_again(value, source):
        tx.guard(source, Is(value))
        return result
    result.mutable = True  # type: ignore[misc]  # as lists are: another object may come in its place
    tx.guard(source, TypeIs(types.FunctionType))
    tx.guard(FunctionPartSource(source, "code"), Is(value.__code__))
    tx.guard(AttrSource(source, "__globals__"), Is(value.__globals__))
    for part, defaults in (("defaults", value.__defaults__), ("kwdefaults", value.__kwdefaults__)):
        place = FunctionPartSource(source, part)
        if defaults is None:
            tx.guard(place, Is(None))
        else:
            tx.guard(place, DictKeys(tuple(defaults)) if isinstance(defaults, dict) else Length(len(defaults)))
    return result


def _is_made_again(function: types.FunctionType, source: Any) -> bool:
    """True for a function that each call of the program may make anew: what it consists of is guarded, not which it
    is."""
    nested = "<locals>" in function.__qualname__ or function.__name__ == "<lambda>"
    return nested and isinstance(source.root(), (LocalSource, ClosureSource))


def _builtin_function(tx: Any, value: Any, source: Any) -> VT:
    receiver = getattr(value, "__self__", None)
    free = receiver is None or isinstance(receiver, types.ModuleType)
    if type(receiver) is random.Random or random_generator.is_of_numpy(receiver):
        return _of_generator(tx, value, source)
    if free or getattr(type(receiver), value.__name__, None) is None:  # else its record of a C++ function, no object
        tx.guard(source, Is(value))
        return GroupOfNameVariable(value, source) if finds_groups(value) else BuiltinVariable(value, source)
    if isinstance(receiver, type):
        owner = wrap(tx, receiver, None, constant=True)
        return owner.get_attr(tx, value.__name__)
    if value.__name__ in getattr(receiver, "__dict__", ()):
        tx.guard(source, TypeIs(type(value)))
        what = f"{type(receiver).__qualname__}.{value.__name__}(), whose name has another value on its object,"
        return OpaqueVariable(value, f"{what} is not traced", "call it outside the compiled function", source)
    if source is None:
        return wrap(tx, receiver, None).get_attr(tx, value.__name__)
    tx.guard(source, TypeIs(type(value)))
    tx.guard(AttrSource(source, "__name__"), Equals(value.__name__))
    return wrap(tx, receiver, AttrSource(source, "__self__")).get_attr(tx, value.__name__)


def _random_generator(tx: Any, value: Any, source: Any) -> VT:
    tx.guard(source, TypeIs(type(value)))
    return RandomGeneratorVariable(value, source)


def _of_generator(tx: Any, value: Any, source: Any) -> VT:
    """A method of a generator of random numbers, such as the functions of the modules random and numpy.random."""
    generator = value.__self__
    if value.__name__ in getattr(generator, "__dict__", ()):  # asking the generator by name would give another
        return _opaque(tx, value, source)
    if source is None or tx.is_void(source, Is(value)):
        return wrap(tx, generator, None, constant=True).get_attr(tx, value.__name__)
    tx.guard(source, TypeIs(type(value)))
    tx.guard(AttrSource(source, "__name__"), Equals(value.__name__))
    return wrap(tx, generator, AttrSource(source, "__self__")).get_attr(tx, value.__name__)


def _custom_operator(tx: Any, value: Any, source: Any) -> VT:
    tx.guard(source, Is(value))
    return CustomOperatorVariable(value, torch_compat.operator_of(value), source)


def _compiled(tx: Any, value: _C.CompiledCallable, source: Any) -> VT:
    """A compiled function is traced through where its backend is the one of this capture."""
    tx.guard(source, Is(value))
    theirs = getattr(value.callback, "options", None)
    if theirs is None or theirs.backend != tx.trace.options.backend:
        return OpaqueVariable(
            value,
            f"{value.fn.__qualname__}(), compiled for another backend, runs by itself",
            "compile both for one backend to have one graph",
            source,
        )
    return CompiledFunctionVariable(value)


def _scripted(tx: Any, value: torch.jit.ScriptFunction, source: Any) -> VT:
    tx.guard(source, Is(value))
    return ScriptedFunctionVariable(value, source)


def _cached(tx: Any, value: Any, source: Any) -> VT:
    tx.guard(source, Is(value))
    return CachedFunctionVariable(value, source)


def _code(tx: Any, value: types.CodeType, source: Any) -> VT:
    tx.guard(source, Is(value))
    return CodeVariable(value, source)


def _method(tx: Any, value: types.MethodType, source: Any) -> VT:
    if type(value.__self__) is random.Random or random_generator.is_of_numpy(value.__self__):  # random.uniform
        return _of_generator(tx, value, source)
    if type(value.__self__).__module__.startswith("numpy."):
        return array.from_value(tx, value, source)  # np.random.rand
    tx.guard(source, TypeIs(types.MethodType))
    return context.method_from_value(tx, value, source) or MethodVariable.from_value(tx, value, source)


def _class(tx: Any, value: type, source: Any) -> VT:
    tx.guard(source, Is(value))
    if value in CONTEXT_CLASSES:
        return TorchContextClassVariable(value, source)
    module = value.__module__ or ""
    if BuiltinVariable.handles(value):
        return BuiltinVariable(value, source)
    if module.partition(".")[0] == "numpy" and array_class.makes_known(value):
        return array_class.ArrayClassVariable(value, source)
    if (
        issubclass(value, torch.Tensor)
        or type(value) is TYPED
        or module == "torch"
        and value in (*TORCH_CONSTANTS, *TORCH_INFO[:2], torch.Size)
    ):
        return TorchClassVariable(value, source)
    return ClassVariable(value, source)


def _slot(tx: Any, value: Any, source: Any) -> VT:
    """A C method of a class: `dict.__setitem__`, `str.join`."""
    tx.guard(source, Is(value))
    if policy.is_torch_callable(value):
        return TorchFunctionVariable(value, source)
    return wrap(tx, value.__objclass__, None, constant=True).get_attr(tx, value.__name__)


def _opaque(tx: Any, value: Any, source: Any) -> VT:
    tx.guard(source, TypeIs(type(value)))  # the traced code only passes it on
    name = type(value).__name__
    return OpaqueVariable(value, f"an object of class {name} is not traced", "use it outside the function", source)


def _getset(tx: Any, value: Any, source: Any) -> VT:
    """An attribute that C code computes: `torch.Tensor.shape`."""
    if getattr(torch.Tensor, value.__name__, None) is not value:
        return _opaque(tx, value, source)
    tx.guard(source, Is(value))
    return TensorAttributeVariable(value, source)


def _signature(tx: Any, value: Any, source: Any) -> VT:
    """A signature never changes; defaults that it holds may."""
    tx.guard(source, Is(value))
    return UserObjectVariable(type(value), value, source)


def _property(tx: Any, value: Any, source: Any) -> VT:
    tx.guard(source, Is(value))
    return UserObjectVariable(type(value), value, source)


# -- objects -------------------------------------------------------------------------------------------------------


def _object(tx: Any, value: Any, source: Any) -> VT:
    cls = type(value)
    if isinstance(value, types.SimpleNamespace):
        tx.guard(source, TypeIs(cls))
        return NamespaceVariable(cls, value, source)
    if type(cls).__name__ == "pybind11_type" and value in getattr(cls, "__members__", {}).values():
        tx.guard(source, Is(value))
        return ConstantVariable(value, source)
    opaque = policy.is_stdlib(cls.__module__ or "") and not _has_python_methods(cls) and cls is not threading.local
    if opaque or type(cls).__name__ == "pybind11_type":
        return _opaque(tx, value, source)
    if source is not None:
        tx.guard(source, TypeIs(cls))
    if isinstance(value, torch.nn.Module):
        return ModuleVariable(cls, value, source)
    if isinstance(value, threading.local):
        return ThreadLocalVariable(cls, value, source)
    return UserObjectVariable(cls, value, source, payload=_payload(tx, value, source))


def _has_python_methods(cls: type) -> bool:
    return any(isinstance(item, types.FunctionType) for base in cls.__mro__ for item in vars(base).values())


def _payload(tx: Any, value: Any, source: Any) -> VT | None:
    base = payload_base(type(value))
    if base is None:
        return None
    if issubclass(base, dict):
        return mapping.contents(tx, value, source, base)
    if base in (list, tuple):
        return sequence.contents(tx, value, source)
    if base in (set, frozenset, collections.deque):
        try:
            return (deque if base is collections.deque else sets).contents(tx, value, source)
        except Unsupported:
            return None  # its contents can't be guarded: the object may be passed around, not looked into
    if base in PLAIN:
        plain = PLAIN[base](value)
        if source is not None:
            tx.guard(CallSource(source, PLAIN[base]), Equals(plain))
        return ConstantVariable(plain)
    return None


PLAIN: dict[type, Any] = {int: int.__int__, float: float.__float__, str: str.__str__}
"""The literal that an object is whose class extends it, whatever methods of its own the class has."""


def _generator(tx: Any, value: Any, source: Any) -> VT:
    tx.guard(source, TypeIs(type(value)))
    return OpaqueVariable(
        value, "iterating a generator made outside is not traced", "pass a list, or make the generator inside", source
    )


BY_TYPE: dict[type, Any] = {
    **dict.fromkeys(GETTERS, getter_from_value),
    **dict.fromkeys(immutable.CLASSES, immutable.from_value),
    **dict.fromkeys(immutable.MOMENTS, immutable.moment_from_value),
    list: sequence.from_value,
    tuple: sequence.from_value,
    torch.Size: sequence.from_value,
    range: ranges.from_value,
    slice: ranges.from_value,
    random.Random: _random_generator,
    dict: mapping.from_value,
    collections.OrderedDict: mapping.from_value,
    collections.defaultdict: mapping.from_value,
    collections.Counter: mapping.from_value,
    types.MappingProxyType: mapping.from_value,
    set: sets.from_value,
    frozenset: sets.from_value,
    collections.deque: deque.from_value,
    **dict.fromkeys(outside_iterator.CLASSES, outside_iterator.from_value),
    types.FunctionType: _function,
    types.CodeType: _code,
    _C.CompiledCallable: _compiled,
    torch_compat.CustomOperator: _custom_operator,
    contextvars.ContextVar: context_variable.from_value,
    **dict.fromkeys(lock.CLASSES, lock.from_value),
    torch.finfo: limits.from_value,
    torch.iinfo: limits.from_value,
    functools._lru_cache_wrapper: _cached,
    torch.jit.ScriptFunction: _scripted,
    types.MethodType: _method,
    functools.partial: PartialVariable.from_value,
    inspect.Signature: _signature,
    property: _property,
    classmethod: _property,
    staticmethod: _property,
    types.MemberDescriptorType: _opaque,
    types.GetSetDescriptorType: _getset,
    types.WrapperDescriptorType: _slot,
    types.MethodDescriptorType: _slot,
    types.MethodWrapperType: _opaque,
    types.GeneratorType: _generator,
    weakref.ref: weak_reference.from_value,
}
