"""Kernels that a program writes in Triton, launched by a compiled function; Triton's interpreter runs them here."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton")

PROGRAM = """
import torch, triton, triton.language as tl
import core

@triton.jit
def add_kernel(left, right, result, size, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < size
    total = tl.load(left + places, mask=inside) + tl.load(right + places, mask=inside)
    tl.store(result + places, total, mask=inside)

def program(x, y):
    x = x * 2
    result = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), 16),)](x, y, result, x.numel(), BLOCK=16)
    return result.relu() + 1

fast = core.compile(program, backend="eager")
for size in (40, 40, 33):
    x, y = torch.randn(size), torch.randn(size)
    assert torch.equal(fast(x, y), program(x, y))
@torch.library.custom_op("test_user_kernels::add", mutates_args=())
def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    result = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), 16),)](x, y, result, x.numel(), BLOCK=16)
    return result

add.register_fake(lambda x, y: torch.empty_like(x))
whole = core.compile(lambda x, y: add(x * 2, y).relu() + 1, backend="aot_eager", fullgraph=True)
assert torch.equal(whole(x, y), program(x, y))
broken = core.explain(program, backend="eager")(torch.randn(40), torch.randn(40)).breaks
assert any("KernelInterface" in one.reason for one in broken), broken
assert not any("triton" in one.line.filename for one in broken), broken
"""


@pytest.mark.slow
def test_a_launch_runs_between_two_graphs_or_in_one_as_a_custom_operator_and_nothing_of_triton_is_captured(tmp_path):
    path = tmp_path / "program.py"  # Triton reads the source of a kernel
    path.write_text(PROGRAM)
    environment = {**os.environ, "TRITON_INTERPRET": "1", "CORE_STRICT": "1"}
    ran = subprocess.run([sys.executable, str(path)], env=environment, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr[-2000:]
