"""Processor time of single layers, eager against the backend: `python plugins/tvm/speed.py`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import core

ROUNDS = 15


def milliseconds(function: Callable[..., Any], *args: Any) -> float:
    """The least of several calls, in processor time of this thread."""
    best = float("inf")
    with torch.no_grad():
        for _ in range(ROUNDS):
            began = time.thread_time()
            function(*args)
            best = min(best, time.thread_time() - began)
    return best * 1e3


def main() -> None:
    torch.set_num_threads(1)
    square, image = torch.randn(256, 256), torch.randn(4, 16, 32, 32)
    layers: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
        "256x256 by 256x256": (lambda x, y: x @ y, (square, square)),
        "convolution": (nn.Conv2d(16, 32, 3, padding=1).eval(), (image,)),
        "linear": (nn.Linear(256, 512).eval(), (square,)),
        "gelu": (lambda x: nn.functional.gelu(x) * 2 + 1, (square,)),
        "softmax": (lambda x: x.softmax(-1), (square,)),
    }
    print(f"{'':22}{'eager ms':>10}{'tvm ms':>10}{'no schedule':>13}")
    for name, (function, args) in layers.items():
        found = [milliseconds(function, *args)]
        for schedule in (True, False):
            core.reset()
            found.append(milliseconds(core.compile(function, backend="tvm", options={"schedule": schedule}), *args))
        print(f"{name:22}{found[0]:10.3f}{found[1]:10.3f}{found[2]:13.3f}")


if __name__ == "__main__":
    main()
