"""torch._check and its kin: conditions that a program promises.

What the call knows is decided while capturing and guarded, as by an `if`. What only the data knows becomes an assertion
in the graph, and the graph may rely on it.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

import torch

from ..errors import Unsupported
from ..torch_compat import tracing
from ..variables.base import VariableTracker
from .polyfills.demand import demand, demand_saying
from .special_calls import function

VT = VariableTracker

ERRORS: dict[Any, type[Exception]] = {
    torch._check: RuntimeError,
    torch._check_index: IndexError,
    torch._check_value: ValueError,
    torch._check_type: TypeError,
    torch._check_not_implemented: NotImplementedError,
}


def promise(tx: Any, error: type[Exception], condition: VT, message: VT | None) -> VT:
    """Raise `error` unless the condition holds; what it says comes from calling `message`."""
    condition = condition.realize(tx)
    if condition.python_type() is not bool:
        what = "a Tensor" if condition.kind == "tensor" else repr(condition.python_type())
        tx.raise_exception(TypeError, f"cond must be a bool, but got {what}")
    if condition.kind == "symbolic" and tracing.depends_on_data(condition.symbol):  # type: ignore[attr-defined]
        if error is not RuntimeError:
            raise Unsupported(
                f"a check of data that raises {error.__name__} is not traced",
                remedy="use torch._check, which raises RuntimeError, or check outside the compiled function",
            )
        text = _text(tx, message)
        words = text.as_constant() if text.is_constant() else _silent_failure()  # a number of the data stands in it
        torch._check(condition.symbol)  # type: ignore[attr-defined]  # the sizes of what follows rely on it
        tx.graph_call(torch.ops.aten._assert_scalar.default, [condition, tx.constant(words)], {})
        return tx.constant(None)
    if condition.kind == "tensor_truth":
        raised = tx.wrap(error, None, constant=True)
        if message is None or _is_none(message.realize(tx)):
            return tx.inline(demand, [condition, raised, tx.constant(_silent_failure())])
        return tx.inline(demand_saying, [condition, raised, message])
    if not tx.truth(condition):
        tx.raise_exception(error, _text(tx, message))
    return tx.constant(None)


def _text(tx: Any, message: VT | None) -> VT:
    """What the program says of the failure; where it says nothing, what torch says."""
    if message is None or _is_none(message.realize(tx)):
        return tx.constant(_silent_failure())
    said = tx.call_function(message, [])
    return tx.call_function(tx.wrap(str, None, constant=True), [said]).realize(tx)


def _is_none(value: VT) -> bool:
    return value.is_constant() and value.as_constant() is None


@functools.cache
def _silent_failure() -> str:
    """torch's words for a condition without a message."""
    try:
        torch._check(False)
    except RuntimeError as error:
        return str(error)
    return ""


def _check(error: type[Exception], tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    given = dict(zip(("cond", "message"), args, strict=False), **kwargs)
    return promise(tx, error, given["cond"], given.get("message"))


for _target, _error in ERRORS.items():
    function(_target)(functools.partial(_check, _error))


@function(torch._check_with)
def check_with(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """A check that names its error first."""
    given = dict(zip(("error_type", "cond", "message"), args, strict=False), **kwargs)
    error = given["error_type"].realize(tx)
    if not error.is_constant() or error.as_constant() not in ERRORS.values():
        raise Unsupported("torch._check_with of this error is not traced", remedy="use torch._check")
    return promise(tx, error.as_constant(), given["cond"], given.get("message"))


@function(torch._check_is_size)
def check_is_size(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """A number is no less than zero, and no more than `max`."""
    number, message = args[0], args[1] if len(args) > 1 else kwargs.get("message")
    promise(tx, RuntimeError, tx.binary(operator.ge, number, tx.constant(0)), message)
    most = kwargs.get("max")
    if most is not None and not _is_none(most.realize(tx)):
        promise(tx, RuntimeError, tx.binary(operator.le, number, most), message)
    return tx.constant(None)


def _check_all(error: type[Exception] | None, tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """Every element of a tensor is true."""
    given = dict(zip(("error_type", "cond", "message")[error is not None :], args, strict=False), **kwargs)
    condition = given["cond"].realize(tx)
    if condition.kind != "tensor":
        tx.raise_exception(TypeError, f"cond must be a tensor, but got {condition.python_type()!r}")
    if condition.fake.dtype is not torch.bool:
        tx.raise_exception(TypeError, f"cond tensor must have dtype torch.bool, but got {condition.fake.dtype}")
    whole = condition.call_method(tx, "all", [], {}).call_method(tx, "item", [], {})
    return promise(tx, error or given["error_type"].realize(tx).as_constant(), whole, given.get("message"))


function(torch._check_tensor_all)(functools.partial(_check_all, RuntimeError))
function(torch._check_tensor_all_with)(functools.partial(_check_all, None))
