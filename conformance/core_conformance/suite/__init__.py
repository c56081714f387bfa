"""The test classes of the suite: `from core_conformance.suite import *` in a test file runs them all."""

from __future__ import annotations

import importlib
import pkgutil

from .base import ConformanceTests

MODULES = tuple(sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name != "base"))
"""The files of the suite."""

__all__ = []
for _module in MODULES:
    for _name, _value in vars(importlib.import_module(f"{__name__}.{_module}")).items():
        if isinstance(_value, type) and issubclass(_value, ConformanceTests) and not _value.abstract:
            globals()[_name] = _value
            if _name not in __all__:
                __all__.append(_name)
