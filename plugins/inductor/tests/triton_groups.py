"""Groups of nodes that the tests print as Triton, made from ATen graphs.

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
from core_inductor.ir.nodes import Loops
from core_inductor.lower.lowering import GraphLowering
from core_inductor.triton.printer import print_group
from torch.fx.experimental.proxy_tensor import make_fx

aten = torch.ops.aten
NAN, INF = float("nan"), float("inf")


@dataclass(frozen=True)
class Case:
    """A function of ATen calls and its inputs; every node of its graph goes into one kernel."""

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
    "position of the smallest in a long row": Case(lambda a: (aten.argmin(a, 1),), (_random(2, 9001).round(),)),
    "any": Case(lambda a: (aten.any(a, 1),), (_random(6, 3) > 1,)),
    "all": Case(lambda a: (aten.all(a, 1),), (_random(6, 3) > -1,)),
}


def kernel_of(case: Case) -> Any:
    """The case as a printed kernel, and the values of its size symbols."""
    graph = make_fx(case.fn, tracing_mode="symbolic" if case.dynamic else "fake")(*case.inputs)
    lowered = GraphLowering(graph).run()
    stored = [view.node for view in lowered.outputs]
    assert all(isinstance(node, Loops) for node in stored)
    sizes = {}
    for node, tensor in zip(lowered.inputs, case.inputs):
        for declared, actual in zip((*node.sizes, *node.strides), (*tensor.shape, *tensor.stride())):
            for atom in expr.atoms_of(declared):
                if declared == atom.as_expr:
                    sizes[atom.name] = actual
    return print_group("kernel", lowered.loops(), stored), lowered, sizes


def run_case(case: Case) -> float:
    """The largest error over the allowed one, through the interpreter."""
    from core_inductor.triton.build import run_interpreted

    kernel, lowered, sizes = kernel_of(case)
    expected = case.fn(*case.inputs)
    storages = dict(zip(lowered.inputs, case.inputs))
    outputs = []
    for node, reference in zip(kernel.outputs, expected):
        memory = torch.full((max(reference.numel(), 1),), 77, dtype=reference.dtype)
        shape = [_evaluate(size, sizes) for size in node.sizes]
        outputs.append((memory, shape, [_evaluate(s, sizes) for s in node.strides], reference))
    programs = _evaluate(kernel.programs, sizes)
    run_interpreted(kernel, [storages[n] for n in kernel.inputs], [o[0] for o in outputs], programs, sizes)
    return max(_error(m.as_strided(shape, strides), want) for m, shape, strides, want in outputs)


def _evaluate(e: Any, sizes: dict[str, int]) -> int:
    atoms = {a: sizes[a.name] for a in expr.atoms_of(e) if isinstance(a, expr.SizeVar)}
    return expr.substitute(e, atoms)


def _error(got: torch.Tensor, want: torch.Tensor) -> float:
    want = want.reshape(got.shape)
    if not want.dtype.is_floating_point:
        return float((got != want).sum())
    if not torch.equal(got.isnan(), want.isnan()) or not torch.equal(got.isinf(), want.isinf()):
        return INF
    allowed = {torch.float16: 2e-3, torch.float64: 1e-14}.get(got.dtype, 1e-6)
    got, want = got.double().nan_to_num(0, 0, 0), want.double().nan_to_num(0, 0, 0)
    return float(((got - want).abs() / (allowed * (1 + want.abs()))).max())


if __name__ == "__main__":
    assert os.environ["TRITON_INTERPRET"] == "1"
    for name, case in CASES.items():
        try:
            print(f"{name}|{run_case(case)}|", flush=True)
        except Exception:
            traceback.print_exc(file=sys.stderr)
            print(f"{name}|inf|{traceback.format_exc().strip().splitlines()[-1]}", flush=True)
