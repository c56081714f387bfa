"""`core conformance`: run the suite on a backend, check and compare reports. The suite is a distribution of its own."""

from __future__ import annotations

import argparse
import importlib.util
from importlib import import_module
from typing import Any

from ..errors import SuiteNotInstalled

DISTRIBUTION = "core_conformance"


def register(subparsers: Any, common: argparse.ArgumentParser) -> None:
    parser = subparsers.add_parser("conformance", help="tests of a backend, and reports of them")
    commands = parser.add_subparsers(dest="conformance", metavar="WHAT", required=True)
    run = commands.add_parser("run", parents=[common], help="run a profile on a backend and write a report")
    run.add_argument("--backend", required=True, metavar="NAME")
    run.add_argument("--profile", required=True, metavar="PROFILE", help="see `core conformance list`")
    run.add_argument("--device", default="cpu")
    run.add_argument("--nonce", help="what the values follow from, given by who asks for the report")
    run.add_argument("--workers", type=int, default=2, help="processes at a time")
    run.add_argument("--declarations", metavar="FILE", help="a conformance.toml; default: the plugin's own")
    run.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="an option of the backend")
    run.add_argument("--label", help="the lower precision that the options ask for; such a run has its own badge")
    run.add_argument("--only", metavar="PATTERN", help="only tests whose id fits; certifies nothing")
    run.add_argument("--resume", action="store_true", help="go on with a run that was interrupted")
    run.add_argument("--out", metavar="FILE", help="where the report goes")
    listing = commands.add_parser("list", parents=[common], help="the profiles, or the tests of one")
    listing.add_argument("--profile", metavar="PROFILE")
    listing.add_argument("--device", default="cpu")
    probes = commands.add_parser("probes", parents=[common], help="sixteen ordinary semantics, and which are kept")
    probes.add_argument("--backend", required=True, metavar="NAME")
    probes.add_argument("--device", default="cpu")
    verify = commands.add_parser("verify", parents=[common], help="whether a report is what it says")
    verify.add_argument("report", metavar="REPORT")
    verify.add_argument("--quick", action="store_true", help="do not ask the installed suite for its tests")
    verify.add_argument("--signature", metavar="FILE", help="made by ssh-keygen -Y sign -n core-conformance")
    verify.add_argument("--signers", metavar="FILE", help="allowed signers, as ssh-keygen reads them")
    verify.add_argument("--identity", metavar="NAME", help="who is to have signed")
    diff = commands.add_parser("diff", parents=[common], help="what changed from one report to another")
    diff.add_argument("old", metavar="OLD")
    diff.add_argument("new", metavar="NEW")
    badge = commands.add_parser("badge", parents=[common], help="a badge of a report, as SVG")
    badge.add_argument("report", metavar="REPORT")
    badge.add_argument("--out", metavar="FILE")
    submit = commands.add_parser("submit", parents=[common], help="put a report into a copy of the catalog")
    submit.add_argument("report", metavar="REPORT")
    submit.add_argument("--catalog", required=True, metavar="DIR", help="the catalog's folder, with reports/ in it")
    submit.add_argument("--replace", action="store_true", help="in place of a report of the same run there")
    parser.set_defaults(run=_suite)


def _suite(parsed: argparse.Namespace) -> int:
    if importlib.util.find_spec(DISTRIBUTION) is None:
        raise SuiteNotInstalled(
            "the conformance suite is not installed",
            instead="no test was run",
            remedy='pip install "core[conformance]"',
        )
    code: int = import_module(f"{DISTRIBUTION}.cli").command(parsed)
    return code
