"""What `python -m core conformance ...` does; the parser stands in core.cli.conformance.

Exit codes: 0 all passed or valid, 1 something failed or is not valid, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from core.errors import SuiteMisused

from . import SUITE, badge, declarations, profiles, report, verify
from .numerics import PRECISIONS
from .runner import Request, run, shipped_declarations
from .seeds import fresh_nonce
from .workers import Setting, listing

OK, FOUND, USAGE = 0, 1, 2


def command(parsed: argparse.Namespace) -> int:
    """Run the subcommand that was given."""
    commands = {
        "run": _run,
        "list": _list,
        "probes": _probes,
        "verify": _verify,
        "diff": _diff,
        "badge": _badge,
        "submit": _submit,
    }
    try:
        return commands[parsed.conformance](parsed)
    except SuiteMisused as error:
        if parsed.json:
            told = {"id": error.id, "what": error.what, "instead": error.instead, "remedy": error.remedy}
            print(json.dumps({"error": told}, indent=2))
        else:
            print(error, file=sys.stderr)
        return USAGE


# -- run --------------------------------------------------------------------------------------------------------------


def _run(parsed: argparse.Namespace) -> int:
    out = Path(parsed.out) if parsed.out else None
    if parsed.label and parsed.label not in PRECISIONS:
        raise _misused(f"--label {parsed.label} is not one of {', '.join(PRECISIONS)}")
    profile = profiles.load(parsed.profile)
    profiles.require_device(profile, parsed.device)
    if out is not None:
        _require_writable(out)
    declared = Path(parsed.declarations) if parsed.declarations else shipped_declarations(parsed.backend)
    request = Request(
        backend=parsed.backend,
        profile=profile,
        nonce=parsed.nonce or fresh_nonce(),
        device=parsed.device,
        workers=parsed.workers,
        declarations=tuple(declarations.read(declared)) if declared is not None else (),
        options=_options(parsed.option),
        label=parsed.label or "",
        only=parsed.only or "",
    )
    journal = out.with_name(out.name + ".partial") if out is not None else None
    made = run(request, journal=journal, resume=parsed.resume, told=_silent if parsed.json else _tell)
    if not made["tests"]:
        raise _misused(f"no test of profile {profile.name} fits --only {parsed.only!r}")
    if out is not None:
        report.write(made, out)
    if parsed.json:
        print(json.dumps(made, indent=1, sort_keys=True))
    else:
        print(_conclusion(made, out))
    return OK if made["summary"]["passes"] else FOUND


def _silent(test: str, result: dict[str, Any]) -> None:
    """Nothing: the report is all that is printed."""


def _tell(test: str, result: dict[str, Any]) -> None:
    if result["outcome"] in ("failed", "refused"):
        first = str(result.get("message", "")).partition("\n")[0]
        print(f"{result['outcome']} {test}: {first}", file=sys.stderr, flush=True)


def _conclusion(made: dict[str, Any], out: Path | None) -> str:
    summary = made["summary"]
    counts = ", ".join(f"{summary[name]} {name}" for name in ("passed", "failed", "declared", "xfailed", "skipped"))
    verdict = "certified" if summary["certified"] else "passed, not certified" if summary["passes"] else "failed"
    lines = [f"{made['backend']['name']} {made['profile']} on {made['device']}: {verdict} ({counts})"]
    if summary["coverage"] is not None:
        lines.append(f"native: {summary['coverage']:.1%} of the operator tests' nodes")
    lines += list(_measured(made))
    lines += [f"  {name}" for name, test in made["tests"].items() if test["outcome"] in ("failed", "xfailed")]
    if out is not None:
        lines.append(f"report: {out}")
    return "\n".join(lines)


def _measured(made: dict[str, Any]) -> Iterator[str]:
    """A line for each test that took times."""
    taken = {name: test["measured"] for name, test in made["tests"].items() if test.get("measured")}
    for name, values in taken.items():
        told = ", ".join(
            f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}" for key, value in values.items()
        )
        yield f"  {name.rpartition('::')[2]}: {told}"


def _options(given: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise _misused(f"--option {text} is not NAME=VALUE")
        try:
            found[name] = json.loads(value)
        except json.JSONDecodeError:
            found[name] = value
    return found


def _misused(what: str) -> SuiteMisused:
    return SuiteMisused(what, instead="nothing was certified", remedy="see `python -m core conformance --help`")


# -- the rest ---------------------------------------------------------------------------------------------------------


def _list(parsed: argparse.Namespace) -> int:
    if not parsed.profile:
        rows = [profiles.load(name) for name in profiles.names()]
        if parsed.json:
            print(json.dumps({"suite": SUITE, "profiles": [asdict(row) for row in rows]}, indent=2))
        else:
            width = max(len(row.name) for row in rows)
            print("\n".join(f"{row.name.ljust(width)}  {row.summary}" for row in rows))
        return OK
    profile = profiles.load(parsed.profile)
    tests = profile.selected(listing(Setting("eager", parsed.device, 0, profile.timeout_s)))
    if parsed.json:
        print(json.dumps(tests, indent=1))
    else:
        counts = Counter(test.partition("[")[0] for test in tests)
        print("\n".join(f"{count:5} {name}" for name, count in counts.items()))
        print(f"{len(tests):5} tests")
    return OK


def _probes(parsed: argparse.Namespace) -> int:
    from . import probes

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the backend's own; the rows say what came of it
        rows = probes.run(parsed.backend, device=parsed.device)
    if parsed.json:
        print(json.dumps({"backend": parsed.backend, "probes": [row.as_dict() for row in rows]}, indent=2))
    else:
        print(probes.table(parsed.backend, rows))
    return OK if all(row.outcome == "passed" for row in rows) else FOUND


def _load(path: str) -> dict[str, Any]:
    try:
        return report.read(Path(path))
    except (OSError, ValueError) as error:
        raise _misused(f"{path} is no report: {error}") from None


def _load_whole(path: str) -> dict[str, Any]:
    """A report that has all that belongs to one, right or wrong."""
    made = _load(path)
    misshapen = verify.shape(made)
    if misshapen is not None:
        raise _misused(f"{path} is no report: {misshapen.text}")
    return made


def _require_writable(path: Path) -> None:
    """An hour's run is not to end at a file that can't be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        there = path.exists()
        with path.open("a", encoding="utf-8"):
            pass
        if not there:
            path.unlink()
    except OSError as error:
        raise _misused(f"{path} can't be written: {error.strerror}") from None


def _verify(parsed: argparse.Namespace) -> int:
    made = _load(parsed.report)
    tests = None
    if made.get("suite") == SUITE and not parsed.quick:
        tests = listing(Setting("eager", str(made.get("device", "cpu")), 0, 60.0))
    problems = verify.verify(made, suite_tests=tests)
    if parsed.signature:
        if not parsed.signers or not parsed.identity:
            raise _misused("--signature needs --signers and --identity")
        bad = verify.verify_signature(
            Path(parsed.report), Path(parsed.signature), Path(parsed.signers), parsed.identity
        )
        problems += [bad] if bad is not None else []
    if parsed.json:
        print(json.dumps({"valid": not problems, "problems": [asdict(problem) for problem in problems]}, indent=2))
    else:
        for problem in problems:
            print(f"[{problem.rule}] {problem.text}")
        what = parsed.report if verify.shape(made) else f"{made['backend']['name']} {made['profile']}"
        print(f"{what}: {'valid' if not problems else 'not valid'}")
    return FOUND if problems else OK


def _diff(parsed: argparse.Namespace) -> int:
    changed = verify.difference(_load_whole(parsed.old), _load_whole(parsed.new))
    if parsed.json:
        print(json.dumps(changed, indent=2))
    else:
        for kind, lines in changed.items():
            for line in lines:
                print(f"{kind}: {line}")
        if not any(changed.values()):
            print("no test came out differently")
    return FOUND if changed["worse"] or changed["gone"] else OK


def _badge(parsed: argparse.Namespace) -> int:
    made = _load_whole(parsed.report)
    if parsed.out:
        _require_writable(Path(parsed.out))
    image = badge.svg(made)
    if parsed.out:
        Path(parsed.out).write_text(image, encoding="utf-8")
    if parsed.json:
        left, right, colour = badge.texts(made)
        print(json.dumps({"left": left, "right": right, "colour": colour, "file": parsed.out, "svg": image}, indent=2))
    elif not parsed.out:
        print(image, end="")
    return OK


def _place(reports: Path, made: dict[str, Any]) -> Path:
    """The report's place; the one beside where that of another minor of torch is."""
    place = reports / report.place(made)
    if place.exists() and report.torch_minor(_load_whole(str(place))) != report.torch_minor(made):
        return reports / report.place(made, apart=True)
    return place


def _submit(parsed: argparse.Namespace) -> int:
    """A report goes to its place in a checked-out catalog where `verify` finds nothing; the rest is a change there."""
    made = _load(parsed.report)
    problems = verify.verify(made)
    reports = Path(parsed.catalog) / "reports"
    if not reports.is_dir():
        raise _misused(f"{parsed.catalog} is no catalog: it has no folder reports")
    place = None if problems else _place(reports, made)
    if place is not None and place.exists() and not parsed.replace:
        raise _misused(f"{place} is there already; --replace puts the new one in its place")
    if place is not None:
        _require_writable(place)
        report.write(made, place)
    if parsed.json:
        facts = {"written": str(place) if place else None, "problems": [asdict(problem) for problem in problems]}
        print(json.dumps(facts, indent=2))
    else:
        for problem in problems:
            print(f"[{problem.rule}] {problem.text}")
        print(f"written to {place}: propose it as a change of the catalog" if place else "not valid, not written")
    return FOUND if problems else OK
