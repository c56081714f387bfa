"""Trackers of torch's context managers whose effect tracing must know: grad mode, autocast, inference mode."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from .. import torch_compat
from ..errors import Unsupported
from ..guards.checks import Equals, Is
from ..guards.source import InstanceAttrSource, MethodPartSource
from . import function_mode
from .base import VariableTracker

if TYPE_CHECKING:
    from .protocols import Emitter, Tracer

VT = VariableTracker
DECORATED = ("function", "method", "partial", "builtin", "torch_function", "module", "user_object")


class TorchContextVariable(VariableTracker):
    """A context manager of torch. `make` are the class and constant arguments that build an equal one."""

    kind = "context"
    gives_itself: ClassVar[bool] = False
    """Whether `with ... as name` names the manager."""

    def __init__(self, cls: type, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None, source: Any = None):
        super().__init__(source)
        self.cls = cls
        self.args = args
        self.kwargs = kwargs or {}
        self.entered = 0  # by the traced code

    @property
    def grad_modes(self) -> tuple[bool, bool] | None:
        """While entered: the grad mode outside and inside; None for managers that leave it alone."""
        return None

    def python_type(self) -> type:
        return self.cls

    def truth(self, tx: Tracer) -> bool:
        return True

    def enter(self, tx: Tracer) -> None:
        """Take effect on what is traced from here on."""
        raise NotImplementedError

    def exit(self, tx: Tracer) -> None:
        """Undo `enter`."""
        raise NotImplementedError

    def get_attr(self, tx: Tracer, name: str) -> VT:
        if name in ("__enter__", "__exit__", "clone"):
            return ContextMethodVariable(self, name)
        if name == "__class__":
            return tx.wrap(self.cls, None, constant=True)
        raise self.refuse(f"reading attribute {name!r}")

    def lookup_special(self, tx: Tracer, name: str) -> VT | None:
        return ContextMethodVariable(self, name) if name in ("__enter__", "__exit__", "__call__") else None

    def call_method(self, tx: Tracer, name: str, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        if name == "__enter__":
            self.enter(tx)
            self.entered += 1
            return self if self.gives_itself else tx.constant(None)
        if name == "__exit__":
            self.exit(tx)
            self.entered -= 1
            return tx.constant(None)
        if name == "clone":
            return self.clone(tx)
        raise self.refuse(f"calling {name!r}")

    def clone(self, tx: Tracer) -> TorchContextVariable:
        """A manager of the same kind, as its own clone() makes it."""
        return type(self)(self.cls, self.args, self.kwargs)

    def call(self, tx: Tracer, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        """The manager as a decorator of a function."""
        given = [*args, *kwargs.values()]
        if len(given) != 1 or given[0].realize(tx).kind not in DECORATED:
            raise Unsupported(
                f"decorating this object with {self.cls.__name__} is not traced",
                remedy="decorate a function, or decorate it where it is defined",
            )
        decorator, takes_manager = torch_compat.context_decorator(self.cls)
        return tx.inline(decorator, [self if takes_manager else ContextMethodVariable(self, "clone"), given[0]])

    def reconstruct(self, emit: Emitter) -> None:
        emit.push_null()
        emit.load_global_object(self.cls)
        for value in (*self.args, *self.kwargs.values()):
            emit.load_const(value)
        emit.call_keywords(tuple(self.kwargs), len(self.args) + len(self.kwargs))


class ContextMethodVariable(VariableTracker):
    """`__enter__` or `__exit__` of a torch context manager, looked up on the manager."""

    kind = "method"

    def __init__(self, context: TorchContextVariable, name: str) -> None:
        super().__init__(None)
        self.context = context
        self.name = name

    def python_type(self) -> type:
        return types.MethodType

    def truth(self, tx: Tracer) -> bool:
        return True

    def call(self, tx: Tracer, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        return self.context.call_method(tx, self.name, args, kwargs)

    def get_attr(self, tx: Tracer, name: str) -> VT:
        if name == "__self__":
            return self.context
        if name in ("__name__", "__doc__", "__qualname__", "__module__"):
            return tx.constant(getattr(getattr(self.context.cls, self.name), name))
        inherited = self.inherited(tx, name)
        if inherited is None:
            tx.raise_exception(AttributeError, f"'method' object has no attribute '{name}'")
        return inherited

    def reconstruct(self, emit: Emitter) -> None:
        if self.name == "__exit__" and (self.context.entered > 0 or self.context.source is None):
            emit.load_entered_exit(self.context)
            return
        emit.load(self.context)
        emit.load_attr(self.name)


def set_grad(tx: Tracer, mode: bool) -> None:
    """Switch the grad mode, by the function that modes of the program's are asked about."""
    if function_mode.is_asked(tx):
        setter = tx.wrap(torch_compat.set_grad_enabled_function(), None, constant=True).realize(tx)
        function_mode.dispatch(tx, setter, [tx.constant(mode)], {})
    else:
        tx.builder.set_grad_enabled(mode, line=tx.line)


class GradModeVariable(TorchContextVariable):
    """no_grad, enable_grad, set_grad_enabled."""

    def __init__(self, cls: type, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None, source: Any = None):
        super().__init__(cls, args, kwargs, source)
        self.previous: list[bool] = []

    @property
    def grad_modes(self) -> tuple[bool, bool] | None:
        return (self.previous[-1], self.mode) if self.previous else None

    @property
    def mode(self) -> bool:
        """The grad mode inside."""
        if self.cls is torch.no_grad:
            return False
        if self.cls is torch.enable_grad:
            return True
        return bool(self.args[0] if self.args else self.kwargs["mode"])

    def enter(self, tx: Tracer) -> None:
        self.previous.append(torch.is_grad_enabled())
        set_grad(tx, self.mode)

    def exit(self, tx: Tracer) -> None:
        set_grad(tx, self.previous.pop())


class SetGradVariable(GradModeVariable):
    """torch.set_grad_enabled(mode): acts when called, and again as a context manager."""

    def __init__(self, cls: type, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None, source: Any = None):
        super().__init__(cls, args, kwargs, source)
        self.before: bool | None = None

    def act(self, tx: Tracer) -> None:
        """The effect of the call itself."""
        self.before = torch.is_grad_enabled()
        set_grad(tx, self.mode)

    def clone(self, tx: Tracer) -> TorchContextVariable:
        made = SetGradVariable(self.cls, self.args, self.kwargs)
        made.act(tx)
        return made

    def call(self, tx: Tracer, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        if self.before is not None:  # as a decorator it takes back what it did when it was made
            set_grad(tx, self.before)
        return super().call(tx, args, kwargs)

    def enter(self, tx: Tracer) -> None:
        self.previous.append(self.before if self.before is not None else torch.is_grad_enabled())
        set_grad(tx, self.mode)


class AutocastVariable(TorchContextVariable):
    """torch.autocast and its per-device forms."""

    gives_itself = True

    def __init__(self, cls: type, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None, source: Any = None):
        super().__init__(cls, args, kwargs, source)
        self.tokens: list[Any] = []
        self.real: Any = None  # a manager that was entered before the traced code

    def enter(self, tx: Tracer) -> None:
        manager = self.cls(*self.args, **self.kwargs)
        self.tokens.append(
            tx.builder.enter_autocast(
                manager.device, manager.fast_dtype, manager._enabled, manager._cache_enabled, line=tx.line
            )
        )

    def exit(self, tx: Tracer) -> None:
        if self.tokens:
            tx.builder.exit_autocast(self.tokens.pop(), line=tx.line)
        else:
            self._leave_real(tx)

    def _leave_real(self, tx: Tracer) -> None:
        """Leave a region that was entered before the graph: for the rest of the graph that is a region with the
        settings of before; the real manager leaves when the graph ran."""
        if self.real is None or not hasattr(self.real, "prev_fastdtype") or tx.side_effects.is_mutated(self):
            raise Unsupported(
                "leaving an autocast region that this manager has not entered is not traced",
                remedy="use torch.autocast in a with statement",
            )
        found = [getattr(self.real, name) for name in BEFORE]
        for name, value in zip(BEFORE, found):
            tx.guard(InstanceAttrSource(self.source, name), Equals(value))
        enabled, dtype, cached = found
        tx.builder.enter_autocast(self.real.device, dtype, enabled, cached, line=tx.line)
        tx.side_effects.mutated(self)

    def write_back(self, emit: Emitter) -> None:
        emit.leave_region(self)


BEFORE = ("prev", "prev_fastdtype", "prev_cache_enabled")  # what autocast found when it was entered, and puts back


class InferenceModeVariable(TorchContextVariable):
    """torch.inference_mode."""

    def __init__(self, cls: type, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None, source: Any = None):
        super().__init__(cls, args, kwargs, source)
        self.tokens: list[tuple[Any, bool, bool]] = []
        self.real: Any = None  # a manager that was entered before the traced code

    @property
    def mode(self) -> bool:
        """Whether inference mode is on inside."""
        return bool(self.args[0] if self.args else self.kwargs.get("mode", True))

    @property
    def grad_modes(self) -> tuple[bool, bool] | None:
        return (self.tokens[-1][1], torch.is_grad_enabled()) if self.tokens else None

    @property
    def outer_modes(self) -> tuple[bool, bool]:
        """Of an entered manager: whether inference mode and grad mode were on outside."""
        return self.tokens[-1][2], self.tokens[-1][1]

    def enter(self, tx: Tracer) -> None:
        before, outer = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        self.tokens.append((tx.builder.enter_inference_mode(self.mode, line=tx.line), before, outer))

    def exit(self, tx: Tracer) -> None:
        if self.tokens:
            tx.builder.exit_inference_mode(self.tokens.pop()[0], line=tx.line)
        else:
            self._leave_real(tx)

    def _leave_real(self, tx: Tracer) -> None:
        """Leave a region that was entered before the graph: for the rest of the graph that is a region in the mode of
        before; the real manager leaves when the graph ran. Torch keeps that mode out of sight, so only a manager that
        emitted code has entered, behind a graph break, knows it."""
        modes = None if self.real is None else self.real.__dict__.get(OUTER_MODES)
        if modes is None or tx.side_effects.is_mutated(self):
            raise Unsupported(
                "leaving inference mode that was entered before the graph is not traced",
                remedy="keep what breaks the graph out of the region",
            )
        tx.guard(InstanceAttrSource(self.source, OUTER_MODES), Equals(modes))
        tx.builder.enter_inference_mode(modes[0], line=tx.line)
        tx.builder.set_grad_enabled(modes[1], line=tx.line)
        tx.side_effects.mutated(self)

    def write_back(self, emit: Emitter) -> None:
        emit.leave_region(self)


OUTER_MODES = "core_outer_modes"
"""On a manager that emitted code has entered: whether inference mode and grad mode were on outside."""


class ProfileRangeVariable(TorchContextVariable):
    """torch.profiler.record_function: a graph has no ranges, its kernels show up by themselves."""

    gives_itself = True
    real: Any = None  # a manager that was entered before the traced code

    def enter(self, tx: Tracer) -> None:
        function_mode.refuse(tx, "a range of the profiler")

    def exit(self, tx: Tracer) -> None:
        function_mode.refuse(tx, "a range of the profiler")
        if self.real is not None and not self.entered:
            tx.side_effects.mutated(self)

    def write_back(self, emit: Emitter) -> None:
        emit.leave_region(self)


PROFILE_RANGE = torch.autograd.profiler.record_function
GRAD_MODES = (torch.no_grad, torch.enable_grad)
AUTOCASTS = (torch.autocast, torch.amp.autocast, torch.cuda.amp.autocast, torch.cpu.amp.autocast)


class FunctionsOffVariable(TorchContextVariable):
    """torch._C.DisableTorchFunctionSubclass: no tensor's class is asked about torch's functions; and
    DisableTorchFunction: no mode either."""

    def __init__(self, cls: type, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None, source: Any = None):
        super().__init__(cls, args, kwargs, source)
        self.modes: list[list[VT]] = []  # those that were on outside

    def enter(self, tx: Tracer) -> None:
        tx.trace.functions_off += 1
        if self.cls is ALL_OFF:
            self.modes.append(tx.trace.function_modes)
            tx.trace.function_modes = []

    def exit(self, tx: Tracer) -> None:
        if not tx.trace.functions_off:
            raise Unsupported(
                f"leaving a {self.cls.__name__} region that was entered before the graph is not traced",
                remedy="keep what breaks the graph out of the region",
            )
        tx.trace.functions_off -= 1
        if self.cls is ALL_OFF:
            tx.trace.function_modes = self.modes.pop()


class TorchContextClassVariable(VariableTracker):
    """The class of one of torch's context managers: calling it makes the manager."""

    kind = "class"

    def __init__(self, cls: type, source: Any = None) -> None:
        super().__init__(source)
        self.cls = cls

    def python_type(self) -> type:
        return type

    def as_python_object(self) -> Any:
        return self.cls

    def as_constant(self) -> Any:
        return self.cls

    def truth(self, tx: Tracer) -> bool:
        return True

    def call(self, tx: Tracer, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        if self.cls in GRAD_MODES and (args or kwargs):
            only = [*args, *kwargs.values()][0].realize(tx)
            if not (only.kind == "constant" and only.as_constant() is None):
                return GradModeVariable(self.cls).call(tx, args, kwargs)
            args, kwargs = (), {}
        values = tuple(_constant(tx, arg) for arg in args)
        keywords = {key: _constant(tx, value) for key, value in kwargs.items()}
        if self.cls is torch.set_grad_enabled:
            context = SetGradVariable(self.cls, values, keywords)
            context.act(tx)
            return context
        if self.cls is torch.inference_mode:
            if any(type(value) is not bool for value in (*values, *keywords.values())):
                raise Unsupported("inference_mode of this object is not traced", remedy="decorate where it is defined")
            return InferenceModeVariable(self.cls, values, keywords)
        if self.cls is PROFILE_RANGE:
            return ProfileRangeVariable(self.cls, values, keywords)
        if self.cls in (FUNCTIONS_OFF, ALL_OFF):
            return FunctionsOffVariable(self.cls, values, keywords)
        kind = GradModeVariable if self.cls in GRAD_MODES else AutocastVariable
        return kind(self.cls, values, keywords)

    def get_attr(self, tx: Tracer, name: str) -> VT:
        return tx.wrap(getattr(self.cls, name), None, constant=True)

    def reconstruct(self, emit: Emitter) -> None:
        emit.load_global_object(self.cls)


def _constant(tx: Tracer, value: VT) -> Any:
    """The argument of a manager; a truth of symbolic numbers is decided, and guarded, here."""
    value = value.look_inside(tx)
    if value.kind == "symbolic" and value.python_type() is bool:
        return tx.truth(value)
    return value.as_constant()


FUNCTIONS_OFF, ALL_OFF = torch._C.DisableTorchFunctionSubclass, torch._C.DisableTorchFunction
CONTEXT_CLASSES = frozenset(
    (*GRAD_MODES, torch.set_grad_enabled, torch.inference_mode, PROFILE_RANGE, FUNCTIONS_OFF, ALL_OFF, *AUTOCASTS)
)


def from_value(tx: Tracer, value: Any, source: Any) -> TorchContextVariable | None:
    """The tracker of a real context manager of torch, None when it is of another class; what it does is guarded."""

    def part(name: str) -> Any:
        found = getattr(value, name)
        if source is not None:
            tx.guard(InstanceAttrSource(source, name), Equals(found))
        return found

    cls = type(value)
    if cls in GRAD_MODES or cls is torch.set_grad_enabled:
        args = (part("mode"),) if cls is torch.set_grad_enabled else ()
        kind = SetGradVariable if cls is torch.set_grad_enabled else GradModeVariable
        found = kind(cls, args, source=source)
        found.previous.append(part("prev"))  # for an exit whose entry came before the traced code
        if isinstance(found, SetGradVariable):
            found.before = found.previous[-1]  # found when it was made, which came before the traced code too
        return found
    if cls is torch.inference_mode:
        entered = InferenceModeVariable(cls, (part("mode"),), source=source)
        entered.real = value if source is not None else None
        return entered
    if cls is PROFILE_RANGE:
        span = ProfileRangeVariable(cls, (part("name"), part("args")), source=source)
        span.real = value if source is not None else None
        return span
    if cls in AUTOCASTS:
        args = tuple(part(name) for name in ("device", "fast_dtype", "_enabled", "_cache_enabled"))
        region = AutocastVariable(torch.autocast, args, source=source)
        region.real = value if source is not None else None
        return region
    return None


def method_from_value(tx: Tracer, method: types.MethodType, source: Any) -> VT | None:
    """The tracker of a real manager's bound __enter__, __exit__ or clone, None for other methods."""
    name = method.__func__.__name__
    if type(method.__self__) not in CONTEXT_CLASSES or name not in ("__enter__", "__exit__", "clone"):
        return None
    if getattr(type(method.__self__), name, None) is not method.__func__:
        return None
    if source is not None:
        tx.guard(MethodPartSource(source, "func"), Is(method.__func__))
    manager = tx.wrap(method.__self__, MethodPartSource(source, "self") if source is not None else None)
    return ContextMethodVariable(manager, name) if isinstance(manager, TorchContextVariable) else None
