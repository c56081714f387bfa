"""torch.manual_seed in captured code: it runs before the graph does, as long as the graph drew nothing before it."""

from __future__ import annotations

from typing import Any

import torch

from ..errors import Unsupported
from ..graph.functionalize import is_random
from ..variables.base import VariableTracker
from .first_calls import Seed
from .special_calls import function

VT = VariableTracker


@function(torch.manual_seed)
def manual_seed(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """Seed the generators of all devices; gives the CPU's generator."""
    given = [value.realize(tx) for value in (*args, *kwargs.values())]
    if len(given) != 1 or given[0].kind != "constant" or type(given[0].as_constant()) is not int:
        raise Unsupported(
            "torch.manual_seed() of a number that differs from call to call is not traced",
            remedy="seed outside the compiled function",
        )
    if tx.builder.in_region or any(is_random(call) for call in tx.builder.recorded_calls):
        raise Unsupported(
            "torch.manual_seed() behind random numbers of the same graph", remedy="seed first, or outside of it"
        )
    tx.trace.before_graph.append(Seed(given[0].as_constant()))
    return tx.wrap(torch.default_generator, None, constant=True)
