"""One process: compile one subject with one implementation, check it, time it. Prints one JSON line.

    python -m bench.measure_subject SUBJECT IMPLEMENTATION [--calls N]

IMPLEMENTATION is `core`, `core:BACKEND` or `torch.compile`. Compile time is from `compile()` to the end of the first
call, less one later call; what the process imported before (torch, transformers) is not in it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

import torch

from .subjects import SUBJECTS, Subject, worst_error


def compiler(implementation: str) -> Any:
    """compile() of an implementation."""
    if implementation == "torch.compile":
        return torch.compile
    import core

    _, _, backend = implementation.partition(":")
    return lambda model: core.compile(model, **({"backend": backend} if backend else {}))


def paired_times(subject: Subject, compiled: Any, rounds: int) -> tuple[float, float]:
    """Median seconds a call, (eager, compiled), taken in turn."""
    eager_times, compiled_times = [], []
    for _ in range(rounds):
        for model, times in ((subject.model, eager_times), (compiled, compiled_times)):
            began = time.perf_counter()
            subject.run(model)
            times.append(time.perf_counter() - began)
    return statistics.median(eager_times), statistics.median(compiled_times)


def counts(implementation: str) -> dict[str, int]:
    """Graphs, breaks and what else the implementation reports."""
    if implementation == "torch.compile":
        from torch._dynamo.utils import counters

        return {
            "graphs": counters["stats"].get("unique_graphs", 0),
            "breaks": sum(counters["graph_break"].values()),
        }
    import core

    return core.stats()


def measure(name: str, implementation: str, rounds: int) -> dict[str, Any]:
    """Everything the demo prints of one subject."""
    subject = SUBJECTS[name]()
    reference = subject.reference()
    eager_error = worst_error([t.clone() for t in subject.run(subject.model)], reference)
    compile_model = compiler(implementation)
    began = time.perf_counter()
    compiled = compile_model(subject.model)
    got = [t.clone() for t in subject.run(compiled)]
    first = time.perf_counter() - began
    for _ in range(2):
        subject.run(compiled)
    eager, steady = paired_times(subject, compiled, rounds)
    return {
        "subject": name,
        "implementation": implementation,
        **counts(implementation),
        "error": worst_error(got, reference),
        "eager_error": eager_error,
        "compile_s": first - steady,
        "eager_ms": eager * 1e3,
        "call_ms": steady * 1e3,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("subject", choices=sorted(SUBJECTS))
    parser.add_argument("implementation")
    parser.add_argument("--rounds", type=int, default=21)
    options = parser.parse_args()
    print(json.dumps(measure(options.subject, options.implementation, options.rounds)))


if __name__ == "__main__":
    main()
