"""Target: what a runtime computes. The emitter casts around what it doesn't, where a wider type gives the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch


def _everything(operator: str, dtype: torch.dtype) -> bool:
    return True


@dataclass(frozen=True)
class Target:
    """A runtime as the emitter sees it.

    opset: the version of ONNX's operator set that the model is written in; computes: (ONNX operator, dtype) -> whether
    the runtime has a kernel of that operator for values of that dtype; drops_nan: operators in which it turns NaN into
    a number, as ONNX leaves it free to do, and that are written out of comparisons instead; adds_to_select: its Where
    adds the two sides, each masked, which makes 0 of -0: floats are chosen by their bits where there is a BitCast;
    checks_places: it raises for an index outside of the tensor; questions: the call reads `OnnxGraph.questions` after a
    run and raises; draws: it feeds random numbers, `OnnxGraph.draws`, to a run.
    """

    name: str = "onnx"
    opset: int = 18
    computes: Callable[[str, torch.dtype], bool] = _everything
    drops_nan: frozenset[str] = frozenset(("Max", "Min"))
    adds_to_select: bool = False
    checks_places: bool = False
    questions: bool = False
    draws: bool = False


EVERYTHING = Target()
"""Every operator for every dtype that ONNX's own specification allows it."""
