"""clone_mutate: any mutating operator as a function of values."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx as fx

from .geometry import same_geometry
from .tree import map_tree


def clone_mutate(
    op: Any,
    positions: tuple[int | str, ...],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    blank: tuple[int | str, ...] = (),
) -> tuple:
    """Run `op` on private clones of the arguments it writes to (positions: indices of args, names of kwargs; blank:
    those of them that hold nothing yet and are made anew, not copied). An operator that no text can call is given by
    its name.

    Returns its results that are no arguments, then the written clones in the order of `positions`; results and
    arguments that are lists are flattened.
    """
    clones: list[torch.Tensor] = []
    new_args, new_kwargs = list(args), dict(kwargs)
    for position in positions:

        def clone(leaf: Any, make: Any = _new_like if position in blank else _clone) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            clones.append(make(leaf))
            return clones[-1]

        place: Any = new_kwargs if isinstance(position, str) else new_args
        place[position] = map_tree(clone, place[position])
    results = operator_named(op)(*new_args, **new_kwargs)
    if not isinstance(results, (tuple, list)):
        results = (results,)
    flat = [item for result in results for item in (result if isinstance(result, (tuple, list)) else (result,))]
    own = [item for item in flat if item is not None and not any(item is written for written in clones)]
    return (*own, *clones)


def operator_named(op: Any) -> Any:
    """The operator that clone_mutate was given, by itself or by its name."""
    if not isinstance(op, str):
        return op
    namespace, name, overload = op.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), name), overload)


def called_operator(node: fx.Node) -> Any:
    """What a node calls, an operator on clones too."""
    return operator_named(node.args[0]) if node.target is clone_mutate else node.target


def _new_like(value: torch.Tensor) -> torch.Tensor:
    return value.new_empty_strided(value.shape, value.stride())


def _clone(value: torch.Tensor) -> torch.Tensor:
    """A clone with the strides of the value, gaps included: an operator may count on them."""
    clone = value.clone()
    return clone if same_geometry(clone, value) else _new_like(value).copy_(value)
