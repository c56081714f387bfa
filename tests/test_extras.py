"""What the extras bring: each is resolved by pip, among wheels that hold nothing but their metadata."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parent.parent
PROJECTS = [ROOT, ROOT / "conformance", *sorted(path.parent for path in (ROOT / "plugins").glob("*/pyproject.toml"))]
OFFERED = {"torch": ("2.8.0", "2.13.0"), "intel-extension-for-pytorch": ("2.8.0",), "onnxruntime-gpu": ("1.31.1",)}
"""Versions of others' distributions where the least one that is asked for would not do."""


def described() -> dict[str, dict]:
    """The project table of each distribution here, by name."""
    tables = [tomllib.loads((path / "pyproject.toml").read_text())["project"] for path in PROJECTS]
    return {table["name"]: table for table in tables}


HERE = described()


def wheel(folder: Path, name: str, version: str, needs: list[str], extras: dict[str, list[str]]) -> None:
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {need}" for need in needs]
    for extra, brought in extras.items():
        lines += [f"Provides-Extra: {extra}", *(f'Requires-Dist: {need}; extra == "{extra}"' for need in brought)]
    stem = f"{name.replace('-', '_')}-{version}"
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as file:
        file.writestr(f"{stem}.dist-info/METADATA", "\n".join(lines) + "\n")
        file.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{stem}.dist-info/RECORD", "")


def least(specifier: SpecifierSet) -> str:
    """A version that a specifier takes: its lowest bound."""
    bounds = [one.version.removesuffix(".*") for one in specifier if one.operator in (">=", "==", "~=")]
    return next((bound for bound in bounds if specifier.contains(bound)), "1.0")


@pytest.fixture(scope="module")
def shelf(tmp_path_factory) -> Path:
    """A folder with a wheel of every distribution here, and of every other that one of them asks for."""
    folder = tmp_path_factory.mktemp("shelf")
    others: dict[str, SpecifierSet] = {}
    for name, table in HERE.items():
        extras = table.get("optional-dependencies", {})
        wheel(folder, name, table["version"], table.get("dependencies", []), extras)
        for text in [*table.get("dependencies", []), *(need for brought in extras.values() for need in brought)]:
            need = Requirement(text)
            if need.name not in HERE:
                others.setdefault(need.name, SpecifierSet())
                if need.name not in OFFERED:
                    others[need.name] &= need.specifier
    for name, specifier in others.items():
        for version in OFFERED.get(name, (least(specifier),)):
            wheel(folder, name, version, [], {})
    return folder


def brought(shelf: Path, *wanted: str) -> dict[str, str]:
    """Name -> version of everything that pip would install."""
    command = [sys.executable, "-m", "pip", "install", "-q", "--dry-run", "--ignore-installed", "--no-index"]
    command += ["--find-links", str(shelf), "--report", "-", *wanted]
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PIP_")}
    done = subprocess.run(
        command, env={**clean, "PIP_CONFIG_FILE": os.devnull}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    items = json.loads(done.stdout)["install"]
    return {item["metadata"]["name"]: item["metadata"]["version"] for item in items}


RUNTIMES = {
    "core[inductor]": {"core-inductor"},
    "core[onnxrt]": {"core-onnxrt", "core-onnx", "onnxruntime"},
    "core[openvino]": {"core-openvino", "openvino"},
    "core[ipex]": {"core-ipex"},
    "core[ofi]": {"core-ofi"},
    "core[cudagraphs]": {"core-cudagraphs"},
    "core[tensorrt]": {"core-tensorrt", "tensorrt-cu13"},
    "core-onnxrt[cpu]": {"onnxruntime"},
    "core-onnxrt[gpu]": {"onnxruntime-gpu"},
    "core-tensorrt[cu13]": {"tensorrt-cu13"},
    "core-tensorrt[rtx]": {"tensorrt-rtx-cu13-bindings", "tensorrt-rtx-cu13-libs"},
    "core-ipex[native]": {"intel-extension-for-pytorch"},
}
ALL = {runtime for names in RUNTIMES.values() for runtime in names if runtime not in HERE}


@pytest.mark.parametrize("wanted", RUNTIMES)
def test_an_extra_brings_its_runtime_and_no_other(shelf, wanted):
    found = brought(shelf, wanted)
    assert RUNTIMES[wanted] <= set(found)
    assert set(found) & ALL == RUNTIMES[wanted] & ALL


def test_the_native_extra_takes_the_torch_that_its_extension_is_for(shelf):
    assert brought(shelf, "core-ipex[native]")["torch"] == "2.8.0"
    assert brought(shelf, "core[ipex]")["torch"] == "2.13.0"


def test_everything_together_is_what_runs_on_any_machine(shelf):
    found = brought(shelf, "core[all]")
    assert {"core-inductor", "core-conformance", "onnxruntime", "openvino"} <= set(found)
    assert not set(found) & {"intel-extension-for-pytorch", "onnxruntime-gpu", "tensorrt-cu13"}
    assert found["torch"] == "2.13.0"


def test_every_extra_of_core_names_a_distribution_that_is_here():
    for extra, needs in HERE["core"]["optional-dependencies"].items():
        for need in map(Requirement, needs):
            assert need.name in HERE, f"core[{extra}] asks for {need}"
            assert need.extras <= set(HERE[need.name].get("optional-dependencies", {}))
