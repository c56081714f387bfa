"""A plugin that was written from the documentation alone: built, installed beside core, and used by its name."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fresh_environment import fresh_environment

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "core-numpy"
PROGRAM = """
import core, torch
from core.backends.registry import default_registry

model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4), torch.nn.Softmax(-1))
compiled = core.compile(model, backend="numpy", fullgraph=True)
for rows in (3, 5):
    x = torch.randn(rows, 8)
    torch.testing.assert_close(compiled(x), model(x))
    compiled(x).square().sum().backward()
    got = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    model(x).square().sum().backward()
    for parameter, gradient in zip(model.parameters(), got):
        torch.testing.assert_close(parameter.grad, gradient)
    model.zero_grad()

def mutating(x):
    x.mul_(2)
    return x[:, 0], x.t()

x, other = torch.randn(3, 3), None
other = x.clone()
got, want = core.compile(mutating, backend="numpy")(x), mutating(other)
assert torch.equal(x, other) and all(torch.equal(a, b) for a, b in zip(got, want))
assert got[1]._base is x or got[1].data_ptr() == x.data_ptr()
print(default_registry().find("numpy").version, core.stats()["kernels"] > 0)
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> str:
    """The interpreter of a fresh environment with the wheel in it."""
    source, dist = tmp_path_factory.mktemp("source") / "plugin", tmp_path_factory.mktemp("dist")
    shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    pip = [sys.executable, "-m", "pip"]
    run(*pip, "wheel", "-q", "--no-build-isolation", "--no-deps", "-w", str(dist), str(source), cwd=dist)
    environment = tmp_path_factory.mktemp("venv")
    site = fresh_environment(environment)
    wheel = str(next(dist.glob("*.whl")))
    run(*pip, "install", "-q", "--no-index", "--no-deps", "--target", str(site), wheel, cwd=dist)
    return str(environment / "bin" / "python")


def run(*command: str, cwd: Path) -> str:
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env={**clean, "CORE_STRICT": "1"})
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_a_program_runs_on_it_by_name_and_core_keeps_gradients_mutation_and_aliases(python, tmp_path):
    assert run(python, "-c", PROGRAM, cwd=tmp_path).split() == ["0.3.0", "True"]


@pytest.mark.slow
def test_its_own_tests_pass(python, tmp_path):
    run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLE / "tests"), cwd=tmp_path)


@pytest.mark.slow
def test_it_is_listed_with_what_its_manifest_says(python, tmp_path):
    rows = json.loads(run(python, "-m", "core", "list", "--json", cwd=tmp_path))
    row = next(row for row in rows if row["name"] == "numpy")
    assert (row["distribution"], row["version"], row["state"]) == ("core-numpy", "0.3.0", "ready")
    assert row["devices"] == ["cpu"]


@pytest.mark.slow
def test_the_doctor_probes_it_and_passes_on_what_it_says(python, tmp_path):
    findings = json.loads(run(python, "-m", "core", "doctor", "numpy", "--json", cwd=tmp_path))
    text = " ".join(finding["text"] for finding in findings)
    assert "works on cpu with numpy" in text and "core-numpy runs on NumPy" in text


@pytest.mark.slow
def test_it_passes_the_sixteen_probes(python, tmp_path):
    probes = json.loads(
        run(python, "-m", "core", "conformance", "probes", "--backend", "numpy", "--json", cwd=tmp_path)
    )
    rows = probes if isinstance(probes, list) else probes["probes"]
    assert len(rows) == 16 and all(row["outcome"] == "passed" for row in rows), rows
