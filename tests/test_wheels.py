"""What `pip install core[inductor]` means: wheels of both distributions, installed offline, compile a function."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = """
import torch, core, core_inductor
def fn(x):
    return torch.relu(x + 1) * 2
x = torch.randn(100)
assert torch.equal(core.compile(fn)(x), fn(x))
stats = core.stats()
assert stats["graphs"] == 1 and stats["kernels"] == 1, stats
assert {root!r} not in core.__file__ and {root!r} not in core_inductor.__file__
print("compiled with", core.__file__)
"""


def run(*command: str, **kwargs) -> str:
    done = subprocess.run(command, capture_output=True, text=True, **kwargs)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory) -> Path:
    """A folder with the wheels of core and core-inductor, built from a copy of the sources."""
    source, dist = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    listed = run("git", "ls-files", cwd=ROOT).splitlines()
    for name in listed:
        if name.startswith(("core/", "core_presence.py", "plugins/", "README", "LICENSE", "pyproject", "setup")):
            target = source / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((ROOT / name).read_bytes())
    for project in (source, source / "plugins" / "inductor"):
        run(
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "-q",
            "--no-build-isolation",
            "--no-deps",
            "-w",
            str(dist),
            str(project),
        )
    return dist


def test_the_wheels_install_together_and_compile_with_the_default_backend(wheels, tmp_path):
    assert sorted(path.name.split("-")[0] for path in wheels.iterdir()) == ["core", "core_inductor"]
    environment = tmp_path / "venv"
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    site = next((environment / "lib").glob("python*/site-packages"))
    # The fresh environment sees the installed torch and its kin, but not this project.
    for entry in Path(torch_site()).iterdir():
        name = entry.name.lower()
        if not name.startswith(("core-", "core_inductor", "core.", "__editable__")) and entry.name != "core":
            target = site / entry.name
            if not target.exists() and entry.suffix != ".pth":
                target.symlink_to(entry)
    run(
        str(python),
        "-m",
        "pip",
        "install",
        "-q",
        "--no-index",
        "--find-links",
        str(wheels),
        "core[inductor]",
        cwd=tmp_path,
    )
    clean = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "CORE_CACHE_DIR")}
    out = run(
        str(python),
        "-c",
        PROGRAM.format(root=str(ROOT)),
        cwd=tmp_path,
        env={**clean, "CORE_CACHE_DIR": str(tmp_path / "cache")},
    )
    assert "compiled with" in out


def torch_site() -> str:
    import torch

    return str(Path(torch.__file__).resolve().parent.parent)


def test_the_wheel_of_a_plugin_without_code_of_its_own_to_build_holds_its_tables(tmp_path):
    source, dist = tmp_path / "source", tmp_path / "dist"
    for name in run("git", "ls-files", "plugins/cudagraphs", cwd=ROOT).splitlines():
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / name).read_bytes())
    project = source / "plugins" / "cudagraphs"
    options = ("-q", "--no-build-isolation", "--no-deps", "-w", str(dist))
    run(sys.executable, "-m", "pip", "wheel", *options, str(project))
    (wheel,) = dist.iterdir()
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
        (entry_points,) = (name for name in names if name.endswith("entry_points.txt"))
        declared = file.read(entry_points).decode()
    package = ("__init__.py", "plugin.py", "backend.toml", "conformance.toml", "py.typed")
    assert {f"core_cudagraphs/{name}" for name in package} <= names
    assert not [name for name in names if name.startswith(("tests", "measure"))]
    assert "cudagraphs = core_cudagraphs.plugin" in declared and "cudagraphs = core_cudagraphs:backend.toml" in declared
