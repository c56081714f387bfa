"""`core explain SCRIPT`: runs a program and says what core made of it."""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from pathlib import Path
from typing import Any

from .output import FOUND, OK, USAGE, print_json
from .places import require_writable


def register(subparsers: Any, common: argparse.ArgumentParser) -> None:
    explain = subparsers.add_parser("explain", parents=[common], help="run a script and say what was compiled, and how")
    explain.add_argument("--html", metavar="FILE", help="also write one self-contained page")
    explain.add_argument("--guards", action="store_true", help="print the guards too")
    explain.add_argument("script", metavar="SCRIPT")
    explain.add_argument("arguments", metavar="ARG", nargs=argparse.REMAINDER, help="of the script")
    explain.set_defaults(run=_explain)


def _explain(parsed: argparse.Namespace) -> int:
    if not os.path.isfile(parsed.script):
        if parsed.json:
            print_json({"error": {"what": f"there is no script {parsed.script}"}})
        else:
            print(f"there is no script {parsed.script}", file=sys.stderr)
        return USAGE
    if parsed.html:
        require_writable(Path(parsed.html))
    from ..report.explain import Explanation, listening
    from ..report.explanation_page import as_data, page
    from ..settings import config

    explanation = Explanation()
    with listening(explanation.add), config.patch(auto_calls=1):
        failure = run_script(parsed.script, parsed.arguments, quiet=parsed.json)
    data = as_data(explanation)
    if parsed.html:
        Path(parsed.html).write_text(
            page(f"What core made of {os.path.basename(parsed.script)}", data), encoding="utf-8"
        )
    if parsed.json:
        print_json({**data, "failure": failure})
    else:
        text = [line for line in str(explanation).splitlines() if parsed.guards or not line.startswith("  guard: ")]
        print("\n".join(text))
        if not parsed.guards and data["guards"]:
            print(f"  {len(data['guards'])} guards; --guards prints them")
        if failure:
            print(f"the script ended with {failure}", file=sys.stderr)
    return FOUND if failure or data["breaks"] or data["limits"] else OK


def run_script(path: str, arguments: list[str], *, quiet: bool) -> str:
    """Run a script as `python path arguments` does. Returns how it failed, empty when it did not.

    quiet: what it prints goes to the error output, so that ours stays readable by machines.
    """
    before = sys.argv, sys.path[:], sys.stdout
    sys.argv = [path, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    if quiet:
        sys.stdout = sys.stderr
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as stop:
        return "" if stop.code in (0, None) else f"exit code {stop.code}"
    except Exception as error:  # the user's program: what it had compiled so far is worth a report
        return f"{type(error).__name__}: {error}"
    finally:
        sys.argv, sys.path[:], sys.stdout = before
    return ""
