"""`core bench MODEL --backends a,b`: backends on one program, taken in turn with eager, each held against float64."""

from __future__ import annotations

import argparse
import copy
import importlib
import os
import runpy
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import CoreError
from .output import FOUND, OK, USAGE, print_json, print_table

COLUMNS = ("backend", "us", "ratio", "error", "error_ratio", "first_s", "note")
USE = "MODEL is MODULE:FUNCTION or SCRIPT.py:FUNCTION; FUNCTION returns (model, arguments)"


def register(subparsers: Any, common: argparse.ArgumentParser) -> None:
    bench = subparsers.add_parser(
        "bench", parents=[common], help="time backends on one program and check their results"
    )
    bench.add_argument("models", metavar="MODEL", nargs="+", help=USE)
    bench.add_argument("--backends", metavar="A,B", default="inductor", help="names, separated by commas")
    bench.add_argument("--training", action="store_true", help="a run is a forward and a backward")
    bench.add_argument("--rounds", type=int, default=30, metavar="N", help="rounds; each runs everything once (30)")
    bench.add_argument(
        "--clock", choices=("wall", "cpu"), default="wall", help="cpu: time of this process alone, for a busy machine"
    )
    bench.add_argument("--machine", metavar="TEXT", default="", help="what --json says it ran on, beside the processor")
    bench.set_defaults(run=_bench)


def _bench(parsed: argparse.Namespace) -> int:
    names = [name.strip() for name in parsed.backends.split(",") if name.strip()]
    loaded = []
    for text in parsed.models:
        try:
            loaded.append((text, *load_model(text)))
        except (ImportError, AttributeError, KeyError, TypeError, ValueError, OSError) as error:
            if parsed.json:
                print_json({"error": {"what": f"{text}: {error}", "remedy": USE}})
            else:
                print(f"{text}: {error}\n{USE}", file=sys.stderr)
            return USAGE
    clock = time.process_time if parsed.clock == "cpu" else time.perf_counter
    rows = []
    for text, model, arguments in loaded:
        found = compare(model, arguments, names, training=parsed.training, rounds=max(parsed.rounds, 1), clock=clock)
        rows += [{"model": text.rpartition(":")[2], **row} for row in found]
    if parsed.json:
        options = {"model": ", ".join(parsed.models), "training": parsed.training, "rounds": parsed.rounds}
        print_json({**options, "clock": parsed.clock, **surroundings(parsed.machine), "rows": rows})
    else:
        shown = COLUMNS if len(loaded) == 1 else ("model", *COLUMNS)
        print_table(shown, [{name: _shown(row[name]) for name in shown} for row in rows])
        print(
            "us: median of a run; ratio: median of eager's time over it, round by round (above 1 is faster than eager);"
        )
        print("error: relative root mean square error against float64; error_ratio: as a multiple of eager's")
    return FOUND if any(row["note"] for row in rows) else OK


def surroundings(words: str = "") -> dict[str, Any]:
    """Machine, versions and day of a run, as the catalog's table of benchmarks names them."""
    import datetime
    import platform

    import torch

    from .. import __version__

    threads = torch.get_num_threads()
    cores = f"{os.cpu_count()} cores, {threads} thread{'s' if threads > 1 else ''}"
    return {
        "machine": ", ".join(filter(None, (words, _processor() or platform.machine(), cores, platform.system()))),
        "versions": {"core": __version__, "torch": torch.__version__, "Python": platform.python_version()},
        "date": datetime.date.today().isoformat(),
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            found = (line.partition(":")[2].strip() for line in file if line.startswith("model name"))
            return next(found, "")
    except OSError:
        return ""


def load_model(text: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """(model, arguments) of what MODULE:FUNCTION or SCRIPT.py:FUNCTION returns. Raises what importing it raises."""
    place, _, name = text.rpartition(":")
    if not place or not name:
        raise ValueError("no function is named")
    if place.endswith(".py"):
        sys.path.insert(0, os.path.dirname(os.path.abspath(place)))
        factory = runpy.run_path(place, run_name="__bench__")[name] if os.path.isfile(place) else None
        if factory is None:
            raise OSError(f"there is no script {place}")
    else:
        sys.path.insert(0, os.getcwd())
        factory = getattr(importlib.import_module(place), name)
    made = factory()
    if not isinstance(made, tuple) or len(made) != 2 or not callable(made[0]):
        raise TypeError(f"{name}() returned {type(made).__name__}, not (model, arguments)")
    model, arguments = made
    return model, tuple(arguments) if isinstance(arguments, (tuple, list)) else (arguments,)


def compare(
    model: Callable[..., Any],
    arguments: Sequence[Any],
    names: Sequence[str],
    *,
    training: bool,
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> list[dict[str, Any]]:
    """One row for eager and one a backend. A backend that fails has a note in place of numbers."""
    import core

    exact = _results(_widened(model), [_wide(value) for value in arguments], training)
    runs: list[tuple[dict[str, Any], Callable[[], list[Any]]]] = []
    rows = []
    for name in ("eager (torch)", *names):
        row: dict[str, Any] = dict.fromkeys(COLUMNS, None)
        row.update(backend=name, note="")
        rows.append(row)
        own = copy.deepcopy(model) if not _is_function(model) else model
        try:
            program = own if len(rows) == 1 else core.compile(own, backend=name)
            run = _runner(program, arguments, training)
            began = clock()
            results = run()
        except CoreError as error:
            row["note"] = error.what
            continue
        except Exception as error:  # the edge of a plugin: the row says what it raised
            row["note"] = f"{type(error).__name__}: {error}"
            continue
        row["first_s"] = clock() - began
        row["error"] = _error(results, exact)
        runs.append((row, run))
    _time(runs, rounds, clock)
    base = rows[0]["error"]
    for row in rows:
        if row["error"] is not None and base:
            row["error_ratio"] = row["error"] / base
    return rows


def _time(runs: Sequence[tuple[dict[str, Any], Callable[[], Any]]], rounds: int, clock: Callable[[], float]) -> None:
    for _ in range(3):
        for _, run in runs:
            run()
    times: list[list[float]] = [[] for _ in runs]
    for turn in range(rounds):
        for at in [*range(turn % len(runs), len(runs)), *range(turn % len(runs))]:
            began = clock()
            runs[at][1]()
            times[at].append(clock() - began)
    for (row, _), own in zip(runs, times):
        row["us"] = statistics.median(own) * 1e6
        row["ratio"] = statistics.median(eager / one for eager, one in zip(times[0], own))


def _runner(program: Callable[..., Any], arguments: Sequence[Any], training: bool) -> Callable[[], list[Any]]:
    return lambda: _results(program, arguments, training)


def _results(program: Callable[..., Any], arguments: Sequence[Any], training: bool) -> list[Any]:
    """Tensors of the outputs, and in training the gradients of the parameters and inputs, of one run."""
    import torch

    with torch.set_grad_enabled(training):
        outputs = [value for value in _leaves(program(*arguments)) if isinstance(value, torch.Tensor)]
    if not training:
        _settle(outputs)
        return outputs
    leaves = [*getattr(program, "parameters", tuple)(), *(value for value in arguments if _needs_gradient(value))]
    carrying = [value for value in outputs if value.requires_grad]
    loss = sum((value.sum() for value in carrying[1:]), carrying[0].sum())
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    gradients = [g for g in torch.autograd.grad(loss, wanted, allow_unused=True) if g is not None]
    results = [*(value.detach() for value in outputs), *gradients]
    _settle(results)
    return results


def _settle(tensors: Sequence[Any]) -> None:
    if any(value.is_cuda for value in tensors):
        import torch

        torch.cuda.synchronize()


def _needs_gradient(value: Any) -> bool:
    return bool(getattr(value, "requires_grad", False))


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in _leaves(item)]
    if isinstance(value, (tuple, list)):
        return [leaf for item in value for leaf in _leaves(item)]
    return [value]


def _is_function(model: Any) -> bool:
    import torch

    return not isinstance(model, torch.nn.Module)


def _widened(model: Any) -> Any:
    return model if _is_function(model) else copy.deepcopy(model).double()


def _wide(value: Any) -> Any:
    import torch

    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    return value.detach().double().requires_grad_(value.requires_grad)


def _error(results: Sequence[Any], exact: Sequence[Any]) -> float:
    """The largest relative root mean square error of the floating results."""
    worst = 0.0
    for got, want in zip(results, exact):
        if want.is_floating_point() and want.numel():
            scale = float(want.double().square().mean().sqrt())
            worst = max(worst, float((got.double() - want.double()).square().mean().sqrt()) / (scale or 1.0))
    return worst


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if value < 1e4 else f"{value:.0f}"
    return "-" if value is None else str(value)
