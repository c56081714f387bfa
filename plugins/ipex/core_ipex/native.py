"""The Intel extension's own kernels, for products and convolutions of frozen weights, beside the torch it is for.

Versions are compared by what is installed: beside another torch than its own the extension's import ends the process.
It is imported by the first region that has a frozen weight.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import torch

from core.plugin import installed_version

from .torch_compat import direct

MODULE = "intel_extension_for_pytorch"
TORCH = ["2", "8"]
FUNCTIONS = {"none": "", "gelu": "_gelu", "swish": "_swish", "tanh": "_tanh", "sigmoid": "_sigmoid"}
"""oneDNN's name of a function -> its part in the names of the extension's operators."""


def installed() -> str:
    """The version of the extension where it is the one for this torch, else ""."""
    extension = installed_version(MODULE)
    return extension if _minor(extension) == _minor(installed_version("torch")) == TORCH else ""


def _minor(version: str) -> list[str]:
    return version.split(".")[:2]


@functools.cache
def unusable() -> str:
    """Imports the extension; why its kernels can't be called, or ""."""
    try:
        importlib.import_module(MODULE)
        for part in FUNCTIONS.values():
            for name in (f"linear{part}_run", f"convolution{part}_prepack", f"convolution{part}_run"):
                getattr(torch.ops.ipex_prepack, name).default  # noqa: B018 - whether it is there
    except (ImportError, OSError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def linear(weight: torch.Tensor, bias: torch.Tensor | None, rows: int | None) -> Any:
    """A packed weight with its bias."""
    return torch.ops.ipex_prepack.linear_prepack.default(weight, bias, rows)


def convolution(
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    geometry: tuple[list[int], list[int], list[int], int],
    sizes: list[int] | None,
    unary: str,
    algorithm: str,
) -> Any:
    """A packed weight with its bias, for channels-last images; geometry: padding, stride, dilation, groups."""
    padding, stride, dilation, groups = geometry
    pack = getattr(torch.ops.ipex_prepack, f"convolution{FUNCTIONS[unary]}_prepack").default
    return pack(weight, bias, stride, padding, dilation, groups, True, sizes or [], *_extra(unary, algorithm))


def kernel(name: str) -> Callable[..., Any]:
    """The function behind an operator of the extension."""
    return direct(getattr(torch.ops.ipex_prepack, name).default)


def call(kind: str, unary: str, algorithm: str) -> tuple[str, list[str]]:
    """The name of the operator that computes a product or convolution, and what it takes between values and weight."""
    return f"{kind}{FUNCTIONS[unary]}_run", _extra(unary, algorithm)


def _extra(unary: str, algorithm: str) -> list[str]:
    return [algorithm] if unary == "gelu" else []
