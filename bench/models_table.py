"""`make models`: capture of many architectures, inference and training. Each row is measured in a process of its own.

    python -m bench.models_table [--peer] [--backend NAME] [--only bert,t5] [--modes infer,train]

A row: graphs, graph breaks with their reasons, recompiles, the largest relative error against eager over outputs and
gradients of two calls (dropout included: both draw from the same seed), and seconds of the first call. Exit status 1
when core gives a wrong result.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MODES = ("infer", "train")
TOLERANCE = 1e-4  # relative; fp32 through a backward
NEGLIGIBLE = 1e-3  # of the largest tensor's norm: gradients below it are differences of what cancels
HEADER = f"{'architecture':12} {'mode':6} {'implementation':18} graphs breaks recompiles     error  first s"


# -- one measurement -------------------------------------------------------------------------------------------------


def error(got: list[Any], want: list[Any]) -> float:
    """Largest relative difference; inf when the tensors don't match."""
    if [t.shape for t in got] != [t.shape for t in want]:
        return float("inf")
    norms = [float(t.double().norm()) for t in want]
    floor = NEGLIGIBLE * max(norms) + 1e-30
    differences = [float((a.double() - b.double()).norm()) for a, b in zip(got, want)]
    worst = max(difference / (norm + floor) for difference, norm in zip(differences, norms))
    return worst if worst == worst else float("inf")


def measure(name: str, mode: str, implementation: str) -> dict[str, Any]:
    """One row of the table."""
    import torch

    from .architectures import make

    subject = make(name)
    subject.model.train(mode == "train")
    step = subject.train if mode == "train" else subject.infer

    def run(model: Any) -> list[Any]:
        torch.manual_seed(1)
        return [tensor.clone() for tensor in step(model)]

    buffers = {key: value.clone() for key, value in subject.model.state_dict().items()}
    want = run(subject.model)
    subject.model.load_state_dict(buffers)
    compiled, report = compiler(implementation, subject.model)
    began = time.perf_counter()
    first = run(compiled)
    seconds = time.perf_counter() - began
    subject.model.load_state_dict(buffers)
    worst = max(error(first, want), error(run(compiled), want))
    return {"name": name, "mode": mode, "implementation": implementation, "error": worst, "s": seconds, **report()}


def compiler(implementation: str, model: Any) -> tuple[Any, Any]:
    """The compiled model, and a function that gives graphs, breaks, recompiles and reasons."""
    if implementation == "torch.compile":
        return _peer(model)
    import core
    from core import events

    core.reset()
    seen: list[Any] = []
    events.subscribe(seen.append)
    compiled = core.compile(model, backend=implementation.partition(":")[2] or "inductor")

    def report() -> dict[str, Any]:
        stats = core.stats()
        reasons = [e.reason for e in seen if isinstance(e, (events.GraphBroken, events.FrameSkipped, events.FellBack))]
        return {**{key: stats[key] for key in ("graphs", "breaks", "recompiles")}, "reasons": counted(reasons)}

    return compiled, report


def _peer(model: Any) -> tuple[Any, Any]:
    import torch
    from torch._dynamo.utils import counters

    def report() -> dict[str, Any]:
        breaks = counters["graph_break"]
        return {
            "graphs": counters["stats"].get("unique_graphs", 0),
            "breaks": sum(breaks.values()),
            "recompiles": sum(counters["recompiles"].values()) if "recompiles" in counters else 0,
            "reasons": [f"{count} x {reason.strip().splitlines()[0]}" for reason, count in breaks.most_common()],
        }

    # eager's random numbers, so that dropout can be compared
    return torch.compile(model, options={"fallback_random": True}), report


def counted(reasons: list[str]) -> list[str]:
    """Each reason once, with how often it came, most frequent first."""
    return [f"{count} x {reason}" for reason, count in collections.Counter(reasons).most_common()]


# -- the table -------------------------------------------------------------------------------------------------------


def in_process(name: str, mode: str, implementation: str) -> dict[str, Any]:
    """measure() in a new process."""
    environment = dict(os.environ, HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    command = [sys.executable, "-m", "bench.models_table", "--measure", name, mode, implementation]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        text = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return {"name": name, "mode": mode, "implementation": implementation, "failed": text}
    return json.loads(lines[-1])


def show(result: dict[str, Any]) -> bool:
    """Print a row; False when it is wrong."""
    start = f"{result['name']:12} {result['mode']:6} {result['implementation']:18}"
    if "failed" in result:
        print(f"{start} FAILED: {result['failed'][:160]}", flush=True)
        return False
    wrong = not result["error"] <= TOLERANCE
    print(
        f"{start} {result['graphs']:6} {result['breaks']:6} {result['recompiles']:10} {result['error']:9.1e} "
        f"{result['s']:8.2f}{'  WRONG' if wrong else ''}",
        flush=True,
    )
    for reason in result["reasons"]:
        print(f"             {reason[:150]}", flush=True)
    return not wrong


def main() -> int:
    from .architectures import ARCHITECTURES

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", action="store_true", help="also measure torch.compile")
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--only", default=",".join(ARCHITECTURES))
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--measure", nargs=3, metavar=("NAME", "MODE", "IMPLEMENTATION"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(*options.measure)))
        return 0
    implementations = [f"core:{options.backend}", *(["torch.compile"] if options.peer else [])]
    good = True
    print(HEADER)
    for name in options.only.split(","):
        for mode in options.modes.split(","):
            for implementation in implementations:
                right = show(in_process(name, mode, implementation))
                good = good and (right or implementation == "torch.compile")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
