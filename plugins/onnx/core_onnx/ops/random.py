"""Random numbers: torch draws them before a run, in the graph's order, and the model takes them as inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..builder import ModelBuilder, Value
from ..errors import ConversionError
from ..registry import converts


def _drawn(b: ModelBuilder, generator: Any, operator: str, *numbers: Any) -> Value:
    if generator is not None:
        raise ConversionError("random numbers of a generator of their own")
    return b.drawn(operator, *numbers)


@converts("aten.bernoulli.p")
def bernoulli(b: ModelBuilder, x: Value, p: Any = 0.5, *, generator: Any = None) -> Value:
    """Of the tensor only the form counts."""
    return _drawn(b, generator, "bernoulli_", p)


@converts("aten.exponential.default")
def exponential(b: ModelBuilder, x: Value, lambd: Any = 1.0, *, generator: Any = None) -> Value:
    return _drawn(b, generator, "exponential_", lambd)


@converts("aten.uniform.default")
def uniform(b: ModelBuilder, x: Value, low: Any = 0.0, high: Any = 1.0, *, generator: Any = None) -> Value:
    return _drawn(b, generator, "uniform_", low, high)


@converts("aten.normal_functional.default")
def normal(b: ModelBuilder, x: Value, mean: Any = 0.0, std: Any = 1.0, *, generator: Any = None) -> Value:
    return _drawn(b, generator, "normal_", mean, std)


@converts("aten.rand.default", "aten.rand_like.default")
def rand(b: ModelBuilder, form: Any, *, generator: Any = None, **kwargs: Any) -> Value:
    return _drawn(b, generator, "uniform_", 0.0, 1.0)


@converts("aten.randn.default", "aten.randn_like.default")
def randn(b: ModelBuilder, form: Any, *, generator: Any = None, **kwargs: Any) -> Value:
    return _drawn(b, generator, "normal_", 0.0, 1.0)


@converts("aten.randint.default")
def randint(b: ModelBuilder, high: Any, size: Any, *, generator: Any = None, **kwargs: Any) -> Value:
    return _drawn(b, generator, "random_", 0, high)


@converts("aten.randint.low")
def randint_from(b: ModelBuilder, low: Any, high: Any, size: Any, *, generator: Any = None, **kwargs: Any) -> Value:
    return _drawn(b, generator, "random_", low, high)


@converts("aten.randint_like.default")
def randint_like(b: ModelBuilder, x: Value, high: Any, **kwargs: Any) -> Value:
    return b.drawn("random_", 0, high)


@converts("aten.randint_like.low_dtype")
def randint_like_from(b: ModelBuilder, x: Value, low: Any, high: Any, **kwargs: Any) -> Value:
    return b.drawn("random_", low, high)


_IN_PLACE = {
    "aten.bernoulli_.float": bernoulli,
    "aten.exponential_.default": exponential,
    "aten.normal_.default": normal,
    "aten.uniform_.default": uniform,
}


@converts("clone_mutate")
def written(
    b: ModelBuilder, operator: Any, positions: Sequence[Any], args: Any, kwargs: Any, blank: Sequence[Any] = ()
) -> tuple[Value]:
    """An operator that fills its first argument with random numbers, on a clone of that."""
    draw = _IN_PLACE.get(str(operator))
    if draw is None or tuple(positions) != (0,):
        raise ConversionError(f"{operator} on a clone has no converter")
    return (draw(b, *args, **kwargs),)
