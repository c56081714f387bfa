"""`core new`: what it writes can be checked, built, installed without a network, and compiles what eager computes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from core.backends.manifest import parse_manifest
from core.cli import main
from core.cli.scaffold import LICENSES, Plugin, rendered
from core.errors import PluginNameRefused, PluginNotWritten

ROOT = Path(__file__).resolve().parents[2]
RUFF = Path(sys.executable).with_name("ruff")
BACK = """
import core, torch

def program(x):
    x.mul_(2)
    return torch.relu(x) + 1

compiled = torch.compile(program, backend="core_my_chip")
x = torch.randn(5)
other = x.clone()
assert torch.equal(compiled(x), program(other)) and torch.equal(x, other)
assert core.stats()["graphs"] == 1
"""
PROGRAM = """
import core, torch

def program(x, weight):
    y = torch.nn.functional.silu(x @ weight).relu()
    x.add_(1)
    return y.t(), y.sum(1) / x.shape[0]

compiled = core.compile(program, backend="my_chip", fullgraph=True)
for size in (2, 5, 6):
    x, weight = torch.randn(size, 3), torch.randn(3, 4)
    other = x.clone()
    for got, want in zip(compiled(x, weight), program(other, weight)):
        torch.testing.assert_close(got, want)
        assert got.stride() == want.stride()
    assert torch.equal(x, other)
stats = core.stats()
assert stats["graphs"] == 2 and stats["breaks"] == 0, stats
module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.GELU(), torch.nn.LayerNorm(4))
x = torch.randn(2, 3)
core.compile(module, backend="my_chip")(x).square().sum().backward()
got = [parameter.grad.clone() for parameter in module.parameters()]
module.zero_grad()
module(x).square().sum().backward()
for parameter, gradient in zip(module.parameters(), got):
    torch.testing.assert_close(parameter.grad, gradient)
from core.backends.registry import default_registry
print(default_registry().find("my-chip").distribution)
"""


def run(*command: str, cwd: Path, **environment: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env={**os.environ, **environment})
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("new")
    assert main(["new", "my-chip", "--dir", str(folder), "--author", "Chip Makers", "--json"]) == 0
    return folder / "core-my-chip"


@pytest.fixture(scope="module")
def site(project, tmp_path_factory) -> Path:
    """A folder with the project's wheel installed, as its users have it."""
    dist, target = tmp_path_factory.mktemp("dist"), tmp_path_factory.mktemp("site")
    pip = (sys.executable, "-m", "pip")
    run(*pip, "wheel", "-q", "--no-build-isolation", "--no-deps", "-w", str(dist), str(project), cwd=dist)
    wheel = next(dist.glob("core_my_chip-*.whl"))
    run(*pip, "install", "-q", "--no-index", "--no-deps", "--target", str(target), str(wheel), cwd=dist)
    return target


def path_of(site: Path) -> str:
    return os.pathsep.join((str(site), str(ROOT), str(ROOT / "conformance")))


def test_the_project_has_its_parts_and_its_manifest_agrees_with_its_metadata(project):
    files = {path.relative_to(project).as_posix() for path in project.rglob("*") if path.is_file()}
    assert files >= {"LICENSE", "README.md", ".gitignore", ".github/workflows/ci.yml", "docs/badge.svg"}
    metadata = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    points = metadata["entry-points"]
    assert points["core.backends"] == {"my_chip": "core_my_chip.plugin"}
    assert points["core.manifests"] == {"my_chip": "core_my_chip:backend.toml"}
    assert points["torch_dynamo_backends"] == {"core_my_chip": "core.bridge:my_chip"}
    assert "core-backend" in metadata["keywords"] and "core[conformance]" in metadata["optional-dependencies"]["test"]
    manifest = parse_manifest((project / "core_my_chip" / "backend.toml").read_text())
    assert manifest.name == "my_chip" and manifest.warnings == () and manifest.provider == "Chip Makers"
    assert f"core{manifest.core}" in metadata["dependencies"] and f"torch{manifest.torch}" in metadata["dependencies"]


def test_the_project_is_clean_for_its_own_linter(project):
    if not RUFF.exists():
        pytest.skip("ruff is not installed")
    run(str(RUFF), "check", "--no-cache", ".", cwd=project)
    run(str(RUFF), "format", "--no-cache", "--check", ".", cwd=project)


def test_the_installed_wheel_compiles_what_eager_computes(site, tmp_path):
    out = run(sys.executable, "-c", PROGRAM, cwd=tmp_path, PYTHONPATH=path_of(site), CORE_STRICT="1")
    assert out.split() == ["core-my-chip"]


@pytest.mark.slow
def test_torch_compile_finds_it_under_the_name_of_its_package(site, tmp_path):
    run(sys.executable, "-c", BACK, cwd=tmp_path, PYTHONPATH=path_of(site), CORE_STRICT="1")


@pytest.mark.slow
def test_the_projects_own_tests_pass(project, site):
    tests = str(project / "tests" / "test_plugin.py")
    run(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", tests, cwd=project, PYTHONPATH=path_of(site))


@pytest.mark.slow
def test_the_doctor_finds_nothing_wrong_with_it(site, tmp_path):
    command = (sys.executable, "-m", "core", "doctor", "my_chip", "--json")
    findings = json.loads(run(*command, cwd=tmp_path, PYTHONPATH=path_of(site)))
    assert [finding["level"] for finding in findings] == ["info"] * len(findings)


@pytest.mark.parametrize("license", LICENSES)
def test_every_licence_has_its_text_and_every_placeholder_a_value(license):
    files = rendered(Plugin("mine", license=license, author="Who"))
    assert ("LICENSE" in files) == (license != "none")
    assert not [place for place, text in files.items() if "@@" in text or "@@" in place]
    assert tomllib.loads(files["pyproject.toml"])["project"].get("license") == (None if license == "none" else license)


@pytest.mark.parametrize("name", ["", "2fast", "my chip", "class", "a__b", "_x", "a/b", "../up", "é"])
def test_a_name_that_no_backend_can_have_is_refused_and_nothing_written(name, tmp_path, capsys):
    assert main(["new", "--dir", str(tmp_path), "--json", "--", name]) == 1
    assert json.loads(capsys.readouterr().out)["error"]["id"] == PluginNameRefused.id
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["inductor", "TensorRT", "trt", "openvino", "fx2trt", "aot-eager"])
def test_a_name_of_the_catalog_is_refused_unless_it_is_claimed(name, tmp_path, capsys):
    assert main(["new", name, "--dir", str(tmp_path)]) == 1
    assert "--claim" in capsys.readouterr().err and not list(tmp_path.iterdir())
    assert main(["new", name, "--claim", "--dir", str(tmp_path)]) == 0


def test_a_name_of_another_installed_distribution_is_refused(site, tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(site))
    (site / "core_my_chip-0.1.0.dist-info").rename(site / "other-0.1.0.dist-info")
    metadata = site / "other-0.1.0.dist-info" / "METADATA"
    text = metadata.read_text()
    try:
        metadata.write_text(text.replace("Name: core-my-chip", "Name: other"))
        assert main(["new", "my_chip", "--dir", str(tmp_path)]) == 1
        assert "other 0.1.0" in capsys.readouterr().err and not list(tmp_path.iterdir())
    finally:
        metadata.write_text(text)
        (site / "other-0.1.0.dist-info").rename(site / "core_my_chip-0.1.0.dist-info")


def test_an_existing_folder_is_left_as_it_is(tmp_path, capsys):
    (tmp_path / "core-mine").mkdir()
    (tmp_path / "core-mine" / "kept").write_text("as it was")
    assert main(["new", "mine", "--dir", str(tmp_path)]) == 1
    assert PluginNotWritten.id in capsys.readouterr().err
    assert [path.name for path in tmp_path.rglob("*")] == ["core-mine", "kept"]


def test_a_folder_that_cannot_be_written_leaves_nothing_behind(tmp_path, capsys):
    (tmp_path / "file").write_text("no folder")
    assert main(["new", "mine", "--dir", str(tmp_path / "file")]) == 1
    assert PluginNotWritten.id in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_an_error_halfway_leaves_nothing_behind(tmp_path, monkeypatch, capsys):
    from core.cli import scaffold

    real, written = scaffold._write, []

    def failing(folder, place, text):
        if len(written) == 3:
            raise OSError("disk full")
        written.append(place)
        return real(folder, place, text)

    monkeypatch.setattr(scaffold, "_write", failing)
    assert main(["new", "mine", "--dir", str(tmp_path)]) == 1
    assert "disk full" in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_an_unknown_licence_and_a_quote_in_a_text_are_refused(tmp_path):
    assert main(["new", "mine", "--license", "GPL-0", "--dir", str(tmp_path)]) == 1
    assert main(["new", "mine", "--author", 'a "b"', "--dir", str(tmp_path)]) == 1
    assert not list(tmp_path.iterdir())
