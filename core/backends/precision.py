"""The arithmetic that backends may use: what was asked for against what a backend declares and what torch's flags say.

"eager" is the process's own flags, which are guarded. "ieee" is nothing looser than each dtype: where torch's flags
allow TF32 or bfloat16 inside float32 products, they are set to the strict values for the time of the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..errors import PrecisionUnavailable
from .generated import Code
from .resolved import ResolvedBackend
from .wrapper import follow

STRICT = ("eager", "ieee")


def require_precision(resolved: ResolvedBackend, wanted: str) -> None:
    """Raise PrecisionUnavailable when a backend does not declare the precision asked for.

    One that declares "ieee" satisfies "eager" too: it is never looser than the process's flags.
    """
    declared = resolved.capabilities.precision_modes
    if wanted in declared or (wanted == "eager" and "ieee" in declared):
        return
    known = ", ".join(map(repr, declared)) or "none"
    raise PrecisionUnavailable(
        f"backend {resolved.label} has no precision {wanted!r}; it declares {known}",
        instead="nothing was compiled",
        remedy=f"pass precision={declared[0]!r}, or choose another backend" if declared else "choose another backend",
    )


def is_loose() -> bool:
    """Whether the process's flags allow float32 products to be computed in less than float32."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    if torch.get_float32_matmul_precision() != "highest" or matmul.allow_tf32:
        return True
    if torch.cuda.is_available():
        return bool(cudnn.allow_tf32 or matmul.allow_fp16_reduced_precision_reduction)
    return False


class StrictFlags:
    """A context in which torch's flags allow nothing looser than the dtypes; they are put back at its end."""

    def __enter__(self) -> None:
        self._precision = torch.get_float32_matmul_precision()
        self._tf32 = torch.backends.cudnn.allow_tf32
        self._half = torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction
        self._bfloat = torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False

    def __exit__(self, *raised: object) -> None:
        torch.set_float32_matmul_precision(self._precision)
        torch.backends.cudnn.allow_tf32 = self._tf32
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = self._half
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = self._bfloat


def in_precision(run: Callable[..., Any], wanted: str, *, guarded: bool) -> Callable[..., Any]:
    """`run` itself, or under "ieee" a function that runs it with strict flags where the flags are loose.

    guarded: the flags of each call are those of now; a backward runs under whatever flags its caller has.
    """
    if wanted != "ieee" or (guarded and not is_loose()):
        return run
    code = Code("compiled", ["*inputs"])
    code.namespace["run"] = run
    code.line(f"with {code.bind(StrictFlags, 'strict_flags')}():")
    code.line("    return run(*inputs)")
    compiled = code.finish()
    follow(compiled, code.namespace, "run", run)
    return compiled
