"""Cheats in what a backend says of itself: who calculates, which dtypes it has, what its options do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from core.plugin import CompileContext, Option, Support

from .arithmetic import _rounded_to_bfloat16
from .interpreter import Interpreted, Program, overload_name, replaced


class ClaimsToBeNative(Interpreted):
    """Runs every node through torch and says that its own kernels did."""

    name = "evil-claims-native"
    claim = "native"


class SaysNothingOfItsCalls(Interpreted):
    """Runs every node through torch and leaves the provenance empty."""

    name = "evil-says-nothing"

    def compile(self, graph: Any, fake_inputs: Any, ctx: CompileContext) -> Any:
        artifact = super().compile(graph, fake_inputs, ctx)
        artifact.provenance, artifact.extern_calls = {}, 0
        return artifact


class FallsBackSilently(Interpreted):
    """Has kernels of its own for sums and products of equal shapes; the rest it gives to torch without a word."""

    name = "evil-silent-fallback"
    claim = "native"

    def calculate(self, program: Program, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        own = _KERNELS.get(overload_name(target))
        tensors = [value for value in args if isinstance(value, torch.Tensor)]
        if own is None or kwargs or len(tensors) != 2 or len(args) != 2 or not _plain(tensors):
            return target(*args, **kwargs)
        left, right = (value.detach().numpy() if value.requires_grad else value.numpy() for value in tensors)
        return torch.from_numpy(own(left, right))


def _plain(tensors: list[torch.Tensor]) -> bool:
    first = tensors[0]
    return first.dim() > 0 and all(
        value.shape == first.shape and value.dtype is first.dtype and value.is_contiguous() for value in tensors
    )


_KERNELS = {
    "add": lambda left, right: left + right,
    "sub": lambda left, right: left - right,
    "mul": lambda left, right: left * right,
}


class CallsAnotherCompiler(Interpreted):
    """Gives the graph to torch's own compiler and puts its name on the result."""

    name = "evil-calls-another-compiler"
    claim = "native"

    def compile(self, graph: Any, fake_inputs: Any, ctx: CompileContext) -> Any:
        artifact = super().compile(graph, fake_inputs, ctx)
        artifact.call = torch.compile(graph, backend="eager")
        return artifact


class ClaimsDtypesItLacks(Interpreted):
    """Declares complex64 and float16, and calculates the one without its imaginary part and the other not at all."""

    name = "evil-claims-dtypes"
    capabilities = Interpreted.capabilities.__class__(
        graph_level="aten-functional",
        dtypes=("float32", "float64", "float16", "complex64", "int32", "int64", "bool"),
        deterministic="on-request",
    )

    def calculate(self, program: Program, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        kinds = {value.dtype for value in args if isinstance(value, torch.Tensor)}
        if torch.float16 in kinds:
            raise KeyError("float16")
        result = target(*args, **kwargs)
        if torch.complex64 in kinds and result.is_complex():
            return torch.complex(result.real, torch.zeros_like(result.real))
        return result


class ClaimsTraining(Interpreted):
    """Declares training and compiles no backward."""

    name = "evil-claims-training"

    def compile(self, graph: Any, fake_inputs: Any, ctx: CompileContext) -> Any:
        if ctx.mode == "backward":
            raise NotImplementedError("backward")
        return super().compile(graph, fake_inputs, ctx)


class LeaksOptions(Interpreted):
    """Once somebody asked for low precision, every later compile has it."""

    name = "evil-leaks-options"

    def __init__(self) -> None:
        self._low = False

    def options(self) -> Mapping[str, Option]:
        return {"accuracy": Option(str, "full", ("full", "low"), help="low rounds to bfloat16")}

    def compiled(self, program: Program) -> None:
        self._low = self._low or program.ctx.options.get("accuracy") == "low"

    def calculate(self, program: Program, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._low:
            args = replaced(args, _rounded_to_bfloat16)
        return target(*args, **kwargs)


class NamesNodesThatAreNotThere(Interpreted):
    """Says "native" of nodes of its own invention."""

    name = "evil-invents-nodes"

    def compile(self, graph: Any, fake_inputs: Any, ctx: CompileContext) -> Any:
        artifact = super().compile(graph, fake_inputs, ctx)
        artifact.provenance = {**artifact.provenance, "fused_everything": "native"}
        return artifact


class _EveryName(dict[str, Option]):
    def __missing__(self, name: str) -> Option:
        return Option(object, None, help="whatever you like")

    def get(self, name: str, default: Any = None) -> Any:
        return self[name]


class TakesEveryOption(Interpreted):
    """Has every option that anybody can think of, so that a mistyped one goes unnoticed."""

    name = "evil-takes-every-option"

    def options(self) -> Mapping[str, Option]:
        return _EveryName()


class SupportsByMood(Interpreted):
    """Answers the question what it supports differently each time."""

    name = "evil-support-by-mood"

    def __init__(self) -> None:
        self._asked = 0

    def supports(self, node: Any, ctx: CompileContext) -> Support:
        self._asked += 1
        return Support("library" if self._asked % 2 else "no", "sometimes")
