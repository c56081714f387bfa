"""The plugin without a GPU: what it declares, what it refuses, and its manifest."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from dataclasses import asdict
from importlib import resources

import pytest
import torch
from core_cudagraphs.plugin import CudaGraphsBackend, core_backend

import core
from core.errors import BackendUnavailable, InvalidOption


def test_the_manifest_says_what_the_backend_says():
    manifest = tomllib.loads((resources.files("core_cudagraphs") / "backend.toml").read_text())
    backend = core_backend()
    declared = asdict(backend.capabilities)
    assert manifest["name"] == backend.name
    assert sorted(manifest["options"]) == sorted(backend.options())
    for name, value in manifest["capabilities"].items():
        assert declared[name] == (tuple(value) if isinstance(value, list) else value), name


def test_importing_the_plugin_imports_no_torch():
    program = "import sys, core_cudagraphs.plugin as p; p.core_backend().options(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_tensors_of_the_cpu_are_refused_with_a_reason():
    with pytest.raises(BackendUnavailable, match="cuda"):
        core.compile(lambda x: x + 1, backend=CudaGraphsBackend())(torch.ones(3))


@pytest.mark.parametrize("options", [{"cudagraph_size": 3}, {"cudagraph_sizes": "many"}, {"cudagraphs": "yes"}])
def test_options_are_typed_and_named(options):
    with pytest.raises(InvalidOption):
        core.compile(lambda x: x + 1, backend=CudaGraphsBackend(), options=options)


def test_modes_that_tune_kernels_are_not_its():
    with pytest.raises(InvalidOption, match="max-autotune"):
        core.compile(lambda x: x + 1, backend=CudaGraphsBackend(), mode="max-autotune")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_probe_says_so():
    found = CudaGraphsBackend().probe("cuda")
    assert not found.ok and found.reason and found.remedy
