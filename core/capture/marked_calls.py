"""Calls of functions that the program marked: a result to take as it is, a node of the graph, a function in its place.

Marks are core's own (core.marks) or those that functions of torch.compiler left on a function.
"""

from __future__ import annotations

import types
from functools import partial
from typing import Any

from ..bytecode.decode import returns_none
from ..errors import Unsupported
from ..graph.packed_call import PackedCall, Packing
from ..graph.refusals import no_place
from ..guards.checks import Is
from ..guards.source import AttrSource
from ..marks import FunctionMarks, function_marks
from ..torch_compat import peer
from ..variables.base import VariableTracker
from ..variables.builtin import BuiltinVariable
from ..variables.class_ import ClassVariable
from ..variables.function import UserFunctionVariable
from ..variables.object import UserObjectVariable
from ..variables.torch_function import TorchFunctionVariable
from .caught_errors import may_be_caught
from .policy import PEER_REGION

VT = VariableTracker

CONSTANT = "_dynamo_marked_constant"  # set by torch.compiler.assume_constant_result
_MARKED = (UserFunctionVariable, BuiltinVariable, TorchFunctionVariable, ClassVariable)


def call(tx: Any, fn: VT, args: list[VT], kwargs: dict[str, VT]) -> VT | None:
    """What a call of a marked function gives; None for a function without a mark."""
    if isinstance(fn, UserObjectVariable):
        return _call_object(tx, fn, args, kwargs)
    if not isinstance(fn, _MARKED):
        return None
    target = fn.fn if isinstance(fn, UserFunctionVariable) else fn.as_python_object()
    marks = function_marks(target) or _peer_marks(fn, target)
    if marks is None:
        return None
    if marks.replacement is not None:
        if marks.folds and all(value.is_constant() for value in (*args, *kwargs.values())):
            return _constant_result(tx, target, args, kwargs)
        replacement = tx.wrap(marks.replacement, None, constant=True)
        return tx.call_function(replacement, args, kwargs)
    if marks.constant_result:
        return _constant_result(tx, target, args, kwargs)
    if marks.in_graph:
        return _as_node(tx, target, args, kwargs)
    return None


def _call_object(tx: Any, fn: UserObjectVariable, args: list[VT], kwargs: dict[str, VT]) -> VT | None:
    """A call of a marked object of a class with __call__: a node, as the object itself is the function."""
    target = fn.value
    if target is None or fn.source is None:
        return None
    marks = function_marks(target)
    if not (peer.allows_in_graph(target) if marks is None else marks.in_graph):
        return None
    tx.guard(fn.source, Is(target))
    return _as_node(tx, target, args, kwargs)


def _as_node(tx: Any, fn: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """A call as it is, in the graph. Frozen dataclasses among the arguments are taken apart and put together there."""
    given = [value.realize(tx) for value in (*args, *kwargs.values())]
    packings = tuple(_packing(value) for value in given)
    if not any(packings) and hasattr(fn, "__name__"):  # by which a graph writes it down
        return _added(tx, fn, args, kwargs)
    parts = [
        value if how is None else tx.new_list([value.get_attr(tx, name) for name in how.names])
        for how, value in zip(packings, given)
    ]
    return _added(tx, PackedCall(fn, packings, tuple(kwargs)), parts, {})


def _added(tx: Any, fn: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """The result of a call that the graph makes, and none but the graph where that can be known beforehand."""
    # A graph of operators has no place for a call that gives nothing, a region's runs while capturing, and what raises
    # in a graph raises out of all of it.
    stays = tx.trace.in_order and not tx.builder.in_region and not may_be_caught(tx)
    if _gives_nothing(fn) and not any(_is_of_graph(tx, value) for value in (*args, *kwargs.values())):
        if not stays:
            raise no_place(fn.__name__, tx.line)
        call = tx.builder.call_for_effect
    else:
        call = partial(tx.builder.call_function, stays=stays)
    result: VT = tx.add_to_graph(call, fn, args, kwargs)
    return result


def _gives_nothing(fn: Any) -> bool:
    return isinstance(fn, types.FunctionType) and returns_none(fn.__code__)


def _is_of_graph(tx: Any, value: VT) -> bool:
    """False for what a fake run learns nothing from."""
    value = value.look_inside(tx)
    if value.kind in ("list", "tuple"):
        return any(_is_of_graph(tx, item) for item in value.unpack(tx))
    return not value.is_constant()


def _packing(value: VT) -> Packing | None:
    """How a frozen dataclass is put together; None for any other value. Being frozen, a copy is as good as it is."""
    if not isinstance(value, UserObjectVariable) or value.payload is not None:
        return None
    frozen = getattr(getattr(value.cls, "__dataclass_params__", None), "frozen", False)
    return Packing(value.cls, tuple(value.own_names())) if frozen and hasattr(value.cls, "__dict__") else None


def region_body(tx: Any, fn: VT) -> VT | None:
    """The function behind what torch.compiler.nested_compile_region returned, None for any other."""
    if not isinstance(fn, UserFunctionVariable) or PEER_REGION not in fn.fn.__dict__:
        return None
    source = AttrSource(fn.source, PEER_REGION) if fn.source is not None else None
    body: VT = tx.wrap(getattr(fn.fn, PEER_REGION), source, constant=source is None)
    return body


def _peer_marks(fn: VT, target: Any) -> FunctionMarks | None:
    if isinstance(fn, UserFunctionVariable) and target.__dict__.get(CONSTANT):
        return FunctionMarks(constant_result=True)
    if peer.allows_in_graph(target):
        return FunctionMarks(in_graph=True)
    substitute = peer.substitute_of(target)
    return FunctionMarks(replacement=substitute[0], folds=substitute[1]) if substitute is not None else None


def _constant_result(tx: Any, fn: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    values = [_known(tx, fn, value) for value in args]
    keywords = {key: _known(tx, fn, value) for key, value in kwargs.items()}
    result = tx.answer(fn, values, keywords)
    tx.trace.kept.append(result)
    wrapped: VT = tx.wrap(result, None, constant=True)
    return wrapped


def _known(tx: Any, fn: Any, value: VT) -> Any:
    """The real value of an argument: a constant, or an object from outside that the traced code left as it was."""
    value = value.look_inside(tx)
    if value.kind == "symbolic":
        value = value.specialize(tx)  # type: ignore[attr-defined]
    if value.is_constant():
        return value.as_constant()
    real = getattr(value, "value", None)
    if value.kind != "tensor" and value.source is not None and real is not None and tx.is_untouched(real):
        return real
    raise Unsupported(
        f"{getattr(fn, '__qualname__', fn)}() gives a constant by its mark, and gets {value.describe()}",
        remedy="pass it constants and objects that exist before the call",
    )
