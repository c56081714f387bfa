"""`core doctor`: what is wrong with this installation."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from .output import FOUND, OK, print_json
from .places import add_plugins_dir, chosen_registry


def register(subparsers: Any, common: argparse.ArgumentParser) -> None:
    doctor = subparsers.add_parser("doctor", parents=[common], help="what is wrong with this installation")
    doctor.add_argument("name", metavar="NAME", nargs="?", help="only this backend")
    doctor.add_argument("--verify", action="store_true", help="also compile a small function and compare with eager")
    doctor.set_defaults(run=_doctor)
    add_plugins_dir(doctor)


def _doctor(parsed: argparse.Namespace) -> int:
    from ..report.doctor import examine

    findings = examine(chosen_registry(parsed), parsed.name, verify=parsed.verify)
    if parsed.json:
        print_json([dataclasses.asdict(finding) for finding in findings])
    else:
        for finding in findings:
            print(f"{finding.level}: {finding.text}")
            if finding.remedy:
                print(f"  remedy: {finding.remedy}")
    return FOUND if any(finding.level != "info" for finding in findings) else OK
