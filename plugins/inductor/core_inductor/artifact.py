"""One graph from fx to an Artifact: print kernels, build them, load them, bind the wrapper around them.

This is the driver of the whole plugin; its steps stand in `compile_artifact` in their order.
"""

from __future__ import annotations

import itertools
import linecache
import os
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

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
        from .compile import compile_fx

        program = compile_fx(graph, ctx)
        kernels = _load(program, ctx)
    except (CompilerMissing, RuntimeMissing) as missing:
        return _without_kernels(graph, ctx, missing)
    return Artifact(
        call=bind(program, kernels, ctx.name),
        kernels=program.kernel_calls,
        extern_calls=program.extern_calls,
        provenance=_provenance(graph, program),
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


def _load(program: Any, ctx: CompileContext) -> Sequence[Callable[..., Any]]:
    """The kernels of a program as callables, in its order; nothing is built for a program that has none."""
    if not program.kernels:
        return []
    from .runtime.build import BuildFailed, build_library
    from .runtime.load import make_kernels

    try:
        library = build_library(program.cpp_source, compiler=_compiler(ctx), keep=ctx.options.get("cache", True))
    except BuildFailed as failure:
        raise CompileFailed(f"C++ compiler: {failure}", failure.log) from failure
    return make_kernels(library, program.kernels, parallel=ctx.options.get("parallel", True))


def bind(program: Any, kernels: Sequence[Callable[..., Any]], label: str) -> Callable[..., Any]:
    """The function `call` of a program's Python source, with its kernels; tracebacks show the source's lines."""
    from ._runtime import View

    filename, source = f"<inductor {label} {next(_serial)}>", program.python_source
    namespace: dict[str, Any] = {
        "torch": torch,
        "kernel": kernels.__getitem__,
        "view": View,
        "constants": program.constants,
        "callables": program.callables,
    }
    exec(compile(source, filename, "exec"), namespace)
    call: Callable[..., Any] = namespace["call"]
    # Without a time, checkcache keeps the entry; it goes when the function goes.
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    weakref.finalize(call, linecache.cache.pop, filename, None)
    return call


def _provenance(graph: Any, program: Any) -> dict[str, str]:
    """Each call of the graph: "library" when torch's own kernel runs it, else "native"."""
    library = {name for name, _ in program.fallbacks}
    calls = (node.name for node in graph.graph.nodes if node.op == "call_function")
    return {name: "library" if name in library else "native" for name in calls}


def _compiler(ctx: CompileContext) -> str:
    return str(ctx.options.get("compiler", ""))


def _without_kernels(graph: Any, ctx: CompileContext, missing: Exception) -> Artifact:
    strict = os.environ.get("CORE_STRICT", "") not in ("", "0")
    if strict or ctx.options.get("missing_compiler", "aten") == "raise":
        raise CompileFailed("preparing to compile kernels", str(missing)) from missing
    return run_through_aten(graph, ctx, str(missing))
