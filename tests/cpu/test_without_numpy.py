"""torch works without NumPy, and an installation need not have it: nor may core need it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

HIDDEN = "import sys, warnings\nsys.modules['numpy'] = None\nwarnings.simplefilter('ignore')\nimport core, torch\n"


def run(program: str, folder) -> str:
    """What a program prints in a process that has no NumPy."""
    environ = dict(os.environ, CORE_CACHE_DIR=str(folder), CORE_STRICT="1")
    command = [sys.executable, "-c", HIDDEN + program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environ, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_process_of_these_tests_has_no_numpy(tmp_path):
    program = "try:\n    torch.ones(1).numpy()\nexcept RuntimeError as error:\n    print(error)"
    assert "Numpy is not available" in run(program, tmp_path)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.slow
def test_backend_loads_compiles_and_trains_without_numpy(backend, tmp_path):
    program = f"""
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
fast, x = core.compile(model, backend={backend!r}, fullgraph=True), torch.randn(3, 4)
for _ in range(2):
    torch.testing.assert_close(fast(x), model(x))
fast(x).sum().backward()
print(core.stats()["frames"], core.stats()["breaks"])
"""
    frames, breaks = run(program, tmp_path).split()
    assert int(frames) >= 1 and breaks == "0"


@pytest.mark.slow
def test_frozen_weights_and_constants_are_compared_without_numpy(tmp_path):
    program = """
table = torch.arange(6.0)
model = torch.nn.Linear(4, 2).eval().requires_grad_(False)
core.config.check_frozen = True
fast, x = core.compile(model, backend="inductor", freeze=True), torch.randn(3, 4)
torch.testing.assert_close(fast(x), model(x))
looked_up = core.compile(lambda x: x + torch.tensor([1.0, 2.0, 3.0, 4.0]), backend="inductor")
torch.testing.assert_close(looked_up(x), x + torch.tensor([1.0, 2.0, 3.0, 4.0]))
print("right")
"""
    assert run(program, tmp_path) == "right\n"


@pytest.mark.slow
def test_process_of_its_own_compiles_without_numpy(tmp_path):
    program = """
if __name__ == "__main__":
    fast = core.compile(lambda x: (x * 2).relu(), backend="inductor", isolate="process", deadline_s=120)
    torch.testing.assert_close(fast(torch.ones(3)), torch.full((3,), 2.0))
    print("right")
"""
    assert run(program, tmp_path) == "right\n"
