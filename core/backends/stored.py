"""Artifacts of backends that can serialize them, kept on disk: the same graph is not compiled twice on one machine.

Enters: the graph and context that a backend would be given, and a way to compile. Leaves: an Artifact, made from stored
bytes where there are any that fit, else compiled and stored. What decides about an artifact is its key: the graph and
its constants, the context, the options, the backend's own `cache_key`, versions and files of core, torch and the
plugin. Bytes that the backend refuses are forgotten, and the graph is compiled: never an error, always an event.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..cache.artifacts import ArtifactStore
from ..events import BackendReported, FellBack, emit
from ..plugin import PLUGIN_API, Artifact, CompileContext, Finding, StaleArtifact
from ..settings import config
from ..torch_compat.assumptions import assumptions
from .graph_text import NoText, content_digest, graph_text
from .manifest import running_versions
from .resolved import ResolvedBackend

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def compiled_or_stored(
    resolved: ResolvedBackend, graph: Any, fakes: Sequence[Any], ctx: CompileContext, compile: Callable[[], Artifact]
) -> Artifact:
    """The stored artifact of this graph, else `compile()`, whose artifact is stored. Raises what `compile` raises."""
    if not resolved.capabilities.serializable or not config.store_artifacts:
        return compile()
    try:
        key = artifact_key(resolved, graph, fakes, ctx)
    except NoText as reason:
        _tell(resolved, f"the artifact is not stored: the graph has {reason}")
        return compile()
    store = default_store()
    blob = store.read(key)
    artifact = _restored(resolved, blob, ctx, store, key) if blob is not None else None
    if artifact is not None:
        _tell(resolved, f"the artifact comes from {store.folder}")
        return artifact
    assumed = _assumptions(ctx)
    artifact = compile()
    if _assumptions(ctx) == assumed:
        _keep(resolved, artifact, store, key)
    else:  # who reads it would not assume them, and its guards would not ask for them
        _tell(resolved, "the artifact is not stored: compiling it has assumed more about sizes than the graph did")
    return artifact


@functools.cache
def default_store() -> ArtifactStore:
    """The store of this process."""
    return ArtifactStore()


def _restored(
    resolved: ResolvedBackend, blob: bytes, ctx: CompileContext, store: ArtifactStore, key: str
) -> Artifact | None:
    """The artifact in some bytes; None, with an event, when the backend can't make one of them any more."""
    try:
        artifact = resolved.deserialize(blob, ctx)
    except StaleArtifact as error:
        reason = f"is stale: {error}"
    except Exception as error:  # the edge of a plugin: its stored bytes are worth a compile, not the user's program
        emit(_unfit(resolved, f"can't be read: {type(error).__name__}: {error}"))
        store.remove(key)
        return None
    else:
        if isinstance(artifact, Artifact) and callable(artifact.call):
            return artifact
        reason = f"was read as {type(artifact).__name__}, not as a core.plugin.Artifact"
    store.remove(key)
    emit(_unfit(resolved, reason))
    return None


def _unfit(resolved: ResolvedBackend, reason: str) -> FellBack:
    return FellBack("artifacts", f"a stored artifact of backend {resolved.label} {reason}; the graph is compiled again")


def _keep(resolved: ResolvedBackend, artifact: Any, store: ArtifactStore, key: str) -> None:
    if not isinstance(artifact, Artifact):
        return  # the caller says so
    try:
        blob = resolved.serialize(artifact)
    except Exception as error:  # the edge of a plugin: what it can't store it has compiled all the same
        emit(_unstored(resolved, f"raised {type(error).__name__}: {error}"))
        return
    if isinstance(blob, bytes):
        store.write(key, blob)
    elif blob is not None:
        emit(_unstored(resolved, f"returned {type(blob).__name__}, not bytes"))


def _unstored(resolved: ResolvedBackend, reason: str) -> FellBack:
    return FellBack("artifacts", f"serialize of backend {resolved.label} {reason}; the artifact is not stored")


def _tell(resolved: ResolvedBackend, text: str) -> None:
    emit(BackendReported(resolved.name, Finding("info", text)))


# -- the key ----------------------------------------------------------------------------------------------------------


def artifact_key(resolved: ResolvedBackend, graph: Any, fakes: Sequence[Any], ctx: CompileContext) -> str:
    """sha256 of all that decides about an artifact. Raises NoText for a graph or an option that has no text."""
    text = graph_text(graph, fakes)
    parts = {
        "graph": text.digest(),
        "values": _values(graph),
        "assumptions": _assumptions(ctx) if text.symbolic else [],
        "context": _context(ctx),
        "backend": [resolved.name, resolved.distribution, resolved.version, _plugin_files(resolved)],
        "own": resolved.cache_key(ctx).hex(),
        "versions": [*sorted(running_versions().items()), str(PLUGIN_API), torch.__version__, sys.version],
        "machine": [platform.system(), platform.machine(), _device(ctx.device)],
        "flags": _flags(),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _context(ctx: CompileContext) -> list[Any]:
    return [
        ctx.device,
        ctx.mode,
        [[name, _option(value)] for name, value in sorted(ctx.options.items())],
        ctx.precision,
        ctx.deterministic,
        [None if strides is None else [str(stride) for stride in strides] for strides in ctx.output_strides],
        sorted(ctx.parameters),
        ctx.frozen,
        [[index, content_digest(value).hex()] for index, value in sorted(ctx.constants.items())],
        [[name, list(map(str, bounds))] for name, bounds in sorted(ctx.ranges.items())],
        ctx.workspace_limit_bytes,
        ctx.tuning,
    ]


def _assumptions(ctx: CompileContext) -> list[str]:
    """What is taken for granted about symbolic sizes: code for even sizes has the same graph as code for all sizes."""
    return [] if ctx.shape_env is None else assumptions(ctx.shape_env)


def _values(graph: Any) -> list[str]:
    """The layout of what each node makes: that of a custom operator is written in the user's program."""
    return [_layouts(node.meta.get("val")) for node in graph.graph.nodes]


def _layouts(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_layouts, value))}]"
    if isinstance(value, torch.Tensor) and value.layout is torch.strided:
        return f"{value.dtype} {value.device} {tuple(value.shape)} {value.stride()} {value.storage_offset()}"
    return str(value) if isinstance(value, _SYMBOLIC) else type(value).__name__


def _option(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return [type(value).__name__, repr(value)]
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, [_option(item) for item in value]]
    if isinstance(value, dict):
        return ["dict", [[_option(key), _option(item)] for key, item in value.items()]]
    raise NoText(f"an option of type {type(value).__name__}")


def _device(device: str) -> str:
    if device.partition(":")[0] != "cuda":
        return ""
    return f"{torch.cuda.get_device_name(device)} {torch.cuda.get_device_capability(device)} {torch.version.cuda}"


def _flags() -> list[str]:
    """The process's own flags of arithmetic: a backend may follow them when it compiles."""
    backends = torch.backends
    return [
        str(torch.get_default_dtype()),
        torch.get_float32_matmul_precision(),
        str(backends.cuda.matmul.allow_tf32),
        str(backends.cudnn.allow_tf32),
        str(backends.cuda.matmul.allow_fp16_reduced_precision_reduction),
        str(backends.cuda.matmul.allow_bf16_reduced_precision_reduction),
    ]


def _plugin_files(resolved: ResolvedBackend) -> str:
    """A digest of the plugin's files by name, size and time: one that is edited in place keeps its version."""
    known = _plugin_digests.get(resolved)
    if known is None:
        known = _plugin_digests[resolved] = _files_digest(type(resolved.backend).__module__.partition(".")[0])
    return known


_plugin_digests: weakref.WeakKeyDictionary[ResolvedBackend, str] = weakref.WeakKeyDictionary()


def _files_digest(package: str) -> str:
    module = sys.modules.get(package)
    folders = list(getattr(module, "__path__", ()))
    single = getattr(module, "__file__", None)
    rows = []
    for folder in folders:
        for place, _, names in os.walk(folder):
            paths = (os.path.join(place, name) for name in names if not name.endswith(".pyc"))
            rows += [_stamp(path) for path in paths]
    if not folders and single:
        rows.append(_stamp(single))
    return hashlib.sha256("\n".join(sorted(rows)).encode()).hexdigest()


def _stamp(path: str) -> str:
    try:
        status = os.stat(path)
    except OSError:
        return path
    return f"{path} {status.st_size} {status.st_mtime_ns}"
