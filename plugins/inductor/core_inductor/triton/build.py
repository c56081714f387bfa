"""Calling Triton: a printed kernel becomes a cubin with what its launch needs, or a function that the interpreter runs.

This is the only file of the plugin that imports triton. State shared between threads: the serial number of sources.
"""

from __future__ import annotations

import itertools
import linecache
from dataclasses import dataclass
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from .kernel import TritonKernel

_serial = itertools.count()
ALIGNMENT_BYTES = 16
"""Pointers known to be so aligned get vector loads of full width; torch's own allocations are."""


@dataclass(frozen=True)
class Cubin:
    """GPU code of one kernel. entry: its symbol; threads: a program; shared_bytes: dynamic shared memory.

    The launch parameters are the kernel's pointers, sizes and scalars in order, then two null pointers (Triton's global
    and profile scratch).
    """

    code: bytes
    entry: str
    threads: int
    shared_bytes: int
    ptx: str


def load_function(kernel: TritonKernel) -> Any:
    """The triton.jit function of a printed kernel."""
    filename = f"<triton {kernel.name} {next(_serial)}>"
    # triton.jit reads the function's text back through inspect, which finds it here.
    linecache.cache[filename] = (len(kernel.source), None, kernel.source.splitlines(keepends=True), filename)
    namespace: dict[str, Any] = {"__name__": f"core_inductor.generated.{kernel.name}"}
    exec(compile(kernel.source, filename, "exec"), namespace)
    return namespace[kernel.name]


def compile_cubin(kernel: TritonKernel, capability: int = 90, *, aligned: tuple[bool, ...] | None = None) -> Cubin:
    """Compile for an NVIDIA architecture (90 for sm_90); no GPU is needed.

    aligned: for each pointer, whether it's a multiple of 16 bytes (all, when omitted).
    """
    pointers = kernel.pointer_types
    aligned = (True,) * len(pointers) if aligned is None else aligned
    function = load_function(kernel)
    names = function.arg_names
    types = [*pointers, *["i64"] * len(kernel.sizes), *["fp64"] * len(kernel.scalars)]
    signature = dict(zip(names, types)) | dict.fromkeys(kernel.constants, "constexpr")
    attributes = {(k,): [["tt.divisibility", ALIGNMENT_BYTES]] for k, known in enumerate(aligned) if known}
    source = ASTSource(function, signature, constexprs=dict(kernel.constants), attrs=attributes)
    options = {"num_warps": kernel.num_warps, "enable_fp_fusion": False}
    built = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    return Cubin(
        code=built.asm["cubin"],
        entry=built.metadata.name,
        threads=built.metadata.num_warps * 32,
        shared_bytes=built.metadata.shared,
        ptx=built.asm["ptx"],
    )


def run_kernel(
    kernel: TritonKernel, inputs: list[Any], outputs: list[Any], programs: int, sizes: dict[str, int]
) -> None:
    """Run a kernel through Triton's own launcher: on CUDA tensors, or on CPU tensors under Triton's interpreter, which
    TRITON_INTERPRET=1 selects at import."""
    function = load_function(kernel)
    arguments = [*inputs, *outputs, *(sizes[name] for name in kernel.sizes)]
    function[(programs,)](*arguments, **kernel.constants, num_warps=kernel.num_warps, enable_fp_fusion=False)
