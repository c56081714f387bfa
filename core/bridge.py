"""Core's backends for torch.compile: `torch.compile(model, backend="core_inductor")`.

An entry point of the group `torch_dynamo_backends` whose value is `core.bridge:NAME` publishes the backend NAME; a
plugin needs no code for it. `core.bridge:core` is the default backend. torch.compile captures and guards the program;
what it captured is a function of tensors and numbers, which core compiles as it compiles any function: with its own
recorder, so that gradients, mutation, aliasing and changing sizes are core's, and on the first call, when the values
are there. Nothing of torch.compile is imported here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

DEFAULT = "core"
"""The name that stands for the default backend."""


def __getattr__(name: str) -> Callable[..., Any]:
    """`core.bridge.NAME` is `backend_for("NAME")`: how an entry point names a backend."""
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return backend_for(name)


@functools.cache
def backend_for(name: str) -> Callable[..., Any]:
    """The backend NAME as a function in torch.compile's convention. It is looked up when it first compiles."""

    def backend(
        gm: Any,
        example_inputs: Sequence[Any],
        *,
        options: Mapping[str, Any] | None = None,
        mode: str | None = None,
    ) -> Callable[..., Any]:
        return compile_captured(gm, None if name == DEFAULT else name, options=options, mode=mode)

    backend.__name__ = backend.__qualname__ = name if name == DEFAULT else f"core_{name}"
    backend.__doc__ = f"torch.compile(model, backend={backend.__name__!r})"
    return backend


def compile_captured(
    gm: Any, backend: Any = None, *, options: Mapping[str, Any] | None = None, mode: str | None = None
) -> Callable[..., Any]:
    """A graph module of torch.compile's through a backend of core: a callable with the arguments of `gm`.

    Its example inputs are not looked at: sizes and numbers that turn out to change become symbolic by themselves.
    Raises what core.compile raises for a backend or an option.
    """
    from .api import compile

    gm.code  # noqa: B018 - writes the module's `forward`, which torch puts off until somebody needs it
    return compile(gm.forward, backend=backend, options=options, mode=mode)  # type: ignore[no-any-return]
