"""Backends that are no plugins: a Backend object of the user's, or any callable `(graph_module, example_inputs)`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import InvalidOption
from ..plugin import Artifact, Backend, Capabilities, CompileContext
from .resolved import ResolvedBackend


class CallableBackend(Backend):
    """A function `(gm, example_inputs, **options) -> callable`, as torch.compile takes it, seen as a Backend.

    `gm` is the torch-level graph. The returned callable gets the graph's inputs and returns its outputs as a tuple or
    list; returning `gm` or `gm.forward` runs the graph as it was captured.
    """

    capabilities = Capabilities(graph_level="torch")

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.name = f"custom:{_qualified_name(function)}"

    def compile(self, graph: Any, fake_inputs: Sequence[Any], ctx: CompileContext) -> Artifact:
        compiled = self.function(graph, list(fake_inputs), **ctx.options)
        if isinstance(compiled, Artifact):
            return compiled
        if not callable(compiled):
            raise TypeError(f"it returned {type(compiled).__name__}, which can't be called")
        return Artifact(call=compiled)


class _CallableResolved(ResolvedBackend):
    """Options go to the function as keywords: its own signature is the declaration."""

    def known_options(self) -> list[str]:
        try:
            parameters = list(inspect.signature(self.backend.function).parameters.values())  # type: ignore[attr-defined]
        except ValueError:
            return ["mode"]  # a callable without a signature (C code) decides itself
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
            return ["mode"]
        return sorted(parameter.name for parameter in parameters[2:])

    def validate_options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        function = self.backend.function  # type: ignore[attr-defined]
        if given:
            try:
                inspect.signature(function).bind(None, [], **given)
            except TypeError as error:
                raise InvalidOption(
                    f"{self.name} does not take the options {', '.join(sorted(given))}: {error}",
                    instead="nothing was compiled",
                    remedy="pass options that the function has parameters for",
                ) from None
            except ValueError:
                pass  # a callable without a signature (C code): it decides itself
        return dict(given)


def _qualified_name(function: Callable[..., Any]) -> str:
    inner = getattr(function, "func", function)  # functools.partial
    return getattr(inner, "__qualname__", None) or type(inner).__qualname__


def resolve_object(spec: Any) -> ResolvedBackend | None:
    """A Backend, a Backend class or a callable as a ResolvedBackend; None for anything else."""
    if isinstance(spec, type) and issubclass(spec, Backend):
        spec = spec()
    if isinstance(spec, Backend):
        name = spec.name or type(spec).__qualname__
        return ResolvedBackend(name, spec, spec.capabilities, version=spec.version)
    if isinstance(spec, ResolvedBackend):
        return spec
    if callable(spec):
        backend = CallableBackend(spec)
        return _CallableResolved(backend.name, backend, backend.capabilities)
    return None
