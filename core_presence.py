"""The check that `core` in this process is the compiler and not a folder of the user's that has the same name.

A module of its own beside the package, since the package is what another `core` hides. Plugins call `require_core`
before they import `core.plugin`. It imports no torch.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from types import ModuleType


class CoreShadowed(ImportError):
    """Another module named `core` stands before the compiler on the import path.

    It can't be one of core's own exceptions, for these are what the other module hides; id and text are as theirs.
    """

    id = "CORE-P002"

    def __init__(self, what: str, backend: str, remedy: str) -> None:
        super().__init__(f"[{self.id}] {what}\n  instead: the backend {backend} was not loaded\n  remedy: {remedy}")


def require_core(backend: str) -> ModuleType:
    """The module core.plugin of the compiler, for the plugin of `backend`. Raises CoreShadowed with what hides it."""
    try:
        plugin = importlib.import_module("core.plugin")
    except ModuleNotFoundError as error:
        if error.name not in ("core", "core.plugin"):
            raise
        raise _shadowed(backend) from error
    if getattr(plugin, "PROJECT", None) != "core" or not hasattr(plugin, "PLUGIN_API"):
        raise _shadowed(backend)
    # An editable installation finds core.plugin even below a package `core` of the user's.
    if os.path.dirname(plugin.__file__ or "") not in sys.modules["core"].__path__:
        raise _shadowed(backend)
    return plugin


def _shadowed(backend: str) -> CoreShadowed:
    who = f"core_{backend}"
    spec = importlib.util.find_spec("core")
    if spec is None:
        return CoreShadowed(f"{who} needs the package `core`, which is not installed", backend, "pip install core")
    place = spec.origin or ", ".join(spec.submodule_search_locations or ())
    return CoreShadowed(
        f"{who} needs the compiler `core`, but that name is taken by {place}, which sys.path has first",
        backend,
        "rename that file or folder, or start Python from another directory or with -P",
    )
