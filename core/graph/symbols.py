"""Symbolic sizes: which dimensions get a symbol, where each symbol's value is found, which guards the run needed.

A dimension marked dynamic gets a backed symbol unless its size is 0; 1 is a size like others, and two equal sizes get
two symbols. Equalities, and whether a size is 1, appear only as guards that the run itself asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from .. import torch_compat
from ..torch_compat import nested

if TYPE_CHECKING:
    import sympy

    from .captured import GraphInput


@dataclass(frozen=True)
class DimPolicy:
    """How a dynamic dimension behaves: the sizes it may take, whether becoming a constant is an error, and whether the
    graph knows no size at all (`unbacked`)."""

    low: int = 0
    high: int | None = None
    strict: bool = False
    unbacked: bool = False


def as_policy(policy: Any) -> DimPolicy | None:
    """A DimPolicy from what callers write: True, a DimPolicy, a (low, high) pair; None and False mean static."""
    if policy is None or policy is False:
        return None
    if policy is True:
        return DimPolicy()
    if isinstance(policy, DimPolicy):
        return policy
    low, high = policy
    return DimPolicy(low or 0, high)


def symbolic_fake(mode: Any, example: torch.Tensor, source: Any, policies: Mapping[int, DimPolicy]) -> Any:
    """The fake of a tensor whose dimensions in `policies` get symbols, their ranges assumed."""
    kinds = ["static"] * example.ndim
    for dim, policy in policies.items():
        kinds[dim] = "unbacked" if policy.unbacked else "dynamic"
    fake = torch_compat.fake_of(mode, example, source, torch_compat.symbolic_dims(kinds))
    for dim, policy in policies.items():
        assume: Any = torch._check if policy.unbacked else bool  # asking makes the ShapeEnv assume and guard it
        if policy.low > 0:
            assume(fake.shape[dim] >= policy.low)
        if policy.high is not None:
            assume(fake.shape[dim] <= policy.high)
    return fake


@dataclass(frozen=True)
class Place:
    """Where a number of the call is found. kind: "size", "stride", "offset" of an input tensor, or "value" of a
    number.
    """

    input: int
    kind: str
    dim: int = 0


@dataclass(frozen=True)
class ShapeGuard:
    """A condition on the symbols under which the graph is right. `expr` is a sympy Boolean."""

    expr: sympy.Basic
    reason: str = ""


@dataclass(frozen=True)
class ShapeFacts:
    """The symbols of a graph.

    bindings: where each symbol is read from a call's inputs; guards: what must hold of them. Strides and offsets that
    were inferred from sizes appear as guards on symbols of their own, bound to that stride or offset.
    """

    bindings: Mapping[sympy.Symbol, Place]
    guards: tuple[ShapeGuard, ...]

    @property
    def static(self) -> bool:
        """True when no input has a symbol."""
        return not self.bindings


def expression(value: Any) -> Any:
    """The sympy expression of a SymInt, SymFloat or SymBool; a plain number as it is."""
    return value.node.expr if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)) else value


def input_symbols(sizes: Iterable[Any]) -> set[Any]:
    """The symbols that sizes consist of, as they were made."""
    found: set[Any] = set()
    for size in sizes:
        for number in size:
            if isinstance(number, torch.SymInt):
                found |= torch_compat.original_expression(number).free_symbols
    return found


def plain(value: Any) -> Any:
    """A SymInt, SymFloat or SymBool that the run has pinned to one value as that value; others as they are."""
    if isinstance(value, torch.SymInt):
        expr = value.node.expr
        return int(expr) if expr.is_Integer else value
    if isinstance(value, torch.SymFloat):
        expr = value.node.expr
        return value if expr.free_symbols else torch_compat.calculated(expr)
    if isinstance(value, torch.SymBool):
        expr = value.node.expr
        return bool(expr) if expr.is_Boolean and expr in (True, False) else value
    return value


def is_float(value: Any) -> bool:
    """Whether a value is a float that differs between calls."""
    return isinstance(value, torch.SymFloat) and isinstance(plain(value), torch.SymFloat)


def rounded(value: Any) -> Any:
    """A result of arithmetic, floats with the order and the roundings of the operations that made them."""
    return torch_compat.in_its_order(value) if is_float(value) else value


def cancelled(result: Any, operands: Sequence[Any]) -> bool:
    """Whether arithmetic on such floats gave a number: that of reals knows neither -0.0 nor overflow."""
    return isinstance(plain(result), float) and any(is_float(operand) for operand in operands)


def input_numbers(inputs: tuple[GraphInput, ...]) -> list[tuple[Place, Any]]:
    """Each number of the inputs that may be symbolic, sizes first: a symbol is bound where it is first met."""
    sizes: list[tuple[Place, Any]] = []
    rest: list[tuple[Place, Any]] = []
    for item in inputs:
        if not isinstance(item.fake, torch.Tensor):
            sizes.append((Place(item.index, "value"), item.fake))
            continue
        if not item.dynamic_dims:
            continue
        sizes += [(Place(item.index, "size", dim), size) for dim, size in enumerate(item.fake.shape)]
        rest += [(Place(item.index, "stride", dim), step) for dim, step in enumerate(item.fake.stride())]
        rest.append((Place(item.index, "offset"), item.fake.storage_offset()))
    return sizes + rest


def shape_facts(
    inputs: tuple[GraphInput, ...], shape_env: Any, fixed_offsets: tuple[tuple[int, int], ...] = ()
) -> ShapeFacts:
    """The bindings and guards as they stand now. Ask after the last fake run: recording a backward may add guards.

    fixed_offsets: (input, storage offset) pairs that must hold.
    """
    static = shape_env is None or all(item.is_tensor and not item.dynamic_dims for item in inputs)
    if static and not fixed_offsets:
        return ShapeFacts({}, ())
    import sympy

    bindings: dict[Any, Place] = {}
    guards: list[ShapeGuard] = []
    for index, offset in fixed_offsets:
        own = sympy.Symbol(f"fixed_offset_{index}", integer=True)
        bindings[own] = Place(index, "offset")
        guards.append(ShapeGuard(sympy.Eq(own, offset), f"the code uses the storage offset of input {index}"))
    for place, value in input_numbers(inputs):
        expr = torch_compat.original_expression(value)
        if isinstance(expr, sympy.Symbol) and expr not in bindings:
            bindings[expr] = place
        elif place.kind != "size" and isinstance(expr, sympy.Basic) and expr.free_symbols:
            own = sympy.Symbol(f"{place.kind}_{place.input}_{place.dim}", integer=True)
            bindings[own] = place
            guards.append(ShapeGuard(sympy.Eq(own, expr, evaluate=False), f"{place.kind} of input {place.input}"))
    for guard in torch_compat.shape_guards(shape_env) if shape_env is not None else ():
        if any(nested.is_of_components(symbol, shape_env) for symbol in guard.free_symbols):
            continue  # a ragged size is that of its offsets, which are guarded
        guards.append(ShapeGuard(guard, "assumed while tracing"))
    for promise in torch_compat.deferred_assertions(shape_env) if shape_env is not None else ():
        if promise.free_symbols <= bindings.keys():  # of sizes that each call has; others are the graph's own
            guards.append(ShapeGuard(promise, "the program promises it"))
    return ShapeFacts(bindings, tuple(guards))
