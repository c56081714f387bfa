"""Generators of random numbers of Python and NumPy: an object from outside, or one that the traced code made.

What a generator from outside gives next only a run can tell; `tx.draw` has it drawn at the start of the frame. After
the traced code has seeded it, and for one that the traced code makes with a seed, the numbers are known: `twin` is a
generator in the same state, asked while tracing, and the real one gets the twin's state at the end.
"""

from __future__ import annotations

import copy
import operator
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import Unsupported
from ..guards.checks import MissingInstanceAttr
from ..guards.source import InstanceAttrSource
from .base import BuiltinMethodVariable, KnownVariable, VariableTracker
from .literal import run

if TYPE_CHECKING:
    from .protocols import Emitter, Tracer

VT = VariableTracker

REMEDY = "draw it outside the compiled function and pass it in, or use torch's random numbers"
FLOATS = frozenset(
    "random uniform gauss normalvariate lognormvariate expovariate vonmisesvariate gammavariate betavariate "
    "paretovariate weibullvariate triangular".split()
)
INTEGERS = frozenset("randint randrange getrandbits".split())
PICKS = frozenset("choice choices sample shuffle".split())
ARRAYS = frozenset(
    "rand randn randint random random_sample standard_normal normal uniform beta gamma exponential poisson binomial "
    "integers permutation laplace lognormal standard_exponential standard_gamma chisquare triangular".split()
)


def is_of_numpy(value: Any) -> bool:
    """True for a RandomState and for a Generator over a bit generator of NumPy's own."""
    cls = type(value)
    if not cls.__module__.startswith("numpy.random"):
        return False
    inner = type(getattr(value, "bit_generator", value))
    return cls.__name__ in ("RandomState", "Generator") and inner.__module__.startswith("numpy.random")


def state_of(generator: Any) -> Any:
    """All that decides what comes next."""
    if isinstance(generator, random.Random):
        return generator.getstate()
    inner = getattr(generator, "bit_generator", None)
    return generator.get_state(legacy=False) if inner is None else inner.state


def put_state(generator: Any, state: Any) -> None:
    """Bring a generator into a state that `state_of` gave."""
    if isinstance(generator, random.Random):
        generator.setstate(state)
    elif hasattr(generator, "bit_generator"):
        generator.bit_generator.state = state
    else:
        generator.set_state(state)


def made(kind: Callable[..., Any], state: Any) -> Any:
    """A new generator in a state."""
    generator = kind(0)
    put_state(generator, state)
    return generator


class RandomGeneratorVariable(VariableTracker):
    """A generator. value: the real one; twin: one whose state is the traced program's, None where nobody knows it;
    kind_of_seed: what makes another one out of a seed."""

    kind = "random_generator"
    mutable = True

    def __init__(self, value: Any = None, source: Any = None, twin: Any = None, maker: Any = None) -> None:
        super().__init__(source)
        self.value = value
        self.twin = twin
        self.maker = maker or (type(value) if value is not None else type(twin))

    def python_type(self) -> type:
        return type(self.value if self.value is not None else self.twin)

    def truth(self, tx: Tracer) -> bool:
        return True

    def get_attr(self, tx: Tracer, name: str) -> VT:
        if name == "__class__":
            return tx.wrap(self.python_type(), None, constant=True)
        own = getattr(self.value, "__dict__", {})
        if name in own:
            return tx.wrap(own[name], InstanceAttrSource(self.source, name) if self.source is not None else None)
        if self.source is not None and isinstance(self.value, random.Random):
            tx.guard(self.source, MissingInstanceAttr(name))
        if callable(getattr(self.python_type(), name, None)):
            return BuiltinMethodVariable(self, name)
        raise self.refuse(f"reading attribute {name!r}")

    def call_method(self, tx: Tracer, name: str, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        args = [arg.look_inside(tx) for arg in args]
        kwargs = {key: value.look_inside(tx) for key, value in kwargs.items()}
        if name == "seed":
            return self._seed(tx, _constants(self, name, args, kwargs))
        if name in ("getstate", "setstate") and issubclass(self.python_type(), random.Random) and not kwargs:
            return self._state(tx, name, args)
        if issubclass(self.python_type(), random.Random) and name in PICKS:
            return self._pick(tx, name, args, kwargs)
        if name not in (FLOATS | INTEGERS if issubclass(self.python_type(), random.Random) else ARRAYS):
            raise Unsupported(f"{self._full(name)}() is not traced", remedy=REMEDY)
        values, keywords = _constants(self, name, args, kwargs)
        if self.twin is None:
            return tx.draw(self, name, values, keywords)
        self._moves(tx)
        return _known(tx, run(tx, getattr(self.twin, name), values, keywords))

    def _full(self, name: str) -> str:
        module = self.python_type().__module__.partition(".")[0]
        return f"{'numpy.random' if module == 'numpy' else 'random'}.{name}"

    def _moves(self, tx: Tracer) -> None:
        if self.value is None:
            tx.side_effects.mutated(self)
        else:
            tx.side_effects.refuse_if_sealed()

    def _seed(self, tx: Tracer, given: tuple[list[Any], dict[str, Any]]) -> VT:
        values, keywords = given
        seed = (*values, *keywords.values())
        if len(seed) != 1 or type(seed[0]) is not int:
            raise Unsupported(f"{self._full('seed')}() of no known number is not traced", remedy="pass a number")
        return self._continue_as(tx, run(tx, self.maker, [seed[0]]))

    def _continue_as(self, tx: Tracer, twin: Any) -> VT:
        if self.value is not None and self.twin is None:
            tx.seeds(self)
        self.twin = twin
        self._moves(tx)
        return tx.constant(None)

    def _state(self, tx: Tracer, name: str, args: Sequence[VT]) -> VT:
        """getstate() where the state is known, setstate() to a known one."""
        if name == "getstate" and not args and self.twin is not None:
            return tx.constant(self.twin.getstate())
        if name == "setstate" and len(args) == 1 and args[0].is_constant():
            twin = run(tx, self.maker, [0])
            run(tx, twin.setstate, [args[0].as_constant()])
            return self._continue_as(tx, twin)
        raise Unsupported(f"{self._full(name)}() of a state that only a run can tell is not traced", remedy=REMEDY)

    def _pick(self, tx: Tracer, name: str, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        if self.twin is None:
            raise Unsupported(f"{self._full(name)}(): which item comes only a run can tell", remedy=REMEDY)
        items, *rest = args
        if items.kind not in ("list", "tuple", "range") or name == "shuffle" and (rest or kwargs):
            raise Unsupported(f"{self._full(name)}() of {items.describe()} is not traced", remedy="pass a list")
        values, keywords = _constants(self, name, rest, kwargs)
        listed = items.unpack(tx)
        self._moves(tx)
        places: Any = list(range(len(listed)))
        if name == "shuffle":
            if items.kind != "list":
                raise items.refuse("shuffling")
            self.twin.shuffle(places)
            for place, origin in enumerate(places):
                items.set_item(tx, tx.constant(place), listed[origin])
            return tx.constant(None)
        found = run(tx, getattr(self.twin, name), [places, *values], keywords)
        return listed[found] if name == "choice" else tx.new_list([listed[place] for place in found])

    def reconstruct(self, emit: Emitter) -> None:
        emit.push_null()
        emit.load_global_object(made)
        emit.load_global_object(self.maker)
        emit.load_const(frozen(state_of(self.twin)))
        emit.call(2)

    def write_back(self, emit: Emitter) -> None:
        """Nothing: one from outside gets its state before the graph runs."""


def frozen(state: Any) -> Any:
    """A copy that the twin's further numbers leave alone."""
    return state if isinstance(state, tuple) else copy.deepcopy(state)


def _constants(
    generator: RandomGeneratorVariable, name: str, args: Sequence[VT], kwargs: dict[str, VT]
) -> tuple[list[Any], dict[str, Any]]:
    for value in (*args, *kwargs.values()):
        if not value.is_constant():
            raise Unsupported(
                f"{generator._full(name)}() of {value.describe()} is not traced", remedy="pass numbers that are known"
            )
    return [arg.as_constant() for arg in args], {key: value.as_constant() for key, value in kwargs.items()}


def _known(tx: Tracer, result: Any) -> VT:
    if type(result).__name__ == "ndarray":
        import torch

        from .array import ArrayVariable

        fixed = tx.wrap(torch.from_numpy(result), None, constant=True)
        return ArrayVariable(tx.graph_method("clone", [fixed], {}))
    return tx.constant(result)


def make(tx: Tracer, maker: Any, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
    """`maker(seed)`: random.Random, numpy.random.RandomState or numpy.random.default_rng."""
    given = [value.look_inside(tx) for value in (*args, *kwargs.values())]
    if len(given) != 1 or not given[0].is_constant() or type(given[0].as_constant()) not in (int, str, bytes):
        raise Unsupported(
            f"making a {maker.__name__} with no known seed is not traced", remedy="make it outside, or give it a number"
        )
    return RandomGeneratorVariable(twin=run(tx, maker, [given[0].as_constant()]), maker=maker)


def is_numpy_function(value: Any) -> bool:
    """True for numpy.random.default_rng and numpy.random.seed."""
    if type(value).__name__ not in ("cython_function_or_method", "builtin_function_or_method"):
        return False  # asking an object of the program's for its module may run code
    if value.__module__ != "numpy.random":
        return False
    import numpy

    return value is numpy.random.default_rng or value is numpy.random.seed


class GeneratorFunctionVariable(KnownVariable):
    """numpy.random.default_rng, and numpy.random.seed, which speaks of the module's own generator."""

    kind = "generator_function"

    def call(self, tx: Tracer, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        import numpy

        if self.value is numpy.random.default_rng:
            return make(tx, self.value, args, kwargs)
        own = numpy.random.get_state.__self__  # type: ignore[attr-defined]
        return tx.wrap(own, None, constant=True).call_method(tx, "seed", args, kwargs)


def bounds(kind: type, method: str, values: Sequence[Any], keywords: dict[str, Any]) -> tuple[Any, Any]:
    """The lowest and highest number that a draw from a generator of this class may give; (None, None) where that is
    not known."""
    numbers = [value for value in (*values, *keywords.values()) if type(value) in (int, float)]
    whole = all(type(number) is int for number in numbers)
    if method in ("random", "random_sample", "rand", "beta", "betavariate"):
        return 0.0, 1.0
    if method == "uniform" and len(numbers) in (0, 2):
        low, high = numbers or (0.0, 1.0)
        return float(min(low, high)), float(max(low, high))
    if kind is random.Random and method == "randint" and len(numbers) == 2:
        return numbers[0], numbers[1]
    if method == "randrange" or method == "randint" and kind is not random.Random:
        every = range(*map(operator.index, numbers)) if whole and not keywords and numbers else ()
        return (min(every), max(every)) if every else (None, None)
    if method == "getrandbits" and whole and numbers:
        return 0, (1 << numbers[0]) - 1
    return None, None
