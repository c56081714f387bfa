"""What the constants of the numerics rule were chosen by: the tables of docs/conformance.md.

    python tools/numerics_constants.py [--seeds 3] [--gradient-seeds 20] [--calls 7] [--parts 1,2,3]

1. Eight programs with gradients, in float32 and bfloat16: how far apart two honest ways to calculate one thing are.
2. Gradients of a softmax behind a product, where eager's error at an element is often none by chance: how many
   comparisons each c fails, for a compiler and for eager's own kernels that add up from the other end.
3. What has to fail, and by how much it does.
"""

from __future__ import annotations

import argparse
import functools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from core_conformance import numerics
from core_conformance.evil.honest import HonestInAnotherOrder
from core_conformance.numerics import compare, measures

import core

F = torch.nn.functional
Tensors = list[torch.Tensor]
ELEMENTS = (8.0, 12.0, 16.0)


@dataclass(frozen=True)
class Program:
    """run: tensors -> tensor; shapes: of its arguments, each with the size of its numbers."""

    name: str
    run: Callable[..., torch.Tensor]
    shapes: tuple[tuple[tuple[int, ...], float], ...]

    def inputs(self, generator: torch.Generator, dtype: torch.dtype) -> Tensors:
        return [(torch.randn(shape, generator=generator) * size).to(dtype) for shape, size in self.shapes]


def attention(q: Any, k: Any, v: Any) -> Any:
    return torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]), -1) @ v


def causal(q: Any, k: Any, v: Any) -> Any:
    ahead = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).triu(1)
    return torch.softmax((q @ k.transpose(-1, -2)).masked_fill(ahead, -math.inf), -1) @ v


def of_shapes(*shapes: tuple[int, ...], size: float = 1.0) -> tuple[tuple[tuple[int, ...], float], ...]:
    return tuple((shape, size) for shape in shapes)


PROGRAMS = (
    Program("product", lambda x, w: x @ w, of_shapes((64, 256), (256, 48))),
    Program("linear and GELU", lambda x, w, b: F.gelu(F.linear(x, w, b)), of_shapes((48, 200), (96, 200), (96,))),
    Program("layer norm", lambda x, w, b: F.layer_norm(x, (300,), w, b), of_shapes((40, 300), (300,), (300,))),
    Program("group norm", lambda x, w, b: F.group_norm(x, 4, w, b), of_shapes((4, 16, 9, 9), (16,), (16,))),
    Program("attention", attention, of_shapes((2, 4, 40, 32), (2, 4, 40, 32), (2, 4, 40, 32))),
    Program("convolution", lambda x, w: F.conv2d(x, w, padding=1), of_shapes((2, 12, 20, 20), (16, 12, 3, 3))),
    Program("sums of 100,000", lambda x: torch.sigmoid(x).sum(1), of_shapes((4, 100_000))),
    Program("log softmax", lambda x, w: torch.log_softmax(x @ w, -1), of_shapes((32, 64), (64, 500))),
)

SOFTMAXES = (
    Program("softmax of a product", lambda x, w: torch.softmax(x @ w, -1), of_shapes((16, 24), (24, 33), size=1.5)),
    Program("attention", attention, of_shapes((3, 20, 16), (3, 20, 16), (3, 20, 16), size=1.5)),
    Program("causal attention", causal, of_shapes((3, 20, 16), (3, 20, 16), (3, 20, 16))),
    Program(
        "rows of 130 numbers", lambda x, w, v: torch.softmax(x @ w, -1) @ v, of_shapes((8, 96), (96, 130), (130, 12))
    ),
)


def outcome(run: Callable[..., torch.Tensor], inputs: Sequence[torch.Tensor], weight: torch.Tensor) -> Tensors:
    """The result, and the gradients of its sum with weights."""
    leaves = [value.detach().clone().requires_grad_() for value in inputs]
    result = run(*leaves)
    return [result.detach(), *torch.autograd.grad(result, leaves, weight.to(result.dtype))]


def compared(program: Program, backend: Any, seed: int, calls: int, dtype: torch.dtype) -> Iterator[Any]:
    """For each call: inputs, weights, and what the backend, eager and float64 give."""
    core.reset()
    compiled = core.compile(program.run, backend=backend)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(calls):
        inputs = program.inputs(generator, dtype)
        weight = torch.randn(program.run(*inputs).shape, generator=generator)
        yield (
            inputs,
            weight,
            *(outcome(run, inputs, weight) for run in (compiled, program.run)),
            exact(program, inputs, weight),
        )


def exact(program: Program, inputs: Sequence[torch.Tensor], weight: torch.Tensor) -> Tensors:
    return outcome(program.run, [value.double() for value in inputs], weight)


def first_part(seeds: int) -> None:
    print(f"1. {len(PROGRAMS)} programs with gradients, {seeds} seeds, two calls each")
    heads = f"{'comparisons':>12}{'largest ratio of means':>24}{'largest element':>17}{'of 99 %':>9}"
    print(f"{'backend':12}{'dtype':10}{heads}")
    for backend in ("aot_eager", "inductor"):
        for dtype in (torch.float32, torch.bfloat16):
            means, elements = [], []
            for program in PROGRAMS:
                for seed in range(seeds):
                    for _, _, got, eager, wanted in compared(program, backend, seed, 2, dtype):
                        for triple in zip(got, eager, wanted):
                            mean, excess = measures(*triple)
                            means.append(mean)
                            elements.append(float(excess.max()))
            elements.sort()
            most = elements[math.ceil(0.99 * len(elements)) - 1]
            name = str(dtype).removeprefix("torch.")
            print(f"{backend:12}{name:10}{len(means):12}{max(means):24.2f}{elements[-1]:17.1f}{most:9.1f}", flush=True)


def second_part(seeds: int, calls: int) -> None:
    what = f"gradients of {len(SOFTMAXES)} programs with a softmax behind a product"
    print(f"2. {what}, float32, {seeds} seeds, {calls} calls")
    heads = "".join(f"{f'c = {c:g} fails':>14}" for c in ELEMENTS)
    print(f"{'backend':28}{'comparisons':>12}{'ratio: median':>15}{'largest':>9}{heads}")
    for backend in ("inductor", HonestInAnotherOrder()):
        ratios, failing, count = [], dict.fromkeys(ELEMENTS, 0), 0
        for program in SOFTMAXES:
            for seed in range(seeds):
                for inputs, weight, got, eager, wanted in compared(program, backend, seed, calls, torch.float32):
                    excesses = settled(program, inputs, weight, got, eager, wanted)
                    count += len(excesses)
                    for c in ELEMENTS:
                        failing[c] += sum(fails(excess, c) for excess in excesses)
                    ratios.append(_rms(got[1] - wanted[1]) / _rms(eager[1] - wanted[1]))
        ratios.sort()
        name = backend if isinstance(backend, str) else backend.name
        numbers = "".join(f"{failing[c]:14}" for c in ELEMENTS)
        print(f"{name:28}{count:12}{ratios[len(ratios) // 2]:15.2f}{ratios[-1]:9.2f}{numbers}", flush=True)


def settled(
    program: Program, inputs: Tensors, weight: torch.Tensor, got: Tensors, eager: Tensors, wanted: Tensors
) -> Tensors:
    """The elements' errors of each gradient; where the smallest c fails one, on inputs that are a rounding away too."""
    found = [measures(*triple)[1] for triple in zip(got[1:], eager[1:], wanted[1:])]
    samples: list[Tensors] = []
    moves: list[Tensors] = []
    for more in (3, 12):
        if not any(fails(excess, ELEMENTS[0]) for excess in found):
            break
        for number in range(len(samples), len(samples) + more):
            near = _near(inputs, number)
            there = exact(program, near, weight)
            samples.append([a - b for a, b in zip(outcome(program.run, near, weight), there)])
            moves.append([a - b for a, b in zip(there, wanted)])
        for at, triple in enumerate(zip(got[1:], eager[1:], wanted[1:])):
            found[at] = measures(*triple, [one[at + 1] for one in samples], [one[at + 1] for one in moves])[1]
    return found


def _near(inputs: Tensors, number: int) -> Tensors:
    generator = torch.Generator().manual_seed(number)
    eps = torch.finfo(inputs[0].dtype).eps
    return [value * (1 + eps * (2.0 * torch.randint(0, 2, value.shape, generator=generator) - 1)) for value in inputs]


def fails(excess: torch.Tensor, c: float) -> bool:
    """The second part of the rule, with a constant of choice."""
    strays = int((excess > c).sum())
    return strays > int(numerics.STRAY * excess.numel()) or bool((excess > 10 * c).any())


def _rms(value: torch.Tensor) -> float:
    return float(value.double().square().mean().sqrt())


def third_part() -> None:
    print("3. what has to fail")
    print(f"{'wrong result':46}{'found':>8}{'ratio of means':>16}{'worst element':>15}")
    for name, got, eager, wanted in wrong_results():
        mean, excess = measures(got, eager, wanted)
        found = "no" if compare(got, eager, wanted).ok else "yes"
        print(f"{name:46}{found:>8}{mean:16.3g}{float(excess.max()):15.3g}")


def wrong_results() -> Iterator[tuple[str, torch.Tensor, torch.Tensor, torch.Tensor]]:
    """(name, wrong result, eager's, the reference)."""
    generator = torch.Generator().manual_seed(0)
    draw = functools.partial(torch.randn, generator=generator, dtype=torch.float64)
    wanted = draw(1_000_000)
    eager, other = ((wanted * (1 + torch.finfo(torch.float32).eps * draw(1_000_000))).float() for _ in range(2))
    one, many = other.clone(), other.clone()
    one[123_456] += 0.5
    many[::1000] = 0.0
    yield "one of a million elements off by 0.5", one, eager, wanted
    yield "a thousand of a million zeroed", many, eager, wanted
    left, right = draw(96, 128).float(), draw(128, 64).float()
    product = left.double() @ right.double()
    low = (left.bfloat16().float() @ right.bfloat16().float()).float()
    yield "float32 product calculated in bfloat16", low, left @ right, product
    yield "float64 calculated in float32", (left @ right).double(), product, product
    yield "all errors six times eager's", (wanted + 6 * (other.double() - wanted)).float(), eager, wanted


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--gradient-seeds", type=int, default=20)
    parser.add_argument("--calls", type=int, default=7)
    parser.add_argument("--parts", default="1,2,3")
    options = parser.parse_args(arguments)
    parts = options.parts.split(",")
    if "1" in parts:
        first_part(options.seeds)
    if "2" in parts:
        second_part(options.gradient_seeds, options.calls)
    if "3" in parts:
        third_part()
    return 0


if __name__ == "__main__":
    sys.exit(main())
