"""Runs the profiles that each installed backend declares, one after the other, and prints what came of them.

    python tools/conformance_profiles.py [--backends a,b] [--profiles smoke] [--out FOLDER] [--again]

A backend declares its profiles in the conformance.toml beside its manifest; without one, `smoke` and what the catalog
has certificates for. Reports go to FOLDER/SUITE/BACKEND/VERSION-PROFILE-DEVICE.json. A report that is there and belongs
to the same core, suite and plugin is not made again; a run that was interrupted goes on where it stopped. The exit
status is 1 when a declared profile is not certified.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core_conformance import SUITE, report
from core_conformance.declarations import profiles_of
from core_conformance.digests import distribution_digest
from core_conformance.profiles import load, names
from core_conformance.runner import shipped_declarations
from core_conformance.seeds import fresh_nonce

from core.backends.certificates import certificates
from core.backends.registry import Registry, resolve_backend
from core.errors import CoreError

ROOT = Path(__file__).resolve().parent.parent
HEADER = ("backend", "profile", "verdict", "passed", "failed", "declared", "skipped", "native", "seconds")
WIDTHS = (26, 15, 13, 6, 6, 8, 7, 6, 7)
SHOWN = 5


@dataclass
class Run:
    """A profile of a backend. problem: why there is no report; seconds: None where the report was there already."""

    backend: str
    profile: str
    made: dict[str, Any] | None = None
    problem: str = ""
    seconds: float | None = None
    absent: bool = False

    @property
    def verdict(self) -> str:
        if self.made is None:
            return "not here" if self.absent else "no report"
        return "certified" if self.made["summary"]["certified"] else "failed"

    @property
    def good(self) -> bool:
        """A backend that can't work on this machine fails nothing."""
        return self.absent or self.verdict == "certified"

    def line(self) -> str:
        """The row of the table."""
        summary = self.made["summary"] if self.made is not None else {}
        counts = [str(summary.get(key, "-")) for key in ("passed", "failed", "declared", "skipped")]
        coverage = summary.get("coverage")
        native = "-" if coverage is None else f"{coverage:.0%}"
        seconds = "kept" if self.seconds is None else f"{self.seconds:.0f}"
        cells = [self.backend, self.profile, self.verdict, *counts, native, seconds if self.made else "-"]
        return row(cells) + (f"  {self.problem}" if self.problem else "")


def row(cells: Sequence[str]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, WIDTHS)).rstrip()


def declared(backend: str, version: str) -> list[str]:
    """The profiles of a backend, in the order in which it names them."""
    path = shipped_declarations(backend)
    found = profiles_of(path) if path is not None else []
    if not found:
        certified = {one.profile for one in certificates(backend, version) if one.certified}
        found = ["smoke", *(name for name in names() if name in certified and name != "smoke")]
    return found


def absence(backend: str, device: str) -> str:
    """Why a backend can't work here, or ""."""
    try:
        resolve_backend(backend).require_device(device)
    except CoreError as error:
        return error.what
    return ""


def is_current(path: Path, distribution: str) -> bool:
    """Whether a report was made by what is installed now."""
    try:
        made = report.read(path)
        digests = made["environment"]["digests"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    wanted = {name: distribution_digest(name) for name in ("core", "core-conformance", distribution)}
    return all(digests.get(name) == digest for name, digest in wanted.items())


def nonce_of(path: Path) -> str:
    """The nonce of a run: kept beside the report until it is there, so that an interrupted run goes on."""
    kept = path.with_suffix(".nonce")
    if not kept.is_file():
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(fresh_nonce(), encoding="utf-8")
    return kept.read_text(encoding="utf-8").strip()


def run(backend: Any, profile: str, options: argparse.Namespace) -> Run:
    """One profile of one backend, from its report where there is one."""
    place = f"{SUITE}/{backend.name}/{backend.version}-{profile}-{options.device}.json"
    path, done = options.out / place, Run(backend.name, profile)
    if not options.again and is_current(path, backend.distribution):
        done.made = report.read(path)
        return done
    command = [sys.executable, "-m", "core", "conformance", "run", "--backend", backend.name, "--profile", profile]
    command += ["--device", options.device, "--workers", str(options.workers), "--nonce", nonce_of(path)]
    command += ["--resume", "--out", str(path)]
    path.unlink(missing_ok=True)
    began = time.monotonic()
    ended = subprocess.run(command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, check=False)
    done.seconds = time.monotonic() - began
    if path.is_file():
        path.with_suffix(".nonce").unlink(missing_ok=True)
        done.made = report.read(path)
    else:
        done.problem = (ended.stderr.strip() or f"exit status {ended.returncode}").splitlines()[0]
    return done


def runs(options: argparse.Namespace) -> Iterator[Run]:
    """Every declared profile of every installed backend, as it is done."""
    wanted = [name for name in options.backends.split(",") if name]
    only = [name for name in options.profiles.split(",") if name]
    for backend in Registry().installed():
        if wanted and backend.name not in wanted:
            continue
        why = absence(backend.name, options.device)
        try:
            profiles = declared(backend.name, backend.version)
        except CoreError as error:
            yield Run(backend.name, "-", problem=error.what)
            continue
        for profile in profiles:
            devices = getattr(load(profile), "devices", ())
            if only and profile not in only or devices and options.device not in devices:
                continue
            yield Run(backend.name, profile, problem=why, absent=True) if why else run(backend, profile, options)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backends", default="", help="names; default: every one that is installed")
    parser.add_argument("--profiles", default="", help="only these of the declared ones")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "conformance")
    parser.add_argument("--again", action="store_true", help="also those that have a report")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    if not options.json:
        print(row(HEADER), flush=True)
    done = []
    for one in runs(options):
        done.append(one)
        if not options.json:
            print(one.line(), flush=True)
            tests = one.made["tests"] if one.made is not None else {}
            failed = [name for name, test in tests.items() if test["outcome"] in ("failed", "xfailed")]
            print("".join(f"    {name}\n" for name in failed[:SHOWN]), end="")
            if len(failed) > SHOWN:
                print(f"    and {len(failed) - SHOWN} more")
    if options.json:
        keys = ("backend", "profile", "verdict", "problem", "seconds")
        rows = [{key: getattr(one, key) for key in keys} | {"summary": (one.made or {}).get("summary")} for one in done]
        print(json.dumps({"suite": SUITE, "out": str(options.out), "rows": rows}, indent=1))
    else:
        print(f"reports: {options.out}")
    return 0 if all(one.good for one in done) else 1


if __name__ == "__main__":
    sys.exit(main())
