"""What `core list` costs where a hundred plugins are installed, and that it imports none of them.

    python -m bench.listing_time [--plugins 100] [--runs 15] [--profile]

Each run is a process of its own. Its CPU time is what the process used itself; other programs on the machine lengthen
it too, by the caches that they share, so the least of the runs counts. An empty Python process is measured beside it.
--profile prints what takes the time inside one run.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

LIMIT_MS = 150.0

MANIFEST = """schema = 1
name = "{name}"
aliases = ["{name}_chip", "{name}_device"]
summary = "A backend that was made to be listed"
plugin_api = ">=1.0,<2"
core = ">=0.1,<1"
torch = ">=2.11"
python = ">=3.11"
platforms = ["linux", "darwin", "win32"]
devices = ["cpu", "cuda:sm80+"]
provider = "nobody"
options = ["threads", "workspace_mb", "level"]

[requires]
import = ["core"]
pip = "{distribution}"

[capabilities]
graph_level = "aten-functional"
modes = ["inference", "training"]
dtypes = ["float32", "bfloat16", "int64"]
dynamic_shapes = "full"
mutation = "host"
aliasing = "host"
layouts = "any"
deterministic = "on-request"
precision_default = "ieee"
precision_modes = ["ieee"]
serializable = true
thread_safe = true
"""

_INSIDE = """
import contextlib, io, sys
from core.cli import main
with contextlib.redirect_stdout(io.StringIO()) as out:
    code = main(["list"])
imported = [name for name in sys.modules if name.partition(".")[0] in {"torch", "numpy"} or name.startswith("listed_")]
print(code, sum(line.startswith("listed") for line in out.getvalue().splitlines()), imported)
"""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plugins", type=int, default=100)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--profile", action="store_true", help="where one run spends its time")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        install(Path(folder), options.plugins)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])}
        return measured(environment, folder, options)


def install(folder: Path, plugins: int) -> None:
    """Distributions with a module each, which ends the process that imports it."""
    for number in range(plugins):
        name, distribution = f"listed{number}", f"core-listed-{number}"
        package = folder / f"listed_{number}"
        package.mkdir()
        (package / "__init__.py").write_text("raise SystemExit('a plugin was imported')\n")
        (package / "backend.toml").write_text(MANIFEST.format(name=name, distribution=distribution))
        metadata = folder / f"core_listed_{number}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n\nText\n")
        (metadata / "entry_points.txt").write_text(
            f"[core.backends]\n{name} = listed_{number}\n\n[core.manifests]\n{name} = listed_{number}:backend.toml\n"
        )


def measured(environment: dict[str, str], folder: str, options: argparse.Namespace) -> int:
    """Print the numbers; 1 where they are over the limit or something was imported."""
    said = _run([sys.executable, "-c", _INSIDE], environment, folder)[2]
    if said != f"0 {options.plugins} []":
        print(f"listing said {said!r}, not that it found {options.plugins} plugins and imported none")
        return 1
    command = [sys.executable, "-m", "core", "list"]
    if options.profile:
        for extra in (["-X", "importtime", "-m", "core", "list"], ["-m", "cProfile", "-s", "tottime", *command[1:]]):
            done = subprocess.run([sys.executable, *extra], env=environment, cwd=folder, capture_output=True, text=True)
            print("\n".join((done.stderr or done.stdout).splitlines()[-400:]))
    empty = [_run([sys.executable, "-c", "pass"], environment, folder)[:2] for _ in range(options.runs)]
    runs = [_run(command, environment, folder)[:2] for _ in range(options.runs)]
    least, usual = min(cpu for cpu, _ in runs), statistics.median(cpu for cpu, _ in runs)
    print(f"core list, {options.plugins} plugins, Python {sys.version.split()[0]}, {options.runs} runs")
    print(f"CPU time: least {least:.0f} ms, median {usual:.0f} ms; of it an empty process {min(empty)[0]:.0f} ms")
    print(f"on the clock: least {min(wall for _, wall in runs):.0f} ms")
    print(f"imported: none of them, nor torch; under {LIMIT_MS:.0f} ms: {'yes' if least < LIMIT_MS else 'no'}")
    return 0 if least < LIMIT_MS else 1


def _run(command: list[str], environment: dict[str, str], folder: str) -> tuple[float, float, str]:
    """(milliseconds of CPU, milliseconds, what it printed) of a process."""
    began = time.perf_counter()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    return used * 1000, (time.perf_counter() - began) * 1000, done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
