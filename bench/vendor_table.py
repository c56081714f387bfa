"""Models through each installed backend: error, compile time, run time, and how much of the model is the backend's own.

    python -m bench.vendor_table [--models bert,resnet50] [--backends onnxrt,ipex] [--device cuda] [--rounds N] [--json]

Each model and backend has a process of its own, with the weights read on each call and with `freeze=True`; in it
eager, core's inductor and the backend take turns, on one thread unless --threads says more: threads that wait for one
another on a busy machine measure the others. Random weights, nothing is downloaded. Results are held against float64.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

from core.backends.registry import Registry
from core.plugin import installed_version

ROOT = Path(__file__).resolve().parent.parent
MODELS = ("bert", "resnet50", "vit", "gpt2", "mlp")
REFERENCES = ("eager", "inductor")
NOT_COMPILERS = frozenset(("eager", "aot_eager", "aot_eager_decomp_partition"))
TOLERANCE = 1e-4  # relative, of float32; the table's exit status says whether all stayed below
ROUNDS = 15
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
TIMEOUT_S = 900
COLUMNS = ("model", "backend", "weights", "error", "eager_error", "compile_s", "run_us", "ratio", "inductor", "own")
HEADER = ("model", "backend", "weights", "error", "eager err", "compile s", "ms", "/eager", "/inductor", "own cost")
WIDTHS = (9, 10, 7, 8, 9, 9, 9, 7, 9, 8)
LEGEND = """error: relative, against float64, eager's beside it; compile s: first call less a later one, empty cache;
ms: median of a call; /eager, /inductor: median over rounds of their time by the backend's, above 1 is faster than they;
own cost: share of the graph's estimated cost that the backend computes itself, the rest went to the fallback"""


# -- one process ------------------------------------------------------------------------------------------------------


@contextmanager
def own_shares() -> Iterator[list[float]]:
    """The share of each compiled graph's cost that is no fallback's, as graphs are compiled."""
    from core.events import ArtifactBuilt, Partitioned, subscribe

    found: list[float] = []
    divided: list[float] = []

    def hear(event: Any) -> None:
        if isinstance(event, Partitioned):
            divided.append(sum(region.share for region in event.regions if not region.fallback))
        elif isinstance(event, ArtifactBuilt):
            found.append(1.0)

    stop = subscribe(hear)
    try:
        yield found
    finally:
        stop()
        if divided:
            found[:] = divided


def clock_of(kind: str, device: str) -> Callable[[], float]:
    """A clock of CLOCKS that waits, before it is read, for what a device other than the CPU still computes."""
    read = CLOCKS[kind]
    if device == "cpu":
        return read
    import torch

    def waits() -> float:
        torch.accelerator.synchronize(device)
        return read()

    return waits


def first_call(subject: Any, compiled: Any, clock: Callable[[], float]) -> tuple[list[Any], float]:
    """Results of the first call and its seconds."""
    began = clock()
    got = [tensor.clone() for tensor in subject.run(compiled)]
    return got, clock() - began


def in_turn(runs: Sequence[Callable[[], Any]], rounds: int, clock: Callable[[], float]) -> list[list[float]]:
    """Seconds of each run in each round; who begins goes round."""
    for _ in range(2):
        for run in runs:
            run()
    times: list[list[float]] = [[] for _ in runs]
    for turn in range(rounds):
        for at in [*range(turn % len(runs), len(runs)), *range(turn % len(runs))]:
            began = clock()
            runs[at]()
            times[at].append(clock() - began)
    return times


def measure(
    model: str, backend: str, rounds: int, threads: int, clock: str, device: str = "cpu"
) -> list[dict[str, Any]]:
    """The rows of a model and a backend, in this process, whose settings are put back behind it."""
    import warnings

    import torch

    flags = torch.backends.cuda.matmul, torch.backends.cudnn
    before = torch.get_num_threads(), [flag.allow_tf32 for flag in flags]
    try:
        torch.set_num_threads(threads)
        for flag in flags:
            flag.allow_tf32 = False
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the backends' own
            return _measured(model, backend, rounds, clock, device)
    finally:
        torch.set_num_threads(before[0])
        for flag, allowed in zip(flags, before[1]):
            flag.allow_tf32 = allowed


def _measured(model: str, backend: str, rounds: int, clock: str, device: str) -> list[dict[str, Any]]:
    import core

    from .subjects import SUBJECTS, worst_error

    subject = SUBJECTS[model]().on(device)
    reference = subject.reference()
    eager_error = worst_error(subject.run(subject.model), reference)
    runs: list[Callable[[], Any]] = [lambda: subject.run(subject.model)]
    others = [backend] if backend == "inductor" else ["inductor", backend]
    rows: list[dict[str, Any]] = []
    measured: list[tuple[dict[str, Any], int, float]] = []
    ways = [(name, freeze) for name in others for freeze in (False, True) if name == backend or not freeze]
    for name, freeze in ways:
        row: dict[str, Any] = dict.fromkeys(COLUMNS)
        row.update(model=model, backend=name, weights="frozen" if freeze else "read", eager_error=eager_error, note="")
        if name == backend:
            rows.append(row)
        try:
            with own_shares() as shares:
                compiled = core.compile(subject.model, backend=name, freeze=freeze)
                got, first = first_call(subject, compiled, clock_of("wall", device))
        except core.CoreError as error:
            row["note"] = error.what
            if name == backend:
                return [{**row, "weights": "-"}]
            continue
        row["error"] = worst_error(got, reference)
        row["own"] = statistics.fmean(shares) if shares else None
        measured.append((row, len(runs), first))
        runs.append(lambda compiled=compiled: subject.run(compiled))
    times = in_turn(runs, rounds, clock_of(clock, device))
    inductor = next((times[at] for row, at, _ in measured if row["backend"] == "inductor"), None)
    for row, at, first in measured:
        row["run_us"] = statistics.median(times[at]) * 1e6
        row["compile_s"] = max(first - row["run_us"] / 1e6, 0.0)
        row["ratio"] = statistics.median(eager / own for eager, own in zip(times[0], times[at]))
        if inductor is not None:
            row["inductor"] = statistics.median(other / own for other, own in zip(inductor, times[at]))
    for row in rows:
        row["eager_us"] = statistics.median(times[0]) * 1e6
    return rows


# -- all of them ------------------------------------------------------------------------------------------------------


def installed() -> list[str]:
    """The compilers among the installed backends, inductor first."""
    names = sorted({found.name for found in Registry().installed()} - NOT_COMPILERS)
    return sorted(names, key=lambda name: name != "inductor")


def in_process(model: str, backend: str, options: argparse.Namespace, cache: str) -> list[dict[str, Any]]:
    """The rows of a model and a backend from a process of their own."""
    command = [sys.executable, "-m", "bench.vendor_table", "--one", model, backend, "--rounds", str(options.rounds)]
    command += ["--threads", str(options.threads), "--clock", options.clock, "--device", options.device]
    surroundings = {**os.environ, "CORE_CACHE_DIR": cache, "OMP_NUM_THREADS": str(options.threads)}
    failed: dict[str, Any] = {**dict.fromkeys(COLUMNS), "model": model, "backend": backend, "weights": "-"}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=surroundings, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return [{**failed, "note": f"no result after {TIMEOUT_S} s"}]
    if done.returncode:
        last = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1]
        return [{**failed, "note": last}]
    rows: list[dict[str, Any]] = json.loads(done.stdout.strip().splitlines()[-1])
    return rows


def machine(device: str = "cpu") -> dict[str, Any]:
    """What the numbers belong to."""
    name = platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), name)
    except OSError:
        pass
    found = {"processor": name, "cores": f"{os.cpu_count()} cores", "system": platform.system()}
    if device.startswith("cuda"):
        import torch

        found["gpu"] = torch.cuda.get_device_name(device)
    return found


def shown(row: dict[str, Any]) -> tuple[str, ...]:
    """A row as texts, in the order of HEADER."""

    def number(key: str, form: str, scale: float = 1.0) -> str:
        value = row.get(key)
        return "-" if value is None else format(value * scale, form)

    return (
        row["model"],
        row["backend"],
        row["weights"],
        number("error", ".1e"),
        number("eager_error", ".1e"),
        number("compile_s", ".2f"),
        number("run_us", ".2f", 1e-3),
        number("ratio", ".2f"),
        number("inductor", ".2f"),
        number("own", ".0%"),
    )


def wrong(row: dict[str, Any]) -> bool:
    """Whether a row's result is not eager's."""
    return row["error"] is not None and not row["error"] <= max(TOLERANCE, 4 * row["eager_error"])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.vendor_table", description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join(MODELS), help=f"of {', '.join(MODELS)}")
    parser.add_argument("--backends", default="", help="names; default: every compiler that is installed")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--clock", choices=tuple(CLOCKS), default="wall", help="cpu: of the process, for a busy machine"
    )
    parser.add_argument("--device", default="cpu", help="of the tensors; not cpu: one that torch has here")
    parser.add_argument("--json", action="store_true", help="rows and machine, as the catalog has benchmarks")
    parser.add_argument(
        "--out", type=Path, help="also write that JSON here, row by row; a run that was interrupted goes on"
    )
    parser.add_argument("--one", nargs=2, metavar=("MODEL", "BACKEND"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.device != "cpu" and options.clock == "cpu":
        parser.error("the processor's time says nothing of what another device computes: --clock wall")
    if options.one:
        print(json.dumps(measure(*options.one, options.rounds, options.threads, options.clock, options.device)))
        return 0
    models = [name for name in options.models.split(",") if name]
    backends = [name for name in options.backends.split(",") if name] or installed()
    made: dict[str, Any] = {
        "machine": machine(options.device),
        "date": date.today().isoformat(),
        "versions": {name: installed_version(name) for name in ("torch", "core", *_runtimes())},
        "rounds": options.rounds,
        "threads": options.threads,
        "clock": options.clock,
        "device": options.device,
        "rows": [],
    }
    rows = made["rows"] = kept_rows(options.out, made)
    if not options.json:
        print(line(HEADER), flush=True)
    for model in models:
        with tempfile.TemporaryDirectory() as cache:
            for backend in backends:
                here = [row for row in rows if (row["model"], row["backend"]) == (model, backend)]
                if not here:
                    here = in_process(model, backend, options, cache)
                    rows += here
                    write(made, options.out)
                for row in here if not options.json else ():
                    print(f"{line(shown(row))}  {row['note']}".rstrip(), flush=True)
    if options.json:
        print(json.dumps(made, indent=1))
    else:
        print(LEGEND)
        how = (options.device, f"{options.threads} thread(s)", f"{options.clock} time", f"{options.rounds} rounds")
        print("; ".join([*made["machine"].values(), *how, *(f"{a} {b}" for a, b in made["versions"].items())]))
    return 1 if any(map(wrong, rows)) else 0


def kept_rows(out: Path | None, made: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of a run that was interrupted: of this day and machine, these versions and settings."""
    if out is None or not out.is_file():
        return []
    old = json.loads(out.read_text(encoding="utf-8"))
    same = all(old.get(key) == value for key, value in made.items() if key != "rows")
    return list(old["rows"]) if same else []


def write(made: Mapping[str, Any], out: Path | None) -> None:
    """The rows so far."""
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


def line(cells: Sequence[str]) -> str:
    """A row of the printed table."""
    return "  ".join(cell.rjust(width) for cell, width in zip(cells, WIDTHS))


def _runtimes() -> list[str]:
    names = ("transformers", "triton", "onnxruntime", "onnxruntime-gpu", "openvino", "apache-tvm")
    return [name for name in names if installed_version(name)]


if __name__ == "__main__":
    sys.exit(main())
