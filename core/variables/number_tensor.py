"""torch.tensor of numbers that differ from call to call: made in the graph, where torch would take their values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from .base import VariableTracker

if TYPE_CHECKING:
    from .protocols import Tracer

VT = VariableTracker
MAKERS = (torch.tensor, torch.as_tensor)


def of_numbers(tx: Tracer, args: Sequence[VT], kwargs: dict[str, VT]) -> VT | None:
    """torch.tensor(number) or torch.tensor([number, ...]) where one of them is symbolic; None for other calls."""
    if len(args) != 1 or not kwargs.keys() <= {"dtype", "device"}:
        return None
    given = args[0].realize(tx)
    flat = given.kind in ("list", "tuple")
    numbers = [item.realize(tx) for item in given.unpack(tx)] if flat else [given]
    if not any(number.kind == "symbolic" for number in numbers):
        return None
    kinds = {number.python_type() for number in numbers}
    if not kinds <= {int, float} or not all(number.kind == "symbolic" or number.is_constant() for number in numbers):
        return None
    wanted = kwargs.get("dtype", tx.constant(None)).realize(tx).as_constant()
    natural = torch.get_default_dtype() if float in kinds else torch.int64
    dtype = natural if wanted is None else wanted
    if not (dtype.is_floating_point or dtype is torch.int64 and float not in kinds):
        return None  # what does not fit raises
    words = {"dtype": tx.constant(dtype), **{key: value for key, value in kwargs.items() if key == "device"}}
    made = [tx.graph_call(torch.full, [tx.new_tuple([]), number], words) for number in numbers]
    return tx.graph_call(torch.stack, [tx.new_list(made)], {}) if flat else made[0]
