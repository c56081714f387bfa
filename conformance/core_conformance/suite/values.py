"""Inputs of the tests: functions of a generator, so that no value is known before a graph is compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

Make = Callable[[torch.Generator], list[Any]]


def draw(generator: torch.Generator, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Normally distributed values; whole numbers from -50 to 50 for integers, coin tosses for bool."""
    if dtype is torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    if not (dtype.is_floating_point or dtype.is_complex):
        low = 0 if not dtype.is_signed else -50
        return torch.randint(low, 51, shape, generator=generator).to(dtype)
    wide = torch.complex128 if dtype.is_complex else torch.float64
    return torch.randn(shape, generator=generator, dtype=wide).to(dtype)


def normal(*shapes: Sequence[int], dtype: torch.dtype = torch.float32) -> Make:
    """One tensor for each shape."""
    return lambda generator: [draw(generator, *shape, dtype=dtype) for shape in shapes]


def positive(*shapes: Sequence[int], dtype: torch.dtype = torch.float32) -> Make:
    """One tensor for each shape, its values from about 0.5 on."""
    return lambda generator: [draw(generator, *shape, dtype=dtype).abs() + 0.5 for shape in shapes]


def mixed(*entries: tuple[Sequence[int], torch.dtype]) -> Make:
    """One tensor for each (shape, dtype)."""
    return lambda generator: [draw(generator, *shape, dtype=dtype) for shape, dtype in entries]


def indices(generator: torch.Generator, below: int, *shape: int) -> torch.Tensor:
    """Integers from 0 to below - 1."""
    return torch.randint(0, below, shape, generator=generator)


def seeded(module: torch.nn.Module, generator: torch.Generator, scale: float = 0.3) -> torch.nn.Module:
    """The module with parameters drawn from the generator: what stands in weights is not known beforehand either."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(draw(generator, *parameter.shape, dtype=parameter.dtype) * scale)
    return module


def needs_dtype(subject: Any, *dtypes: torch.dtype) -> None:
    """Skip the test for a backend that does not declare a dtype and gets its graphs whole.

    The nodes of the others go to the fallback, and the program must be right all the same.
    """
    for dtype in dtypes:
        if not subject.supports(dtype) and subject.capabilities.graph_level == "torch":
            pytest.skip(f"the backend does not declare {str(dtype).removeprefix('torch.')}")


def needs_training(subject: Any) -> None:
    """Skip the test for a backend that does not declare training."""
    if not subject.has("training"):
        pytest.skip("the backend does not declare training")


def needs_dynamic(subject: Any) -> None:
    """Skip the test for a backend that compiles each size by itself."""
    if subject.capabilities.dynamic_shapes == "none":
        pytest.skip("the backend does not declare dynamic shapes")
