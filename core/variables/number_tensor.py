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
    """torch.tensor of a number, or of nested lists of numbers, one of which is symbolic; None for other calls."""
    if len(args) != 1 or not kwargs.keys() <= {"dtype", "device"}:
        return None
    given = args[0].realize(tx)
    numbers: list[VT] = []
    shape = _shape(tx, given, numbers)
    if shape is None or not any(number.kind == "symbolic" for number in numbers):
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
    if not shape:
        return made[0]
    flat = tx.graph_call(torch.stack, [tx.new_list(made)], {})
    return flat if len(shape) == 1 else tx.graph_method("reshape", [flat, tx.constant(shape)], {})


def _shape(tx: Tracer, given: VT, numbers: list[VT]) -> tuple[int, ...] | None:
    """The shape of nested lists whose numbers go to `numbers`; None where they have none."""
    if given.kind not in ("list", "tuple"):
        numbers.append(given)
        return ()
    parts = [_shape(tx, item.realize(tx), numbers) for item in given.unpack(tx)]
    if not parts or None in parts or len(set(parts)) > 1:
        return None
    assert parts[0] is not None
    return (len(parts), *parts[0])
