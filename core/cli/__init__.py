"""The command line: `python -m core COMMAND`, or `core COMMAND` after installation. Imports no torch.

One file holds one family of commands. Its function `register(subparsers, common)` adds the parsers, with `common` (the
option --json) among their parents, and sets `run` with set_defaults: a function that takes the parsed arguments and
returns an exit code of core.cli.output: 0 all well, 1 something was found, 2 wrong usage. What a command needs beyond
the registry is imported when it runs.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from ..errors import CoreError
from .output import FOUND, OK, USAGE, WrongUsage, print_json

COMMANDS = {
    "list": "listing",
    "info": "listing",
    "search": "listing",
    "doctor": "doctor",
    "install": "install",
    "lock": "lock",
    "cache": "cache",
    "new": "new",
    "conformance": "conformance",
    "explain": "explain",
    "bench": "bench",
}
"""Command -> the file of this folder that registers it. Only that file is imported when a command is named first."""


class Parser(argparse.ArgumentParser):
    """argparse's parser, which leaves it to `main` how wrong usage is told."""

    def error(self, message: str) -> NoReturn:
        raise WrongUsage(f"{self.prog}: {message}", self.format_usage())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = _run(given)
        sys.stdout.flush()  # what can't be written is found here, not when the interpreter ends
        return code
    except BrokenPipeError:
        _say_no_more()
        return OK  # the reader of our output has seen enough
    except OSError as error:
        print(f"core: {error}", file=sys.stderr)
        _say_no_more()
        return FOUND


def _run(given: list[str]) -> int:
    parser = _parser(given)
    try:
        parsed = parser.parse_args(given)
    except WrongUsage as wrong:
        return _report_usage(wrong, as_json="--json" in given)
    except SystemExit:  # argparse has printed the help
        return OK
    if parsed.command is None:
        parser.print_help()
        return USAGE
    try:
        code: int = parsed.run(parsed)
        return code
    except WrongUsage as wrong:
        return _report_usage(wrong, as_json=parsed.json)
    except CoreError as error:
        return _report_error(error, as_json=parsed.json)


def _say_no_more() -> None:
    """What is still to be written would fail again when the interpreter ends."""
    if sys.__stdout__ is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno())


def _parser(given: Sequence[str]) -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--json", action="store_true", help="machine-readable output")
    parser = Parser(prog="core", description="Backends of the core compiler.")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND")
    named = COMMANDS.get(given[0]) if given else None
    for family in [named] if named else dict.fromkeys(COMMANDS.values()):
        import_module(f"{__name__}.{family}").register(subparsers, common)
    return parser


def _report_usage(wrong: WrongUsage, *, as_json: bool) -> int:
    if as_json:
        remedy = {"remedy": " ".join(wrong.usage.split())} if wrong.usage else {}
        print_json({"error": {"what": wrong.what, **remedy}})
    else:
        print(f"{wrong.usage}{wrong.what}", file=sys.stderr)
    return USAGE


def _report_error(error: CoreError, *, as_json: bool) -> int:
    if as_json:
        print_json({"error": {"id": error.id, "what": error.what, "instead": error.instead, "remedy": error.remedy}})
    else:
        print(error, file=sys.stderr)
    return FOUND
