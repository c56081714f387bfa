"""The first compile of a process, in which things are made for good, may come inside of any mode or transform."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import torch
import core
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

class Doubles(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {{}}))

class Watches(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {{}}))

def fn(x):
    return (x.sin() * 2).sum()

def first(x):
    return core.compile(fn, backend="inductor")(x)

x = torch.arange(6.0).reshape(2, 3)
{enter}
torch.testing.assert_close(found, expected)
compiled = core.compile(lambda x: fn(x) + 1, backend="inductor", fullgraph=True)
torch.testing.assert_close(compiled(x), fn(x) + 1)
leaf = x.clone().requires_grad_()
compiled(leaf).backward()
torch.testing.assert_close(leaf.grad, x.cos() * 2)
"""

ENTRIES = {
    "vmap": "found, expected = torch.vmap(first)(x), torch.vmap(fn)(x)",
    "grad": "found, expected = torch.func.grad(first)(x), torch.func.grad(fn)(x)",
    "function mode": "with Doubles():\n    found, expected = first(x), fn(x)",
    "dispatch mode": "with Watches():\n    found, expected = first(x), fn(x)",
    "inference mode": "with torch.inference_mode():\n    found, expected = first(x), fn(x)",
    "another device": "with torch.device('meta'):\n    found, expected = first(x), fn(x)",
}


@pytest.mark.parametrize("enter", ENTRIES.values(), ids=ENTRIES)
@pytest.mark.slow
def test_the_first_compile_of_a_process_inside_of_a_mode(enter):
    program = PROGRAM.format(enter=enter)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
