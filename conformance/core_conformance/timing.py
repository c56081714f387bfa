"""Times of two callables, taken in turn so that both meet the same machine.

Enters: callables that take nothing. Leaves: medians in microseconds, the ratio of paired times, and a word for it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from core.backends.auto_trial import ratio_of

ROUNDS = 10
"""Rounds that are taken at least."""
SECONDS = 2.0
"""After which no further round begins."""
MARGIN = 0.05
"""What a ratio must differ from one by, and from noise, to be told as faster or slower: as for backend="auto"."""
ROUND_S = 0.001
"""A round repeats a call until it takes about this long: clocks and their reading are coarser than a short call."""


@dataclass(frozen=True)
class Pair:
    """Medians of one call. ratio: the first to the second, of paired rounds; noise: how far noise may move it."""

    first_us: float
    second_us: float
    ratio: float
    noise: float
    rounds: int

    @property
    def word(self) -> str:
        """How the first compares with the second."""
        if self.ratio + self.noise < 1 - MARGIN:
            return "faster"
        return "slower" if self.ratio - self.noise > 1 + MARGIN else "alike"


def paired(first: Callable[[], Any], second: Callable[[], Any], device: str) -> Pair:
    """Time two callables, warmed up before, in rounds that begin with the one and the other in turn."""
    calls = (first, second)
    repeats = [_repeats(call, device) for call in calls]
    times: list[list[float]] = [[], []]
    end = time.perf_counter() + SECONDS
    while len(times[0]) < ROUNDS or (time.perf_counter() < end and len(times[0]) < 50 * ROUNDS):
        begin = len(times[0]) % 2
        for at in (begin, 1 - begin):
            times[at].append(_seconds(calls[at], repeats[at], device))
    ratio, noise = ratio_of(*times)
    middle = [statistics.median(row) * 1e6 for row in times]
    return Pair(round(middle[0], 2), round(middle[1], 2), round(ratio, 3), round(noise, 3), len(times[0]))


def _repeats(call: Callable[[], Any], device: str) -> int:
    for _ in range(3):
        call()
    return max(1, int(ROUND_S / max(_seconds(call, 1, device), 1e-7)))


def _seconds(call: Callable[[], Any], repeats: int, device: str) -> float:
    """Seconds of one call, the mean of `repeats` of them; a GPU has finished them."""
    _finish(device)
    began = time.perf_counter()
    for _ in range(repeats):
        call()
    _finish(device)
    return (time.perf_counter() - began) / repeats


def _finish(device: str) -> None:
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
