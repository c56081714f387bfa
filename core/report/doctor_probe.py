"""The doctor's subprocess: load one backend, probe it, let it speak, and with --verify compile a function with it.

Its last line of output is JSON: findings, in whose texts BACKEND stands for the backend's label. A limit of time ends
the process with the place where it stood, in the words of faulthandler.
"""

from __future__ import annotations

import faulthandler
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..backends.probing import ask
from ..backends.registry import Registry, default_registry
from ..errors import CoreError
from ..events import BackendReported, Event, subscribe
from ..plugin import Finding, Probe


def main(arguments: Sequence[str]) -> None:
    """arguments: the backend's qualified name, the limit in seconds, and perhaps --verify."""
    name, seconds, *more = arguments
    registry = default_registry()
    _have_torch()
    faulthandler.dump_traceback_later(float(seconds), exit=True)
    findings = list(_findings(registry, name, verify="--verify" in more))
    faulthandler.cancel_dump_traceback_later()
    rows = [[finding.level, finding.text, finding.remedy] for finding in findings]
    print("\n" + json.dumps({"findings": rows}, default=str), flush=True)


def _have_torch() -> None:
    """Import torch, if it is there: those seconds are not the backend's, and what it changes of torch's is seen."""
    if importlib.util.find_spec("torch") is not None:
        importlib.import_module("torch")


def _findings(registry: Registry, name: str, *, verify: bool) -> Iterator[Finding]:
    reported: list[Finding] = []

    def note(event: Event) -> None:
        if isinstance(event, BackendReported):
            reported.append(event.finding)

    stop = subscribe(note)
    try:
        resolved = registry.resolve(name)
    except CoreError as error:
        yield from reported
        trace = next((record.traceback for record in registry.quarantined() if record.error is error), "")
        text = f"BACKEND can't be loaded: [{error.id}] {error.what}" + (f"\n{trace.rstrip()}" if trace else "")
        yield Finding("error", text, error.remedy)
        return
    finally:
        stop()
    yield from reported
    devices = sorted({entry.partition(":")[0] for entry in resolved.capabilities.devices}) or ["cpu"]
    usable = []
    for device in devices:
        probe = ask(resolved.probe, device, resolved.issues)
        yield _probe_finding(device, probe)
        usable += [device] if probe.ok else []
    yield from registry.diagnose()
    if verify and usable:
        yield from _verified(name, usable[0], training="training" in resolved.capabilities.modes)
    for loaded in registry.loaded():
        yield from registry.unload(loaded)


def _probe_finding(device: str, probe: Probe) -> Finding:
    versions = ", ".join(f"{name} {version}" for name, version in probe.runtime_versions.items())
    if probe.ok:
        return Finding("info", f"BACKEND works on {device}" + (f" with {versions}" if versions else ""))
    return Finding("error", f"BACKEND can't work on {device}: {probe.reason}", probe.remedy)


# -- verification -----------------------------------------------------------------------------------------------------


def _verified(name: str, device: str, *, training: bool) -> Iterator[Finding]:
    """Compile a few operations, run them on values that were not there before, and compare with eager."""
    import torch

    import core

    def small(x: Any, y: Any) -> Any:
        return torch.relu(x @ y + 1.0).sum(dim=0) / (y.abs().mean() + 2.0)

    def values(grad: bool) -> list[Any]:
        x = torch.linspace(-2.0, 2.0, 12, device=device).reshape(3, 4)
        return [x.requires_grad_(grad), (x.detach().t() * 0.5 - 0.3).contiguous().requires_grad_(grad)]

    for grad in (False, True) if training else (False,):
        what = "gradients" if grad else "results"
        try:
            compiled, graphs = core.compile(small, backend=name, fullgraph=True), core.stats()["graphs"]
            ours, theirs = _outputs(compiled, values(grad), grad), _outputs(small, values(grad), grad)
        except Exception as error:  # whatever the backend raises is what the doctor was asked for
            yield Finding("error", f"BACKEND does not compile a small function: {type(error).__name__}: {error}")
            return
        if core.stats()["graphs"] == graphs:
            text = "BACKEND was not asked: core ran a small function uncompiled"
            yield Finding("error", text, "CORE_DISABLE must not be set; CORE_STRICT=1 raises what capture has met")
            return
        wrong = [at for at, (a, b) in enumerate(zip(ours, theirs)) if a.shape != b.shape or not torch.allclose(a, b)]
        if wrong:
            gap = max((ours[at] - theirs[at]).abs().max().item() for at in wrong if ours[at].shape == theirs[at].shape)
            text = f"BACKEND computes other {what} than eager for a small function (largest difference {gap:g})"
            yield Finding("error", text, "do not use it; `python -m core conformance run` shows what else differs")
            return
        yield Finding("info", f"BACKEND computes the {what} of eager for a small function")


def _outputs(function: Callable[..., Any], inputs: list[Any], grad: bool) -> list[Any]:
    result = function(*inputs)
    if not grad:
        return [result]
    result.sum().backward()
    return [result.detach(), *(value.grad for value in inputs)]


if __name__ == "__main__":
    main(sys.argv[1:])
