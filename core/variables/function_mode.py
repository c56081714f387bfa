"""Modes that take torch's functions over, entered by the traced code: objects with a __torch_function__, and devices.

Enters: a call of a function of torch under such a mode. Leaves: what the mode makes of it, its code traced as any other
of the program's, with the mode off the stack while it runs. What does not come by here while a mode of the program's is
on is refused: nothing may get past it.
"""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..errors import Unsupported
from ..torch_compat import function_modes
from .base import VariableTracker
from .tensor_subclass import GetterVariable, classes_asked, recorded

if TYPE_CHECKING:
    from .protocols import Emitter, Tracer

VT = VariableTracker

REMEDY = "do it outside of the region of the TorchFunctionMode"
PROPERTIES = (types.GetSetDescriptorType, property)


def enter(tx: Tracer, mode: VT) -> None:
    """The mode, or device, goes on top of the stack."""
    tx.trace.function_modes.append(mode)


def leave(tx: Tracer) -> None:
    """The mode on top goes, as torch pops whichever that is."""
    if not tx.trace.function_modes:
        raise Unsupported(
            "leaving a mode that was entered before the graph is not traced",
            remedy="keep what breaks the graph out of the region",
        )
    tx.trace.function_modes.pop()


def is_asked(tx: Tracer) -> bool:
    """Whether each function of torch is put to a mode of the program's."""
    return any(mode.kind != "constant" for mode in tx.trace.function_modes)


def parses_arguments(fn: Any) -> bool:
    """True for a function of torch that asks modes although no argument could take it over, such as `torch.ones`."""
    name = getattr(fn, "__name__", None)
    return fn is torch.device or isinstance(name, str) and fn is getattr(torch._C._VariableFunctions, name, None)


def default_device(tx: Tracer) -> VT | None:
    """The device that the traced code makes tensors on, None where it has entered none."""
    return next((mode for mode in reversed(tx.trace.function_modes) if mode.kind == "constant"), None)


def dispatch(tx: Tracer, fn: VT, args: Sequence[VT], kwargs: Mapping[str, VT]) -> VT:
    """fn(*args, **kwargs), put to the mode on top."""
    modes = tx.trace.function_modes
    mode = modes.pop()
    try:
        if mode.kind == "constant":
            return _on_device(tx, mode, fn, args, kwargs)
        result = _ask(tx, mode, fn, args, kwargs)
    finally:
        modes.append(mode)
    if result.kind == "constant" and result.as_constant() is NotImplemented:
        raise Unsupported("a mode that leaves a function to others is not traced", remedy=REMEDY)
    return result


def _on_device(tx: Tracer, device: VT, fn: VT, args: Sequence[VT], kwargs: Mapping[str, VT]) -> VT:
    words = dict(kwargs)
    given = words["device"].realize(tx) if "device" in words else None
    if given is None or given.is_constant() and given.as_constant() is None:
        if fn.as_python_object() in function_modes.device_constructors():  # type: ignore[attr-defined]
            words["device"] = device
    return tx.call_function(fn, list(args), words).realize(tx)


def _ask(tx: Tracer, mode: VT, fn: VT, args: Sequence[VT], kwargs: Mapping[str, VT]) -> VT:
    target = fn.as_python_object()  # type: ignore[attr-defined]
    in_python = isinstance(target, types.FunctionType)
    if target is torch.Tensor or in_python and target not in torch.overrides.get_testing_overrides():
        raise Unsupported(f"{fn.describe()} under a TorchFunctionMode is not traced", remedy=REMEDY)
    asked = classes_asked(tx, [value.realize(tx) for value in (*args, *kwargs.values())])
    classes = tx.new_tuple([tx.wrap(one.python_type(), None, constant=True) for one in asked])
    given = [fn, classes, tx.new_tuple(list(args))]
    if kwargs or in_python:  # C code hands none on where there are none
        given.append(tx.new_dict([(tx.constant(name), value) for name, value in kwargs.items()]))
    return tx.call_function(mode.get_attr(tx, "__torch_function__"), given, {}).realize(tx)


def method(tx: Tracer, tensor: VT, name: str, args: Sequence[VT], kwargs: Mapping[str, VT]) -> VT:
    """tensor.name(*args, **kwargs), put to the mode on top."""
    if not hasattr(torch.Tensor, name):
        raise Unsupported(f"Tensor.{name} under a TorchFunctionMode is not traced", remedy=REMEDY)
    fn = tx.wrap(recorded(name, len(args)), None, constant=True).realize(tx)
    return dispatch(tx, fn, [tensor, *args], kwargs)


def read(tx: Tracer, tensor: VT, name: str) -> VT | None:
    """tensor.name, put to the mode on top; None for what is no property."""
    if not isinstance(getattr(torch.Tensor, name, None), PROPERTIES):
        return None
    return dispatch(tx, GetterVariable(name), [tensor], {})


def refuse(tx: Tracer, what: str) -> None:
    """Raise Unsupported where a mode of the program's would be asked."""
    if is_asked(tx):
        raise Unsupported(f"{what} under a TorchFunctionMode is not traced", remedy=REMEDY)


def enter_for_real(emit: Emitter, modes: Sequence[VT]) -> None:
    """Emit what puts the real modes on torch's stack: what runs from here on is put to them."""
    for mode in modes:
        emit.push_null()
        if mode.kind == "constant":
            emit.load_global_object(torch.device.__enter__)
        else:
            emit.load_global_object(function_modes.push)
        emit.load(mode)
        emit.call(1)
        emit.pop_top()
