"""The stance of torch.compiler.set_stance, told to core whenever it changes. Checked with torch 2.11 and 2.13.

torch keeps the stance in a module that few programs load. While it is not loaded the stance is the default, and a
finder waits for it; the function that changes the stance is then wrapped, so that no call has to ask for it. State
shared between threads: the finder in sys.meta_path and the wrapped function, each put there once, under the GIL.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

_SETTER, _KEEPER = "torch._dynamo.decorators", "torch._dynamo.eval_frame"

Tell = Callable[[str, bool, Any], None]
"""Takes the name of a stance, whether it skips guards, and the backend it forces."""


def follow_stance(tell: Tell) -> None:
    """Call `tell` with the stance that torch.compile is in, and with each that it is put in from then on."""
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    if _SETTER in sys.modules:
        _wrap(sys.modules[_SETTER], tell)
    else:
        sys.meta_path.insert(0, _Finder(tell))


def _wrap(setter: types.ModuleType, tell: Tell) -> None:
    original = getattr(setter, "_set_stance", None)
    if original is None or getattr(original, "_core_follows", False):
        return

    @functools.wraps(original)
    def set_stance(stance: Any) -> Any:
        before = original(stance)
        _tell(stance, tell)
        return before

    set_stance._core_follows = True  # type: ignore[attr-defined]
    setter._set_stance = set_stance  # type: ignore[attr-defined]
    _tell(getattr(sys.modules.get(_KEEPER), "_stance", None), tell)


def _tell(stance: Any, tell: Tell) -> None:
    if stance is not None:
        tell(stance.stance, getattr(stance, "skip_guard_eval_unsafe", False), getattr(stance, "backend", None))


class _Finder(importlib.abc.MetaPathFinder):
    """Stands before the other finders until the module that changes the stance is imported."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != _SETTER:
            return None
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._tell)
        return spec


class _Loader(importlib.abc.Loader):
    """The module's own loader, and the wrapping once it has run."""

    def __init__(self, loader: Any, tell: Tell) -> None:
        self._loader = loader
        self._tell = tell

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        return self._loader.create_module(spec)  # type: ignore[no-any-return]

    def exec_module(self, module: types.ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        _wrap(module, self._tell)
