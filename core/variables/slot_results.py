"""What Python demands of the results of special methods: a bool for bool(), a number that fits for len(), and so on.

Enters: a builtin, the class of its argument and what the class's own method returned. Leaves: the builtin's result, or
the error that Python raises for it. The builtin itself is asked, on an object that returns the same, so that the answer
and its words are those of the running version.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import Unsupported
from .base import VariableTracker
from .container import as_index
from .literal import run

if TYPE_CHECKING:
    from .protocols import Tracer

VT = VariableTracker

RESULT: dict[str, type] = {"__bool__": bool, "__len__": int, "__hash__": int, "__index__": int, "__format__": str}
BUILTIN: dict[str, Callable[..., Any]] = {
    "__bool__": bool,
    "__len__": len,
    "__hash__": hash,
    "__index__": operator.index,
    "__format__": format,
}


def checked(tx: Tracer, method: str, cls: type, result: VT) -> VT:
    """What the builtin behind `method` makes of `result`, which an object of `cls` returned from it."""
    result = result.realize(tx)
    payload = getattr(result, "payload", None)  # of an object whose class extends int or str
    result = payload if payload is not None and payload.kind == "constant" else result
    wanted = RESULT[method]
    kind = result.python_type()
    if kind is wanted and not (result.kind == "constant" and wanted is int and method != "__index__"):
        return result
    if result.kind == "constant":
        value = result.as_constant()
    elif not issubclass(kind, wanted):
        value = object.__new__(type(kind.__name__, (), {}))  # the complaint names the type alone
    elif result.kind == "symbolic" or wanted is str:
        return result
    else:
        value = as_index(tx, result)
    answer = type(cls.__name__, (), {method: lambda *_: value})()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = run(tx, BUILTIN[method], [answer])
    if said:
        raise Unsupported(
            f"{method} returns a {kind.__name__}, of which Python warns", remedy=f"return {wanted.__name__}"
        )
    return tx.constant(found)
