"""core makes unmodified PyTorch programs faster. Names are loaded on first use: importing core imports no torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_EXPORTS = {
    "compile": "api",
    "optimize": "api",
    "disable": "api",
    "reset": "api",
    "explain": "api",
    "stats": "api",
    "is_compiling": "options",
    "list_backends": "api",
    "CompileOptions": "options",
    "CoreError": "errors",
    "Unsupported": "errors",
    "RecompileLimit": "errors",
    "InvalidOption": "errors",
    "BackendError": "errors",
    "BackendNotInstalled": "errors",
    "AmbiguousBackend": "errors",
    "BackendIncompatible": "errors",
    "BackendUnavailable": "errors",
    "BackendBroken": "errors",
    "BackendFailed": "errors",
    "BackendMisbehaved": "errors",
}

if TYPE_CHECKING:
    from .api import compile as compile
    from .api import disable as disable
    from .api import explain as explain
    from .api import list_backends as list_backends
    from .api import optimize as optimize
    from .api import reset as reset
    from .api import stats as stats
    from .errors import BackendError as BackendError
    from .errors import CoreError as CoreError
    from .errors import Unsupported as Unsupported
    from .options import CompileOptions as CompileOptions
    from .options import is_compiling as is_compiling


def __getattr__(name: str) -> Any:
    module = _EXPORTS.get(name)
    if module is None:
        raise AttributeError(f"module 'core' has no attribute {name!r}")
    value = getattr(import_module(f".{module}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_EXPORTS])
