"""`make demo`: real models, eager against compiled. Each measurement runs in a process of its own.

    python bench/demo.py [--peer] [--only bert,gpt2] [--rounds N]

Cold is the first process with an empty cache folder, warm a second process with the same folder. Both find the byte
code of core and its plugins, as after an installation with pip. Exit status 1 when a model has more than one graph, a
break, or an error over twice eager's own (against double precision).
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SUBJECTS = ("bert", "gpt2", "llama", "gpt2-train")
ERROR_FLOOR = 1e-6  # relative; below this both are rounding


def run(subject: str, implementation: str, cache: str, rounds: int) -> dict[str, Any]:
    """One process; its JSON line, or {"failed": text}."""
    environment = dict(
        os.environ,
        CORE_CACHE_DIR=f"{cache}/core",
        TORCHINDUCTOR_CACHE_DIR=f"{cache}/peer",
        HF_HUB_OFFLINE="1",
        TOKENIZERS_PARALLELISM="false",
    )
    command = [sys.executable, "-m", "bench.measure_subject", subject, implementation, "--rounds", str(rounds)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        return {"failed": (done.stderr.strip().splitlines() or ["no output"])[-1], "detail": done.stderr[-3000:]}
    return json.loads(lines[-1])


def write_bytecode() -> None:
    """What an installer does: a process that finds no byte code compiles some 300 files of core at its start."""
    for package in (ROOT / "core", *sorted((ROOT / "plugins").glob("*/core_*"))):
        compileall.compile_dir(package, quiet=1)


def row(cold: dict[str, Any], warm: dict[str, Any]) -> str:
    """One printed line."""
    return (
        f"{cold['subject']:11} {cold['implementation']:14} {cold['graphs']:6} {cold['breaks']:6} "
        f"{cold['error']:9.1e} {cold['eager_error']:9.1e} {cold['compile_s']:8.2f} {warm['compile_s']:8.2f} "
        f"{warm['eager_ms']:9.2f} {warm['call_ms']:9.2f} {warm['eager_ms'] / warm['call_ms']:7.2f}x"
    )


HEADER = "model       implementation graphs breaks     error eager err   cold s   warm s  eager ms   call ms speed-up"


def problems(result: dict[str, Any]) -> list[str]:
    """What is wrong with a result of core."""
    found = []
    if result["graphs"] != 1:
        found.append(f"{result['graphs']} graphs in place of one")
    if result["breaks"]:
        found.append(f"{result['breaks']} graph breaks")
    if result["error"] > max(2 * result["eager_error"], ERROR_FLOOR):
        found.append(f"error {result['error']:.1e} against eager's {result['eager_error']:.1e}")
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", action="store_true", help="also measure torch.compile")
    parser.add_argument("--only", default=",".join(SUBJECTS))
    parser.add_argument("--rounds", type=int, default=21)
    options = parser.parse_args(arguments)
    implementations = ["core", "torch.compile"] if options.peer else ["core"]
    failed = False
    write_bytecode()
    print(HEADER)
    for subject in options.only.split(","):
        for implementation in implementations:
            with tempfile.TemporaryDirectory() as cache:
                cold = run(subject, implementation, cache, options.rounds)
                warm = run(subject, implementation, cache, options.rounds) if "failed" not in cold else cold
            if "failed" in warm:
                print(f"{subject:11} {implementation:14} failed: {warm['failed']}\n{warm['detail']}")
                failed = failed or implementation == "core"
                continue
            print(row(cold, warm), flush=True)
            if implementation == "core":
                for problem in problems(cold):
                    print(f"{'':11} ^ {problem}")
                    failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
