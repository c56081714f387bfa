"""What a frame does before its graph runs: seeds, and random numbers of Python and NumPy.

A number that the traced code draws is drawn at the start of the frame, in the program's order, and is an input of the
graph; where the program has seeded the generator itself, the numbers are known while tracing and the generator is
brought to where the program leaves it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..bytecode import emit
from ..errors import Unsupported
from ..graph.functionalize import is_random
from ..guards.source import DrawnSource
from ..variables.base import VariableTracker
from ..variables.random_generator import (
    REMEDY,
    RandomGeneratorVariable,
    bounds,
    frozen,
    put_state,
    state_of,
)
from ..variables.symbolic import SymbolicVariable

VT = VariableTracker
LARGEST = 1 << 62


class DecidedByChance(Exception):
    """Something was assumed of a random number where no break could be made: capture anew without such numbers."""


def is_drawn(source: Any) -> bool:
    """Whether a source starts at a random number."""
    return isinstance(source.root(), DrawnSource)


def temporary(index: int) -> str:
    """The local that holds a drawn number."""
    return f".d{index}"


@dataclass(frozen=True)
class Seed:
    """Seed torch's generators, with a number of the frame's inputs or a known one."""

    source: Any
    number: int | None

    def write(self, emitter: Any) -> None:
        emitter.load_const(torch.manual_seed)
        if self.source is not None:
            emitter.load_source(self.source)
        else:
            emitter.load_const(self.number)
        emitter.call(1)
        emitter.pop_top()


@dataclass(frozen=True)
class Draw:
    """Draw one number or array and keep it in a local."""

    generator: RandomGeneratorVariable
    method: str
    values: Sequence[Any]
    keywords: dict[str, Any]
    index: int

    def write(self, emitter: Any) -> None:
        emitter.load(self.generator)
        emitter.load_attr(self.method)
        for value in (*self.values, *self.keywords.values()):
            emitter.load_const(value)
        emitter.call_keywords(tuple(self.keywords), len(self.values) + len(self.keywords))
        emitter.add(emit.store_fast(temporary(self.index)))


@dataclass(frozen=True)
class Seeded:
    """Bring a generator that the traced code has seeded to where it leaves it."""

    generator: RandomGeneratorVariable

    def write(self, emitter: Any) -> None:
        emitter.load_const(put_state)
        emitter.load(self.generator)
        emitter.load_const(frozen(state_of(self.generator.twin)))
        emitter.call(2)
        emitter.pop_top()


@dataclass(frozen=True)
class TorchState:
    """Read the state of torch's generator and keep it in a local."""

    index: int

    def write(self, emitter: Any) -> None:
        emitter.load_const(torch.get_rng_state)
        emitter.call(0)
        emitter.add(emit.store_fast(temporary(self.index)))


class StateVariable(VariableTracker):
    """The state of torch's generator at the start of the frame."""

    kind = "rng_state"

    def python_type(self) -> type:
        return torch.Tensor


def keep_torch_state(tx: Any) -> StateVariable:
    """Have the state of torch's generator read at this place among the first calls."""
    source = DrawnSource(len(tx.trace.draws))
    one = TorchState(source.index)
    tx.trace.draws.append(one)
    tx.trace.before_graph.append(one)
    return StateVariable(source)


def refuse_drawing(tx: Any, mark: int) -> None:
    """Behind a fork that is over, what an operation recorded from `mark` on must not draw in the same graph."""
    if any(is_random(call) for call in tx.builder.recorded_calls[mark:]):
        raise Unsupported("random numbers behind torch.random.fork_rng() in one graph", remedy="draw before it")


def draw(
    tx: Any, generator: RandomGeneratorVariable, method: str, values: Sequence[Any], keywords: dict[str, Any]
) -> VT:
    """The tracker of what generator.method(...) gives in each call of the frame."""
    trace = tx.trace
    if tx.builder.in_region or not trace.policy.draws:
        raise Unsupported(f"{generator._full(method)}() is not traced here", remedy=REMEDY)
    tx.side_effects.refuse_if_sealed()
    example = _example(tx, generator, method, values, keywords)
    source = DrawnSource(len(trace.draws))
    one = Draw(generator, method, values, keywords, source.index)
    trace.draws.append(one)
    trace.before_graph.append(one)
    if type(example) not in (int, float):
        return tx.wrap(example, source)  # type: ignore[no-any-return]
    low, high = bounds(generator.python_type(), method, values, keywords)
    if low is None:
        low, high = (-float("inf"), float("inf")) if type(example) is float else (-LARGEST, LARGEST)
    return SymbolicVariable(tx.builder.add_scalar_input(example, source, (low, high)), source)


def _example(tx: Any, generator: Any, method: str, values: Sequence[Any], keywords: dict[str, Any]) -> Any:
    """Something that the call may give, of another generator: the real one stays where it is."""
    example = tx.answer(getattr(_like(generator), method), values, keywords)
    if type(example) is int:
        low, high = bounds(generator.python_type(), method, values, keywords)
        known = all(number is None or abs(number) < LARGEST for number in (low, high))
    else:
        known = type(example) is float or type(example).__name__ == "ndarray"
    if not known:
        name = type(example).__name__
        raise Unsupported(f"{generator._full(method)}(), which gives a {name}, is not traced", remedy=REMEDY)
    return example


def _like(generator: RandomGeneratorVariable) -> Any:
    kind = type(generator.value)
    if kind.__name__ == "Generator":
        return kind(type(generator.value.bit_generator)(0))
    return kind(0)


def keep_states(loader: Any, draws: Sequence[Draw | Seeded], temporary: Callable[[], str]) -> list[tuple[str, str]]:
    """Store each generator that the frame draws from, and its state; where the two are."""
    kept = []
    for generator in {id(one.generator): one.generator for one in draws}.values():
        places = temporary(), temporary()
        loader.load(generator)
        loader.add([*emit.dup_top(), *emit.store_fast(places[0])])
        loader.load_const(state_of)
        loader.swap(2)
        loader.call(1)
        loader.add(emit.store_fast(places[1]))
        kept.append(places)
    return kept


def put_back(emitter: Any, kept: Sequence[tuple[str, str]], put: Callable[[Any, Any], None] | None = None) -> None:
    """Restore what `keep_states` stored; put: of other things than generators."""
    for generator, state in kept:
        emitter.load_const(put or put_state)
        emitter.add([*emit.load_fast_bound(generator), *emit.load_fast_bound(state)])
        emitter.call(2)
        emitter.pop_top()
