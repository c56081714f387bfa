"""clone_mutate: any mutating operator as a function of values."""

from __future__ import annotations

from typing import Any

import torch

from .tree import map_tree


def clone_mutate(op: Any, positions: tuple[int | str, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple:
    """Run `op` on private clones of the arguments it writes to (positions: indices of args, names of kwargs). An
    operator that no text can call is given by its name.

    Returns its results that are no arguments, then the written clones in the order of `positions`; results and
    arguments that are lists are flattened.
    """
    if isinstance(op, str):
        namespace, name, overload = op.split(".")
        op = getattr(getattr(getattr(torch.ops, namespace), name), overload)
    clones: list[torch.Tensor] = []

    def clone(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        clones.append(leaf.clone())
        return clones[-1]

    new_args, new_kwargs = list(args), dict(kwargs)
    for position in positions:
        if isinstance(position, str):
            new_kwargs[position] = map_tree(clone, new_kwargs[position])
        else:
            new_args[position] = map_tree(clone, new_args[position])
    results = op(*new_args, **new_kwargs)
    if not isinstance(results, (tuple, list)):
        results = (results,)
    flat = [item for result in results for item in (result if isinstance(result, (tuple, list)) else (result,))]
    own = [item for item in flat if item is not None and not any(item is written for written in clones)]
    return (*own, *clones)
