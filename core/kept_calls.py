"""What compiled callables live by: those of a function live as long as the function, those of a module with the module.

A program that calls `compile(f)(x)` again and again drops each callable at once; the next one finds the entries of the
one before. A function's attribute holds its callables, so that both go in one circle; a module's are held by a table of
weak references, and none of them leads back to the module. State shared between threads: `_of_modules`, under the GIL.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable
from typing import Any

ATTRIBUTE = "_core_kept_calls"

MOST = 8
"""Callables a function: a program that compiles it for ever new options keeps those of the latest."""


class KeptCalls:
    """The callables of one function, the latest last; a copy or a pickle of the function has none."""

    def __init__(self, owner: types.FunctionType) -> None:
        self._owner = weakref.ref(owner)
        self._calls: list[Any] = []

    def belongs_to(self, function: types.FunctionType) -> bool:
        """False for a wrapper that took over the attributes of what it wraps."""
        return self._owner() is function

    def add(self, call: Any) -> None:
        """Keep it; beyond the limit the one that was compiled longest ago goes."""
        if self._calls and self._calls[-1] is call:
            return
        others = [other for other in self._calls if other is not call]
        self._calls = [*others[1 - MOST :], call]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()


def keep(function: types.FunctionType, call: Any) -> None:
    """Have `call`, which is `function` compiled, live as long as `function` does."""
    held = function.__dict__.get(ATTRIBUTE)
    if type(held) is not KeptCalls or not held.belongs_to(function):
        held = function.__dict__[ATTRIBUTE] = KeptCalls(function)
    held.add(call)


_of_modules: dict[int, tuple[weakref.ref[Any], Any, types.FunctionType]] = {}


def function_of(module: Any, enter: Callable[..., Any], make: Callable[[], types.FunctionType]) -> types.FunctionType:
    """The function that stands for the call of a module by `enter`: what make() gave the first time."""
    key = id(module)
    found = _of_modules.get(key)
    if found is not None and found[0]() is module and found[1] is enter:
        return found[2]
    function = make()

    def forget(reference: weakref.ref[Any]) -> None:
        entry = _of_modules.get(key)
        if entry is not None and entry[0] is reference:
            del _of_modules[key]

    _of_modules[key] = weakref.ref(module, forget), enter, function
    return function
