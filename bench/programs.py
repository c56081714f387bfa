"""Small programs of the overhead and kernel suites, each with its inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F


@dataclass
class Program:
    """A callable and its arguments; `training` programs are called with gradients and run backward."""

    name: str
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    training: bool = False

    def call(self, fn: Callable[..., Any]) -> list[torch.Tensor]:
        """Run once; the tensors to compare."""
        if not self.training:
            with torch.no_grad():
                out = fn(*self.args)
            return list(out) if isinstance(out, (tuple, list)) else [out]
        leaves = [arg for arg in self.args if isinstance(arg, torch.Tensor) and arg.requires_grad]
        parameters = list(self.fn.parameters()) if isinstance(self.fn, torch.nn.Module) else []
        out = fn(*self.args)
        results = out if isinstance(out, tuple) else (out,)
        gradients = torch.autograd.grad([result.sum() for result in results], [*leaves, *parameters])
        return [*(result.detach() for result in results), *gradients]


class ManyParameters(torch.nn.Module):
    """A hundred small linear layers: 200 parameters to guard."""

    def __init__(self, layers: int = 100) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(layers)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class ManyShapes(ManyParameters):
    """Reads all parameters and runs one operation: what a call costs beyond that is the guards."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = 0
        for layer in self.layers:
            total += layer.weight.shape[0] + layer.bias.shape[0]
        return x * total


def overhead() -> list[Program]:
    """Programs whose work is next to nothing."""
    torch.manual_seed(0)
    config = {f"key{i}": float(i) for i in range(100)}

    def add_one(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    def add_ten(*xs: torch.Tensor) -> torch.Tensor:
        total = xs[0]
        for x in xs[1:]:
            total = total + x
        return total

    def read_config(x: torch.Tensor) -> torch.Tensor:
        return x * sum(config[key] for key in config)

    def one_break(x: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
        x = x + 1
        if flag:
            x = x * 2
        return x + 3

    weights = [torch.randn(16, 16) / 4 for _ in range(8)]

    def breaking_loop(x: torch.Tensor) -> torch.Tensor:
        for weight in weights:
            x = torch.tanh(x @ weight) * 1.5 + 0.1
            if x.sum() > 1000:  # only a run can tell: the graph breaks on each turn
                x = x * 0.5
            x = x - x.mean(-1, keepdim=True)
        return x

    def breaking_count(x: torch.Tensor) -> torch.Tensor:
        for turn in range(8):
            x = torch.sigmoid(x) * 2 - 1 + turn
            if x.abs().max() > 100:
                x = x / 2
            x = x * 0.9
        return x

    def loss_and_hidden(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = torch.tanh(x * 2)
        return (hidden * hidden).sum(), hidden

    net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))
    small = torch.randn(8)
    return [
        Program("add of one tensor", add_one, (small,)),
        Program("add of ten tensors", add_ten, tuple(torch.randn(8) for _ in range(10))),
        Program("config dict of 100 keys", read_config, (small,)),
        Program("one graph break", one_break, (small, torch.tensor(True))),
        Program("loop of 8 with a tensor if", breaking_loop, (torch.randn(16, 16),)),
        Program("range(8) with a tensor if", breaking_count, (torch.randn(16, 16),)),
        Program("module of 200 parameters", ManyParameters(), (torch.randn(2, 4),)),
        Program("shapes of 200 parameters", ManyShapes(), (torch.randn(2, 4),)),
        Program("tiny net, forward and backward", net, (torch.randn(4, 8),), training=True),
        Program("loss and hidden, both ways", loss_and_hidden, (torch.randn(4, 4).requires_grad_(),), training=True),
    ]


def kernels() -> list[Program]:
    """Programs that a loop compiler fuses."""
    torch.manual_seed(0)
    wide, rows = torch.randn(1024, 1024), torch.randn(2048, 768)
    weight, bias = torch.randn(768), torch.randn(768)

    def bias_gelu_residual(x: torch.Tensor, b: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
        return F.gelu(x + b) + r

    def chain(x: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = torch.sigmoid(x * 1.1 + 0.1) - x.tanh()
        return x

    def softmax(x: torch.Tensor) -> torch.Tensor:
        return F.softmax(x * 0.5, dim=-1)

    def layer_norm(x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (768,), weight, bias)

    def rms_norm(x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight

    def column_sum(x: torch.Tensor) -> torch.Tensor:
        return (x * 2).sum(0)

    def transpose_add(x: torch.Tensor) -> torch.Tensor:
        return x + x.t()

    def cross_entropy(x: torch.Tensor) -> torch.Tensor:
        return -F.log_softmax(x, dim=-1)[:, 3].mean()

    def masked_softmax(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return F.softmax(x.masked_fill(mask, float("-inf")), dim=-1)

    return [
        Program("bias + gelu + residual", bias_gelu_residual, (rows, bias, rows.clone())),
        Program("pointwise chain", chain, (wide,)),
        Program("softmax", softmax, (wide,)),
        Program("layer norm", layer_norm, (rows,)),
        Program("rms norm", rms_norm, (rows,)),
        Program("column sum", column_sum, (wide,)),
        Program("transpose add", transpose_add, (wide,)),
        Program("log softmax, one column, mean", cross_entropy, (wide,)),
        Program("softmax behind a mask", masked_softmax, (wide, torch.rand(1024, 1024) > 0.9)),
        Program("position of the largest in rows", lambda x: x.argmax(-1), (wide,)),
        Program("gelu, bfloat16", F.gelu, (wide.bfloat16(),)),
        Program("softmax, float16", softmax, (wide.half(),)),
        Program("pointwise chain, float16", chain, (wide.half(),)),
        Program("pointwise chain, bfloat16", chain, (wide.bfloat16(),)),
        *more_kernels(wide, rows),
    ]


def more_kernels(wide: torch.Tensor, rows: torch.Tensor) -> list[Program]:
    """Families whose loops have code of their own: double precision, pools, turned 16-bit floats, gates."""
    pictures = torch.randn(8, 32, 56, 56)
    weight, bias = torch.randn(768).half(), torch.randn(768).half()

    def gate(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.silu(x) * y

    def batch_norm(x: torch.Tensor) -> torch.Tensor:
        return F.relu(F.batch_norm(x, None, None, training=True))

    return [
        Program("gelu", F.gelu, (wide,)),
        Program("gelu, float64", F.gelu, (wide.double(),)),
        Program("softmax, float64", lambda x: F.softmax(x, dim=-1), (wide.double(),)),
        Program("silu times a tensor", gate, (wide, wide.clone())),
        Program("sum of two, float16", torch.add, (wide.half(), wide.half())),
        Program("layer norm, float16", lambda x: F.layer_norm(x, (768,), weight, bias), (rows.half(),)),
        Program("log softmax, bfloat16", lambda x: F.log_softmax(x, dim=-1), (wide.bfloat16(),)),
        Program("largest of rows and place, bfloat16", lambda x: x.max(-1), (wide.bfloat16(),)),
        Program("position of the largest in columns", lambda x: x.argmax(0), (wide,)),
        Program("transpose, bfloat16", lambda x: x.t().contiguous(), (wide.bfloat16(),)),
        Program("average pool", lambda x: F.avg_pool2d(x, 2), (pictures,)),
        Program("largest pool", lambda x: F.max_pool2d(x, 2), (pictures,)),
        Program("batch norm by the batch, relu", batch_norm, (pictures,)),
        Program("remainder", torch.remainder, (wide, wide.t().contiguous())),
        Program("sum of rows, float16", lambda x: x.sum(-1), (wide.half(),)),
        Program("largest pool with a border", lambda x: F.max_pool2d(x, 3, 2, 1), (pictures,)),
        Program("sine and cosine", lambda x: torch.sin(x) + torch.cos(x), (wide,)),
        Program("one hot", lambda x: F.one_hot(x, 100), (torch.randint(0, 100, (8192,)),)),
        *additions(rows),
    ]


def additions(rows: torch.Tensor) -> list[Program]:
    """Additions at positions that a tensor holds, and a step over lists of parameters."""
    few, table = torch.randint(0, 512, (2048,)), torch.zeros(512, 768)

    def in_slices(x: torch.Tensor, i: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        return x.index_add(0, i, source)

    def by_elements(x: torch.Tensor, i: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        return x.scatter_add(0, i, source)

    def by_index(x: torch.Tensor, i: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        return x.index_put((i,), source, accumulate=True)

    def step(*tensors: torch.Tensor) -> list[torch.Tensor]:
        parameters, gradients, averages = (list(tensors[k::3]) for k in range(3))
        averages = torch._foreach_add(torch._foreach_sqrt(torch._foreach_lerp(averages, gradients, 0.1)), 1e-8)
        return torch._foreach_addcdiv(parameters, gradients, averages, -0.1)

    lists = tuple(torch.rand(64 + 8 * (k % 5)) for k in range(30) for _ in range(3))
    return [
        Program("slices added by an index", in_slices, (table, few, rows)),
        Program("elements added by an index", by_elements, (table, few[:, None] ^ torch.arange(768) % 512, rows)),
        Program("rows added where an index says", by_index, (table, few - 512, rows)),
        Program("step over lists of tensors", step, lists),
    ]
