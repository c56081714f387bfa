"""Paired benchmark: eager, core and (with --peer) torch.compile, on the same inputs, taken in turn, each row checked.

    python -m bench [overhead] [kernels] [compile] [models] [--peer] [--backend NAME] [--rounds N]

Times are medians over rounds; a ratio is the median over rounds of eager's time over the implementation's (above 1 is
faster than eager). `error` is the largest relative difference from eager. `compile` and `models` run processes of
their own.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from . import demo
from .programs import Program, kernels, overhead
from .subjects import worst_error

SUITES: dict[str, Callable[[], list[Program]]] = {"overhead": overhead, "kernels": kernels}
TOLERANCE = 1e-4  # relative, fp32
ROUNDINGS = 2  # of 16-bit results


def implementations(backend: str, peer: bool) -> dict[str, Callable[[Any], Any]]:
    """Name -> compile function; eager first."""
    import core

    found: dict[str, Callable[[Any], Any]] = {
        "eager": lambda fn: fn,
        "core": lambda fn: core.compile(fn, backend=backend),
    }
    if peer:
        found["torch.compile"] = torch.compile
    return found


def seconds(program: Program, fn: Any, calls: int) -> float:
    """Seconds a call over `calls` calls."""
    began = time.perf_counter()
    for _ in range(calls):
        program.call(fn)
    return (time.perf_counter() - began) / calls


def run_suite(programs: list[Program], compilers: dict[str, Callable[[Any], Any]], rounds: int) -> bool:
    """Print one row a program and implementation; False when a result is wrong."""
    good = True
    print(f"{'program':32} {'implementation':14} {'us a call':>11} {'ratio':>7} {'error':>9} {'first s':>8}")
    for program in programs:
        reference = program.call(program.fn)
        tolerance = max(
            TOLERANCE, *(ROUNDINGS * torch.finfo(t.dtype).eps for t in reference if t.is_floating_point()), 0
        )
        compiled, errors, first = {}, {}, {}
        for name, compile_fn in compilers.items():
            began = time.perf_counter()
            compiled[name] = compile_fn(program.fn)
            errors[name] = worst_error([t.clone() for t in program.call(compiled[name])], reference)
            first[name] = time.perf_counter() - began
            program.call(compiled[name])
        calls = max(1, min(2000, int(0.02 / max(seconds(program, program.fn, 3), 1e-7))))
        times: dict[str, list[float]] = {name: [] for name in compiled}
        for _ in range(rounds):
            for name, fn in compiled.items():
                times[name].append(seconds(program, fn, calls))
        for name, taken in times.items():
            ratio = statistics.median(eager / own for eager, own in zip(times["eager"], taken))
            mark = "" if errors[name] <= tolerance else "  WRONG"
            good = good and not mark
            print(
                f"{program.name:32} {name:14} {statistics.median(taken) * 1e6:11.2f} {ratio:7.2f} "
                f"{errors[name]:9.1e} {first[name]:8.2f}{mark}",
                flush=True,
            )
    return good


def run_processes(subjects: tuple[str, ...], peer: bool, rounds: int) -> bool:
    """The demo's rows, for cold and warm compile time and models."""
    arguments = ["--only", ",".join(subjects), "--rounds", str(rounds), *(["--peer"] if peer else [])]
    return demo.main(arguments) == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("suites", nargs="*", default=["overhead", "kernels"])
    parser.add_argument("--peer", action="store_true", help="also measure torch.compile")
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    good = True
    for suite in options.suites:
        print(f"== {suite}, {torch.get_num_threads()} threads, torch {torch.__version__}")
        if suite in SUITES:
            good &= run_suite(SUITES[suite](), implementations(options.backend, options.peer), options.rounds)
        elif suite == "compile":
            good &= run_processes(("mlp", "bert"), options.peer, 5)
        elif suite == "models":
            good &= run_processes(demo.SUBJECTS, options.peer, options.rounds)
        else:
            parser.error(f"unknown suite {suite!r}: overhead, kernels, compile, models")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
