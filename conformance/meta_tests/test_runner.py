"""Runs in worker processes: a test that kills, hangs or is refused is that test's outcome and the rest goes on."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest
from core_conformance import report, runner, workers
from core_conformance.declarations import Declaration
from core_conformance.profiles import Profile
from core_conformance.verify import verify
from core_conformance.worker import anonymous

from core.backends.registry import Registry
from core.errors import SuiteMisused

PLUGIN = """
import os, sys, time
from core.plugin import Artifact, Backend, Capabilities, Unsupported, hookimpl

class Tricky(Backend):
    name = "tricky"
    version = "3.2"
    capabilities = Capabilities(graph_level="aten-functional")

    def compile(self, graph, fake_inputs, ctx):
        calls = [node for node in graph.graph.nodes if node.op == "call_function"]
        ran = {str(node.target) for node in calls}
        if "aten.neg.default" in ran:
            os._exit(3)
        if "aten.exp.default" in ran:
            time.sleep(300)
        if "aten.tanh.default" in ran:
            raise Unsupported([], "no hyperbolic functions")
        frame = sys._getframe() if "PYTEST_DISABLE_PLUGIN_AUTOLOAD" in os.environ else None  # in a worker
        assert frame is None or "PYTEST_CURRENT_TEST" not in os.environ
        while frame is not None:
            assert "Tests" not in frame.f_code.co_qualname and not frame.f_code.co_name.startswith("test_")
            frame = frame.f_back
        return Artifact(call=graph.forward, provenance={node.name: "library" for node in calls})

@hookimpl
def core_backend():
    return Tricky()
"""
TEST = "ops::OpTests::op[{}-float32]"


@pytest.fixture
def tricky(tmp_path, monkeypatch):
    """A distribution with a backend that does what it should not, visible to this process and to workers."""
    site = tmp_path / "site"
    info = site / "tricky_plugin-3.2.dist-info"
    info.mkdir(parents=True)
    (site / "tricky_plugin.py").write_text(PLUGIN)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tricky-plugin\nVersion: 3.2\n")
    (info / "entry_points.txt").write_text("[core.backends]\ntricky = tricky_plugin\n")
    (info / "RECORD").write_text("tricky_plugin.py,,\n")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.setattr(workers, "KEPT", [*workers.KEPT, "PYTHONPATH"])
    return site


@pytest.mark.timeout(600)
def test_each_test_has_its_own_outcome_whatever_the_others_do(tricky, tmp_path):
    names = ("add", "neg", "exp", "tanh", "mul")
    profile = Profile("odd", "", operators=names, dtypes=("float32",), decoys=0, timeout_s=15.0)
    declared = Declaration(TEST.format("tanh"), "unsupported", "not yet", "https://example.org/1", "2999-01-01")
    request = runner.Request("tricky", profile, "nonce", declarations=(declared,))
    heard = []
    made = runner.run(request, journal=tmp_path / "journal", told=lambda test, result: heard.append(test))
    tests = {name: made["tests"][TEST.format(name)] for name in names}
    assert tests["add"]["outcome"] == "passed", tests["add"]["message"]
    assert {name: test["outcome"] for name, test in tests.items()} == {
        "add": "passed",
        "neg": "failed",
        "exp": "failed",
        "tanh": "declared",
        "mul": "passed",
    }
    assert "exit code 3" in tests["neg"]["message"] and tests["exp"]["rule"] == "deadline"
    assert sorted(heard) == sorted(made["tests"]) and len(heard) == len(names)
    assert not made["summary"]["certified"] and not (tmp_path / "journal").exists()
    assert made["backend"]["distribution"] == "tricky-plugin" and made["backend"]["version"] == "3.2"
    assert len(made["environment"]["digests"]["tricky-plugin"]) == 64
    assert report.digest(made) == made["digest"]
    assert {problem.rule for problem in verify(made)} == {"profile"}  # the only odd thing: a profile of this test's own


@pytest.mark.timeout(300)
def test_a_decoy_is_a_process_without_a_test_runner(tricky):
    setting = workers.Setting("tricky", "cpu", 5, 60.0, module="core_conformance.decoys")
    results = {}
    workers.run_shard(setting, ["decoys::DecoyTests::program[0]"], results.__setitem__, lambda: False)
    (result,) = results.values()
    assert result["outcome"] in ("passed", "failed") and result["seconds"] > 0


def test_workers_that_never_get_as_far_as_a_test_say_why():
    setting, results = workers.Setting("eager", "cpu", 5, 60.0, module="no_such_worker"), {}
    workers.run_shard(setting, ["a", "b"], results.__setitem__, lambda: False)
    assert [result["outcome"] for result in results.values()] == ["failed", "failed"]
    assert all("No module named no_such_worker" in result["message"] for result in results.values())
    with pytest.raises(SuiteMisused, match="(?s)can't be listed.*No module named no_such_worker"):
        workers.listing(setting)


def test_the_journal_of_an_interrupted_run_is_gone_on_with_and_that_of_another_is_not(tmp_path):
    path, head = tmp_path / "journal", {"seed": 1, "profile": "smoke"}
    runner.Journal(path, head, resume=False).add("a", {"outcome": "passed"})
    assert runner.Journal(path, head, resume=True).results == {"a": {"outcome": "passed"}}
    assert runner.Journal(path, {**head, "seed": 2}, resume=True).results == {}
    assert json.loads(path.read_text()) == {**head, "seed": 2}


def test_workers_inherit_little(monkeypatch):
    monkeypatch.setenv("PYTEST_ADDOPTS", "-k nothing")
    monkeypatch.setenv("CORE_BACKEND", "other")
    found = workers.clean_environment()
    assert "PYTEST_ADDOPTS" not in found and "CORE_BACKEND" not in found
    assert found["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] == "1" and found["CORE_STRICT"] == "1"


def test_bodies_of_tests_run_under_neutral_names():
    class Tests:
        def test_something_telling(self):
            def test_inner():
                return sys._getframe()

            return test_inner()

    code = anonymous(Tests().test_something_telling)().f_code
    assert code.co_name == code.co_qualname == "program" and code.co_filename == "<program>"


VENDOR_TEST = """
from core_conformance.suite import *


class MoreTests(SemanticsTests):
    def test_of_our_own(self, subject, generator):
        assert subject.name == "tricky"
"""
VENDOR_CONFTEST = """
import pytest


@pytest.fixture
def core_backend():
    return "tricky"
"""


@pytest.mark.timeout(300)
@pytest.mark.slow
def test_a_vendor_imports_the_suite_into_a_file_of_tests(tricky, tmp_path):
    folder = tmp_path / "vendor"
    folder.mkdir()
    (folder / "conftest.py").write_text(VENDOR_CONFTEST)
    (folder / "test_conformance.py").write_text(VENDOR_TEST)
    chosen = "of_our_own or (OpTests and test_op and add-float32) or (OpTests and test_op and tanh-float32)"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", chosen, "--rootdir", str(folder), "."],
        cwd=folder,
        env={**os.environ, "CORE_STRICT": "1", "PYTHONPATH": str(tricky)},
        capture_output=True,
        text=True,
    )
    assert "no hyperbolic functions" in done.stdout and done.returncode == 1, done.stdout + done.stderr
    assert re.search(r"1 failed, \d+ passed", done.stdout), done.stdout


@pytest.mark.timeout(300)
@pytest.mark.slow
def test_declarations_count_in_a_vendors_own_run(tricky, tmp_path):
    folder = tmp_path / "vendor"
    folder.mkdir()
    (folder / "test_conformance.py").write_text("from core_conformance.suite import *\n")
    entry = '[[declaration]]\nid = "{}"\nkind = "unsupported"\nreason = "r"\nissue = "i"\nexpires = "2999-01-01"\n'
    declared = [entry.format(TEST.format(name)) for name in ("tanh", "add")]
    (folder / "conformance.toml").write_text("\n".join(declared))
    chosen = "OpTests and test_op and (tanh-float32 or add-float32)"
    command = [sys.executable, "-m", "pytest", "-q", "-rxf", "-p", "no:cacheprovider", "-k", chosen]
    command += ["--core-backend", "tricky", "--core-profile", "smoke", "--core-declarations", "conformance.toml", "."]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "CORE_STRICT": "1", "PYTHONPATH": str(tricky)},
        capture_output=True,
        text=True,
    )
    assert "declared as unsupported, but the backend passed" in done.stdout, done.stdout + done.stderr
    assert "1 failed" in done.stdout and "1 xfailed" in done.stdout and done.returncode == 1


def test_facts_of_a_backend_come_from_its_distribution(tricky):
    assert runner.backend_facts("inductor")["manifest_digest"]
    assert runner.backend_facts("tricky") == {
        "name": "tricky",
        "distribution": "tricky-plugin",
        "version": "3.2",
        "manifest_digest": "",
    }
    assert Registry().find("tricky").distribution == "tricky-plugin"
