"""From a call to an entry: interpreting a frame's bytecode symbolically, its guards, and the code that replaces it.

Enters: a call that no entry takes. Leaves: an entry, or the decision to run the call as written. The driver is
convert_frame. This package must not know how a backend works. It is callable: `core.capture(fn, *args)` is a function
of the public interface, whose name it shares.
"""

from __future__ import annotations

import sys
import types
from typing import Any


class _CallablePackage(types.ModuleType):
    """The package as the public function of its name."""

    def __call__(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        return sys.modules[__name__.partition(".")[0]].capture_program(fn, *args, **kwargs)


sys.modules[__name__].__class__ = _CallablePackage
