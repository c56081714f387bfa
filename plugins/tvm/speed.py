"""Processor time of single layers, eager against the backend: `python plugins/tvm/speed.py`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import core

ROUNDS = 15
TRIALS = 24
SIDES: dict[str, dict[str, Any]] = {"tvm": {}, "tuned": {"trials": TRIALS}, "no schedule": {"schedule": False}}


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
        "250x250 by 250x250": (lambda x, y: x @ y, (torch.randn(250, 250), torch.randn(250, 250))),
        "convolution": (nn.Conv2d(16, 32, 3, padding=1).eval(), (image,)),
        "linear": (nn.Linear(256, 512).eval(), (square,)),
        "gelu": (lambda x: nn.functional.gelu(x) * 2 + 1, (square,)),
        "softmax": (lambda x: x.softmax(-1), (square,)),
    }
    print(f"{'ms':22}{'eager':>12}" + "".join(f"{name:>12}" for name in SIDES))
    for name, (function, args) in layers.items():
        found = [milliseconds(function, *args)]
        for options in SIDES.values():
            core.reset()
            found.append(milliseconds(core.compile(function, backend="tvm", options=options), *args))
        print(f"{name:22}" + "".join(f"{one:12.3f}" for one in found), flush=True)


if __name__ == "__main__":
    main()
