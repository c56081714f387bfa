"""Nested tensors of the jagged layout: torch's private names for the size that stands for many. Checked with 2.13."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch

from . import input_source_class


def ragged_symbol(mode: Any, number: int | None) -> Any:
    """A symbol for the ragged size of a nested tensor made under a FakeTensorMode.

    Torch's own way needs a ShapeEnv from the start and names its symbols by the peer's classes.
    """
    from torch.fx.experimental.symbolic_shapes import DimDynamic
    from torch.nested._internal.nested_int import NestedIntNode

    if number is None:
        number = mode.nt_tensor_id_counter
        mode.nt_tensor_id_counter += 1
    env, hint, source = mode.environment()(), torch.SymInt(NestedIntNode(number, 1)), input_source_class()(-1)
    symbol = env.create_symbol(hint, source, dynamic_dim=DimDynamic.DYNAMIC, constraint_dim=None)
    return env.create_symintnode(symbol, hint=hint, source=source)


def is_ragged(size: Any) -> bool:
    """True for a size that stands for many, one for each component of a nested tensor."""
    return isinstance(size, torch.SymInt) and size.node.is_nested_int()


def is_jagged(tensor: Any) -> bool:
    """True for a nested tensor of the jagged layout."""
    return bool(tensor.layout is torch.jagged)


def ragged_name(names: Collection[str]) -> str:
    """The name of the inner tensor of a jagged tensor by which its ragged size is known."""
    return "_lengths" if "_lengths" in names else "_offsets"


def is_of_components(symbol: Any, env: Any) -> bool:
    """Whether a symbol of the ShapeEnv is a ragged size: no call has a number for it."""
    from torch.utils._sympy.singleton_int import SingletonInt

    values = getattr(env, "backed_var_to_val", None) or getattr(env, "var_to_val", {})
    return isinstance(values.get(symbol), SingletonInt)
