"""Lazy modules: parameters that get their shapes from the first input.

The first call changes the module's class, parameters and hooks, once and for good. That is done while tracing, for
real, at the point where the program does it; then the frame is traced again, with a module like any other. A graph of
the module before would never be used again.
"""

from __future__ import annotations

import copy
import types
from typing import Any

import torch
from torch.nn.modules.lazy import LazyModuleMixin

from .. import torch_compat
from ..errors import Unsupported
from ..graph.functionalize import is_random
from ..variables.base import VariableTracker
from ..variables.nn_module import ModuleVariable
from ..variables.object import UserObjectVariable
from ..variables.tensor import TensorVariable
from .breaks import TraceAgain
from .special_calls import function
from .tensor_hooks import is_written

VT = VariableTracker

OUTSIDE = "call the module once before compiling"


@function(LazyModuleMixin._infer_parameters)
def infer_parameters(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """The hook that initializes a lazy module before its first forward."""
    module = args[1]
    if not isinstance(module, ModuleVariable) or module.value is None or module.source is None:
        raise Unsupported("the first call of a lazy module made while tracing is not traced", remedy=OUTSIDE)
    if tx.side_effects.changed() or tx.side_effects.globals or tx.builder.in_region:
        raise Unsupported("the first call of a lazy module comes after side effects", remedy=OUTSIDE)
    if any(is_random(call) for call in tx.builder.recorded_calls):
        raise Unsupported("the first call of a lazy module comes after random numbers", remedy=OUTSIDE)
    arguments = RealArguments(tx)
    values = [arguments.value(arg) for arg in args[2:]]
    hook = type(module.value)._infer_parameters
    if arguments.without_values and not _is_of_torch(module.value):
        _refuse_to_need_values(hook, module.value, values)
    try:
        hook(module.value, module.value, *values)
    except Exception as error:  # the user's code: Python, which runs the call next, shows the user what it raises
        raise Unsupported(f"initializing a lazy module raised {type(error).__name__}", remedy=OUTSIDE) from error
    raise TraceAgain


def _is_of_torch(module: torch.nn.Module) -> bool:
    """True where initialization is known to ask for shapes only."""
    return type(module).initialize_parameters.__module__.startswith("torch.nn.")


def _refuse_to_need_values(hook: Any, module: torch.nn.Module, values: list[Any]) -> None:
    """Try the initialization on a copy: it must not keep or read what the input holds, for nobody knows that yet."""
    generator = torch.get_rng_state()
    trial = copy.deepcopy(module)
    try:
        hook(trial, trial, *values)
    except Exception as error:  # whatever it is, the input's values may be the cause
        raise Unsupported("a lazy module's initialization needs its input's values", remedy=OUTSIDE) from error
    finally:
        torch.set_rng_state(generator)
    held = [*trial.parameters(), *trial.buffers(), *vars(trial).values()]
    if any(isinstance(item, torch_compat.fake_tensor_class()) for item in held):
        raise Unsupported("a lazy module's initialization keeps what it computed from its input", remedy=OUTSIDE)


class RealArguments:
    """Real objects for trackers: of tensors that the graph computes only the metadata."""

    def __init__(self, tx: Any) -> None:
        self.tx = tx
        self.without_values = False

    def value(self, tracker: VT) -> Any:
        """The object. Raises Unsupported for what exists only in the traced code."""
        tracker = tracker.realize(self.tx)
        if isinstance(tracker, TensorVariable):
            return self._tensor(tracker)
        if tracker.is_constant():
            return tracker.as_constant()
        if tracker.kind in ("list", "tuple"):
            return self._sequence(tracker)
        if tracker.kind == "dict" and tracker.python_type() is dict:
            keys = tracker.unpack(self.tx)
            return {self.value(key): self.value(tracker.get_item(self.tx, key)) for key in keys}
        if isinstance(tracker, UserObjectVariable) and tracker.value is not None:
            return tracker.value
        raise Unsupported(f"a lazy module's first input holds {tracker.describe()}", remedy=OUTSIDE)

    def _tensor(self, tracker: TensorVariable) -> torch.Tensor:
        if tracker.real is not None and not is_written(self.tx.builder.recorded_calls, tracker.fake):
            return tracker.real
        self.without_values = True
        return tracker.fake

    def _sequence(self, tracker: VT) -> Any:
        items = [self.value(item) for item in tracker.unpack(self.tx)]
        kind: Any = tracker.python_type()
        if kind in (list, tuple, torch.Size):
            return kind(items)
        if isinstance(getattr(kind, "_make", None), types.MethodType):
            return kind._make(items)
        raise Unsupported(f"a lazy module's first input holds {tracker.describe()}", remedy=OUTSIDE)
