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
    "is_compiling": "api",
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

__all__ = [*_EXPORTS, "__version__"]  # noqa: PLE0604

if TYPE_CHECKING:
    from .api import compile, disable, explain, is_compiling, list_backends, optimize, reset, stats


def __getattr__(name: str) -> Any:
    module = _EXPORTS.get(name)
    if module is None:
        raise AttributeError(f"module 'core' has no attribute {name!r}")
    value = getattr(import_module(f".{module}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_EXPORTS])
