"""`make models`: capture of many architectures, inference and training. Each row is measured in a process of its own.

    python -m bench.models_table [--peer [BACKEND ...]] [--only bert,t5] [--modes infer,train] [--state DIR] [--json]

A row: graphs, graph breaks with their reasons, recompiles, the largest relative error against eager over outputs and
gradients of two calls (dropout included: both draw from the same seed), and seconds of the first call with empty
caches. With --state a run that was stopped goes on. Exit status 1 when core gives a wrong result, or has more breaks
than torch.compile in a row that both have.
"""

from __future__ import annotations

import argparse
import collections
import json
import multiprocessing
import os
import platform
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from core.plugin import installed_version

from .vendor_table import machine

PEER = "torch.compile"
TOLERANCE = 1e-4  # relative; fp32 through a backward
NEGLIGIBLE = 1e-3  # of the largest tensor's norm: gradients below it are differences of what cancels
TIMEOUT_S = 900
PRELOADED = ("torch", "transformers.modeling_utils", "transformers.generation")
OFFLINE = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
ERRORS = "said.txt"
SIDE = f"{'graphs':>6} {'breaks':>6} {'recompiles':>10} {'error':>8} {'first s':>7}"


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


def _cpu_seconds() -> float:
    """Of this process and of the compilers that it has waited for."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


CLOCKS = {"wall": time.perf_counter, "cpu": _cpu_seconds}


def measure(name: str, mode: str, implementation: str, clock: str) -> dict[str, Any]:
    """One half of a row: two calls of eager and, on a twin with the same weights, of the implementation."""
    import torch

    before = torch.get_num_threads()
    try:
        if clock == "cpu":
            torch.set_num_threads(1)  # threads that wait for one another would be counted
        return _measured(name, mode, implementation, clock)
    finally:
        torch.set_num_threads(before)


def _measured(name: str, mode: str, implementation: str, clock: str) -> dict[str, Any]:
    import torch

    from .table_rows import row

    def run(target: Any) -> list[Any]:
        torch.manual_seed(1)
        return [tensor.clone() for tensor in subject.run(target)]

    def two_runs_of_eager() -> list[list[Any]]:
        return [run(subject.target), run(subject.target)]

    def furthest(runs: Sequence[list[Any]]) -> float:
        return max(map(error, runs, wanted))

    subject = row(name, mode)
    wanted = two_runs_of_eager()
    subject = row(name, mode)
    compiled, report = compiler(implementation, subject.target)
    began = CLOCKS[clock]()
    first = run(compiled)
    seconds = CLOCKS[clock]() - began
    found = {"name": name, "mode": mode, "implementation": implementation, "s": seconds}
    found |= {"error": furthest([first, run(compiled)]), **report()}
    if not found["error"] <= TOLERANCE:
        subject = row(name, mode)
        found["repeatable"] = furthest(two_runs_of_eager()) <= TOLERANCE  # else no error says anything
    return found


def compiler(implementation: str, target: Any) -> tuple[Any, Any]:
    """The compiled callable, and a function that gives graphs, breaks, recompiles and reasons."""
    name, _, backend = implementation.partition(":")
    if name == PEER:
        return _peer(target, backend)
    import core
    from core import events

    core.reset()
    seen: list[Any] = []
    stop = events.subscribe(seen.append)
    compiled = core.compile(target, backend=backend or "inductor")

    def report() -> dict[str, Any]:
        stop()
        stats = core.stats()
        reasons = [e.reason for e in seen if isinstance(e, (events.GraphBroken, events.FrameSkipped, events.FellBack))]
        counts = {key: stats[key] for key in ("graphs", "breaks", "recompiles", "skipped")}
        return {**counts, "reasons": counted(reasons)}

    return compiled, report


def _peer(target: Any, backend: str) -> tuple[Any, Any]:
    import torch
    from torch._dynamo.utils import counters, get_compilation_metrics

    def report() -> dict[str, Any]:
        breaks = counters["graph_break"]
        return {
            "graphs": counters["stats"].get("unique_graphs", 0),
            "breaks": sum(breaks.values()),
            "recompiles": sum(bool(frame.recompile_reason) for frame in get_compilation_metrics()),
            "reasons": [f"{count} x {reason.strip().splitlines()[0]}" for reason, count in breaks.most_common()],
        }

    if backend not in ("", "inductor"):
        return torch.compile(target, backend=backend), report
    # eager's random numbers, so that dropout can be compared
    return torch.compile(target, options={"fallback_random": True}), report


def counted(reasons: list[str]) -> list[str]:
    """Each reason once, with how often it came, most frequent first."""
    return [f"{count} x {reason}" for reason, count in collections.Counter(reasons).most_common()]


def in_process(name: str, mode: str, implementation: str, clock: str) -> dict[str, Any]:
    """measure() in a process of its own, with empty caches. It is forked from one that has imported the libraries."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    half = (name, mode, implementation, clock)
    failed = {"name": name, "mode": mode, "implementation": implementation}
    with tempfile.TemporaryDirectory() as folder:
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_measure_and_send, args=(sender, folder, half))
        process.start()
        sender.close()
        found: dict[str, Any] = {**failed, "failed": f"no result after {TIMEOUT_S} s"}
        try:
            if receiver.poll(TIMEOUT_S):
                found = receiver.recv()
        except EOFError:
            process.join()
            said = (Path(folder) / ERRORS).read_text(encoding="utf-8", errors="replace").strip().splitlines()
            found = {**failed, "failed": said[-1] if said else f"exit status {process.exitcode}"}
        process.kill()
        process.join()
    return found


def _measure_and_send(sender: Any, folder: str, half: tuple[str, str, str, str]) -> None:
    """The new process: its caches and what it says are in the folder."""
    said = os.open(f"{folder}/{ERRORS}", os.O_WRONLY | os.O_CREAT)
    for standard in (1, 2):
        os.dup2(said, standard)
    os.environ.update(CORE_CACHE_DIR=f"{folder}/core", TORCHINDUCTOR_CACHE_DIR=f"{folder}/peer", **OFFLINE)
    if half[-1] == "cpu":
        os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # compilers that are waited for, so that they count
    sender.send(measure(*half))


# -- what a stopped run has done -------------------------------------------------------------------------------------


def conditions(clock: str) -> dict[str, Any]:
    """What the numbers belong to."""
    versions = {name: installed_version(name) for name in ("core", "torch", "transformers")}
    return {"machine": machine(), "clock": clock, "versions": {"python": platform.python_version(), **versions}}


def half_of(name: str, mode: str, implementation: str, clock: str, state: Path | None) -> dict[str, Any]:
    """What the state has of this machine, clock and these versions, else measured now and kept there."""
    kept = state / f"{name}.{mode}.{implementation.replace(':', '-')}.json" if state else None
    now = conditions(clock)
    if kept and kept.is_file():
        found: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
        if found["conditions"] == now:
            return found
    half = {**in_process(name, mode, implementation, clock), "conditions": now, "date": date.today().isoformat()}
    if kept:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(half, indent=1) + "\n", encoding="utf-8")
    return half


# -- the table -------------------------------------------------------------------------------------------------------


def wrong(half: Mapping[str, Any]) -> bool:
    """Whether there is no result, or one that isn't eager's where eager has one."""
    return "failed" in half or repeatable(half) and not half["error"] <= TOLERANCE


def repeatable(half: Mapping[str, Any]) -> bool:
    """False where eager, given the same seed, does not give its own results again."""
    return bool(half.get("repeatable", True))


def breaks(half: Mapping[str, Any]) -> float:
    """Places where compiled code ended: breaks and frames that were left to Python."""
    return float("inf") if "failed" in half else half["breaks"] + half.get("skipped", 0)


def complaints(halves: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is wrong with core's half of a row; the peer's is the second, if there is one."""
    ours, *peers = halves
    found = ["failed" if "failed" in ours else "wrong result"] if wrong(ours) else []
    if any(breaks(ours) > breaks(peer) for peer in peers):
        found.append("more breaks")
    return found


def remarks(halves: Sequence[Mapping[str, Any]]) -> list[str]:
    """What a row's reader should know beside what is complained of."""
    return [] if all(map(repeatable, halves)) else ["eager is not repeatable"]


def side(half: Mapping[str, Any]) -> str:
    """One implementation's columns."""
    if "failed" in half:
        return "failed".rjust(len(SIDE))
    counts = f"{half['graphs']:6} {half['breaks'] + half.get('skipped', 0):6} {half['recompiles']:10}"
    distance = format(half["error"], "8.1e") if repeatable(half) else f"{'-':>8}"
    return f"{counts} {distance} {half['s']:7.1f}"


def show(halves: Sequence[Mapping[str, Any]]) -> None:
    """Print a row, and below it the reasons of its breaks."""
    start = f"{halves[0]['name']:12} {halves[0]['mode']:8}"
    texts = [*(text.upper() for text in complaints(halves)), *remarks(halves)]
    print("  ".join([start, *map(side, halves), *texts]), flush=True)
    for half in halves:
        texts = [half["failed"]] if "failed" in half else half["reasons"]
        for text in texts:
            print(f"    {half['implementation']}: {' '.join(text.split())[:150]}", flush=True)


def summary(rows: Sequence[Sequence[Mapping[str, Any]]]) -> str:
    """The lines below the table."""
    lines = []
    for halves in zip(*rows):
        done = [half for half in halves if "failed" not in half]
        largest = max((half["error"] for half in done if repeatable(half)), default=0.0)
        lines.append(
            f"{halves[0]['implementation']}: {len(halves)} rows, {sum(map(wrong, halves))} wrong or failed, "
            f"{sum(not breaks(half) for half in done)} without a break, {sum(map(breaks, done)):.0f} breaks, "
            f"{sum(half['recompiles'] for half in done)} recompiles, largest error {largest:.1e}, "
            f"{sum(half['s'] for half in done):.0f} s of first calls"
        )
    found = collections.Counter(text for halves in rows for text in (*complaints(halves), *remarks(halves)))
    lines.append(", ".join(f"{count} rows: {text}" for text, count in found.items()) or "no row is complained of")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; the exit status says whether any row of core's is complained of."""
    parser = argparse.ArgumentParser(prog="python -m bench.models_table", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--peer", nargs="*", metavar="BACKEND", help="also torch.compile, with inductor or with these")
    parser.add_argument("--backend", default="inductor", help="of core")
    parser.add_argument("--only", default="", help="names of rows; default: all")
    parser.add_argument("--set", choices=("main", "more"), default="main", help="which rows there are")
    parser.add_argument("--modes", default="", help="infer, train, generate, step; default: all that a row has")
    parser.add_argument("--shard", default="0/1", metavar="I/N", help="each Nth name, beginning with the Ith")
    parser.add_argument("--state", type=Path, help="keep each measurement here; those that are here are not made again")
    parser.add_argument(
        "--clock",
        choices=tuple(CLOCKS),
        default="wall",
        help="cpu: of the process and its compilers",
    )
    parser.add_argument("--json", action="store_true", help="all numbers with machine and versions, in place of text")
    options = parser.parse_args(arguments)
    from .table_rows import SETS, modes_of

    peers = [] if options.peer is None else options.peer or ["inductor"]
    implementations = [f"core:{options.backend}", *(f"{PEER}:{backend}" for backend in peers)]
    first, _, step = options.shard.partition("/")
    chosen = (options.only.split(",") if options.only else SETS[options.set])[int(first) :: int(step)]
    modes = options.modes.split(",") if options.modes else None
    if not options.json:
        print("  ".join([" " * 21, *(name.center(len(SIDE), "-") for name in implementations)]).rstrip())
        print("  ".join([f"{'architecture':12} {'mode':8}", *([SIDE] * len(implementations))]), flush=True)
    rows = []
    for name in chosen:
        for mode in modes_of(name):
            if modes is None or mode in modes:
                rows.append([half_of(name, mode, each, options.clock, options.state) for each in implementations])
                if not options.json:
                    show(rows[-1])
    if options.json:
        print(json.dumps({**conditions(options.clock), "date": date.today().isoformat(), "rows": rows}, indent=1))
    else:
        found = conditions(options.clock)
        print(summary(rows))
        print(
            "; ".join(
                [
                    *found["machine"].values(),
                    f"{options.clock} time",
                    *(f"{a} {b}" for a, b in found["versions"].items()),
                ]
            )
        )
    return 1 if any(map(complaints, rows)) else 0


if __name__ == "__main__":
    sys.exit(main())
