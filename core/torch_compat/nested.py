"""Nested tensors of the jagged layout: torch's private names for the size that stands for many. Checked with 2.13."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch


def let_ragged_sizes_be_symbols(mode: Any, environment: Callable[[], Any], source: Any) -> None:
    """Nested tensors that are made under a FakeTensorMode get their ragged sizes from the ShapeEnv that `environment`
    gives: torch's own way needs one from the start and names its symbols by the peer's classes. `source` names them."""

    def make(*, nt_tensor_id: int | None = None) -> Any:
        if nt_tensor_id is None:
            nt_tensor_id = mode.nt_tensor_id_counter
            mode.nt_tensor_id_counter += 1
        return _symbol(environment(), _ragged(nt_tensor_id), source)

    mode.create_symbolic_nested_int = make


def _ragged(number: int) -> Any:
    from torch.nested._internal.nested_int import NestedIntNode

    return torch.SymInt(NestedIntNode(number, 1))


def _symbol(env: Any, hint: Any, source: Any) -> Any:
    from torch.fx.experimental.symbolic_shapes import DimDynamic

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
