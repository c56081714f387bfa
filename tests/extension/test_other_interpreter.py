"""A build of the extension for one CPython, loaded by another: an ImportError, never a crash."""

from __future__ import annotations

import itertools
import subprocess

import pytest
from interpreters import VERSIONS, built_for, find_interpreter

LOAD = """
import sys
from importlib import machinery, util
loader = machinery.ExtensionFileLoader("core._C", sys.argv[1])
try:
    util.module_from_spec(util.spec_from_loader("core._C", loader))
    module = util.module_from_spec(util.spec_from_loader("core._C", loader))
    loader.exec_module(module)
except ImportError as error:
    print(error)
    sys.exit(3)
"""


@pytest.mark.parametrize("built, running", list(itertools.permutations(VERSIONS, 2)))
def test_an_extension_of_another_version_is_an_import_error(built, running):
    if find_interpreter(built) is None or find_interpreter(running) is None:
        pytest.skip("needs both interpreters with headers")
    (library,) = (built_for(built) / "core").glob("_C.*.so")
    done = subprocess.run([find_interpreter(running), "-c", LOAD, str(library)], capture_output=True, text=True)
    assert done.returncode == 3, done.stderr
    assert "[CORE-P001]" in done.stdout or "undefined symbol" in done.stdout


def test_the_refusal_names_both_versions_and_the_remedy():
    if find_interpreter("3.12") is None or find_interpreter("3.13") is None:
        pytest.skip("needs both interpreters with headers")
    (library,) = (built_for("3.12") / "core").glob("_C.*.so")  # every symbol that it wants is there in 3.13
    done = subprocess.run([find_interpreter("3.13"), "-c", LOAD, str(library)], capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert lines[0] == "[CORE-P001] core._C was built for CPython 3.12 and is loaded by 3.13"
    assert lines[-1].strip().startswith("remedy: ")
