"""The Intel extension for PyTorch itself, in an environment of its own, beside eager: what its own kernels give.

    python plugins/ipex/tools/native_venv.py FOLDER            # says what would be downloaded, and stops
    python plugins/ipex/tools/native_venv.py FOLDER --yes      # makes the environment and shows the extension
    python plugins/ipex/tools/native_venv.py FOLDER --yes --core .   # and core.compile with it, built from a checkout

The extension ended at 2.8.0 and works with torch 2.8 only; with another torch its import ends the process. So versions
are compared by what is installed, never by importing, and it has an environment of its own. Where a build of torch 2.8
for CPUs can be had it is taken, else the one for CUDA, which needs gigabytes of libraries to be imported at all.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

TORCH = "2.8"
EXTENSION = "intel-extension-for-pytorch"
LEAST, BEYOND = (3, 9), (3, 14)
"""The Pythons that the extension's wheels are for."""
CPU_SIZE = "about a quarter of a GB to download"
CUDA_SIZE = "3.4 GB to download, 7 GB on disk: a build of torch 2.8 for CPUs is not to be had here"

VERSIONS = """
import json
from importlib import metadata
found = {}
for name in ("torch", "intel-extension-for-pytorch"):
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        found[name] = ""
print(json.dumps(found))
"""

SHOW = """
import copy, statistics, time, warnings
warnings.simplefilter("ignore")
import torch
import intel_extension_for_pytorch as ipex
from torch import nn

try:
    import core
    import core_ipex
except ImportError:
    core = None
    print("core and core-ipex are not installed in this environment: the extension alone is shown")

torch.manual_seed(0)
torch.set_num_threads(1)


def block(narrow, wide):
    return [nn.Conv2d(narrow, wide, 3, padding=1), nn.BatchNorm2d(wide), nn.ReLU()]


MODELS = {
    "convolutions": (nn.Sequential(*block(3, 32), *block(32, 64), *block(64, 64)), torch.randn(2, 3, 64, 64)),
    "products": (nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)), torch.randn(64, 512)),
}
print("torch", torch.__version__, "extension", ipex.__version__)
for name, (model, x) in MODELS.items():
    model = model.eval()
    with torch.no_grad():
        fast = ipex.optimize(model, dtype=torch.float32)
        runs = {"eager": model, "the extension alone": fast}
        if core is not None:
            how = {"backend": "ipex", "freeze": True, "fullgraph_backend": True}
            runs["core, native"] = core.compile(copy.deepcopy(model), **how)
            runs["core, upstream"] = core.compile(copy.deepcopy(model), options={"native": False}, **how)
        if x.dim() == 4:
            last = x.contiguous(memory_format=torch.channels_last)
            turned = copy.deepcopy(model).to(memory_format=torch.channels_last)
            runs["eager, channels-last"] = lambda _, turned=turned: turned(last)
        exact = copy.deepcopy(model).double()(x.double())
        error = {key: float((run(x).double() - exact).norm() / exact.norm()) for key, run in runs.items()}
        times = {key: [] for key in runs}
        for turn in range(23):
            for key in [*runs][turn % len(runs):] + [*runs][: turn % len(runs)]:
                began = time.process_time()
                runs[key](x)
                times[key].append(time.process_time() - began)
    middle = {key: statistics.median(own[3:]) for key, own in times.items()}
    ratio = {key: statistics.median(a / b for a, b in zip(times["eager"][3:], own[3:])) for key, own in times.items()}
    for key in runs:
        print(f"{name:13} {key:21} {middle[key] * 1e3:8.2f} ms of the processor, {ratio[key]:.2f} of eager's speed, "
              f"error {error[key]:.1e}")
"""


def python_of(folder: Path) -> str:
    return str(folder / "bin" / "python")


def asked(folder: Path, program: str) -> str:
    """What a program prints in the environment. Raises CalledProcessError."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PIP_CONSTRAINT"))}
    done = subprocess.run([python_of(folder), "-c", program], env=clean, capture_output=True, text=True, check=True)
    return done.stdout


def pip(folder: Path, *arguments: str, quiet: bool = False) -> int:
    """pip in the environment, without the constraints of this machine. quiet: nobody is to read what it says."""
    clean = {**os.environ, "PIP_CONSTRAINT": os.devnull}
    words = subprocess.DEVNULL if quiet else None
    command = [python_of(folder), "-m", "pip", *arguments]
    return subprocess.run(command, env=clean, check=False, stdout=words, stderr=words).returncode


def cpu_build(folder: Path) -> bool:
    """Whether a build of torch for CPUs is to be had from where pip looks."""
    return pip(folder, "install", "--dry-run", "--no-deps", f"torch=={TORCH}.0+cpu", quiet=True) == 0


def mismatch(versions: dict[str, str]) -> str:
    """Why the extension must not be imported, or ""."""
    torch, extension = versions.get("torch", ""), versions.get(EXTENSION, "")
    if not torch or not extension:
        return f"{EXTENSION if torch else 'torch'} is not installed"
    if torch.split(".")[:2] != extension.split(".")[:2]:
        return f"torch {torch} and the extension {extension} do not fit: an import would end the process"
    return ""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the environment is or is to be")
    parser.add_argument("--yes", action="store_true", help="download")
    parser.add_argument("--core", type=Path, help="a checkout of core, which is built and installed there too")
    options = parser.parse_args(arguments)
    if not LEAST <= sys.version_info[:2] < BEYOND:
        print(f"the extension has no wheels for Python {sys.version_info[0]}.{sys.version_info[1]}", file=sys.stderr)
        return 2
    if not Path(python_of(options.folder)).exists():
        venv.create(options.folder, with_pip=True)
    if mismatch(json.loads(asked(options.folder, VERSIONS))):
        cpu = cpu_build(options.folder)
        size = CPU_SIZE if cpu else CUDA_SIZE
        print(f"torch {TORCH} and {EXTENSION} {TORCH}: {size}", flush=True)
        if not options.yes:
            print("nothing was downloaded; --yes goes on")
            return 0
        build = f"torch=={TORCH}.0+cpu" if cpu else f"torch=={TORCH}.0"
        if pip(options.folder, "install", "-q", build, f"{EXTENSION}=={TORCH}.0", "numpy", "setuptools"):
            return 1
    if options.core is not None:
        parts = [str(options.core), str(options.core / "plugins" / "ipex")]
        if pip(options.folder, "install", "-q", "setuptools>=77", "wheel", "pluggy>=1.5"):
            return 1
        if pip(options.folder, "install", "-q", "--no-build-isolation", "--no-deps", *parts):
            return 1
    versions = json.loads(asked(options.folder, VERSIONS))
    why = mismatch(versions)
    if why:
        print(why, file=sys.stderr)
        return 1
    try:
        print(asked(options.folder, SHOW), end="")
    except subprocess.CalledProcessError as error:
        print((error.stderr or "").strip().splitlines()[-1:], file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
