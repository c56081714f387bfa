"""Runs random programs in shards that can be stopped and taken up again.

    python tests/fuzz/shards.py --programs 10000 --shards 4 --shard 0 [--backend inductor] [--grammar tensors|autograd] [--dynamic]
        [--compile '{"fallback": ["aot_eager"], "options": {"training": true}}'] [--state DIR] [--fresh]

There are five grammars: "python", programs that use the language, "habits", such programs with more of what people
write (classes of all sorts, generators that are sent to, patterns, texts), "tensors", straight lines of operations, "functions",
such lines of rarer functions and arguments, and "autograd", straight lines whose callers take gradients in many ways; of
all but the first two compilers are not asked what they leave open (see compare). Seeds are dealt to the shards in turn. The state of a shard
is a JSON file: the next seed, the totals, and the seeds whose programs differ; a run takes up where the file ends, and a
process that died is seen as a crash of the seed it was at. A difference prints a minimised script. The exit status is 1
when anything differs, or when less was captured than FLOORS say.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("CORE_STRICT", "1")

import torch
from autograd_programs import make_autograd_program
from comparison import Hangs, Outcome, compare
from habits import make_habit_program
from minimise import minimised
from programs import Program, make_program
from tensor_programs import make_function_program, make_tensor_program

# Shares of the programs of a run, and operations a program: measured over 1,000 of them (0.92, 0.75, 0.82, 29), less
# what chance may take.
FLOORS = {"captured": 0.85, "whole": 0.65, "whole where no break is meant": 0.72, "operations": 20.0}
GRAMMARS: dict[str, Callable[[int], Program]] = {
    "python": make_program,
    "habits": make_habit_program,
    "tensors": make_tensor_program,
    "functions": make_function_program,
    "autograd": make_autograd_program,
}
OF_THE_LANGUAGE = ("python", "habits")
REFUSALS = ("Refused", "RecorderRefused")
FOOTER = """

if __name__ == "__main__":
    import sys

    sys.path.insert(0, "tests/fuzz")
    from comparison import compare

    print(compare(open(__file__).read(), {backend!r}, **{options!r}).difference or "no difference")
"""


@dataclass
class Totals:
    """What a run has seen. `next` is the seed to go on with; `running` the one that a dead process was at."""

    next: int = 0
    running: int | None = None
    counts: dict[str, int] = field(default_factory=dict)
    differing: dict[str, list[int]] = field(default_factory=dict)

    def add(self, **counts: int) -> None:
        total = Counter(self.counts)
        total.update(counts)
        self.counts = dict(total)

    def shares(self) -> dict[str, float]:
        """The measures that FLOORS bounds."""
        counts = Counter(self.counts)
        programs, meant = counts["programs"] or 1, counts["no break meant"] or 1
        return {
            "captured": counts["captured"] / programs,
            "whole": counts["whole"] / programs,
            "whole where no break is meant": counts["whole, no break meant"] / meant,
            "operations": counts["operations"] / programs,
        }

    def too_low(self) -> list[str]:
        """The measures below their floor."""
        return [f"{name} {share:.3f} < {FLOORS[name]}" for name, share in self.shares().items() if share < FLOORS[name]]


def run_seed(
    seed: int,
    totals: Totals,
    backend: str,
    compiler: Callable[..., Any] | None = None,
    *,
    grammar: str = "python",
    dynamic: bool | None = None,
    **options: Any,
) -> str | None:
    """Compare the program of one seed and count it; the difference and its script where there is one."""
    program = GRAMMARS[grammar](seed)
    try:
        outcome, refused = _compared(
            program.text, backend, compiler=compiler, dynamic=dynamic, loose=grammar not in OF_THE_LANGUAGE, **options
        )
    except Hangs as error:
        totals.differing.setdefault("hangs", []).append(seed)
        return f"seed {seed}: {error}\n{program.text}"
    totals.add(refused=int(refused))
    _count(totals, outcome, program.breaking)
    if outcome.difference is None:
        return None
    totals.differing.setdefault(outcome.difference.kind, []).append(seed)
    return f"seed {seed}: {outcome.difference}"


def _compared(text: str, backend: str, **how: Any) -> tuple[Outcome, bool]:
    """The outcome, and whether it is a program for torch's own AOTAutograd, which strict runs leave out."""
    outcome = compare(text, backend, **how)
    if backend == "eager" or outcome.difference is None or not outcome.difference.kind.startswith(REFUSALS):
        return outcome, False
    with mock.patch.dict(os.environ, {"CORE_STRICT": "0"}):
        return compare(text, backend, **how), True


def _count(totals: Totals, outcome: Outcome, breaking: int) -> None:
    stats = outcome.stats
    whole = stats["graphs"] > 0 and not stats["breaks"] and not stats["skipped"]
    totals.add(
        programs=1,
        captured=int(stats["graphs"] > 0),
        whole=int(whole),
        graphs=stats["graphs"],
        operations=stats["ops"],
        breaks=stats["breaks"],
        recompiles=stats["recompiles"],
        skipped=stats["skipped"],
        raised=outcome.raised,
        **{"no break meant": int(not breaking), "whole, no break meant": int(whole and not breaking)},
    )


def script(
    seed: int,
    backend: str,
    seconds: float = 40,
    *,
    grammar: str = "python",
    dynamic: bool | None = None,
    **options: Any,
) -> str:
    """The minimised program of a seed that differs, as a script to run at the root of the repository."""
    text = GRAMMARS[grammar](seed).text
    how = {"dynamic": dynamic, "loose": grammar not in OF_THE_LANGUAGE, **options}
    first = _compared(text, backend, **how)[0].difference
    if first is None:
        return text

    def fails(candidate: str) -> bool:
        try:
            found = _compared(candidate, backend, **how)[0].difference
        except (Exception, Hangs):  # noqa: BLE001  a candidate may be nonsense in any way
            return False
        return found is not None and (found.kind, found.endings) == (first.kind, first.endings)

    unraisable, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        text = minimised(text, fails, seconds)
    finally:
        sys.unraisablehook = unraisable
    return f"# {first.kind}\n{text}{FOOTER.format(backend=backend, options=how)}"


def run_shard(
    state: Path,
    seeds: range,
    backend: str,
    *,
    report: Callable[[str], None] = print,
    seconds: float | None = None,
    grammar: str = "python",
    dynamic: bool | None = None,
    **options: Any,
) -> Totals:
    """Go through the seeds of a shard from where its state file stands."""
    totals = Totals(next=seeds.start)
    if state.exists():
        totals = Totals(**json.loads(state.read_text()))
    if totals.running is not None:
        totals.differing.setdefault("crash", []).append(totals.running)
        report(f"seed {totals.running}: the process died")
        totals.next, totals.running = totals.running + seeds.step, None
    state.parent.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + seconds if seconds is not None else None
    for seed in range(totals.next, seeds.stop, seeds.step):
        if end is not None and time.monotonic() > end:
            break
        totals.running = seed
        state.write_text(json.dumps(asdict(totals)))
        found = run_seed(seed, totals, backend, grammar=grammar, dynamic=dynamic, **options)
        if found is not None:
            report(found)
        totals.next, totals.running = seed + seeds.step, None
        if totals.counts.get("programs", 0) % 50 == 0:
            gc.collect()
    state.write_text(json.dumps(asdict(totals)))
    return totals


def _told(text: str) -> None:
    print(text, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=int(os.environ.get("CORE_FUZZ_PROGRAMS", "10000")))
    parser.add_argument("--first", type=int, default=int(os.environ.get("CORE_FUZZ_SEED", "0")))
    parser.add_argument("--shard", type=int, default=int(os.environ.get("CORE_FUZZ_SHARD", "0")))
    parser.add_argument("--shards", type=int, default=int(os.environ.get("CORE_FUZZ_SHARDS", "1")))
    parser.add_argument("--backend", default=os.environ.get("CORE_FUZZ_BACKEND", "eager"))
    parser.add_argument("--grammar", choices=list(GRAMMARS), default="python")
    parser.add_argument("--dynamic", action="store_true", default=None, help="sizes and numbers get symbols at once")
    parser.add_argument("--compile", type=json.loads, default={}, help="further arguments of core.compile, as JSON")
    parser.add_argument("--state", type=Path, default=Path("build/fuzz"))
    parser.add_argument("--seconds", type=float, help="stop after so long; the next run goes on")
    parser.add_argument("--fresh", action="store_true", help="start again")
    parser.add_argument("--no-scripts", action="store_true", help="don't minimise what differs")
    options = parser.parse_args()
    torch.set_num_threads(1)
    last = options.first + options.programs
    kind = "".join(f"{word}-" for word in (options.backend, options.grammar, options.dynamic and "dynamic") if word)
    state = options.state / f"{kind}{options.first}-{last}-{options.shard}-of-{options.shards}.json"
    if options.fresh:
        state.unlink(missing_ok=True)
    seeds = range(options.first + options.shard, last, options.shards)
    how = {"grammar": options.grammar, "dynamic": options.dynamic, **options.compile}
    totals = run_shard(state, seeds, options.backend, seconds=options.seconds, report=_told, **how)
    print(json.dumps(totals.counts), {name: round(share, 3) for name, share in totals.shares().items()})
    for kind, found in totals.differing.items():
        print(f"{len(found)} differ in {kind}: seeds {found}")
        if not options.no_scripts and kind not in ("crash", "hangs"):
            print(script(found[0], options.backend, **how))
    low = totals.too_low() if totals.next >= seeds.stop and options.grammar == "python" else []
    if low:
        print("captured too little:", "; ".join(low))
    return int(bool(totals.differing or low))


if __name__ == "__main__":
    sys.exit(main())
