"""Higher-order operators that call a function as it is: their bodies are traced like any other call."""

from __future__ import annotations

from typing import Any

from ..variables.base import VariableTracker
from .control_flow import given, operator
from .polyfills.grad_mode import in_grad_mode

VT = VariableTracker


@operator("wrap")
def wrap(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """wrap(fn, *args, **kwargs)."""
    fn, *rest = args
    result: VT = tx.call_function(fn, rest, kwargs)
    return result


@operator("strict_mode")
def strict_mode(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """strict_mode(fn, operands)."""
    found = given(("callable", "operands"), args, kwargs, "strict_mode")
    result: VT = tx.call_function(found["callable"], found["operands"].realize(tx).unpack(tx), {})
    return result


@operator("hints_wrapper")
def hints_wrapper(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """hints_wrapper(fn, args, kwargs, hints): the hints are for backends that know them."""
    found = given(("body_func", "args", "kwargs", "hints"), args, kwargs, "hints_wrapper")
    keywords = {
        key.realize(tx).as_constant(): found["kwargs"].realize(tx).get_item(tx, key)
        for key in tx.mapping_keys(found["kwargs"].realize(tx))
    }
    result: VT = tx.call_function(found["body_func"], found["args"].realize(tx).unpack(tx), keywords)
    return result


@operator("wrap_with_set_grad_enabled")
def with_grad_mode(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """wrap_with_set_grad_enabled(enabled, fn, *args)."""
    enabled, fn, *rest = args
    result: VT = tx.inline(in_grad_mode, [enabled, fn, *rest], kwargs)
    return result
