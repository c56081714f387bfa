"""A program and a backend in a process of their own, where nothing says that a test is running.

Enters: the text of a program, inputs, a backend. Leaves: results, and what the process looked like before and after.
Neither the suite nor a test runner is imported there, file names are neutral, no variable names a test.
"""

from __future__ import annotations

import inspect
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from core.plugin import Backend

from . import surroundings

LIMIT_S = 240

_MAIN = """
import importlib, importlib.util, io, json, os, sys
import torch
import core
import settings_of_process as settings

folder = os.path.dirname(os.path.abspath(__file__))
request = json.load(open(os.path.join(folder, "request.json")))
values = torch.load(os.path.join(folder, "inputs.pt"), weights_only=True)


def loaded(text):
    if "name" in text:
        return text["name"]
    if "file" in text:
        spec = importlib.util.spec_from_file_location("vendor", text["file"])
        module = importlib.util.module_from_spec(spec)
        sys.modules["vendor"] = module
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(text["module"])
    return getattr(module, text["class"])()


def answer():
    import program
    core.config.store_artifacts = False
    before = settings.state()
    backend = loaded(request["backend"])
    from core.backends.registry import resolve_backend
    resolved = resolve_backend(backend)
    after = settings.state()
    reply = {"imported": settings.differences(before, after)}
    if "blob" in request:
        from core.plugin import CompileContext
        blob = open(os.path.join(folder, "artifact.bin"), "rb").read()
        context = request["context"]
        strides = tuple(None if s is None else tuple(s) for s in context.pop("output_strides"))
        artifact = resolved.deserialize(blob, CompileContext(output_strides=strides, **context))
        run = (lambda *given: tuple(artifact.call(list(given)))) if artifact.boxed else artifact.call
    else:
        run = core.compile(program.program, backend=backend, fullgraph=True, options=request["options"] or None)
    results = []
    for given in values:
        outcome = run(*given)
        results.append(list(outcome) if isinstance(outcome, (tuple, list)) else [outcome])
    torch.save(results, os.path.join(folder, "results.pt"))
    reply["left"] = sorted(os.listdir(request["temporary"])) + sorted(os.listdir(request["working"]))
    json.dump(reply, open(os.path.join(folder, "reply.json"), "w"))


if __name__ == "__main__":
    answer()
"""


@dataclass
class Reply:
    """results: one list a call. imported: settings that the backend's import changed. left: files left behind."""

    results: list[list[Any]] = field(default_factory=list)
    imported: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    output: str = ""
    status: int = 0


def description(spec: Any) -> dict[str, str]:
    """How another process finds the backend. Skips the test for one that it can't find."""
    if isinstance(spec, str):
        return {"name": spec}
    kind = spec if isinstance(spec, type) else type(spec)
    if not issubclass(kind, Backend) or "<locals>" in kind.__qualname__:
        pytest.skip("another process can't make this backend: it is an object of this one")
    source = inspect.getsourcefile(kind)
    of_the_suite = kind.__module__.startswith(f"{__package__}.")
    if source is not None and of_the_suite and "from ." not in Path(source).read_text():
        return {"file": source, "class": kind.__name__}
    return {"module": kind.__module__, "class": kind.__name__}


def run_bare(
    subject: Any,
    source: str,
    calls: list[list[torch.Tensor]],
    *,
    blob: bytes | None = None,
    context: dict[str, Any] | None = None,
) -> Reply:
    """Run `source`, which defines `program`, on the inputs of each call. With `blob`, that stored artifact instead."""
    folder = Path(tempfile.mkdtemp(prefix="run"))
    try:
        return _run(folder, subject, source, calls, blob, context)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(
    folder: Path, subject: Any, source: str, calls: list[Any], blob: bytes | None, context: dict[str, Any] | None
) -> Reply:
    temporary, working = folder / "temporary", folder / "working"
    temporary.mkdir()
    working.mkdir()
    request: dict[str, Any] = {
        "backend": description(subject.spec),
        "options": subject.options,
        "temporary": str(temporary),
        "working": str(working),
    }
    if blob is not None:
        (folder / "artifact.bin").write_bytes(blob)
        request |= {"blob": True, "context": context or {}}
    (folder / "main.py").write_text(_MAIN)
    (folder / "program.py").write_text(source)
    (folder / "settings_of_process.py").write_text(Path(surroundings.__file__).read_text())
    (folder / "request.json").write_text(json.dumps(request))
    torch.save(calls, folder / "inputs.pt")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV"))}
    environment["TMPDIR"] = str(temporary)
    command = [sys.executable, str(folder / "main.py")]
    done = subprocess.run(command, cwd=working, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
    reply = Reply(output=done.stdout + done.stderr, status=done.returncode)
    if done.returncode == 0:
        told = json.loads((folder / "reply.json").read_text())
        reply.imported, reply.left = told["imported"], told["left"]
        reply.results = torch.load(folder / "results.pt", weights_only=True)
    return reply
