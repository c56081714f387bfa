"""The peer's package as an empty one, while torch's own machinery runs that would load it for a few names.

State shared between threads: the entries in sys.modules; the package is put there only while there is one thread.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.machinery
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

import torch


class _NoSource:
    """Stands for kinds of sources that only the peer's own capture makes: nothing is an instance."""


@contextlib.contextmanager
def without_peer_package() -> Iterator[None]:
    """While it lasts, what the fake-tensor machinery imports of `torch._dynamo` does not load the package around it.

    Fake tensors read a few settings from its `config`, and a conversion tests for kinds of its sources; the package
    would cost a second and bring a thousand modules. Afterwards it is as unknown as before, and a later import of it
    runs as ever. Not done beside other threads, which could meet the bare package. Checked with torch 2.11 and 2.13.
    """
    put = put_bare_package()
    try:
        yield
    finally:
        if put:
            take_bare_package()


_PEER = "torch._dynamo"


@functools.cache
def _bare_package() -> tuple[types.ModuleType, types.ModuleType]:
    spec = importlib.machinery.PathFinder.find_spec(_PEER, torch.__path__)
    bare, sources = types.ModuleType(_PEER), types.ModuleType(f"{_PEER}.source")
    bare.__path__ = list(spec.submodule_search_locations or ()) if spec is not None else []
    bare.__spec__ = spec
    bare.source = sources  # type: ignore[attr-defined]
    for kind in ("RandomValueSource", "CallMethodItemSource", "FloatTensorSource"):
        setattr(sources, kind, _NoSource)
    bare.disable = _disable_later  # type: ignore[attr-defined]
    for module in (bare, sources):
        module.__getattr__ = functools.partial(_load_peer, module.__name__)  # type: ignore[method-assign]
    return bare, sources


def _load_peer(module: str, name: str) -> Any:
    """Whatever else is asked of the bare package and its module comes from the real ones."""
    if name.startswith("__"):
        raise AttributeError(name)
    take_bare_package()
    return getattr(importlib.import_module(module), name)


def _disable_later(fn: Any = None, recursive: bool = True, **options: Any) -> Any:
    """torch marks functions of its own that the peer must not trace on their first call, and keeps the marked form:
    this one marks for real once there is a peer."""
    if fn is None:
        return functools.partial(_disable_later, recursive=recursive, **options)

    def call(*args: Any, **kwargs: Any) -> Any:
        peer = sys.modules.get(_PEER)
        if peer is None or peer is _bare_package()[0]:
            return fn(*args, **kwargs)
        marked = fn.__dynamo_disable = peer.disable(fn, recursive, **options)
        return marked(*args, **kwargs)

    return call


def put_bare_package() -> bool:
    """Make the bare package what `import torch._dynamo` finds; False when the real one is there, or other threads."""
    if _PEER in sys.modules or threading.active_count() > 1:
        return False
    bare, sources = _bare_package()
    sys.modules[_PEER], sys.modules[sources.__name__] = bare, sources
    torch._dynamo = bare
    return True


def take_bare_package() -> None:
    """Undo put_bare_package()."""
    bare, sources = _bare_package()
    for module in (bare, sources):
        if sys.modules.get(module.__name__) is module:
            del sys.modules[module.__name__]
    if torch.__dict__.get("_dynamo") is bare:
        del torch._dynamo
