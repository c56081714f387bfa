"""Models for `core bench`: each function gives (model, arguments), of torch alone and small enough for any machine.

python -m core bench bench.small_models:encoder --backends inductor,onnxrt
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


def encoder() -> tuple[Any, tuple[Any, ...]]:
    """Four layers of a transformer encoder over 4 texts of 128 tokens, 256 wide."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(256, 4, 1024, activation="gelu", batch_first=True, norm_first=True)
    model = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    return model.eval(), (torch.randn(4, 128, 256),)


def convolutions() -> tuple[Any, tuple[Any, ...]]:
    """Convolutions with batch norms and additions over 2 images of 96 by 96."""
    torch.manual_seed(0)
    return Residual().eval(), (torch.randn(2, 3, 96, 96),)


def perceptron() -> tuple[Any, tuple[Any, ...]]:
    """Three linear layers with GELU and a layer norm, over 64 rows of 512 numbers."""
    torch.manual_seed(0)
    layers = [nn.Linear(512, 1024), nn.GELU(), nn.LayerNorm(1024), nn.Linear(1024, 1024), nn.GELU()]
    return nn.Sequential(*layers, nn.Linear(1024, 10)).eval(), (torch.randn(64, 512),)


def pointwise() -> tuple[Any, tuple[Any, ...]]:
    """A chain of twelve pointwise operators and a sum, over a million numbers."""
    torch.manual_seed(0)

    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = torch.tanh(x * y + 0.5)
        return (x.sigmoid() * y).sum(1)

    return program, (torch.randn(1024, 1024), torch.randn(1024, 1024))


class Residual(nn.Module):
    """A stem and three residual blocks, each halving the image."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU())
        widths = (32, 64, 96, 128)
        self.blocks = nn.ModuleList(_block(a, b) for a, b in zip(widths, widths[1:]))
        self.shortcuts = nn.ModuleList(nn.Conv2d(a, b, 1, stride=2, bias=False) for a, b in zip(widths, widths[1:]))
        self.head = nn.Linear(widths[-1], 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for block, shortcut in zip(self.blocks, self.shortcuts):
            x = torch.relu(block(x) + shortcut(x))
        result: torch.Tensor = self.head(x.mean((2, 3)))
        return result


def _block(before: int, after: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(before, after, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(after),
        nn.ReLU(),
        nn.Conv2d(after, after, 3, padding=1, bias=False),
        nn.BatchNorm2d(after),
    )
