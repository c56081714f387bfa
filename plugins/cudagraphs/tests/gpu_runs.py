"""What the tests on a GPU share: compiling with the backend, counts of captures, programs, closeness."""

from __future__ import annotations

import torch
from core_cudagraphs.plugin import CudaGraphsBackend
from torch import nn

import core
from core import events
from core.backends.cuda_graphs import statistics

DEVICE = "cuda"
BUSY = 200_000_000
"""Cycles that a stream is kept busy for: a tenth of a second or so."""


def reasons(heard):
    return [event.reason for event in heard if isinstance(event, events.FellBack) and event.stage == "cudagraphs"]


def captures(heard):
    return [event for event in heard if isinstance(event, events.CallCaptured)]


def rows():
    """(captures, replays, plain calls) of each graph, in order of name."""
    found = sorted(statistics(), key=lambda row: row["name"])
    return [(row["captures"], row["replays"], row["plain"]) for row in found]


def compiled(fn, **options):
    return core.compile(fn, backend=CudaGraphsBackend(), options=options)


def draw(*shape, dtype=torch.float32):
    return torch.randn(*shape, device=DEVICE).to(dtype)


def network(width=64, dtype=torch.float32):
    torch.manual_seed(0)
    layers = [nn.Linear(width, 2 * width), nn.GELU(), nn.LayerNorm(2 * width), nn.Linear(2 * width, width)]
    return nn.Sequential(*layers).to(DEVICE, dtype)


def close(got, want, factor=16):
    eps = torch.finfo(want.dtype).eps
    scale = float(want.double().abs().max()) + 1e-30
    error = float((got.double() - want.double()).abs().max())
    assert error <= factor * eps * scale, f"error {error:.3g} at a scale of {scale:.3g}"
