"""Times of eager, core's inductor, both with CUDA graphs, and torch.compile(mode="reduce-overhead"), with errors.

python plugins/cudagraphs/measure.py [--device cuda] [--rounds 7] [--only mlp,encoder,...] [--json FILE]

One row a program and way of running it. us: the median over rounds of the time of a call, with the work on the device
waited for once a round; the ways take turns within a round. host: the time until a call returns. error: the largest
difference from the same program in float64, as a multiple of eager's. Captures, replays and plain calls are core's own
counts. A way that can't be used here has its reason in place of numbers.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import core
from core.backends import cuda_graphs

CALLS = 50
WARM = 6
FAILURES = (core.errors.CoreError, RuntimeError, ImportError, ValueError, TypeError, AssertionError)
"""What a way that can't be used here raises; torch.compile's errors are RuntimeErrors."""


# -- programs ---------------------------------------------------------------------------------------------------------


class Mlp(nn.Module):
    """Eight small layers: nearly all launches."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        layers = [layer for _ in range(8) for layer in (nn.Linear(width, width), nn.GELU())]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)

    @staticmethod
    def inputs(device: str, dtype: torch.dtype) -> tuple[Any, ...]:
        return (torch.randn(32, 256, device=device).to(dtype),)


class Block(nn.Module):
    """Attention and an MLP, each behind a norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def split(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        batch, length, width = x.shape
        q, k, v = self.project(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        return q, k, v

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.scaled_dot_product_attention(*self.split(x))
        x = x + self.out(y.transpose(1, 2).reshape(x.shape))
        return x + self.mlp(self.norm2(x))


class Encoder(nn.Module):
    """Six blocks of width 384 on 4 x 64 tokens."""

    def __init__(self, width: int = 384, heads: int = 6, depth: int = 6) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.blocks(x))

    @staticmethod
    def inputs(device: str, dtype: torch.dtype) -> tuple[Any, ...]:
        return (torch.randn(4, 64, 384, device=device).to(dtype),)


class Decoder(nn.Module):
    """One token through six blocks that write their keys and values into caches of 256 places."""

    LENGTH = 256

    def __init__(self, width: int = 384, heads: int = 6, depth: int = 6, tokens: int = 1000) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.embedding, self.norm = nn.Embedding(tokens, width), nn.LayerNorm(width)
        self.head = nn.Linear(width, tokens)
        shape = (depth, 2, 1, heads, self.LENGTH, width // heads)
        self.register_buffer("cache", torch.zeros(shape), persistent=False)

    def forward(self, token: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        x = self.embedding(token)
        seen = torch.arange(self.LENGTH, device=at.device) <= at
        for block, cache in zip(self.blocks, self.cache):
            q, k, v = block.split(x)
            cache[0].index_copy_(2, at, k)
            cache[1].index_copy_(2, at, v)
            y = F.scaled_dot_product_attention(q, cache[0], cache[1], attn_mask=seen[None, None, None])
            x = x + block.out(y.transpose(1, 2).reshape(x.shape))
            x = x + block.mlp(block.norm2(x))
        return self.head(self.norm(x))

    @staticmethod
    def inputs(device: str, dtype: torch.dtype) -> tuple[Any, ...]:
        return (torch.tensor([[7]], device=device), torch.tensor([5], device=device))


def inference(model: nn.Module) -> Callable[..., Any]:
    def run(*inputs: Any) -> Any:
        with torch.no_grad():
            return model(*inputs)

    return run


def training(model: nn.Module) -> Callable[..., Any]:
    """A forward and a backward; the gradients are the result."""

    def run(*inputs: Any) -> Any:
        for parameter in model.parameters():
            parameter.grad = None
        model(*inputs).float().square().mean().backward()
        return [parameter.grad for parameter in model.parameters()]

    return run


PROGRAMS: dict[str, tuple[type[nn.Module], Callable[[nn.Module], Callable[..., Any]]]] = {
    "mlp": (Mlp, inference),
    "mlp, a step": (Mlp, training),
    "encoder": (Encoder, inference),
    "encoder, a step": (Encoder, training),
    "decode": (Decoder, inference),
}


# -- ways of running them ---------------------------------------------------------------------------------------------


def _cudagraphs(model: nn.Module) -> nn.Module:
    from core_cudagraphs.plugin import CudaGraphsBackend

    return core.compile(model, backend=CudaGraphsBackend())


WAYS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "eager": lambda model: model,
    "core aot_eager": lambda model: core.compile(model, backend="aot_eager"),
    "core cudagraphs": _cudagraphs,
    "core inductor": lambda model: core.compile(model, backend="inductor"),
    "core inductor, reduce-overhead": lambda model: core.compile(model, backend="inductor", mode="reduce-overhead"),
    "torch.compile": lambda model: torch.compile(model),
    "torch.compile, reduce-overhead": lambda model: torch.compile(model, mode="reduce-overhead"),
}


class Way:
    """One program run in one way: its times and results, or why there are none."""

    def __init__(
        self, name: str, model: nn.Module, wrap: Callable[[nn.Module], Callable[..., Any]], device: str
    ) -> None:
        self.name, self.device = name, device
        self.reason = ""
        self.error = float("nan")
        self.us: list[float] = []
        self.host_us: list[float] = []
        self.counts = ""
        try:
            self.run = wrap(WAYS[name](model))
        except FAILURES as error:
            self._out(error)

    def _out(self, error: Exception) -> None:
        self.reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"

    def compare(self, batches: list[tuple[Any, ...]], wanted: list[list[torch.Tensor]]) -> None:
        """Results of several batches, looked at after the last: none may have been written over."""
        before = _core_counts()
        try:
            kept = []
            for number in range(WARM):
                results = _flat(self.run(*batches[number % len(batches)]))
                torch_way = self.name.startswith("torch.compile")
                kept.append([value.clone() for value in results] if torch_way else results)
            worst = 0.0
            for number, results in enumerate(kept):
                for got, want in zip(results, wanted[number % len(wanted)], strict=True):
                    scale = float(want.abs().max()) + 1e-30
                    worst = max(worst, float((got.double() - want).abs().max()) / scale)
            self.error = worst
        except FAILURES as error:
            self._out(error)
        after = _core_counts()
        self.counts = "/".join(str(b - a) for a, b in zip(before, after)) if self.name.startswith("core") else ""

    def time(self, inputs: tuple[Any, ...]) -> None:
        _wait(self.device)
        began = time.perf_counter()
        for _ in range(CALLS):
            self.run(*inputs)
        returned = time.perf_counter()
        _wait(self.device)
        self.us.append((time.perf_counter() - began) / CALLS * 1e6)
        self.host_us.append((returned - began) / CALLS * 1e6)


def _core_counts() -> tuple[int, int, int]:
    rows = cuda_graphs.statistics()
    return tuple(sum(row[name] for row in rows) for name in ("captures", "replays", "plain"))  # type: ignore[return-value]


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def _flat(value: Any) -> list[torch.Tensor]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def measure(name: str, device: str, dtype: torch.dtype, rounds: int, ways: list[str]) -> list[dict[str, Any]]:
    """The rows of one program."""
    make, wrap = PROGRAMS[name]

    def built(to: torch.dtype) -> nn.Module:
        torch.manual_seed(0)
        return make().to(device).to(dtype).to(to)

    torch.manual_seed(1)
    batches = [make.inputs(device, dtype) for _ in range(3)]
    doubled = [tuple(v.double() if v.is_floating_point() else v for v in batch) for batch in batches]
    exact = wrap(built(torch.float64))
    wanted = [[value.double().clone() for value in _flat(exact(*batch))] for batch in doubled]
    found = []
    for way in ways:
        one = Way(way, built(dtype), wrap, device)
        if not one.reason:
            one.compare(batches, wanted)
        found.append(one)
    live = [one for one in found if not one.reason]
    for _ in range(rounds):
        for one in live:
            one.time(batches[0])
    base = next((one for one in live if one.name == "eager"), None)
    rows = []
    for one in found:
        row: dict[str, Any] = {"program": name, "way": one.name, "dtype": str(dtype).removeprefix("torch.")}
        if one.reason:
            rows.append({**row, "reason": one.reason})
            continue
        row |= {"us": statistics.median(one.us), "host_us": statistics.median(one.host_us), "counts": one.counts}
        if base is not None:
            row["speedup"] = statistics.median(a / b for a, b in zip(base.us, one.us))
            row["error_ratio"] = one.error / base.error if base.error else float(one.error > 0)
        rows.append(row)
    core.reset()
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as Markdown."""
    lines = ["| program | way | dtype | us | host us | x eager | error, x eager's | captures/replays/plain |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    for row in rows:
        head = f"| {row['program']} | {row['way']} | {row['dtype']} |"
        if "reason" in row:
            lines.append(f"{head} – | – | – | – | {row['reason'][:90]} |")
            continue
        speedup, error = row.get("speedup", float("nan")), row.get("error_ratio", float("nan"))
        lines.append(
            f"{head} {row['us']:.1f} | {row['host_us']:.1f} | {speedup:.2f} | {error:.2f} | {row['counts'] or '–'} |"
        )
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bfloat16", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="", help="programs, separated by commas; any part of a name")
    parser.add_argument("--ways", default="", help="ways, separated by semicolons; any part of a name")
    parser.add_argument("--json", default="", help="write the rows there too")
    given = parser.parse_args(arguments)
    names = [name for name in PROGRAMS if not given.only or any(part in name for part in given.only.split(","))]
    ways = [way for way in WAYS if not given.ways or any(part in way for part in given.ways.split(";"))]
    rows = []
    for name in names:
        rows += measure(name, given.device, getattr(torch, given.dtype), given.rounds, ways)
        print(table(rows) if name == names[-1] else f"{name}: measured", flush=True)
    where = torch.cuda.get_device_name() if given.device.startswith("cuda") else "the CPU"
    print(
        f"\n{where}, torch {torch.__version__}, Python {sys.version.split()[0]}, {given.rounds} rounds of {CALLS} calls"
    )
    if given.json:
        Path(given.json).write_text(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
