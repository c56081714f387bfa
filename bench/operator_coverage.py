"""Which operators of the usual models a backend leaves to the fallback, and why.

    python -m bench.operator_coverage [--backend onnxrt] [--set main] [--modes infer] [--only bert,t5] [--json]

Each model of `make models` is compiled with eager as the only fallback and called once; core's own account of who got
each node is counted by operator and reason. Beside each model stand the graphs that the backend has whole, the largest
share of a graph's estimated cost that fell back, and how far results are from eager's.
"""

from __future__ import annotations

import argparse
import collections
import json
import sys
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

import core
from core.errors import CoreError
from core.events import ArtifactBuilt, Partitioned, subscribe

from .models_table import TOLERANCE, error
from .table_rows import MODES, SETS, modes_of, row

HEADER = f"{'model':<18} {'mode':<8} {'graphs':>6} {'divided':>7} {'nodes left':>10} {'cost left':>9} {'error':>8}"


@dataclass
class Coverage:
    """A model in one mode. divided: graphs of which a part fell back; left: (operator, reason, nodes) of those parts;
    cost_left: the largest share of one graph; error: against eager, None where the program failed."""

    model: str
    mode: str
    graphs: int = 0
    divided: int = 0
    left: list[tuple[str, str, int]] = field(default_factory=list)
    cost_left: float = 0.0
    error: float | None = None
    problem: str = ""

    def line(self) -> str:
        """The row of the table."""
        nodes = sum(count for _, _, count in self.left)
        wrong = "-" if self.error is None else f"{self.error:.1e}"
        counts = f"{self.graphs:>6} {self.divided:>7} {nodes:>10} {self.cost_left:>9.0%} {wrong:>8}"
        return f"{self.model:<18} {self.mode:<8} {counts}" + (f"  {self.problem}" if self.problem else "")


def coverage(name: str, mode: str, backend: str, options: dict[str, Any]) -> Coverage:
    """Compile and call one model."""
    found = Coverage(name, mode)
    left: collections.Counter[tuple[str, str]] = collections.Counter()

    def hear(event: Any) -> None:
        if isinstance(event, Partitioned):
            found.divided += any(region.fallback for region in event.regions)
            found.cost_left = max(found.cost_left, event.fallback_share)
            left.update((one.operator, one.reason) for one in event.refused if one.backend == backend)
        elif isinstance(event, ArtifactBuilt) and event.backend == backend:
            found.graphs += 1

    core.reset()
    subject, twin = row(name, mode), row(name, mode)
    torch.manual_seed(1)
    want = subject.run(subject.target)
    stop = subscribe(hear)
    try:
        torch.manual_seed(1)
        compiled = core.compile(twin.target, backend=backend, fallback=("eager",), options=options)
        found.error = error(twin.run(compiled), want)
    except CoreError as problem:
        found.problem = problem.what
    finally:
        stop()
    found.left = [(operator, reason, count) for (operator, reason), count in left.most_common()]
    return found


def in_total(rows: Sequence[Coverage]) -> list[tuple[str, str, int, int]]:
    """(operator, reason, nodes, models) of all rows, what most models have first."""
    nodes: collections.Counter[tuple[str, str]] = collections.Counter()
    models: collections.Counter[tuple[str, str]] = collections.Counter()
    for one in rows:
        for operator, reason, count in one.left:
            nodes[operator, reason] += count
            models[operator, reason] += 1
    return [(*key, nodes[key], count) for key, count in models.most_common()]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="onnxrt")
    parser.add_argument(
        "--set", default="main", choices=sorted(SETS), help="the models of `make models`, or the others"
    )
    parser.add_argument("--modes", default="infer", help=f"of {', '.join(MODES)}")
    parser.add_argument("--only", default="", help="names of models")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    modes = options.modes.split(",")
    only = [name for name in options.only.split(",") if name]
    table = {"training": True} if "train" in modes and options.backend != "ipex" else {}
    rows: list[Coverage] = []
    if not options.json:
        print(HEADER, flush=True)
    warnings.simplefilter("ignore")  # the models' own
    for name in only or SETS[options.set]:
        for mode in modes:
            if mode in modes_of(name):
                rows.append(coverage(name, mode, options.backend, table))
                if not options.json:
                    print(rows[-1].line(), flush=True)
    if options.json:
        print(json.dumps({"backend": options.backend, "rows": [asdict(one) for one in rows]}, indent=1))
    else:
        print(f"\n{'operator':<44} {'models':>6} {'nodes':>6}  reason")
        for operator, reason, nodes, models in in_total(rows):
            print(f"{operator:<44} {models:>6} {nodes:>6}  {reason}")
    good = all(one.error is not None and one.error <= TOLERANCE for one in rows)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
