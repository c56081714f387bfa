"""The public functions of core that compile, and what they share: the callables of each function."""

from __future__ import annotations

import functools
import inspect
import time
import types
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, NoReturn

from . import _C, events, stance
from .errors import InvalidOption
from .kept_calls import keep
from .options import CompileOptions, disabled
from .settings import config

GUARD_FILTER = "guard_filter_fn"

_began = time.time()  # before anything can be compiled

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
    capture_scalar_outputs: bool | None = None,
    nested: bool | None = None,
    name: str | None = None,
    fallback: Any = None,
    fullgraph_backend: bool = False,
    max_fallback_cost: float | None = None,
    on_failure: str | None = None,
    precision: str | None = None,
    freeze: bool = False,
    isolate: str | None = None,
    deadline_s: float | None = None,
    isolate_recompiles: bool = False,
    shapes_spec: Any = None,
) -> Any:
    """Compile a function, a method, a module or any callable. Without `model`, a decorator.

    backend: an installed backend's name, a Backend object, or a callable `(gm, example_inputs) -> callable`; without
    it that of set_default_backend, CORE_BACKEND or "inductor". fullgraph: a graph break raises core.Unsupported with
    the line, reason and remedy. dynamic: None makes a size symbolic when it changes, True makes all symbolic, False
    none. mode: how much the backend may spend for speed; one that does not know the mode is an error. options: of the
    backend, and "guard_filter_fn". recompile_limit: entries per callable. nested: also capture functions called after
    a graph break. What is not given comes from core.config.

    backend=["a", "b"]: a takes the nodes it supports, b what is left. fallback: who takes the rest, () for nobody;
    fullgraph_backend: a rest raises; max_fallback_cost: the largest share of a graph's cost that may be rest.
    on_failure: "raise" or "fallback" where a backend can't compile what is its own. precision: "eager", "ieee" or a
    looser mode of the backend. freeze: weights are constants until they change (graphs without gradients).
    isolate="process": a serializable backend compiles in a process of its own, which is killed after deadline_s.
    isolate_recompiles: entries and a limit of this call's own, though the function was compiled with equal options.
    shapes_spec: which sizes and numbers of the arguments differ from call to call, and how they relate, declared with
    torch's ShapesSpec, ParamsSpec or a dict; all others are fixed.

    A module gives a module of the same class that shares the original's state; the original stays as it is. Raises
    BackendNotInstalled, BackendUnavailable, InvalidOption.
    """
    given = dict(
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
        fallback=fallback,
        fullgraph_backend=fullgraph_backend,
        max_fallback_cost=max_fallback_cost,
        on_failure=on_failure,
        precision=precision,
        freeze=freeze,
        isolate=isolate,
        deadline_s=deadline_s,
        isolate_recompiles=isolate_recompiles,
        shapes_spec=shapes_spec,
    )
    if model is None:
        return functools.partial(compile, **given)
    if not callable(model) and not isinstance(model, classmethod):
        raise InvalidOption(
            f"compile() takes a callable, not {type(model).__name__}",
            instead="nothing was compiled",
            remedy="pass a function, a method, a module or another callable",
        )
    settings = _settings(given)
    if disable or disabled():
        return model
    return _compile_object(model, settings, _resolved(settings), shared=not isolate_recompiles)


def _settings(given: Mapping[str, Any]) -> CompileOptions:
    """The options of a call of compile(), with what was not given taken from core.config."""
    chosen = {
        name: getattr(config, name) if given[name] is None else given[name]
        for name in (
            "backend", "dynamic", "recompile_limit", "capture_scalar_outputs", "nested",
            "fallback", "max_fallback_cost", "on_failure", "precision",
        )
    }  # fmt: skip
    options = dict(given["options"] or {})
    guard_filter = options.pop(GUARD_FILTER, None)
    if guard_filter is not None and not callable(guard_filter):
        raise InvalidOption(
            f"{GUARD_FILTER} is {type(guard_filter).__name__}, not a callable",
            instead="nothing was compiled",
            remedy="pass a function that takes a list of guard entries and returns one bool for each",
        )
    return CompileOptions(
        fullgraph=given["fullgraph"],
        mode=given["mode"],
        backend_options=options,
        name=given["name"],
        guard_filter=guard_filter,
        fullgraph_backend=given["fullgraph_backend"],
        freeze=given["freeze"],
        shapes_spec=_shapes_spec(given["shapes_spec"], given["dynamic"]),
        isolate=given["isolate"],
        deadline_s=given["deadline_s"],
        **chosen,
    )


def _shapes_spec(given: Any, dynamic: bool | None) -> Any:
    """A ShapesSpec of what shapes_spec may be."""
    if given is None:
        return None
    from .torch_compat import shape_specs

    why = ""
    if dynamic is not None:
        why = f"shapes_spec says what is dynamic, and dynamic={dynamic} does too"
    elif not shape_specs.exist():
        why = "shapes_spec takes classes that this version of torch does not have"
    else:
        try:
            return shape_specs.as_shapes_spec(given)
        except (TypeError, ValueError, NotImplementedError) as error:
            why = f"shapes_spec is not right: {error}"
    raise InvalidOption(
        why, instead="nothing was compiled", remedy="see torch.fx.experimental.dynamic_spec, or use core.mark_dynamic"
    )


def _resolved(settings: CompileOptions) -> Any:
    """The backends of some options, which are checked against what they declare."""
    from .backends.fallback import lineup_of
    from .report import logs, progress

    logs.follow_environment()
    progress.start()
    lineup = lineup_of(settings)
    lineup.check_options()
    return lineup


def set_default_backend(backend: Any = None) -> None:
    """The backend of compile() without `backend`, as `core.config.backend`. None: back to CORE_BACKEND or inductor.

    Raises BackendNotInstalled and its kin at once.
    """
    if backend is None:
        del config.backend
        return
    from .backends.registry import resolve_backend

    resolve_backend(backend)
    config.backend = backend


def get_default_backend() -> Any:
    """What compile() takes where it is given no backend."""
    return config.backend


def compile_module_(module: Any, **options: Any) -> Any:
    """Compile a module in place: its own calls run compiled from now on. Takes the options of compile(); returns it.

    The class, the state and the names in state_dict stay; a copy and a pickle are uncompiled. `disable=True` undoes it.
    """
    from .compiled_module import compile_in_place

    return compile_in_place(module, lambda call: compile(call, **options), undo=bool(options.get("disable")))


def _compile_object(model: Any, settings: CompileOptions, resolved: Any, shared: bool = True) -> Any:
    """shared: equal options give the same entries again."""
    import torch

    from .torch_compat.peer_stance import follow_stance

    follow_stance(stance.follow)

    def one(fn: Any) -> Any:
        return _compiled_function(fn, settings, resolved, shared)

    if isinstance(model, torch.nn.Module):
        from .compiled_module import compile_module

        return compile_module(model, one)
    if isinstance(model, _C.CompiledCallable):
        return one(model.fn)
    if isinstance(model, (staticmethod, classmethod)):  # decorated in a class body
        return type(model)(_compile_object(model.__func__, settings, resolved, shared))
    if isinstance(model, types.FunctionType):
        behind = model.__dict__.get("_torchdynamo_orig_callable")
        if behind is not None and not model.__dict__.get("_torchdynamo_disable"):  # what torch.compile made of it
            return _compile_object(behind, settings, resolved, shared)
        return one(_as_function(model) if _is_transformed(model) else model)
    if isinstance(model, types.MethodType):
        return types.MethodType(_compile_object(model.__func__, settings, resolved, shared), model.__self__)
    return one(_as_function(model))


def _is_transformed(function: types.FunctionType) -> bool:
    """Whether a transform of torch.func made it: what is traced then is the call of it, not torch's code."""
    return str(function.__globals__.get("__name__")).startswith("torch._functorch.")


def _as_function(target: Callable[..., Any]) -> Any:
    """A Python function that calls any other callable."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return target(*args, **kwargs)

    call._core_stands_for = target  # type: ignore[attr-defined]
    for attribute in ("__name__", "__qualname__", "__doc__", "__module__"):
        if isinstance(getattr(target, attribute, None), str):
            setattr(call, attribute, getattr(target, attribute))
    return call


def _compiled_function(fn: Any, settings: CompileOptions, resolved: Any, shared: bool = True) -> Any:
    """The callable of a function; where shared, the same again for equal options (see kept_calls.py)."""
    key = (id(fn), settings.key)
    known = _callables.get(key) if shared else None
    if known is not None and known.fn is fn:
        keep(fn, known)
        return known
    from .backends.compile_graph import compile_graph
    from .capture.convert_frame import FrameCompiler
    from .capture.policy import disabled_reason, keeps_out_only_itself

    as_written = disabled_reason(fn) is not None
    if as_written and (settings.fullgraph or not settings.nested or not keeps_out_only_itself(fn)):
        return fn
    if as_written and isinstance(getattr(fn, "__wrapped__", None), types.FunctionType):
        _C.skip_code(fn.__wrapped__.__code__)

    compiler = FrameCompiler(
        settings, lambda captured, name: compile_graph(captured, resolved, settings, name=settings.name or name)
    )
    compiler.in_order = resolved.in_order
    compiler.root_as_written = as_written
    result = _C.CompiledCallable(fn, compiler)
    if shared:
        _callables[key] = result
        keep(fn, result)
    _every.add(result)
    return result


def _on_forced_backend(original: Any) -> Any:
    """The callable that runs in place of another one while the stance forces a backend."""
    forced = stance.current().force_backend
    twins = original.__dict__.setdefault("_core_twins", {})
    settings = replace(original.callback.options, backend=forced, mode=None, backend_options={})
    twin = twins.get(settings.key)
    if twin is None:
        twin = twins[settings.key] = _compiled_function(original.fn, settings, _resolved(settings), shared=False)
        twin.twin = True
    return twin


stance.redirect_by(_on_forced_backend)


def optimize(backend: Any = "inductor", *, nopython: bool = False, dynamic: bool | None = None) -> Callable[[Any], Any]:
    """A decorator: `optimize("inductor")(fn)` is `compile(fn, backend="inductor")`; nopython is fullgraph."""
    return functools.partial(compile, backend=backend, fullgraph=nopython, dynamic=dynamic)


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Run `fn` in plain Python, also when compiled code calls it (a graph break). Without `fn`, a decorator.

    recursive: what it calls runs in plain Python too. reason: said in the report of the break.
    """
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
    plain._core_disable_alone = not recursive  # type: ignore[attr-defined]
    if not recursive and isinstance(target, types.FunctionType):
        _C.skip_code(target.__code__)
    return plain


def reset() -> None:
    """Drop every compiled entry and set the totals of stats() to zero; memory of CUDA graphs is given back."""
    import sys

    for item in list(_every):
        item.callback.reset()
        item.reset()
    _callables.clear()  # the backend may have become another one
    events.reset_totals()
    if f"{__package__}.backends.cuda_graphs" in sys.modules:
        from .backends.cuda_graphs import trim

        trim()


def refresh(module: Any = None) -> int:
    """Have what was compiled with freeze=True for weights of `module` (None: all) compiled anew before its next run.

    For writes that torch does not see: through `.data`, numpy, DLPack. Returns how many graphs that concerns.
    """
    import sys

    if f"{__package__}.backends.freeze" not in sys.modules:
        return 0  # nothing was frozen
    from .backends.freeze import refresh as refresh_graphs

    return refresh_graphs(module)


def unload_backend(name: str) -> None:
    """Tear a backend down: drop every compiled entry, then let its plugin release what it holds.

    What was compiled with it raises BackendUnavailable until `compile` is called again, which loads it anew. What its
    teardown can't release is a warning.
    """
    import warnings

    from .backends.registry import default_registry

    for item in list(_every):
        item.callback.reset()
        item.reset()
    _callables.clear()  # so that compile makes new ones, with the backend as it is loaded then
    for finding in default_registry().unload(name):
        warnings.warn(f"{finding.text}; {finding.remedy}", RuntimeWarning, stacklevel=2)


def save_cache_artifacts() -> tuple[bytes, Any] | None:
    """What this process has compiled, or found compiled on disk, as bytes for load_cache_artifacts, and a CacheInfo.

    None when there is nothing. Only backends that can serialize keep anything on disk, and none with
    `core.config.store_artifacts` off.
    """
    from .cache.bundle import saved

    return saved(_began - 1)  # file systems count time in steps


def load_cache_artifacts(serialized_artifacts: bytes) -> Any:
    """Put the artifacts of save_cache_artifacts where compiling looks for them; a CacheInfo says what they are.

    None, with a warning, for bytes that are none. They hold compiled code: load only what you trust to run here.
    """
    from .cache.bundle import loaded

    if not isinstance(serialized_artifacts, bytes):
        raise InvalidOption(
            f"load_cache_artifacts() takes bytes, not {type(serialized_artifacts).__name__}",
            instead="nothing was loaded",
            remedy="pass the first element of what save_cache_artifacts() returned",
        )
    return loaded(serialized_artifacts)


def load_compiled_function(file: Any, *, f_globals: Any = None, external_data: Any = None) -> NoReturn:
    """Raises InvalidOption: core writes no file that holds a compiled function with its guards."""
    raise InvalidOption(
        "load_compiled_function() has nothing to read: core keeps what backends compiled, not whole functions",
        instead="nothing was loaded",
        remedy="load_cache_artifacts() with the bytes of save_cache_artifacts(), then core.compile the function",
    )


def set_enable_guard_collectives(enabled: bool) -> bool:
    """Whether ranks agree on recompiling by a collective at each call: never. Returns False; True raises InvalidOption.

    A compile of core's issues no collective, so a rank that compiles lets the others wait, and they don't hang.
    """
    if enabled:
        raise InvalidOption(
            "guards of core issue no collectives",
            instead="each rank goes on deciding for itself when to compile, which needs no other rank",
            remedy="leave it off; to keep ranks from compiling at different times, mark sizes that differ as dynamic",
        )
    return False


def stats() -> dict[str, int]:
    """Totals since the last reset: frames, graphs, ops, breaks, recompiles, skipped, kernels, extern_calls."""
    return events.totals()


def list_backends(exclude_tags: Iterable[str] | None = ("debug", "experimental")) -> list[str]:
    """Names that `backend=` takes, without importing any plugin.

    exclude_tags: "debug" leaves out the backends that compile nothing; None lists all. Other tags name nothing here.
    """
    from .backends.registry import DEBUGGING
    from .backends.registry import list_backends as names

    left_out = DEBUGGING if "debug" in (exclude_tags or ()) else ()
    return [name for name in names() if name not in left_out]


def explain(fn: Any, **options: Any) -> Callable[..., Any]:
    """`explain(fn)(*args)` compiles and runs `fn` anew and returns an Explanation of what happened."""
    from .report.explain import explained

    def run(*args: Any, **kwargs: Any) -> Any:
        return explained(lambda: _afresh(fn, options), args, kwargs)

    return run


def capture_program(fn: Any, /, *args: Any, **kwargs: Any) -> Any:
    """`core.capture(fn, *args, **kwargs)`: run `fn` once, captured, and return a CapturedProgram.

    It has the graphs with their inputs, the guards as text, the breaks, the result, and is callable like `fn`. A graph
    break ends one graph and begins the next. Nothing is compiled: the graphs run as they were captured.
    """
    from .report.captured_program import captured

    return captured(lambda: _afresh(fn, {}), args, kwargs)


def _afresh(fn: Any, options: Mapping[str, Any]) -> Any:
    """`fn` compiled, with entries that no other callable shares."""
    plain = {"fullgraph": False, "backend": "eager", "fullgraph_backend": False, "freeze": False}
    given = {**dict.fromkeys(_settings_names), **plain, **options}
    unknown = given.keys() - set(_settings_names)
    if unknown:
        raise TypeError(f"compile() got an unexpected keyword argument {sorted(unknown)[0]!r}")
    settings = _settings(given)
    return fn if given["disable"] or disabled() else _compile_object(fn, settings, _resolved(settings), shared=False)


_settings_names = tuple(inspect.signature(compile).parameters)[1:]
