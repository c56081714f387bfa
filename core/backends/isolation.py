"""Compiling in a process of its own: a compiler that crashes, hangs or changes its process harms nobody else.

Enters: what a backend's `compile` would be given, for a backend that can serialize. Leaves: its Artifact, made here by
`deserialize` from the bytes that came back. The other process (`isolated_compile.py`) imports the plugin, rebuilds the
graph from its text, compiles and serializes. Past the deadline, and when the user interrupts, it is killed with all
that it has started. What goes over is data: JSON and the memory of tensors.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ..errors import CompilerDied, CompileTimedOut, IsolationImpossible
from ..plugin import Artifact, CompileContext, CompileFailed, Finding
from ..plugin import Unsupported as UnsupportedNodes
from .graph_text import GraphText, NoText, graph_text
from .resolved import ResolvedBackend
from .tensor_bytes import tensor_bytes

DEADLINE_S = 600.0
"""For a compile whose context sets no other."""

_PLAIN = (
    "device",
    "mode",
    "precision",
    "deterministic",
    "frozen",
    "workspace_limit_bytes",
    "cache_dir",
    "name",
    "tuning",
)
"""Fields of the context that go over as they are."""


class RaisedElsewhere(Exception):
    """What a plugin raised in the other process: its text there, with the traceback."""


def require_isolation(resolved: ResolvedBackend) -> None:
    """Raise IsolationImpossible for a backend that can't give its artifacts to another process."""
    if not resolved.distribution:
        raise _impossible(resolved, "it is an object of this process, and no installed plugin")
    if not resolved.capabilities.serializable:
        raise _impossible(resolved, "it can't serialize its artifacts")


def compile_isolated(resolved: ResolvedBackend, graph: Any, fakes: Sequence[Any], ctx: CompileContext) -> Artifact:
    """The artifact of a graph, compiled in another process.

    Raises what the backend raised there (Unsupported, CompileFailed, else RaisedElsewhere), CompileTimedOut past the
    deadline, CompilerDied for a process that ended without an answer, IsolationImpossible for what has no data.
    """
    require_isolation(resolved)
    try:
        text = graph_text(graph, fakes)
        if text.symbolic:
            raise NoText("sizes that are symbols")
        request = _request(resolved, text, ctx)
    except NoText as reason:
        raise _impossible(resolved, f"the graph has {reason}") from None
    with tempfile.TemporaryDirectory(prefix="core-isolated-") as folder:
        write_message(Path(folder, "request"), request, [memory_of(constant) for constant in text.constants])
        answer, blobs = _run(resolved, Path(folder), ctx.deadline_s or DEADLINE_S)
    for finding in answer.get("findings", ()):
        ctx.report(Finding(*finding))
    if "error" in answer:
        raise _raised(answer, graph)
    artifact: Artifact = resolved.deserialize(blobs[0], ctx)
    return artifact


def _request(resolved: ResolvedBackend, text: GraphText, ctx: CompileContext) -> dict[str, Any]:
    if ctx.constants:
        raise NoText("weights that are constants of the artifact")
    return {
        "backend": f"{resolved.distribution}:{resolved.name}",
        "path": [os.path.abspath(folder) for folder in sys.path],
        "graph": text.data,
        "constants": [layout_of(constant) for constant in text.constants],
        "context": {name: getattr(ctx, name) for name in _PLAIN},
        "parameters": sorted(ctx.parameters),
        "output_strides": [
            None if strides is None else [int(step) for step in strides] for strides in ctx.output_strides
        ],
        "options": _data(ctx.options),
        "deadline_s": ctx.deadline_s or DEADLINE_S,
        "flags": process_flags(),
    }


def _data(options: Mapping[str, Any]) -> dict[str, Any]:
    try:
        copied: dict[str, Any] = json.loads(json.dumps(dict(options)))
    except (TypeError, ValueError):
        copied = {}
    if copied != dict(options):
        raise NoText("an option that is no plain data")
    return copied


def process_flags() -> dict[str, Any]:
    """The flags of this process that a compile may follow."""
    return {
        "default_dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "matmul_precision": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "threads": torch.get_num_threads(),
    }


def apply_flags(flags: Mapping[str, Any]) -> None:
    """Set this process to the flags of another."""
    torch.set_default_dtype(getattr(torch, flags["default_dtype"]))
    torch.set_float32_matmul_precision(flags["matmul_precision"])
    torch.use_deterministic_algorithms(flags["deterministic"])
    torch.set_num_threads(flags["threads"])


# -- the process ------------------------------------------------------------------------------------------------------


def _run(resolved: ResolvedBackend, folder: Path, seconds: float) -> tuple[dict[str, Any], list[bytes]]:
    root = str(Path(__file__).resolve().parent.parent.parent)
    environ = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", "")))))
    command = [sys.executable, "-P", "-m", "core.backends.isolated_compile", str(folder)]
    began = time.monotonic()
    with open(folder / "log", "wb") as log:
        # A group of its own: Ctrl-C on the terminal comes to us alone, and we end the group as a whole.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environ, process_group=0
        )
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise _timed_out(resolved, seconds, _tail(folder / "log")) from None
        finally:
            _end(process)
    try:
        return read_message(folder / "answer")
    except (OSError, ValueError):
        raise _died(resolved, process.returncode, time.monotonic() - began, _tail(folder / "log")) from None


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and what it has started, if anything of it is left."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass  # nothing is left of the group
    process.wait()


def _tail(path: Path, lines: int = 20) -> str:
    text = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return "\n".join(text[-lines:])


def _raised(answer: Mapping[str, Any], graph: Any) -> Exception:
    """The exception of the other process, as this one's caller handles it."""
    kind, text = answer["error"], answer["text"]
    if kind == "unsupported":
        by_name = {node.name: node for node in graph.graph.nodes}
        return UnsupportedNodes([by_name.get(name, name) for name in answer["nodes"]], text)
    if kind == "failed":
        return CompileFailed(answer["stage"], text)
    return RaisedElsewhere(text)


# -- messages ---------------------------------------------------------------------------------------------------------


def write_message(path: Path, head: Mapping[str, Any], blobs: Sequence[bytes]) -> None:
    """One line of JSON, then the blobs; there as a whole or not at all."""
    sizes = [len(blob) for blob in blobs]
    temporary = path.with_suffix(".new")
    temporary.write_bytes(b"".join([json.dumps({"head": head, "sizes": sizes}).encode(), b"\n", *blobs]))
    temporary.replace(path)


def read_message(path: Path) -> tuple[dict[str, Any], list[bytes]]:
    """What write_message wrote. Raises OSError or ValueError."""
    line, _, rest = path.read_bytes().partition(b"\n")
    data = json.loads(line)
    blobs, at = [], 0
    for size in data["sizes"]:
        blobs.append(rest[at : at + size])
        at += size
    return data["head"], blobs


def layout_of(tensor: torch.Tensor) -> dict[str, Any]:
    """How to make the tensor again from its elements in order."""
    return {
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": list(tensor.shape),
        "device": str(tensor.device),
    }


def memory_of(tensor: torch.Tensor) -> bytes:
    """The elements of a plain tensor in order."""
    return tensor_bytes(tensor.detach().resolve_conj().resolve_neg().cpu().contiguous())


def tensor_from(layout: Mapping[str, Any], memory: bytes) -> torch.Tensor:
    """The tensor of layout_of and memory_of."""
    dtype = getattr(torch, layout["dtype"])
    flat = torch.frombuffer(bytearray(memory), dtype=dtype) if memory else torch.empty(0, dtype=dtype)
    return flat.reshape(layout["shape"]).to(layout["device"])


def context_from(request: Mapping[str, Any], findings: list[Finding]) -> CompileContext:
    """The context of a request; what the backend reports is added to `findings`."""
    strides = tuple(None if each is None else tuple(each) for each in request["output_strides"])
    return replace(
        CompileContext(**request["context"]),
        options=request["options"],
        parameters=frozenset(request["parameters"]),
        output_strides=strides,
        deadline_s=request["deadline_s"],
        report=findings.append,
    )


# -- errors -----------------------------------------------------------------------------------------------------------


def _impossible(resolved: ResolvedBackend, reason: str) -> IsolationImpossible:
    return IsolationImpossible(
        f"backend {resolved.label} can't compile in another process: {reason}",
        instead="nothing was compiled",
        remedy="leave isolate out, or choose a backend that is serializable",
    )


def _timed_out(resolved: ResolvedBackend, seconds: float, log: str) -> CompileTimedOut:
    return CompileTimedOut(
        f"backend {resolved.label} did not compile within {seconds:g} s{_with_log(log)}",
        instead="its process was killed with all that it had started",
        remedy="give it more time with deadline_s, or choose another backend",
    )


def _died(resolved: ResolvedBackend, code: int, seconds: float, log: str) -> CompilerDied:
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
    return CompilerDied(
        f"the process in which backend {resolved.label} compiled {how} after {seconds:.1f} s{_with_log(log)}",
        instead="nothing was compiled",
        remedy=f"report it at {resolved.issues}" if resolved.issues else f"report it to {resolved.distribution}",
    )


def _with_log(log: str) -> str:
    return f"; it wrote:\n{log}" if log else ""
