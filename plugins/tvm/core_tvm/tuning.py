"""Tile sizes that were measured on this machine, for the sums of products of graphs of fixed sizes.

Only the sizes of tiles are tried: the order of loops is that of schedule.py, so that a tuned program computes what an
untuned one does, to the bit but for the order of sums. A candidate is compiled and run in this process, on one thread;
its time is the processor's, which a busy machine does not stretch. What was measured is kept in a file, by the text of
the function and the processor.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import tvm
from tvm import s_tir, tirx

from .schedule import Tile, scheduled_function

FILE = "core-tvm-tiles.json"
WIDEST, HIGHEST = 96, 8
"""Of a tile: elements along adjacent memory, and rows."""
LEAST_S = 0.01
"""Processor time that a measurement takes at least, in runs of the function."""


@dataclass
class Search:
    """The candidates of one function, and the best so far."""

    variable: Any
    function: Any
    key: str
    candidates: Iterator[Tile]
    best: Tile | None = None
    seconds: float = float("inf")
    tried: int = 0


@dataclass
class Tiles:
    """The kept sizes of a folder, none where it is ""."""

    folder: str
    found: dict[str, Sequence[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        try:
            self.found = json.loads(self._path.read_text(encoding="utf-8")) if self.folder else {}
        except (OSError, ValueError):
            self.found = {}

    @property
    def _path(self) -> Path:
        return Path(self.folder) / FILE

    def keep(self, key: str, tile: Tile) -> None:
        """Write a size down; the file is replaced as a whole."""
        self.found[key] = tile
        if not self.folder:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._path.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps(self.found, indent=0), encoding="utf-8")
        fresh.replace(self._path)


def tuned(module: Any, trials: int, folder: str, where: Any) -> tuple[Any, int]:
    """The module with loops in order and tiles of the best sizes, and how many measurements were made."""
    kept = Tiles(folder)
    searches = list(_searches(module, where, kept))
    waiting = [search for search in searches if search.best is None]
    made = 0
    while waiting and made < trials:
        for search in list(waiting):
            tile = next(search.candidates, None)
            if tile is None or made >= trials:
                waiting.remove(search)
                continue
            made += 1
            search.tried += 1
            seconds = _measured(search.function, tile, where)
            if seconds < search.seconds:
                search.best, search.seconds = tile, seconds
    for search in searches:
        if search.tried and search.best is not None:
            kept.keep(search.key, search.best)
    best = {search.variable: search.best for search in searches}
    for variable, function in list(module.functions.items()):
        if isinstance(function, tirx.PrimFunc):
            module.update_func(variable, scheduled_function(function, best.get(variable)))
    return module, made


def _searches(module: Any, where: Any, kept: Tiles) -> Iterator[Search]:
    for variable, function in module.functions.items():
        if not isinstance(function, tirx.PrimFunc):
            continue
        extents = _extents(function)
        if extents is None:
            continue
        key = hashlib.sha256(f"{function.script()} {where} {tvm.__version__}".encode()).hexdigest()
        search = Search(variable, function, key, _candidates(*extents))
        if key in kept.found:
            width, height = kept.found[key]
            search.best = (int(width), int(height))
        yield search


def _extents(function: Any) -> tuple[int, int] | None:
    """The sizes that tiles divide, those of the function's largest product; None without one of fixed sizes."""
    shapes = [getattr(parameter, "shape", None) for parameter in function.params]
    if any(shape is None or not all(isinstance(size, tirx.IntImm) for size in shape) for shape in shapes):
        return None
    schedule = s_tir.Schedule(function)
    found: list[tuple[int, int, int]] = []
    for block in schedule.get_child_blocks(schedule.get_sblock("root")):
        axes = schedule.get(block).iter_vars
        sizes = [int(axis.dom.extent) for axis in axes if axis.iter_type == 0]
        if schedule.get(block).name_hint.startswith("product") and sizes:
            work = 1
            for axis in axes:
                work *= int(axis.dom.extent)
            found.append((work, sizes[-1], sizes[-2] if len(sizes) > 1 else 1))
    return max(found)[1:] if found else None


def _candidates(across: int, down: int) -> Iterator[Tile]:
    """The rules' own choice first, (0, 0), then pairs of divisors, the largest tiles first."""
    yield (0, 0)
    widths = [size for size in range(min(across, WIDEST), 3, -1) if across % size == 0]
    heights = [size for size in range(min(down, HIGHEST), 0, -1) if down % size == 0]
    yield from sorted(((w, h) for w in widths for h in heights), key=lambda tile: -tile[0] * tile[1])


def _measured(function: Any, tile: Tile, where: Any) -> float:
    """Seconds of a run on made-up values; infinity where the tile can't be compiled."""
    try:
        candidate = scheduled_function(function, tile).with_attr("global_symbol", "main")
        run = tvm.compile(tvm.IRModule({"main": candidate}), target=where, tir_pipeline="default")["main"]
    except (s_tir.ScheduleError, tvm.error.InternalError, RuntimeError, ValueError):
        return float("inf")
    given = [_made_up(parameter) for parameter in function.params]
    run(*given)
    best, total = float("inf"), 0.0
    while total < LEAST_S:
        began = time.thread_time()
        run(*given)
        seconds = time.thread_time() - began
        best, total = min(best, seconds), total + max(seconds, 1e-6)
    return best


def _made_up(parameter: Any) -> Any:
    value = torch.zeros([int(size) for size in parameter.shape], dtype=getattr(torch, str(parameter.dtype)))
    return value.fill_(0.5) if value.is_floating_point() else value
