"""core.bytecode under each supported Python that this machine has, each in a process of its own."""

import glob
import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
CHECKS = HERE / "bytecode_checks"
PLAIN = [HERE / f"test_bytecode_{topic}.py" for topic in ("emit", "liveness", "resume")]
VERSIONS = ("3.11", "3.12", "3.13")


@cache
def interpreter(version: str) -> str | None:
    """A working python of the version: this one, one on PATH, or one that pyenv keeps."""
    if version == f"{sys.version_info[0]}.{sys.version_info[1]}":
        return sys.executable
    pyenv = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))
    found = [shutil.which(f"python{version}"), *sorted(glob.glob(f"{pyenv}/versions/{version}.*/bin/python3"))]
    for candidate in found:
        # A shim on PATH may stand for a version that is not active.
        if candidate and subprocess.run([candidate, "-c", "1"], capture_output=True, check=False).returncode == 0:
            return candidate
    return None


def report(version: str, script: str, *arguments: str) -> dict:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} on this machine")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0"}
    done = subprocess.run(
        [python, "-X", "faulthandler", str(CHECKS / script), *arguments],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("version", VERSIONS)
def test_standard_library_code_survives_decoding_and_assembling_unchanged(version):
    result = report(version, "check_round_trip.py", "3", "0")
    assert result["codes"] > 1000
    assert result["wrong"] == []


@pytest.mark.parametrize("version", VERSIONS)
def test_functions_stopped_before_any_instruction_finish_as_if_never_stopped(version):
    result = report(version, "check_resume.py")
    assert result["subjects"] >= 47 and result["stops"] > 3500
    assert result["wrong"] == []


@pytest.mark.parametrize("version", [v for v in VERSIONS if v != f"{sys.version_info[0]}.{sys.version_info[1]}"])
def test_plain_bytecode_tests_hold_on_the_other_versions(version):
    result = report(version, "run_plain_tests.py", *map(str, PLAIN))
    assert result["tests"] > 40
    assert result["wrong"] == []
