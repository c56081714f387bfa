"""The public functions of core."""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from . import _C, events
from .errors import InvalidOption
from .options import CompileOptions, disabled

_callables: weakref.WeakValueDictionary[tuple[Any, ...], Any] = weakref.WeakValueDictionary()
_every: weakref.WeakSet[Any] = weakref.WeakSet()


def compile(
    model: Any = None,
    *,
    backend: Any = None,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    capture_scalar_outputs: bool = False,
    nested: bool = True,
    name: str | None = None,
) -> Any:
    """Compile a function, a method, a module or any callable. Without `model`, a decorator.

    backend: an installed backend's name, a Backend object, or a callable `(gm, example_inputs) -> callable`; without
    it CORE_BACKEND, else "inductor". fullgraph: a graph break raises core.Unsupported with the line, reason and remedy.
    dynamic: None makes a size symbolic when it changes, True makes all symbolic, False none. options: of the backend.
    recompile_limit: entries per callable. nested: also capture functions called after a graph break.

    A module gives a module of the same class that shares the original's state; the original stays as it is. Raises
    BackendNotInstalled, BackendUnavailable, InvalidOption.
    """
    if model is None:
        return functools.partial(
            compile,
            backend=backend,
            fullgraph=fullgraph,
            dynamic=dynamic,
            mode=mode,
            options=options,
            disable=disable,
            recompile_limit=recompile_limit,
            capture_scalar_outputs=capture_scalar_outputs,
            nested=nested,
            name=name,
        )
    if not callable(model):
        raise InvalidOption(
            f"compile() takes a callable, not {type(model).__name__}",
            instead="nothing was compiled",
            remedy="pass a function, a method, a module or another callable",
        )
    given = {"recompile_limit": recompile_limit} if recompile_limit is not None else {}
    settings = CompileOptions(
        backend=default_backend() if backend is None else backend,
        fullgraph=fullgraph,
        dynamic=dynamic,
        mode=mode,
        backend_options=dict(options or {}),
        capture_scalar_outputs=capture_scalar_outputs,
        nested=nested,
        name=name,
        **given,
    )
    if disable or disabled():
        return model
    from .backends.registry import resolve_backend
    from .report import logs, progress

    logs.follow_environment()
    progress.start()
    resolved = resolve_backend(settings.backend)
    resolved.validate_options(settings.backend_options)
    return _compile_object(model, settings, resolved)


def default_backend() -> str:
    """The backend of compile() without `backend`: CORE_BACKEND, else inductor."""
    import os

    return os.environ.get("CORE_BACKEND") or "inductor"


def _compile_object(model: Any, settings: CompileOptions, resolved: Any) -> Any:
    import torch

    if isinstance(model, torch.nn.Module):
        from .compiled_module import compile_module

        return compile_module(model, lambda fn: _compiled_function(fn, settings, resolved))
    if isinstance(model, _C.CompiledCallable):
        return _compiled_function(model.fn, settings, resolved)
    if isinstance(model, types.FunctionType):
        return _compiled_function(model, settings, resolved)
    if isinstance(model, types.MethodType):
        return types.MethodType(_compile_object(model.__func__, settings, resolved), model.__self__)
    return _compiled_function(_as_function(model), settings, resolved)


def _as_function(target: Callable[..., Any]) -> Any:
    """A Python function that calls any other callable."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return target(*args, **kwargs)

    for attribute in ("__name__", "__qualname__", "__doc__", "__module__"):
        if isinstance(getattr(target, attribute, None), str):
            setattr(call, attribute, getattr(target, attribute))
    return call


def _compiled_function(fn: Any, settings: CompileOptions, resolved: Any) -> Any:
    """The callable of a function; the same again for equal options while it lives."""
    key = (id(fn), settings.key)
    known = _callables.get(key)
    if known is not None and known.fn is fn:
        return known
    from .backends.compile_graph import compile_graph
    from .capture.convert_frame import FrameCompiler

    compiler = FrameCompiler(
        settings, lambda captured, name: compile_graph(captured, resolved, settings, name=settings.name or name)
    )
    result = _C.CompiledCallable(fn, compiler)
    _callables[key] = result
    _every.add(result)
    return result


def optimize(backend: Any = "inductor", *, nopython: bool = False, dynamic: bool | None = None) -> Callable[[Any], Any]:
    """A decorator: `optimize("inductor")(fn)` is `compile(fn, backend="inductor")`; nopython is fullgraph."""
    return functools.partial(compile, backend=backend, fullgraph=nopython, dynamic=dynamic)


def disable(fn: Any = None, *, recursive: bool = True, reason: str | None = None) -> Any:
    """Run `fn` in plain Python, also when compiled code calls it (a graph break). recursive: also what it calls."""
    if fn is None:
        return functools.partial(disable, recursive=recursive, reason=reason)
    import torch

    if isinstance(fn, torch.nn.Module):
        from .compiled_module import disable_module

        return disable_module(fn, lambda inner: disable(inner, recursive=recursive, reason=reason))
    target = fn.fn if isinstance(fn, _C.CompiledCallable) else fn

    @functools.wraps(target)
    def plain(*args: Any, **kwargs: Any) -> Any:
        if not recursive:
            return target(*args, **kwargs)
        before = _C.set_frame_callback(None)
        try:
            return target(*args, **kwargs)
        finally:
            _C.set_frame_callback(before)

    plain._core_disable = reason or "disabled by core.disable"  # type: ignore[attr-defined]
    if not recursive and isinstance(target, types.FunctionType):
        _C.skip_code(target.__code__)
    return plain


def reset() -> None:
    """Drop every compiled entry and set the totals of stats() to zero."""
    for item in list(_every):
        item.callback.reset()
        item.reset()
    events.reset_totals()


def stats() -> dict[str, int]:
    """Totals since the last reset: frames, graphs, ops, breaks, recompiles, skipped, kernels, extern_calls."""
    return events.totals()


def list_backends() -> list[str]:
    """Names that `backend=` takes, without importing any plugin."""
    from .backends.registry import list_backends as names

    return names()


def explain(fn: Any, **options: Any) -> Callable[..., Any]:
    """`explain(fn)(*args)` compiles and runs `fn` anew and returns an Explanation of what happened."""
    from .report.explain import explained

    def run(*args: Any, **kwargs: Any) -> Any:
        return explained(lambda: compile(fn, **{"backend": "eager", **options}), args, kwargs)

    return run
