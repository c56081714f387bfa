"""locals() of traced code: the variables of a function as a dict, or the namespace of a class body."""

from __future__ import annotations

from typing import Any

from ..bytecode.resume import is_resume_code
from ..variables.base import VariableTracker

VT = VariableTracker


def _one_dict() -> bool:
    return locals() is locals()


SHARED = _one_dict()
"""Whether a frame has one dict for all calls of locals(), as before 3.13; a call brings it up to date."""


def frame_locals(tx: Any) -> VT | None:
    """What locals() gives in the code that is traced; None where only the real frame can tell."""
    if tx.namespace is not None:
        return tx.namespace if isinstance(tx.namespace, VariableTracker) else None
    if is_resume_code(tx.code) or not tx.code.co_flags & 2:  # CO_NEWLOCALS
        return None
    names = tx.trace.frame_locals.get(id(tx)) if SHARED else None
    if names is None:
        names = tx.new_dict([])
        tx.trace.frame_locals[id(tx)] = names
    for name in dict.fromkeys((*tx.code.co_varnames, *tx.code.co_cellvars, *tx.code.co_freevars)):
        key = tx.constant(name)
        value = tx.cells[name].get(tx) if name in tx.cells else tx.locals.get(name)
        if value is not None:
            names.set_item(tx, key, value)
        elif names.contains(tx, key):
            names.del_item(tx, key)
    return names  # type: ignore[no-any-return]
