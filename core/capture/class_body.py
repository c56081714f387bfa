"""Classes that the traced code defines: `class` statements, type(name, bases, namespace), enums.

Enters: the function of a class body, bases and keywords as trackers. Leaves: the tracker of a real class, made while
tracing and known only to the trace. In its dict stand real objects for what the body bound (`stand_ins`): looking up
an attribute is then Python's own affair, and whoever wraps what was found meets the tracker again. A method of such a
class is never run for real: its stand-in refuses. The class can't be given back to Python, so a program that lets it
out of the compiled function breaks the graph before the definition.
"""

from __future__ import annotations

import enum
import functools
import types
from collections.abc import Sequence
from typing import Any

import torch

from ..errors import Unsupported
from ..variables.base import ObservedException, VariableTracker
from ..variables.cell import CellVariable
from ..variables.class_ import ClassVariable
from ..variables.object import MISSING, find_on_type
from . import policy, stand_ins
from .inline import MAX_DEPTH, make_interpreter

VT = VariableTracker

REMEDY = "define the class outside the compiled function"
# What type.__new__ itself reads of the namespace.
READ_BY_TYPE = frozenset(
    ("__slots__", "__qualname__", "__module__", "__doc__", "__orig_bases__", "__abstractmethods__")
)
CLASS_METHODS = ("__init_subclass__", "__class_getitem__")


class MadeClassVariable(ClassVariable):
    """A class that exists only while tracing."""

    def set_attr(self, tx: Any, name: str, value: VT) -> None:
        setter, _ = find_on_type(type(self.cls), "__setattr__")
        if isinstance(setter, types.FunctionType):
            tx.call_function(tx.wrap(setter, None, constant=True), [self, tx.constant(name), value])
            return
        self.plain_set_attr(tx, name, value)

    def plain_set_attr(self, tx: Any, name: str, value: VT) -> None:
        descriptor, _ = find_on_type(type(self.cls), name)
        if isinstance(descriptor, property):
            if descriptor.fset is None:
                tx.raise_exception(
                    AttributeError, f"property {name!r} of {type(self.cls).__qualname__!r} object has no setter"
                )
            tx.call_function(tx.wrap(descriptor.fset, None, constant=True), [self, value])
            return
        tx.side_effects.mutated(self)
        _store(tx, self.cls, name, value)

    def del_attr(self, tx: Any, name: str) -> None:
        remover, _ = find_on_type(type(self.cls), "__delattr__")
        if isinstance(remover, types.FunctionType):
            tx.call_function(tx.wrap(remover, None, constant=True), [self, tx.constant(name)])
            return
        self.plain_del_attr(tx, name)

    def plain_del_attr(self, tx: Any, name: str) -> None:
        tx.side_effects.mutated(self)
        try:
            type.__delattr__(self.cls, name)
        except (AttributeError, TypeError) as error:
            tx.raise_exception(type(error), *error.args)

    def write_back(self, emit: Any) -> None:
        """Nothing: no such class is outside."""


def _store(tx: Any, cls: type, name: str, value: VT) -> None:
    try:
        type.__setattr__(cls, name, stand_ins.stand_in(tx, value, name))
    except (AttributeError, TypeError) as error:
        tx.raise_exception(type(error), *error.args)


def register(tx: Any, cls: type) -> VT:
    """The tracker of a class that was made for the traced code."""
    tracker = MadeClassVariable(cls)
    tx.trace.unreal[id(cls)] = tx.trace.step
    return tx.trace.remember(cls, tracker)


# -- the class statement -----------------------------------------------------------------------------------------------


def build_class(tx: Any, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
    """What `class name(*bases, **keywords): body` calls."""
    body, name, *given = (arg.realize(tx) for arg in args)
    keywords = dict(kwargs)
    bases = _resolved(tx, given)
    meta = keywords.pop("metaclass", None)
    meta = meta.realize(tx) if meta is not None else None
    if meta is None:
        meta = tx.wrap(type(_real(bases[0])) if bases else type, None, constant=True)
    if meta.kind in ("class", "builtin"):
        meta = tx.wrap(_winner(tx, _real(meta), bases), None, constant=True)
        if issubclass(_real(meta), enum.EnumMeta):
            return _enum_class(tx, meta, body, name, bases, keywords)
    base_tuple = tx.new_tuple(bases)
    namespace = _prepared(tx, meta, name, base_tuple, keywords)
    cell = run_body(tx, body, namespace)
    if len(bases) != len(given) or any(a is not b for a, b in zip(bases, given)):
        namespace.set_item(tx, tx.constant("__orig_bases__"), tx.new_tuple(given))
    made = tx.call_function(meta, [name, base_tuple, namespace], keywords)
    if isinstance(cell, CellVariable) and made.kind == "class" and cell.get(tx) is not made:
        _refuse_cell(tx, cell, name.as_constant(), _real(made))
    return made


def _refuse_cell(tx: Any, cell: CellVariable, name: str, made: type) -> None:
    found = cell.get(tx)
    if found is None:
        text = f"__class__ not set defining {name!r} as {made!r}. Was __classcell__ propagated to type.__new__?"
        tx.raise_exception(RuntimeError, text)
    tx.raise_exception(TypeError, f"__class__ set to {_real(found)!r} defining {name!r} as {made!r}")


def _real(tracker: VT) -> Any:
    give = getattr(tracker, "as_python_object", None)
    return give() if give is not None else tracker.as_constant()


def _resolved(tx: Any, given: list[VT]) -> list[VT]:
    """The bases, what is no class asked for its __mro_entries__."""
    bases: list[VT] = []
    for base in given:
        if issubclass(base.python_type(), type):
            bases.append(base)
            continue
        if base.kind == "type_expression":
            found = types.resolve_bases((_real(base), *(_real(other) for other in given if other is not base)))
            entries = found[: len(found) - len(given) + 1]
            bases += [tx.wrap(entry, None, constant=True) for entry in entries]
            continue
        try:
            entries = base.get_attr(tx, "__mro_entries__")
        except ObservedException as raised:
            if not issubclass(raised.value.python_type(), AttributeError):
                raise
            bases.append(base)
            continue
        answer = tx.call_function(entries, [tx.new_tuple(given)], {})
        if not issubclass(answer.python_type(), tuple):
            tx.raise_exception(TypeError, "__mro_entries__ must return a tuple")
        bases += [entry.realize(tx) for entry in answer.unpack(tx)]
    return bases


def _winner(tx: Any, meta: Any, bases: list[VT]) -> Any:
    """The most derived of the metaclasses."""
    for base in bases:
        other = base.python_type()
        if issubclass(meta, other):
            continue
        if not issubclass(other, meta):
            tx.raise_exception(
                TypeError,
                "metaclass conflict: the metaclass of a derived class must be a (non-strict) subclass of the "
                "metaclasses of all its bases",
            )
        meta = other
    return meta


def _prepared(tx: Any, meta: VT, name: VT, bases: VT, keywords: dict[str, VT]) -> VT:
    if meta.kind in ("class", "builtin") and issubclass(_real(meta), type):
        prepare, _ = find_on_type(_real(meta), "__prepare__")
        if prepare is type.__dict__["__prepare__"]:
            return tx.new_dict([])
        found = meta.get_attr(tx, "__prepare__")
    else:
        try:
            found = meta.get_attr(tx, "__prepare__")
        except ObservedException as raised:
            if not issubclass(raised.value.python_type(), AttributeError):
                raise
            return tx.new_dict([])
    namespace = tx.call_function(found, [name, bases], keywords)
    if tx.special_method(namespace, "__getitem__") is None:
        kind, given = _real(meta).__name__ if meta.kind == "class" else "<metaclass>", namespace.python_type().__name__
        tx.raise_exception(TypeError, f"{kind}.__prepare__() must return a mapping, not {given}")
    return namespace


def run_body(tx: Any, body: VT, namespace: Any) -> VT:
    """Run the code of a class body with `namespace` for its names; what it returns: the cell of __class__ or None."""
    if tx.trace.depth >= MAX_DEPTH:
        raise Unsupported("class bodies are nested too deep", remedy=REMEDY)
    child = make_interpreter(tx, body, {})  # type: ignore[arg-type]
    child.namespace = namespace
    tx.trace.depth += 1
    try:
        return child.run()
    finally:
        tx.trace.depth -= 1


# -- type.__new__ ------------------------------------------------------------------------------------------------------


def make_class(tx: Any, meta: type, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
    """type.__new__(meta, name, bases, namespace, **keywords)."""
    if len(args) != 3:
        tx.raise_exception(TypeError, f"type.__new__() takes exactly 3 arguments ({len(args)} given)")
    name, bases, namespace = (arg.realize(tx) for arg in args)
    for place, (value, wanted) in enumerate(((name, str), (bases, tuple), (namespace, dict))):
        if not issubclass(value.python_type(), wanted):
            given = value.python_type().__name__
            tx.raise_exception(TypeError, f"type.__new__() argument {place + 1} must be {wanted.__name__}, not {given}")
    base_list = [base.realize(tx) for base in bases.unpack(tx)]
    for base in base_list:
        if not issubclass(base.python_type(), type):
            entries = find_on_type(base.python_type(), "__mro_entries__")[0]
            text = "type() doesn't support MRO entry resolution; use types.new_class()"
            text = "bases must be types" if entries is MISSING else text
            tx.raise_exception(TypeError, text)
    real_bases = tuple(_real(base) for base in base_list)
    winner = _winner(tx, meta, base_list)
    if winner is not meta and find_on_type(winner, "__new__")[0] is not find_on_type(type, "__new__")[0]:
        owner = tx.wrap(winner, None, constant=True)
        return tx.call_function(owner.get_attr(tx, "__new__"), [owner, name, bases, namespace], kwargs)
    _refuse_bases(tx, winner, real_bases)
    payload = getattr(namespace, "payload", None) or namespace
    pairs = [(key.realize(tx).as_constant(), value.realize(tx)) for key, value in payload.pairs(tx)]
    cls, cell = _bare_class(tx, winner, name.as_constant(), real_bases, pairs)
    made = register(tx, cls)
    stored = [(key, value) for key, value in pairs if key not in ("__classcell__", "__qualname__")]
    for key, value in stored:
        if not _is_replaced(cls, key, value):
            _store(tx, cls, key, _as_type_keeps(tx, key, value))
    if cell is not None:
        cell.set(tx, made)
    for key, value in stored:
        setter, _ = find_on_type(value.python_type(), "__set_name__")
        if isinstance(setter, types.FunctionType):
            _set_name(tx, value, made, key, setter)
    _init_subclass(tx, made, kwargs)
    return made


def _refuse_bases(tx: Any, meta: type, bases: tuple[Any, ...]) -> None:
    if isinstance(find_on_type(meta, "mro")[0], types.FunctionType):
        raise Unsupported("a metaclass with an mro() of its own is not traced", remedy=REMEDY)
    for base in bases:
        for cls in base.__mro__:
            if cls.__module__.partition(".")[0] == "torch" and not issubclass(cls, torch.nn.Module):
                raise Unsupported(f"defining a subclass of {cls.__qualname__} is not traced", remedy=REMEDY)
            hook = cls.__dict__.get("__init_subclass__")
            if hook is not None and id(cls) not in tx.trace.unreal and not policy.is_stdlib(cls.__module__):
                raise Unsupported(
                    f"a subclass of {cls.__qualname__}, which has an __init_subclass__, is not traced",
                    remedy=REMEDY,
                )


def _bare_class(
    tx: Any, meta: type, name: str, bases: tuple[Any, ...], pairs: list[tuple[Any, VT]]
) -> tuple[type, CellVariable | None]:
    """The class with its names in place and nothing behind them yet, so that its making calls nobody."""
    cell = None
    names: dict[str, Any] = {}
    unknown: str | None = None
    for key, value in pairs:
        if key == "__classcell__":
            if not isinstance(value, CellVariable):
                kind = value.python_type()
                tx.raise_exception(TypeError, f"type.__new__() __classcell__ must be a nonlocal cell, not {kind!r}")
            cell = value
        elif key in READ_BY_TYPE and value.look_inside(tx).is_constant():
            names[key] = value.as_constant()
        elif key == "__slots__":
            names[key] = [item.realize(tx).as_constant() for item in value.iterate(tx).unpack(tx)]
        elif value.kind in ("constant", "function"):
            names[key] = stand_ins.stand_in(tx, value, key)
        else:
            names[key] = None
            unknown = unknown or key
    for base in bases:
        hook = getattr(base, "__init_subclass__", None)  # one of the standard library's, run for real
        if unknown is not None and isinstance(hook, types.MethodType) and not tx.is_unreal(_definer(base)):
            raise Unsupported(f"{base.__qualname__}.__init_subclass__ with {unknown!r} is not traced", remedy=REMEDY)
    names.setdefault("__module__", tx.globals_dict.get("__name__", "builtins"))
    try:
        return type.__new__(meta, name, bases, names), cell
    except (TypeError, ValueError) as error:
        tx.raise_exception(type(error), *error.args)


def _is_replaced(cls: type, name: str, value: VT) -> bool:
    """Whether an __init_subclass__ of the standard library has put another object in the place of a literal."""
    return value.kind == "constant" and cls.__dict__.get(name, value.as_constant()) is not value.as_constant()


def _definer(cls: type) -> type:
    """The class whose __init_subclass__ a subclass of `cls` runs."""
    return next(base for base in cls.__mro__ if "__init_subclass__" in base.__dict__)


def _as_type_keeps(tx: Any, key: str, value: VT) -> VT:
    """Some functions become static or class methods without being told so."""
    if value.kind != "function":
        return value
    stand_ins.stand_in(tx, value, key)  # which knows what to do when it is called as an __init_subclass__
    if key == "__new__":
        return stand_ins.descriptor(tx, staticmethod, [value])
    return stand_ins.descriptor(tx, classmethod, [value]) if key in CLASS_METHODS else value


@functools.cache
def _wraps_set_name_errors() -> bool:
    """True before 3.12: what a __set_name__ raises is the cause of a RuntimeError."""

    class Failing:
        def __set_name__(self, owner: type, name: str) -> None:
            raise KeyError

    try:
        type("Probe", (), {"name": Failing()})
    except RuntimeError:
        return True
    except KeyError:
        return False
    return False


def _set_name(tx: Any, value: VT, owner: VT, name: str, setter: Any) -> None:
    try:
        tx.special_method(value, "__set_name__").call(tx, [owner, tx.constant(name)], {})
    except ObservedException as raised:
        if not _wraps_set_name_errors():
            raise
        text = (
            f"Error calling __set_name__ on {value.python_type().__name__!r} instance {name!r} "
            f"in {_real(owner).__name__!r}"
        )
        error = tx.new_exception(RuntimeError, text)
        error.cause = error.context = raised.value
        error.suppress_context = True
        raise ObservedException(error) from None


def _init_subclass(tx: Any, made: VT, kwargs: dict[str, VT]) -> None:
    cls = _real(made)
    for base in cls.__mro__[1:]:
        hook = base.__dict__.get("__init_subclass__")
        if hook is None:
            continue
        if id(base) in tx.trace.unreal:
            function = hook.__func__ if isinstance(hook, classmethod) else hook
            tx.call_function(tx.wrap(function, None, constant=True), [made], kwargs)
        elif kwargs:
            if base is object:
                tx.raise_exception(TypeError, f"{cls.__name__}.__init_subclass__() takes no keyword arguments")
            raise Unsupported(f"keywords for __init_subclass__ of {base.__qualname__} are not traced", remedy=REMEDY)
        return


# -- enums -------------------------------------------------------------------------------------------------------------

RUN_BY_ENUM = (
    "__new__ __init__ _generate_next_value_ __set_name__ __init_subclass__ __prepare__ __call__ __hash__ __eq__ "
    "__setattr__ __getattribute__ __reduce_ex__ __reduce__ _missing_".split()
)

BRIDGED = ("__new__", "__init__", "_generate_next_value_")


def _enum_class(tx: Any, meta: VT, body: VT, name: VT, bases: list[VT], keywords: dict[str, VT]) -> VT:
    """The enum module makes the class for real, of constants and stand-ins."""
    real_meta, real_bases = _real(meta), tuple(_real(base) for base in bases)
    for cls in (real_meta, *real_bases):
        _refuse_code_run_by_enum(tx, cls)
    options = {key: value.look_inside(tx).as_constant() for key, value in keywords.items()}
    namespace = _EnumNamespace(_run_enum(tx, real_meta.__prepare__, name.as_constant(), real_bases, **options))
    cell = run_body(tx, body, namespace)
    namespace.real.pop("__classcell__", None)
    cls = _run_enum(tx, real_meta, name.as_constant(), real_bases, namespace.real, **options)
    made = tx.trace.known.get(id(cls)) or register(tx, cls)
    stand_ins.forget_tables(tx, cls)
    if isinstance(cell, CellVariable):
        cell.set(tx, made)
    return made


def _refuse_code_run_by_enum(tx: Any, cls: type) -> None:
    for base in cls.__mro__:
        found = [base.__dict__[name] for name in RUN_BY_ENUM if name in base.__dict__]
        if tx.is_unreal(base):  # what it has of its own is bridged
            continue
        own = [raw for raw in found if not policy.is_stdlib(getattr(raw, "__module__", None) or "builtins")]
        if own and not policy.is_stdlib(base.__module__):
            raise Unsupported(
                f"an enum that extends {base.__qualname__}, which has own code, is not traced", remedy=REMEDY
            )


def _runs_own_code(cls: type) -> bool:
    """Whether making members of a flag runs code of the program's."""
    found = [base.__dict__[name] for base in cls.__mro__ for name in RUN_BY_ENUM if name in base.__dict__]
    return not all(policy.is_stdlib(getattr(raw, "__module__", None) or "builtins") for raw in found)


def _run_enum(tx: Any, function: Any, *args: Any, **options: Any) -> Any:
    try:
        return function(*args, **options)
    except (TypeError, ValueError, AttributeError, KeyError, RuntimeError) as error:
        if error.__cause__ is not None:  # __set_name__ of the enum module wraps what went wrong
            raise Unsupported("an enum whose members can't be made is not traced", remedy=REMEDY) from error
        tx.raise_exception(type(error), *error.args)


def call_enum(tx: Any, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
    """cls(value), or cls(name, names, ...), which makes an enum of known names for real."""
    cls = _real(args[0])
    if len(args) == 2 and not kwargs and issubclass(cls, enum.Flag) and not _runs_own_code(cls):
        value = args[1].look_inside(tx)
        if value.is_constant():  # the enum module makes members of several flags as they are asked for, and keeps them
            return tx.constant(_run_enum(tx, enum.EnumMeta.__call__, cls, value.as_constant()))
    if len(args) < 3 and "names" not in kwargs:
        return tx.trace_into(tx.wrap(enum.EnumMeta.__call__, None, constant=True), list(args), kwargs)
    _refuse_code_run_by_enum(tx, cls)
    values = [arg.look_inside(tx).as_constant() for arg in args[1:]]
    keywords = {key: value.look_inside(tx).as_constant() for key, value in kwargs.items()}
    keywords.setdefault("module", tx.globals_dict.get("__name__"))
    made = register(tx, _run_enum(tx, enum.EnumMeta.__call__, cls, *values, **keywords))
    stand_ins.forget_tables(tx, _real(made))
    return made


class _EnumNamespace:
    """The names of an enum's body: the enum module's own dict of stand-ins."""

    def __init__(self, real: Any) -> None:
        self.real = real

    def set_item(self, tx: Any, key: VT, value: VT) -> None:
        name = key.as_constant()
        if name in BRIDGED and value.realize(tx).kind == "function":
            _run_enum(tx, self.real.__setitem__, name, stand_ins.bridge(tx, value.realize(tx), name))
            return
        if name in RUN_BY_ENUM:
            raise Unsupported(f"an enum with a {name} of its own is not traced", remedy=REMEDY)
        if name == "__classcell__":
            return
        stand_ins.refuse_unlike(tx, value)
        _run_enum(tx, self.real.__setitem__, name, stand_ins.stand_in(tx, value, name))

    def get_item(self, tx: Any, key: VT) -> VT:
        name = key.as_constant()
        if name not in self.real:
            tx.raise_exception(KeyError, name)
        return tx.wrap(self.real[name], None, constant=True)

    def contains(self, tx: Any, key: VT) -> bool:
        return key.as_constant() in self.real

    def del_item(self, tx: Any, key: VT) -> None:
        name = key.as_constant()
        if name not in self.real:
            tx.raise_exception(KeyError, name)
        del self.real[name]
