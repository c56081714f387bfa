"""Runs CPython's own tests with every intercepted frame replaced by a copy of itself.

    python tools/soak.py [--version 3.12] [--copy same|grown|assembled] [test_module ...]

Each module runs twice in a process of its own: bare, and with the frame hook and a callback that answers each new code
object with an entry of copied code. Whatever fails only in the second run is ours. Prints one row for each module and
interpreter, and exits with 1 when there are failures that KNOWN does not explain, a crash or a timeout.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MODULES = """test_call test_collections test_contextlib test_coroutines test_dataclasses
test_decorators test_descr test_dict test_enum test_exceptions test_extcall test_frame test_functools test_generators
test_grammar test_itertools test_keywordonlyarg test_listcomps test_named_expressions test_patma test_raise test_scope
test_super test_sys_setprofile test_sys_settrace test_traceback test_weakref test_with test_threading""".split()

# Failures that any evaluator brings (versions, module, part of the test's name), with the reason.
KNOWN = {
    (
        ("3.12", "3.13"),
        "test_sys_settrace",
        "async_for_loop",
    ): "lines differ with any hook, no callback needed",
    (("3.11", "3.12", "3.13"), "test_descr", "test_slots"): "counts GC objects while a first call is filed",
    (("3.12", "3.13"), "test_call", "test_super_deep"): "90,000 calls deep; with a hook each takes C stack",
}
TIMEOUT_S = 400


def copier(name: str):
    """The function that makes replacement code."""
    if name == "same":
        return lambda code: code.replace(co_name=code.co_name)
    if name == "grown":
        return lambda code: code.replace(co_stacksize=code.co_stacksize + 7)
    from core.bytecode import assemble, decode

    def reassembled(code):
        decoded = decode(code)
        return assemble(decoded.instructions, code, exception_table=decoded.exception_table)

    return reassembled


def run_module(module: str, copy: str) -> dict[str, object]:
    """Runs one test module in this process; `copy` is empty for the bare run."""
    import unittest

    # A shell's background job ignores SIGINT, and so would this process; test_threading then waits for it for ever.
    signal.signal(signal.SIGINT, signal.default_int_handler)

    from test import support
    from test.support import os_helper

    support.use_resources = {}
    support.verbose = False
    replaced = 0

    class Outcome(unittest.TestResult):
        def __init__(self) -> None:
            super().__init__()
            self.bad: set[str] = set()

        def addError(self, test, error):
            self.bad.add(test.id())
            super().addError(test, error)

        def addFailure(self, test, error):
            self.bad.add(test.id())
            super().addFailure(test, error)

        def addSubTest(self, test, subtest, error):
            if error is not None:
                self.bad.add(test.id())
            super().addSubTest(test, subtest, error)

    outcome = Outcome()
    with os_helper.temp_cwd():
        suite = unittest.defaultTestLoader.loadTestsFromName("test." + module)
        if copy:
            from core import _C

            make = copier(copy)

            def callback(owner, code, args, *rest):
                nonlocal replaced
                replaced += 1
                return _C.Entry(None, make(code), False)

            _C.install_hook()
            _C.set_frame_callback(callback)
        suite.run(outcome)
        if copy:
            _C.set_frame_callback(None)
            _C.uninstall_hook()
    return {"ran": outcome.testsRun, "bad": sorted(outcome.bad), "replaced": replaced}


def run_apart(python: str, home: Path, module: str, copy: str) -> dict[str, object]:
    """run_module in a process; {"died": why} when it does not come back."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "answer.json")
        env = {**os.environ, "PYTHONPATH": str(home), "PYTHONFAULTHANDLER": "1"}
        command = [python, "-W", "ignore", __file__, "--answer", str(answer), "--copy", copy or "none", module]
        try:
            done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=TIMEOUT_S, cwd=folder)
        except subprocess.TimeoutExpired:
            return {"died": f"no end after {TIMEOUT_S} s"}
        if not answer.exists():
            return {"died": f"exit status {done.returncode}: {done.stderr[-1500:]}"}
        return json.loads(answer.read_text())


def explained(version: str, module: str, test: str) -> bool:
    return any(version in versions and module == known and part in test for versions, known, part in KNOWN)


def soak(version: str, modules: list[str], copy: str) -> int:
    """Prints the table of one interpreter; returns the number of rows that need a look."""
    from interpreters import built_for, find_interpreter

    python = find_interpreter(version)
    if python is None:
        print(f"CPython {version}: not on this machine")
        return 0
    home, troubles, ran, replaced = built_for(version), 0, 0, 0
    print(f"\nCPython {version}, copy: {copy}")
    print(f"{'module':28}{'tests':>7}{'bare bad':>10}{'new bad':>9}{'replaced':>10}{'s':>7}")
    for module in modules:
        start = time.monotonic()
        bare, hooked = (run_apart(python, home, module, how) for how in ("", copy))
        seconds = time.monotonic() - start
        died = bare.get("died") or hooked.get("died")
        if died:
            alone = "bare run: " if bare.get("died") else ""
            print(f"{module:28}  {alone}{died}", flush=True)
            troubles += not alone
            continue
        fresh = [test for test in hooked["bad"] if test not in bare["bad"]]
        unexplained = [test for test in fresh if not explained(version, module, test)]
        numbers = f"{hooked['ran']:7}{len(bare['bad']):10}{len(fresh):9}{hooked['replaced']:10}{seconds:7.1f}"
        print(f"{module:28}{numbers}", flush=True)
        for test in fresh:
            print(f"    {'new' if test in unexplained else 'known'}: {test}")
        troubles += bool(unexplained)
        ran, replaced = ran + hooked["ran"], replaced + hooked["replaced"]
    print(f"{'all':28}{ran:7}{'':19}{replaced:10}   rows to look at: {troubles}")
    return troubles


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--version", action="append", help="an interpreter version; all when absent")
    parser.add_argument("--copy", default="same", choices=("same", "grown", "assembled", "none"))
    parser.add_argument("--answer", help=argparse.SUPPRESS)
    parser.add_argument("modules", nargs="*", default=MODULES)
    options = parser.parse_args()
    if options.answer:
        outcome = run_module(options.modules[0], "" if options.copy == "none" else options.copy)
        Path(options.answer).write_text(json.dumps(outcome))
        return 0
    from interpreters import VERSIONS

    return 1 if sum(soak(version, options.modules, options.copy) for version in options.version or VERSIONS) else 0


if __name__ == "__main__":
    sys.exit(main())
