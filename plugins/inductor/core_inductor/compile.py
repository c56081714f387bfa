"""One graph from fx to an Artifact: print kernels, build them, load them, bind the wrapper around them.

This is the driver of the whole plugin; its steps stand in `compile_artifact` in their order.
"""

from __future__ import annotations

import itertools
import linecache
import os
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from core.plugin import Artifact, CompileContext, CompileFailed

from .aten import run_through_aten
from .runtime.toolchain import CompilerMissing, find_toolchain

_serial = itertools.count()


class RuntimeMissing(Exception):
    """Kernels can't be called in this process: the C extension is not there, or does not know this torch."""


def compile_artifact(graph: Any, ctx: CompileContext) -> Artifact:
    """Compile a functional ATen graph. Raises CompileFailed when the C++ compiler refuses what was printed."""
    try:
        find_toolchain(_compiler(ctx))  # before the work of printing kernels that nothing could build
        _require_runtime()
        from .wrapper import compile_fx

        program = compile_fx(graph, ctx)
        kernels = _load(program, ctx)
    except (CompilerMissing, RuntimeMissing) as missing:
        return _without_kernels(graph, ctx, missing)
    return Artifact(
        call=bind(program.python_source, {**program.constants, **kernels}, ctx.name),
        kernels=len(program.kernels),
        extern_calls=program.extern_calls,
        provenance=program.provenance,
        size_bytes=len(program.cpp_source),
        describe=lambda: f"{program.python_source}\n/* kernels */\n{program.cpp_source}",
    )


def _require_runtime() -> None:
    """Load and calibrate the C extension. Raises RuntimeMissing."""
    try:
        from .runtime.load import calibrate

        calibrate()
    except ImportError as error:
        raise RuntimeMissing(f"compiled kernels can't be called here: {error}") from error


def _load(program: Any, ctx: CompileContext) -> Mapping[str, Any]:
    """The kernels of a program as callables; nothing is built for a program that has none."""
    if not program.kernels:
        return {}
    from .runtime.build import BuildFailed, build_library
    from .runtime.load import make_kernels

    try:
        library = build_library(program.cpp_source, compiler=_compiler(ctx), keep=ctx.options.get("cache", True))
    except BuildFailed as failure:
        raise CompileFailed(f"C++ compiler: {failure}", failure.log) from failure
    return make_kernels(library, program.kernels, parallel=ctx.options.get("parallel", True))


def bind(source: str, names: Mapping[str, Any], label: str) -> Callable[..., Any]:
    """The function `call` of generated Python source, with `names` as its globals; tracebacks show its lines."""
    filename = f"<inductor {label} {next(_serial)}>"
    namespace = dict(names)
    exec(compile(source, filename, "exec"), namespace)
    call = namespace["call"]
    # Without a time, checkcache keeps the entry; it goes when the function goes.
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    weakref.finalize(call, linecache.cache.pop, filename, None)
    return call


def _compiler(ctx: CompileContext) -> str:
    return str(ctx.options.get("compiler", ""))


def _without_kernels(graph: Any, ctx: CompileContext, missing: Exception) -> Artifact:
    strict = os.environ.get("CORE_STRICT", "") not in ("", "0")
    if strict or ctx.options.get("missing_compiler", "aten") == "raise":
        raise CompileFailed("preparing to compile kernels", str(missing)) from missing
    return run_through_aten(graph, ctx, str(missing))
