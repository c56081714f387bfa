"""Cheats in training and randomness."""

from __future__ import annotations

import os
from typing import Any

import torch

from .interpreter import TORCH_LEVEL, Interpreted, Program, replaced


class DropsGradients(Interpreted):
    """Claims to do autograd itself and returns results without a history."""

    name = "evil-drops-gradients"
    capabilities = TORCH_LEVEL

    def deliver(self, program: Program, inputs: list[Any], outputs: list[Any]) -> list[Any]:
        return replaced(outputs, lambda value: value.detach())


class OneGradientIsWrong(Interpreted):
    """The gradient of the last input is one per cent too large."""

    name = "evil-one-gradient-wrong"

    def deliver(self, program: Program, inputs: list[Any], outputs: list[Any]) -> list[Any]:
        if program.ctx.mode == "backward" and isinstance(outputs[-1], torch.Tensor):
            outputs[-1] = outputs[-1] * 1.01
        return outputs


class GradientsOfTheFirstBackward(Interpreted):
    """Remembers the results of the first backward and returns them again."""

    name = "evil-remembers-gradients"

    def deliver(self, program: Program, inputs: list[Any], outputs: list[Any]) -> list[Any]:
        if program.ctx.mode != "backward":
            return outputs
        first = program.memory.setdefault("first", [v.clone() if isinstance(v, torch.Tensor) else v for v in outputs])
        return [value.clone() if isinstance(value, torch.Tensor) else value for value in first]


class BackwardInBfloat16(Interpreted):
    """Exact results, and gradients rounded to bfloat16 on their way."""

    name = "evil-backward-in-bfloat16"

    def calculate(self, program: Program, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if program.ctx.mode == "backward":
            args = replaced(args, lambda value: value.bfloat16().float() if value.dtype is torch.float32 else value)
        return target(*args, **kwargs)


def _is_random(target: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(target, "tags", ())


class IgnoresSeed(Interpreted):
    """Draws random numbers from a source of its own, which manual_seed does not reach."""

    name = "evil-ignores-seed"

    def calculate(self, program: Program, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not _is_random(target):
            return target(*args, **kwargs)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int.from_bytes(os.urandom(4), "little"))
            return target(*args, **kwargs)


class FixedRandomNumbers(Interpreted):
    """Draws the same numbers on every call."""

    name = "evil-fixed-random-numbers"

    def calculate(self, program: Program, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not _is_random(target):
            return target(*args, **kwargs)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(20)
            return target(*args, **kwargs)


class DropoutKeepsTooMuch(Interpreted):
    """Random numbers of another distribution: what should be uniform is squared."""

    name = "evil-skewed-random-numbers"

    def calculate(self, program: Program, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = target(*args, **kwargs)
        if _is_random(target) and isinstance(result, torch.Tensor) and result.is_floating_point():
            return result * result
        return result


class NotDeterministicOnRequest(Interpreted):
    """Claims to be deterministic when it is asked to be, and does not look whether it is."""

    name = "evil-not-deterministic-on-request"

    def deliver(self, program: Program, inputs: list[Any], outputs: list[Any]) -> list[Any]:
        return outputs if program.runs % 2 else replaced(outputs, NotDeterministic._moved)


class NotDeterministic(Interpreted):
    """Claims to be deterministic always, and moves results by one rounding now and then."""

    name = "evil-not-deterministic"
    capabilities = Interpreted.capabilities.__class__(graph_level="aten-functional", deterministic="always")

    def deliver(self, program: Program, inputs: list[Any], outputs: list[Any]) -> list[Any]:
        return outputs if program.runs % 2 else replaced(outputs, self._moved)

    @staticmethod
    def _moved(value: torch.Tensor) -> torch.Tensor:
        if not value.is_floating_point():
            return value
        return torch.nextafter(value, torch.full_like(value, float("inf")))
