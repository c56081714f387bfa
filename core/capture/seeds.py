"""torch.manual_seed and torch.random.fork_rng in captured code.

A seed is set, and the state that a fork comes back to is read, before the graph runs, as long as the graph drew nothing
before it; the state is put back behind the graph, as long as nothing is drawn behind the fork. A seed that is
computed from numbers that differ from call to call is set behind the graph, as long as nothing is drawn behind it.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from ..errors import Unsupported
from ..graph.functionalize import is_random
from ..variables.base import VariableTracker
from ..variables.block import BlockVariable
from .first_calls import Seed, StateVariable, keep_torch_state
from .special_calls import function

VT = VariableTracker


@function(torch.manual_seed)
def manual_seed(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """Seed the generators of all devices; gives the CPU's generator."""
    given = [value.realize(tx) for value in (*args, *kwargs.values())]
    symbolic = len(given) == 1 and given[0].kind == "symbolic" and given[0].python_type() is int
    if symbolic and given[0].source is None:
        return _seed_behind(tx, given[0])
    if not symbolic and (len(given) != 1 or given[0].kind != "constant" or type(given[0].as_constant()) is not int):
        raise Unsupported(
            "torch.manual_seed() of a number that differs from call to call is not traced",
            remedy="seed outside the compiled function",
        )
    _refuse_behind_numbers(tx, "torch.manual_seed()")
    tx.trace.before_graph.append(Seed(given[0].source, None) if symbolic else Seed(None, given[0].as_constant()))
    return tx.wrap(torch.default_generator, None, constant=True)


def _seed_behind(tx: Any, number: VT) -> VT:
    """A seed that the traced code has computed from what differs is set behind the graph, which draws nothing more."""
    if tx.builder.in_region:
        raise Unsupported("torch.manual_seed() inside a region is not traced", remedy="seed outside of it")
    tx.side_effects.defer(torch.manual_seed, [number], {})
    tx.trace.forks_over = True
    return tx.wrap(torch.default_generator, None, constant=True)  # type: ignore[no-any-return]


def _refuse_behind_numbers(tx: Any, what: str) -> None:
    if tx.builder.in_region or tx.trace.forks_over or any(is_random(call) for call in tx.builder.recorded_calls):
        raise Unsupported(f"{what} behind random numbers of the same graph", remedy="seed first, or outside of it")


@function(torch.random.fork_rng)
def fork(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """torch.random.fork_rng() where the CPU's generator is the only one."""
    values = dict(zip(("devices", "enabled"), args)) | kwargs
    values = {name: value.look_inside(tx) for name, value in values.items()}
    if (
        len(args) > 2
        or not values.keys() <= {"devices", "enabled"}
        or not all(v.is_constant() for v in values.values())
    ):
        raise Unsupported("fork_rng with these arguments is not traced", remedy="fork outside the compiled function")
    constants = {name: value.as_constant() for name, value in values.items()}
    devices = constants.get("devices")
    if devices if devices is not None else torch.accelerator.current_accelerator() is not None:
        raise Unsupported("fork_rng over other devices is not traced", remedy="pass devices=[], or fork outside")
    return ForkVariable(bool(constants.get("enabled", True)))


class ForkVariable(BlockVariable):
    """A block at whose end torch's generator is where it was at its beginning."""

    kind = "fork"
    cls = contextlib._GeneratorContextManager

    def __init__(self, enabled: bool) -> None:
        super().__init__()
        self.enabled = enabled
        self.state: StateVariable | None = None

    def call_method(self, tx: Any, name: str, args: Any, kwargs: dict[str, VT]) -> VT:
        if name == "__enter__" and self.state is None:
            if self.enabled:
                _refuse_behind_numbers(tx, "torch.random.fork_rng()")
                self.state = keep_torch_state(tx)
        elif name == "__exit__":
            if self.state is not None:
                tx.side_effects.defer(torch.set_rng_state, [self.state], {})
                tx.trace.forks_over = True
        else:
            raise self.refuse(f"calling {name!r}")
        return tx.constant(None)

    def reconstruct(self, emit: Any) -> None:
        if self.enabled and self.state is not None:
            raise self.refuse("giving the object back to Python")
        emit.push_null()
        emit.load_global_object(torch.random.fork_rng)
        emit.load_const(None)
        emit.load_const(self.enabled)
        emit.call(2)
