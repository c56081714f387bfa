"""The passes from a Relax module to an executable, in order: fuse, schedule or tune, lower, compile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax

from core.plugin import CompileContext, Finding

from .convert import Program
from .runtime import target
from .schedule import scheduled


@dataclass(frozen=True)
class Compiled:
    """machine: a new virtual machine over the compiled code; kernels: its functions; text: its TensorIR."""

    machine: Callable[[], Any]
    kernels: int
    text: str


def compiled(program: Program, ctx: CompileContext) -> Compiled:
    """Compile a program for the processor that the options name."""
    options = ctx.options
    where = target(str(options.get("mcpu", "")))
    level = int(options.get("opt_level", 2))
    with where, tvm.transform.PassContext(opt_level=level):
        module = fused(program.module, level)
        if options.get("trials", 0):
            from .tuning import tuned

            folder = str(options.get("tuning_dir", ""))
            module, made = tuned(module, int(options["trials"]), folder, where)
            ctx.report(Finding("info", f"{made} sizes of tiles were measured"))
        elif options.get("schedule", True):
            module = scheduled(module)
        executable = tvm.compile(module, target=where, relax_pipeline=lowering(), tir_pipeline="default")
    code = executable.jit()
    relax.VirtualMachine(code, tvm.cpu())  # LLVM's part is done by the first, and fails here if it does
    kernels = sum(1 for function in module.functions.values() if isinstance(function, tvm.tirx.PrimFunc))
    return Compiled(lambda: relax.VirtualMachine(code, tvm.cpu()), kernels, module.script())


def fused(module: Any, level: int) -> Any:
    """Calls that follow each other element by element become one function; below level 1 each stays for itself."""
    passes = [relax.transform.DeadCodeElimination(), relax.transform.AnnotateTIROpPattern()]
    if level >= 1:
        passes += [relax.transform.FuseOps(), relax.transform.FuseTIR(), relax.transform.DeadCodeElimination()]
    return tvm.transform.Sequential(passes)(module)


def lowering() -> Any:
    """Relax's own passes behind the fusion, up to the virtual machine."""
    return tvm.transform.Sequential(
        [
            relax.transform.RewriteDataflowReshape(),
            relax.transform.ToNonDataflow(),
            relax.transform.RemovePurityChecking(),
            relax.transform.CallTIRRewrite(),
            relax.transform.StaticPlanBlockMemory(),
            relax.transform.LowerAllocTensor(),
            relax.transform.KillAfterLastUse(),
            relax.transform.LowerRuntimeBuiltin(),
            relax.transform.ComputePrimValue(),
            relax.transform.VMShapeLower(),
            relax.transform.AttachGlobalSymbol(),
        ]
    )
