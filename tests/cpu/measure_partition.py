"""Prints what dividing a graph costs: the compile time of the step, the warm call with one and more regions, and the
look at frozen weights before each run.

    python tests/cpu/measure_partition.py

Also the rates behind core/backends/partition_cost.py on this machine. Times are the smallest of several runs.
"""

from __future__ import annotations

import functools
import sys
import time
import timeit
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))

import backend_harness  # noqa: E402
import partial_backends  # noqa: E402

import core  # noqa: E402
import core._C  # noqa: E402
from core.backends import regions_compile  # noqa: E402
from core.backends.fallback import as_lineup  # noqa: E402
from core.graph.finish import functional_graph  # noqa: E402
from core.options import CompileOptions  # noqa: E402


def long_program(x):
    for _ in range(100):
        x = torch.tanh(x @ x) * 0.5 + 1
    return (x,)


def best(call, number=1, repeat=30):
    return min(timeit.repeat(call, number=number, repeat=repeat)) / number


def steps():
    """Compile time of the step for a graph of 400 nodes."""
    captured = backend_harness.capture(long_program, torch.randn(8, 8))
    module = functional_graph(captured).module
    count = sum(node.op == "call_function" for node in module.graph.nodes)
    for label, backend in (
        ("a backend without an opinion, all of it", "aot_eager"),
        ("a backend that is asked about each node, all of it", partial_backends.Taking("mm", "tanh", "mul", "add")),
        ("products to one backend, the rest to eager", partial_backends.Taking("mm")),
    ):
        lineup = as_lineup(backend, CompileOptions(fallback=("eager",)))
        claimants = lineup.fit(captured)
        began = time.perf_counter()
        lineup.first.compile(module, [], regions_compile.CompileContext())
        plain = time.perf_counter() - began
        task = regions_compile.Task(captured, module, lineup, claimants, "graph", "inference")
        spent = best(functools.partial(regions_compile.compile_task, task)) - plain
        print(f"{count} nodes, {label}: {1e3 * spent:.2f} ms")


def calls():
    """Time of a warm call."""
    x = torch.randn(8, 8)

    def program(x):
        return torch.tanh(torch.tanh(x @ x) @ x) @ x

    shown = {}
    for label, operators in (("one region", ("mm", "tanh")), ("five regions", ("mm",))):
        run = core.compile(program, backend=partial_backends.Taking(*operators), fallback=("eager",))
        for _ in range(3):
            run(x)
        shown[label] = best(functools.partial(run, x), number=200)
        print(f"warm call, {label}: {1e6 * shown[label]:.2f} us")
    print(f"each further region: {1e6 * (shown['five regions'] - shown['one region']) / 4:.2f} us")


def frozen():
    """Time of the look at frozen weights."""
    core.compile(long_program, backend="eager")(torch.randn(8, 8))  # core knows tensors from its first compile on
    for count in (3, 200):
        weights = core._C.FrozenWeights(tuple(torch.nn.Parameter(torch.randn(4)) for _ in range(count)))
        print(f"look at {count} frozen weights: {1e6 * best(weights, number=1000):.2f} us")


def rates():
    """What partition_cost takes for granted."""
    a, big = torch.randn(512, 512), torch.randn(1 << 24)
    print(f"product of 512: {2 * 512**3 / best(lambda: a @ a, 10) / 1e9:.0f} GFLOP/s")
    print(f"copy of 64 MB: {2 * big.nbytes / best(lambda: big.clone()) / 1e9:.1f} GB/s")


if __name__ == "__main__":
    steps()
    calls()
    frozen()
    rates()
