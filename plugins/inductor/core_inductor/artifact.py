"""One graph from fx to an Artifact: print kernels, build them, load them, bind the wrapper around them.

This is the driver of the whole plugin; its steps stand in `compile_artifact` in their order. A stored program enters
behind them, in `restored`.
"""

from __future__ import annotations

import itertools
import linecache
import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from core.plugin import Artifact, CompileContext, CompileFailed, StaleArtifact

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

        program = compile_fx(graph)
        kernels = _load(program, ctx)
    except (CompilerMissing, RuntimeMissing) as missing:
        return _without_kernels(graph, ctx, missing)
    return _artifact(program, kernels, _provenance(graph, program), ctx)


class InductorArtifact(Artifact):
    """An artifact that remembers its program, to be stored. keep: whether the disk cache may hold any of it; sent: it
    is asked for by another process that has started this one."""

    def __init__(self, *, program: Any, compiler: str, keep: bool, sent: bool, **fields: Any) -> None:
        super().__init__(**fields)
        self.program = program
        self.compiler = compiler
        self.keep = keep
        self.sent = sent


def launches_only(device: str) -> bool:
    """Whether a call does nothing but launch: kernels of the CPU run on the host."""
    return device.partition(":")[0] != "cpu"


def _artifact(
    program: Any,
    kernels: Sequence[Callable[..., Any]],
    provenance: Mapping[str, str],
    ctx: CompileContext,
    *,
    loaded: bool = False,
) -> Artifact:
    return InductorArtifact(
        call=bind(program, kernels, ctx.name),
        kernels=program.kernel_calls,
        extern_calls=program.extern_calls,
        provenance=provenance,
        cudagraph_safe=launches_only(ctx.device),
        size_bytes=len(program.cpp_source),
        describe=lambda: f"{program.python_source}\n/* kernels */\n{program.cpp_source}",
        program=program,
        compiler=_compiler(ctx),
        keep=_keep(ctx),
        sent=ctx.isolated and not loaded,
    )


def stored(artifact: Artifact) -> bytes | None:
    """The program of an artifact with its machine code; None where it is not all there is, or stays off the disk."""
    if not isinstance(artifact, InductorArtifact) or not artifact.program.storable:
        return None
    if not artifact.keep and not artifact.sent:
        return None
    from .storage import pack

    program = artifact.program
    key, code = "", b""
    if program.kernels:
        from .runtime.build import machine_code

        key, code = machine_code(program.cpp_source, compiler=artifact.compiler, keep=artifact.keep)
    return pack(program, artifact.provenance, key, code)


def restored(blob: bytes, ctx: CompileContext) -> Artifact:
    """The artifact of stored bytes. Raises StaleArtifact for those that are not for this process."""
    from .storage import Unfit, unpack

    try:
        _require_runtime()
        program, provenance, key, code = unpack(blob)
        kernels: Sequence[Callable[..., Any]] = []
        if program.kernels:
            from .runtime.build import adopt_library
            from .runtime.load import make_kernels

            library = adopt_library(key, code, keep=_keep(ctx))
            kernels = make_kernels(library, program.kernels, parallel=ctx.options.get("parallel", True))
        return _artifact(program, kernels, provenance, ctx, loaded=True)
    except (Unfit, RuntimeMissing, OSError) as error:
        raise StaleArtifact(str(error)) from error
    except AttributeError as error:  # an operator that nobody has registered here
        raise StaleArtifact(f"the program calls what is not here: {error}") from error


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
        library = build_library(program.cpp_source, compiler=_compiler(ctx), keep=_keep(ctx))
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


def _keep(ctx: CompileContext) -> bool:
    return bool(ctx.options.get("cache", True))


def _without_kernels(graph: Any, ctx: CompileContext, missing: Exception) -> Artifact:
    strict = os.environ.get("CORE_STRICT", "") not in ("", "0")
    if strict or ctx.options.get("missing_compiler", "aten") == "raise":
        raise CompileFailed("preparing to compile kernels", str(missing)) from missing
    return run_through_aten(graph, ctx, str(missing))
