"""Printed Triton programs compile to GPU code without a GPU, and the printer refuses what it can't print."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")
if os.environ.get("TRITON_INTERPRET", "0") not in ("", "0"):
    pytest.skip("the interpreter replaces the compiler", allow_module_level=True)
sys.path.insert(0, str(Path(__file__).parent))
from core_inductor.triton.operations import UnsupportedOperation, operation  # noqa: E402
from core_inductor.triton.printer import EmptySpace  # noqa: E402
from triton_cases import CASES, Case, aten, program_of  # noqa: E402

sys.path.pop(0)


def only_kernel(case):
    (kernel,) = program_of(case).kernels
    return kernel


def compiled(case):
    from core_inductor.triton.build import compile_cubin

    return compile_cubin(only_kernel(case))


@pytest.mark.parametrize(
    "name", ["gelu", "softmax", "softmax of a long row", "symbolic sizes", "position of the largest"]
)
def test_a_group_compiles_for_sm_90(name):
    cubin = compiled(CASES[name])
    assert cubin.code.startswith(b"\x7fELF") and ".target sm_90" in cubin.ptx
    assert f".entry {cubin.entry}" in cubin.ptx and cubin.threads % 32 == 0


def test_functions_of_the_gpu_math_library_compile():
    case = Case(lambda a: (aten.atan(aten.lgamma(aten.pow(a, a))),), (torch.rand(100),))
    assert not only_kernel(case).interpretable
    assert compiled(case).code


def test_multiplications_and_additions_are_not_contracted():
    ptx = compiled(Case(lambda a, b: (aten.add(aten.mul(a, b), b),), (torch.rand(100), torch.rand(100)))).ptx
    assert "fma.rn.f32" not in ptx


def test_a_pointwise_program_loads_whole_vectors():
    ptx = compiled(Case(lambda a, b: (aten.add(a, b),), (torch.rand(4096), torch.rand(4096)))).ptx
    assert "ld.global.v4" in ptx and "st.global.v4" in ptx


def test_a_value_is_loaded_once_and_members_are_not_read_back():
    kernel = only_kernel(CASES["softmax"])
    assert kernel.source.count("tl.load(") == 1 and kernel.source.count("tl.store(") == 1
    assert len(kernel.inputs) == 1


def test_a_long_row_is_walked_once_for_each_level_of_reductions():
    kernel = only_kernel(CASES["softmax of a long row"])
    assert kernel.source.count("for start in range(") == 3


def test_a_space_without_points_is_refused():
    with pytest.raises(EmptySpace):
        program_of(Case(lambda a: (aten.add(a, 1),), (torch.rand(0, 3),)))


def test_an_operation_without_triton_code_is_named():
    with pytest.raises(UnsupportedOperation, match="no_such_operation"):
        operation("no_such_operation", ["a"], "float32", "float32")


def test_a_long_chain_of_operations_is_printed():
    def chain(a):
        for _ in range(350):
            a = aten.exp(aten.neg(a))
        return (a,)

    assert only_kernel(Case(chain, (torch.rand(4),))).source.count("tl.exp(") >= 100
