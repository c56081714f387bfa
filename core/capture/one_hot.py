"""torch.nn.functional.one_hot of a known number of classes: written so that a class which is none of them raises.

What torch makes of it for tensors without values compares each class with all of them, and finds no fault.
"""

from __future__ import annotations

from typing import Any

import torch

from ..variables.base import VariableTracker
from .special_calls import callable_object

VT = VariableTracker


@callable_object(torch.nn.functional.one_hot)
def one_hot(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """Zeros, and a one at the place of each class."""
    given = dict(zip(("tensor", "num_classes"), args), **kwargs)
    classes, count = (given[name].realize(tx) if name in given else None for name in ("tensor", "num_classes"))
    plain = classes is not None and classes.kind == "tensor"
    if plain and classes.fake.dtype is not torch.int64:  # type: ignore[union-attr]
        raise tx.unsupported("one_hot of a tensor that is not int64", "convert the tensor: torch refuses it")
    known = count is not None and count.is_constant() and type(count.as_constant()) is int and count.as_constant() > 0
    if not plain or not known or set(given) != {"tensor", "num_classes"} or tx.builder.in_region:
        return tx.graph_call(torch.nn.functional.one_hot, args, kwargs)  # type: ignore[no-any-return]
    assert classes is not None and count is not None
    size = tx.new_tuple([*classes.get_attr(tx, "shape").unpack(tx), count])
    zeros = tx.graph_method("new_zeros", [classes, size], {})
    last, one = tx.constant(-1), tx.constant(1)
    places = tx.graph_method("unsqueeze", [classes, last], {})
    return tx.graph_method("scatter_", [zeros, last, places, one], {})  # type: ignore[no-any-return]
