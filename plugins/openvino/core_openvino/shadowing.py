"""The check that `core` in this process is the compiler and not a folder of the user's that has the same name."""

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

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"[{self.id}] {what}\n  instead: the backend openvino was not loaded\n  remedy: {remedy}")


def require_core() -> ModuleType:
    """The module core.plugin of the compiler. Raises CoreShadowed with the path that hides it."""
    try:
        plugin = importlib.import_module("core.plugin")
    except ModuleNotFoundError as error:
        if error.name not in ("core", "core.plugin"):
            raise
        raise _shadowed() from error
    if getattr(plugin, "PROJECT", None) != "core" or not hasattr(plugin, "PLUGIN_API"):
        raise _shadowed()
    # An editable installation finds core.plugin even below a package `core` of the user's.
    if os.path.dirname(plugin.__file__ or "") not in sys.modules["core"].__path__:
        raise _shadowed()
    return plugin


def _shadowed() -> CoreShadowed:
    spec = importlib.util.find_spec("core")
    if spec is None:
        return CoreShadowed("core_openvino needs the package `core`, which is not installed", "pip install core")
    place = spec.origin or ", ".join(spec.submodule_search_locations or ())
    return CoreShadowed(
        f"core_openvino needs the compiler `core`, but that name is taken by {place}, which sys.path has first",
        "rename that file or folder, or start Python from another directory or with -P",
    )
