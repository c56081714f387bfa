"""Objects of C classes that traced code makes for itself: Python classes stand for them in the trace."""

from __future__ import annotations

import _thread
import functools
import threading
from typing import Any

from ..variables.base import VariableTracker
from .polyfills.kept_results import FreeLock, FreeOnce, KeptResults
from .special_calls import callable_object, function

VT = VariableTracker


def _stand_in(tx: Any, cls: type, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """An object of `cls` that can't leave the trace."""
    tx.trace.unreal.setdefault(id(cls), tx.trace.step)
    made: VT = tx.call_function(tx.wrap(cls, None, constant=True), args, kwargs)
    return made


@callable_object(functools._lru_cache_wrapper)
def keep_results(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """The wrapper of functools.lru_cache."""
    return _stand_in(tx, KeptResults, args, kwargs)


@function(threading.RLock)
@callable_object(_thread.RLock)
def make_lock(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """A lock that its holder may take again."""
    return _stand_in(tx, FreeLock, args, kwargs)


@callable_object(_thread.allocate_lock)
def make_plain_lock(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """threading.Lock()."""
    return _stand_in(tx, FreeOnce, args, kwargs)
