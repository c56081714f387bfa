"""Kernels that a program writes in Triton, launched by a compiled function; Triton's interpreter runs them here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")
import triton
import triton.language as tl

from core.capture.policy import code_is_skipped
from core.graph.kernel_writes import UnknownWrites, written_parameters

PROGRAMS = Path(__file__).with_name("user_kernel_programs.py")


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_launches_are_operations_of_one_graph_and_give_what_eager_gives(backend):
    on_gpu = torch.cuda.is_available()
    if on_gpu and backend == "inductor":
        pytest.skip("inductor compiles for the CPU here")
    environment = {**os.environ, "TRITON_INTERPRET": "0" if on_gpu else "1", "CORE_STRICT": "1"}
    command = [sys.executable, str(PROGRAMS), backend]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert ran.returncode == 0, ran.stderr[-2000:]


@triton.jit
def store_one(target, value, unused):
    tl.store(target, value)
    return unused + 1


@triton.jit
def by_function(x, y, result, table, BLOCK: tl.constexpr):
    pointer = y
    for turn in range(3):
        store_one(pointer + turn, tl.load(table), x)
        pointer = result
    moved = store_one(x, 1, table)
    tl.load(moved)


@triton.jit
def by_block(x, y, size, BLOCK: tl.constexpr):
    source = tl.make_block_ptr(x, (size,), (1,), (0,), (BLOCK,), (0,))
    target = tl.make_block_ptr(y, (size,), (1,), (0,), (BLOCK,), (0,))
    tl.store(tl.advance(target, (BLOCK,)), tl.softmax(tl.load(source)))


@triton.jit
def by_method(x, y, count, size, BLOCK: tl.constexpr):
    described = tl.make_tensor_descriptor(x, (size,), (1,), (BLOCK,))
    described.store([0], tl.load(y))
    while tl.atomic_cas(count, 0, 1) == 1:
        pass


@triton.jit
def by_unknown(x, y, function: tl.constexpr):
    function(x)
    tl.store(y, tl.inline_asm_elementwise("mov $0, $1;", "=r,r", [tl.load(x)], tl.int32, False, 1))


@triton.jit
def by_number(addresses):
    tl.store(tl.load(addresses).to(tl.pointer_type(tl.float32)), 1.0)


@pytest.mark.parametrize(
    ("kernel", "written"),
    [(by_function, {"x", "y", "result"}), (by_block, {"y"}), (by_method, {"x", "count"}), (by_unknown, {"x", "y"})],
)
def test_what_a_kernel_writes_to_is_read_from_its_source(kernel, written):
    assert written_parameters(kernel.fn) - {"BLOCK", "size", "function"} == written


def test_of_a_kernel_that_makes_pointers_of_numbers_nothing_is_said():
    with pytest.raises(UnknownWrites, match="pointers of numbers"):
        written_parameters(by_number.fn)


def test_the_code_that_triton_makes_to_bind_arguments_is_not_captured():
    namespace = {"JITCallable": triton.JITFunction, "__builtins__": __builtins__}
    exec("def bind(x):\n    return x + 1", namespace)
    assert code_is_skipped(namespace["bind"].__code__, namespace) == "code of triton"
    assert code_is_skipped(namespace["bind"].__code__, {**namespace, "JITCallable": torch.Tensor}) is None
