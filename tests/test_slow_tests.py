"""The option --slow deals the slow tests out, and drops none of the others."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TESTS = """
import pytest

def test_quick():
    pass

@pytest.mark.slow
@pytest.mark.parametrize("number", range(12))
def test_slow(number):
    pass
"""


@pytest.fixture
def folder(tmp_path):
    shutil.copy(ROOT / "conftest.py", tmp_path)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_both.py").write_text(TESTS)
    return tmp_path


def collected(folder, *arguments):
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *arguments]
    alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ran = subprocess.run(command, cwd=folder, env=alone, capture_output=True, text=True, timeout=60)
    return {line.partition("::")[2] for line in ran.stdout.splitlines() if "::" in line}, ran


def test_shards_are_dealt_every_slow_test_once_and_all_of_the_others(folder):
    none, _ = collected(folder, "tests")
    assert none == {"test_quick"}
    everything, _ = collected(folder, "tests", "--slow", "all")
    assert len(everything) == 13
    shards = [collected(folder, "tests", "--slow", f"{shard}/3")[0] - none for shard in range(3)]
    assert set().union(*shards) == everything - none
    assert sum(map(len, shards)) == 12 and all(shards)


def test_a_file_that_is_named_runs_whole_and_a_wrong_shard_is_refused(folder):
    named, _ = collected(folder, "tests/test_both.py")
    assert len(named) == 13
    _, refused = collected(folder, "tests", "--slow", "3/3")
    assert refused.returncode == 4 and "there is no shard 3 of 3" in refused.stderr + refused.stdout
