"""The hooks of plugin API 1.x, as pluggy specifications.

`core_*` hooks are broadcast to the loaded plugins. `backend_*` hooks are directed: they are never called through
pluggy's dispatch (a hook call costs 4 us, a bound method 0.2 us) but bound once, from the one plugin that was resolved;
they are the function form of the methods of `core.plugin.Backend`. Signatures are frozen for the life of a major
version: what grows is `CompileContext`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..plugin import Artifact, Backend, CompileContext, Finding, Option, Pass, Probe, Support, hookspec

DIRECTED = (
    "probe",
    "options",
    "decompositions",
    "supports",
    "partition",
    "compile",
    "cache_key",
    "serialize",
    "deserialize",
    "estimate",
    "teardown",
)
"""The methods of Backend that a plugin may also write as functions named `backend_<method>`."""


@hookspec(historic=True)
def core_configure(config: Mapping[str, Any]) -> None:
    """Called once with core's read-only settings. A plugin that raises is quarantined."""


@hookspec
def core_backend() -> Backend:  # type: ignore[empty-body]
    """Return the plugin's backend. Its name and capabilities must be those of the manifest."""


@hookspec
def core_passes(stage: str) -> list[Pass]:  # type: ignore[empty-body]
    """Return graph passes for a stage: "torch", "joint", "forward", "backward" or "inference"."""


@hookspec
def core_diagnose() -> list[Finding]:  # type: ignore[empty-body]
    """Return what `core doctor` should say about the plugin's environment. Exceptions become findings."""


@hookspec
def backend_probe(device: str) -> Probe:  # type: ignore[empty-body]
    """See Backend.probe."""


@hookspec
def backend_options() -> Mapping[str, Option]:  # type: ignore[empty-body]
    """See Backend.options."""


@hookspec
def backend_decompositions(mode: str) -> Mapping[Any, Callable[..., Any]] | str | None:
    """See Backend.decompositions."""


@hookspec
def backend_supports(node: Any, ctx: CompileContext) -> Support:  # type: ignore[empty-body]
    """See Backend.supports."""


@hookspec(firstresult=True)
def backend_partition(graph: Any, ctx: CompileContext) -> Any:
    """See Backend.partition."""


@hookspec
def backend_compile(graph: Any, fake_inputs: Sequence[Any], ctx: CompileContext) -> Artifact:  # type: ignore[empty-body]
    """See Backend.compile."""


@hookspec
def backend_cache_key(ctx: CompileContext) -> bytes:  # type: ignore[empty-body]
    """See Backend.cache_key."""


@hookspec
def backend_serialize(artifact: Artifact) -> bytes | None:
    """See Backend.serialize."""


@hookspec
def backend_deserialize(blob: bytes, ctx: CompileContext) -> Artifact:  # type: ignore[empty-body]
    """See Backend.deserialize."""


@hookspec
def backend_estimate(graph: Any, ctx: CompileContext) -> float | None:
    """See Backend.estimate."""


@hookspec
def backend_teardown() -> None:
    """See Backend.teardown."""
