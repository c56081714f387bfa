"""The small models of ModuleTests, each named by its structure."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


class Perceptron(nn.Module):
    """Linear layers with a residual in the middle. x: [B, 8]."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(8, 16)
        self.middle = nn.Linear(16, 16)
        self.leave = nn.Linear(16, 4)

    def forward(self, x: Any) -> Any:
        h = F.gelu(self.enter(x))
        h = h + torch.tanh(self.middle(h))
        return self.leave(h)


class ResidualConvolutions(nn.Module):
    """Convolutions, batch normalisation and a shortcut. x: [B, 3, H, W]."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.first = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.second = nn.Conv2d(16, 16, 3, padding=1)
        self.shortcut = nn.Conv2d(8, 16, 1, stride=2)
        self.head = nn.Linear(16, 5)

    def forward(self, x: Any) -> Any:
        x = F.relu(self.norm(self.stem(x)))
        y = self.second(F.relu(self.first(x)))
        x = F.relu(y + self.shortcut(x))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Attention(nn.Module):
    """Several heads over x: [B, T, 16]; `past` holds keys and values of earlier steps."""

    def __init__(self, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(16, 48)
        self.out = nn.Linear(16, 16)

    def forward(self, x: Any, past: Any = None, causal: bool = False) -> Any:
        batch, steps, width = x.shape
        q, k, v = self.project(x).view(batch, steps, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        scores = q @ k.transpose(-2, -1) / (width // self.heads) ** 0.5
        if causal:
            mask = torch.ones(steps, k.shape[2], dtype=torch.bool).tril(k.shape[2] - steps)
            scores = scores.masked_fill(~mask, float("-inf"))
        mixed = F.softmax(scores, -1) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, steps, width)), (k, v)


class EncoderLayer(nn.Module):
    """Attention and a feed-forward part, normalised before each. x: [B, T, 16]."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(16), nn.LayerNorm(16)])
        self.attention = Attention()
        self.feed = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.norms[0](x))[0]
        return x + self.feed(self.norms[1](x))


class DecoderWithCache(nn.Module):
    """One step of a decoder: tokens [B, T] and the keys and values of earlier steps; returns scores and the cache."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(20, 16)
        self.norm = nn.LayerNorm(16)
        self.attention = Attention()

    def forward(self, tokens: Any, keys: Any, values: Any) -> Any:
        x = self.words(tokens)
        mixed, cache = self.attention(self.norm(x), (keys, values), causal=True)
        return (x + mixed) @ self.words.weight.t(), cache


class Recurrent(nn.Module):
    """A recurrent layer written with cells. x: [B, T, 6]."""

    def __init__(self, cell: type[nn.Module]) -> None:
        super().__init__()
        self.cell = cell(6, 8)
        self.pair = cell is nn.LSTMCell

    def forward(self, x: Any) -> Any:
        h = x.new_zeros(x.shape[0], 8)
        state = (h, h) if self.pair else h
        outputs = []
        for step in x.unbind(1):
            state = self.cell(step, state)
            outputs.append(state[0] if self.pair else state)
        return torch.stack(outputs, 1), state


class PooledEmbeddings(nn.Module):
    """Embeddings, averaged where the mask is set, and scores. tokens, mask: [B, T]."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(30, 8, padding_idx=0)
        self.head = nn.Linear(8, 3)

    def forward(self, tokens: Any, mask: Any) -> Any:
        weights = mask.unsqueeze(-1).to(self.words.weight.dtype)
        pooled = (self.words(tokens) * weights).sum(1) / weights.sum(1).clamp(min=1)
        return self.head(pooled)


class DownAndUp(nn.Module):
    """Convolutions down to half the size and up again, joined with what was there before. x: [B, 3, H, W]."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Conv2d(3, 8, 3, padding=1)
        self.down = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.norm = nn.GroupNorm(4, 16)
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.leave = nn.Conv2d(16, 3, 3, padding=1)

    def forward(self, x: Any) -> Any:
        high = F.silu(self.enter(x))
        low = F.silu(self.norm(self.down(high)))
        return self.leave(torch.cat([high, self.up(low)], 1))


class MixtureOfExperts(nn.Module):
    """Each row goes to its two best experts, all of which are calculated. x: [B, 8]."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(8, 4)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(8, 12), nn.SiLU(), nn.Linear(12, 8)) for _ in range(4))

    def forward(self, x: Any) -> Any:
        scores = F.softmax(self.router(x), -1)
        best, which = scores.topk(2, -1)
        gates = torch.zeros_like(scores).scatter(-1, which, best / best.sum(-1, keepdim=True))
        outputs = torch.stack([expert(x) for expert in self.experts], 1)
        return (gates.unsqueeze(-1) * outputs).sum(1)


class TwoInputsSharedWeights(nn.Module):
    """The same tower over two inputs, compared. left, right: [B, 8]."""

    def __init__(self) -> None:
        super().__init__()
        self.tower = nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 6))
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, left: Any, right: Any) -> Any:
        a, b = F.normalize(self.tower(left), dim=-1), F.normalize(self.tower(right), dim=-1)
        return a @ b.t() * self.scale.exp()


class CountsItsCalls(nn.Module):
    """A buffer that every call changes. x: [N]."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Any) -> Any:
        self.calls += 1
        self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return x - self.mean
