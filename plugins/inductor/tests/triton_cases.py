"""Graphs of ATen calls that the tests print as Triton, through the plugin's own lowering and scheduler.

Run as a program under TRITON_INTERPRET=1 it executes every case and prints one line each: name, largest error over the
allowed one, and the text of an exception if there was one.
"""

from __future__ import annotations

import os
import sys
import traceback
from dataclasses import dataclass
from typing import Any

import torch
from core_inductor.ir import expr
from core_inductor.lower.lowering import GraphLowering
from core_inductor.sched.memory import KernelStep
from core_inductor.sched.schedule import schedule
from core_inductor.triton.printer import print_kernel
from torch.fx.experimental.proxy_tensor import make_fx

aten = torch.ops.aten
NAN, INF = float("nan"), float("inf")


@dataclass(frozen=True)
class Case:
    """A function of ATen calls and its inputs."""

    fn: Any
    inputs: tuple[torch.Tensor, ...]
    dynamic: bool = False


def _random(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(len(sizes) * 1000 + sum(sizes))
    return torch.randn(*sizes, generator=generator).to(dtype)


SPECIAL = torch.tensor([0.0, -0.0, 1.0, -1.5, 0.3, -0.3, 2.5, -2.5, 1e-20, 30.0, -30.0, INF, -INF, NAN])
WHOLE = torch.tensor([7, -7, 7, -7, 0, 1, -1, 9, -9, 12])


def _unary(name: str, x: torch.Tensor = SPECIAL) -> Case:
    return Case(lambda a: (getattr(aten, name)(a),), (x,))


def _binary(name: str) -> Case:
    return Case(lambda a, b: (getattr(aten, name)(a, b),), (SPECIAL, SPECIAL.flip(0).contiguous()))


CASES: dict[str, Case] = {
    **{name: _unary(name) for name in "abs neg exp erf floor ceil trunc relu tanh sigmoid sign isnan silu".split()},
    "gelu": _unary("gelu", SPECIAL[:11]),
    **{name: _unary(name, SPECIAL[SPECIAL > 0]) for name in "log log2 sqrt rsqrt reciprocal".split()},
    **{name: _binary(name) for name in "add sub mul div maximum minimum eq lt ge".split()},
    "add of a broadcast row": Case(lambda a, b: (aten.add(a, b),), (_random(5, 7), _random(7))),
    "add of a broadcast column": Case(lambda a, b: (aten.add(a, b),), (_random(5, 7), _random(5, 1))),
    "transposed input": Case(lambda a: (aten.mul(aten.t(a), 2),), (_random(5, 7),)),
    "more elements than one program": Case(lambda a: (aten.add(a, 1),), (_random(50, 61),)),
    "two results": Case(lambda a: (aten.exp(a), aten.mul(a, a)), (_random(33),)),
    "where of bool": Case(lambda c, a, b: (aten.where(c, a, b),), (_random(40) > 0, _random(40), _random(1, 40)[0])),
    "integer floor division": Case(lambda a: (aten.floor_divide(a, 4),), (WHOLE,)),
    "integer remainder": Case(lambda a: (aten.remainder(a, -4),), (WHOLE,)),
    "float remainder": Case(lambda a: (aten.remainder(a, 1.5),), (SPECIAL[:11],)),
    "cast to int": Case(lambda a: (aten._to_copy(a, dtype=torch.int64),), (SPECIAL[:11],)),
    "cast to bool": Case(lambda a: (aten._to_copy(a, dtype=torch.bool),), (SPECIAL,)),
    "float64": Case(lambda a: (aten.add(aten.mul(a, 0.1), 1e-9),), (_random(20, dtype=torch.float64),)),
    "float16": Case(lambda a: (aten.mul(aten.add(a, 1), a),), (_random(20, dtype=torch.float16),)),
    "one element": Case(lambda a: (aten.add(a, 1),), (torch.tensor(2.0),)),
    "symbolic sizes": Case(lambda a, b: (aten.add(aten.exp(a), b),), (_random(9, 11), _random(11)), dynamic=True),
    "softmax": Case(lambda a: (aten._softmax(a, 1, False),), (_random(6, 37),)),
    "softmax over a middle dimension": Case(lambda a: (aten._softmax(a, 1, False),), (_random(3, 9, 5),)),
    "softmax of a long row": Case(lambda a: (aten._softmax(a, 1, False),), (_random(2, 9001),)),
    "softmax with symbolic sizes": Case(lambda a: (aten._softmax(a, 1, False),), (_random(4, 21),), dynamic=True),
    "log softmax": Case(lambda a: (aten._log_softmax(a, 1, False),), (_random(6, 37),)),
    "layer norm": Case(
        lambda a, w, b: aten.native_layer_norm(a, [24], w, b, 1e-5), (_random(7, 24), _random(24), _random(24))
    ),
    "layer norm of a long row": Case(
        lambda a, w, b: aten.native_layer_norm(a, [8500], w, b, 1e-5), (_random(2, 8500), _random(8500), _random(8500))
    ),
    "sum of a row": Case(lambda a: (aten.sum(a, [1]),), (_random(5, 100),)),
    "sum of a column": Case(lambda a: (aten.sum(a, [0]),), (_random(30, 11),)),
    "sum with kept dimension": Case(lambda a: (aten.sum(a, [1], True),), (_random(5, 100),)),
    "sum of integers": Case(lambda a: (aten.sum(a, [0]),), (WHOLE.view(5, 2),)),
    "sum of a row of one": Case(lambda a: (aten.sum(a, [1]),), (_random(5, 1),)),
    "mean": Case(lambda a: (aten.mean(a, [1]),), (_random(5, 100),)),
    "product": Case(lambda a: (aten.prod(a, 1),), (_random(5, 13),)),
    "largest of a row with NaN": Case(lambda a: (aten.amax(a, [0]),), (SPECIAL.view(7, 2),)),
    "largest of a row": Case(lambda a: (aten.amax(a, [1]),), (_random(5, 100),)),
    "smallest of a row of minus infinity": Case(lambda a: (aten.amin(a, [1]),), (torch.full((3, 5), -INF),)),
    "position of the largest": Case(lambda a: (aten.argmax(a, 1),), (_random(5, 100).round(),)),
    "position of the first NaN": Case(lambda a: (aten.argmax(a, 0),), (torch.tensor([1.0, NAN, 3.0, NAN]),)),
    "position of the smallest in a long row": Case(lambda a: (aten.argmin(a.abs(), 1),), (_random(2, 9001).round(),)),
    "any": Case(lambda a: (aten.any(a, 1),), (_random(6, 3) > 1,)),
    "all": Case(lambda a: (aten.all(a, 1),), (_random(6, 3) > -1,)),
}


@dataclass
class Program:
    """The printed kernels of a case in order, what its inputs and outputs are, and the values of its size symbols."""

    kernels: list[Any]
    graph: Any
    sizes: dict[str, int]


def program_of(case: Case) -> Program:
    """Lower, schedule and print a case."""
    graph = make_fx(case.fn, tracing_mode="symbolic" if case.dynamic else "fake")(*case.inputs)
    plan = schedule(GraphLowering(graph).run())
    assert all(isinstance(step, KernelStep) for step in plan.steps), "every case consists of kernels only"
    sizes = {}
    for node, tensor in zip(plan.graph.inputs, case.inputs):
        for declared, actual in zip((*node.sizes, *node.strides), (*tensor.shape, *tensor.stride())):
            for atom in expr.atoms_of(declared):
                if declared == atom.as_expr:
                    sizes[atom.name] = actual
    return Program([print_kernel(step.kernel) for step in plan.steps], plan.graph, sizes)


def run_case(case: Case, device: str = "cpu") -> float:
    """The largest error over the allowed one, on a device; "cpu" is Triton's interpreter."""
    from core_inductor.triton.build import run_kernel

    program = program_of(case)
    memory = {node: tensor.to(device) for node, tensor in zip(program.graph.inputs, case.inputs)}
    for kernel in program.kernels:
        for node in kernel.outputs:
            count, dtype = _evaluate(node.numel, program.sizes), getattr(torch, node.dtype)
            memory[node] = torch.full((count,), 77, dtype=dtype, device=device)
        inputs, outputs = ([memory[node] for node in nodes] for nodes in (kernel.inputs, kernel.outputs))
        run_kernel(kernel, inputs, outputs, _evaluate(kernel.programs, program.sizes), program.sizes)
    worst = 0.0
    for output, want in zip(program.graph.outputs, case.fn(*case.inputs)):
        shape, strides, offset = (
            [_evaluate(e, program.sizes) for e in part] for part in (output.sizes, output.strides, [output.offset])
        )
        worst = max(worst, _error(memory[output.node].as_strided(shape, strides, *offset).cpu(), want))
    return worst


def _evaluate(e: Any, sizes: dict[str, int]) -> int:
    atoms = {a: sizes[a.name] for a in expr.atoms_of(e) if isinstance(a, expr.SizeVar)}
    return expr.substitute(e, atoms)


def _error(got: torch.Tensor, want: torch.Tensor) -> float:
    if got.shape != want.shape or got.dtype != want.dtype:
        return INF
    if not want.dtype.is_floating_point:
        return float((got != want).sum())
    if not torch.equal(got.isnan(), want.isnan()) or not torch.equal(got.isinf(), want.isinf()):
        return INF
    allowed = {torch.float16: 2e-3, torch.float64: 1e-14}.get(got.dtype, 1e-6)
    got, want = got.double().nan_to_num(0, 0, 0), want.double().nan_to_num(0, 0, 0)
    return float(((got - want).abs() / (allowed * (1 + want.abs()))).max())


if __name__ == "__main__":
    device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
    assert (os.environ.get("TRITON_INTERPRET") == "1") == (device == "cpu")
    for name, case in CASES.items():
        try:
            print(f"{name}|{run_case(case, device)}|", flush=True)
        except Exception:
            traceback.print_exc(file=sys.stderr)
            print(f"{name}|inf|{traceback.format_exc().strip().splitlines()[-1]}", flush=True)
