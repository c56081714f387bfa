"""What backend="auto" decided, kept on disk: one small JSON file a graph, under a name made of all that decides.

A file that can't be read or written is as good as none: the graph is measured again.

While a candidate is tried a note of it lies beside the decisions. A candidate that ends the process, or hangs until the
user ends it, leaves its note behind, and is not tried again for this graph.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ..cache.folders import cache_root
from ..graph.captured import CapturedGraph
from ..graph.geometry import hint
from .manifest import running_versions

FOLDER = "decisions"
SCHEMA = 1


def decision_key(captured: CapturedGraph, device: str, candidates: Sequence[str], options: Sequence[Any]) -> str:
    """sha256 of the graph, its sizes (symbolic ones rounded up to a power of two), the device, and the versions here.

    candidates: `name distribution version` of each.
    """
    parts = {
        "schema": SCHEMA,
        "graph": captured.module.code,
        "constants": sorted(str(getattr(value, "shape", type(value))) for value in _constants(captured)),
        "inputs": [_facts(item.fake, item.requires_grad) for item in captured.inputs],
        "device": [device, torch.get_num_threads(), _hardware(device)],
        "candidates": sorted(candidates),
        "options": [repr(option) for option in options],
        "versions": [*sorted(running_versions().items()), torch.__version__],
        "training": captured.needs_grad,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _constants(captured: CapturedGraph) -> list[Any]:
    graph = captured.module.graph
    return [getattr(captured.module, node.target, None) for node in graph.nodes if node.op == "get_attr"]


def _facts(fake: Any, requires_grad: bool) -> list[Any]:
    if not isinstance(fake, torch.Tensor):
        return [type(fake).__name__]
    return [str(fake.dtype), str(fake.device.type), [_bucket(size) for size in fake.shape], requires_grad]


def _bucket(size: Any) -> Any:
    if isinstance(size, int):
        return size
    return f"<= {1 << max(hint(size) - 1, 0).bit_length()}"


def _hardware(device: str) -> str:
    return torch.cuda.get_device_name() if device.startswith("cuda") else torch.backends.cpu.get_cpu_capability()


def read(key: str) -> Mapping[str, Any] | None:
    """The decision of this key; None where there is none."""
    try:
        found = json.loads((cache_root() / FOLDER / f"{key}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("winner"), str) else None


def write(key: str, decision: Mapping[str, Any]) -> None:
    """Keep a decision; another process sees all of it or nothing."""
    folder = cache_root() / FOLDER
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, name = tempfile.mkstemp(dir=folder, suffix=".part")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(decision, file)
        os.replace(name, folder / f"{key}.json")
    except OSError:
        return  # no room, or no permission: the next process measures again


# -- candidates that don't come back ----------------------------------------------------------------------------------


@contextmanager
def on_trial(key: str, candidates: Sequence[str]) -> Iterator[None]:
    """Around what runs code of candidates (`name distribution version`).

    A note that stays says that the process ended in here, or that an exception left it, as when somebody interrupts it.
    """
    notes = [_note(key, candidate) for candidate in candidates]
    _leave(notes, "running")
    came_back = False
    try:
        yield
        came_back = True
    finally:
        if came_back:
            _take_away(notes)
        else:
            _leave(notes, "interrupted")


def lost_trial(key: str, candidate: str) -> str:
    """What became of an earlier trial that did not come back; an empty text where there was none."""
    try:
        noted = json.loads(_note(key, candidate).read_text(encoding="utf-8"))
        ended, process = noted["state"] == "interrupted", int(noted["process"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    if ended:
        return f"it was interrupted when it was tried; {_AGAIN}"
    return "" if _runs(process) else f"the process that tried it ended there; {_AGAIN}"


_AGAIN = "`python -m core cache clear decisions` has it tried again"


def _note(key: str, candidate: str) -> Path:
    name = hashlib.sha256(f"{key} {candidate}".encode()).hexdigest()
    return cache_root() / FOLDER / f"{name}.trial"


def _leave(notes: Sequence[Path], state: str) -> None:
    for note in notes:
        try:
            note.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            note.write_text(json.dumps({"state": state, "process": os.getpid()}), encoding="utf-8")
        except OSError:
            return  # as for decisions


def _take_away(notes: Sequence[Path]) -> None:
    for note in notes:
        try:
            note.unlink(missing_ok=True)
        except OSError:
            return


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # another user's
    return True
