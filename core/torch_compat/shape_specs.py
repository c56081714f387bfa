"""The objects that declare sizes of arguments to a compiler: torch.fx.experimental.dynamic_spec, of torch 2.13.

Older versions don't have them. Leaves are numbers, variables and expressions of variables; see `Leaf`.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from .assumptions import condition_as_made

_MODULE = "torch.fx.experimental.dynamic_spec"


@functools.cache
def _classes() -> Any:
    return importlib.import_module(_MODULE) if importlib.util.find_spec(_MODULE) is not None else None


def exist() -> bool:
    """Whether this torch has them."""
    return _classes() is not None


def as_shapes_spec(value: Any) -> Any:
    """A ShapesSpec from one, a ParamsSpec or a dict. Raises what torch raises for others."""
    classes = _classes()
    return value if isinstance(value, classes.ShapesSpec) else classes.ShapesSpec(value)


@dataclass(frozen=True)
class Parameters:
    """What is declared of the parameters of a function."""

    named: Mapping[str, Any]
    positional: tuple[Any, ...]
    keywords: Mapping[str, Any]


def parameters(spec: Any) -> Parameters:
    """Of a ShapesSpec."""
    params = spec._params
    if params is None:
        return Parameters({}, (), {})
    return Parameters(params._named_args, tuple(params._varargs or ()), params._varkw or {})


def assumptions(spec: Any) -> list[Any]:
    """The conditions of a ShapesSpec, as sympy Booleans of spec variables."""
    return [condition.node.expr for condition in spec.assumptions]


def parts(spec: Any) -> tuple[str, Mapping[Any, Any]] | None:
    """What a container declares, by "attr", "key" or "index"; None for what is no container."""
    classes = _classes()
    if isinstance(spec, classes.ObjectSpec):
        return "attr", dict(spec.items())
    if isinstance(spec, classes.DictSpec):
        return "key", dict(spec.items())
    if isinstance(spec, classes.SeqSpec):
        return "index", dict(enumerate(spec._entries))
    return None


def dims_of(spec: Any) -> list[Any] | None:
    """The dimensions of a TensorSpec; None for others."""
    return list(spec) if isinstance(spec, _classes().TensorSpec) else None


@dataclass(frozen=True)
class Leaf:
    """A size or number that may differ from call to call. variable: it defines its symbol, with these bounds; else it
    is to equal `expr`."""

    expr: Any
    variable: bool = False
    low: int | None = None
    high: int | None = None


def leaf(spec: Any) -> Leaf | None:
    """Of a spec variable or an expression of some; None for a number and for None."""
    if isinstance(spec, _classes().IntVar):
        return Leaf(spec.sympy_sym, True, spec.min, spec.max)
    return Leaf(spec.node.expr) if isinstance(spec, torch.SymInt) else None


def holds(condition: Any, values: Mapping[Any, int]) -> bool:
    """Whether a condition on spec variables is true for these values."""
    import sympy

    return bool(condition.xreplace({symbol: sympy.Integer(value) for symbol, value in values.items()}))


def equals(left: Any, right: Any) -> Any:
    """The condition that two expressions are the same number."""
    import sympy

    return sympy.Eq(left, right, evaluate=False)


def new_symbol() -> Any:
    """A variable that no spec has."""
    import sympy

    return sympy.Dummy(integer=True)


def assume(env: Any, condition: Any, sizes: Mapping[Any, Any]) -> None:
    """Have a ShapeEnv rely on a condition on spec variables. sizes: what stands for each, a SymInt or a number."""
    import sympy

    known = {symbol: size.node.expr if isinstance(size, torch.SymInt) else size for symbol, size in sizes.items()}
    found = condition.xreplace({symbol: sympy.sympify(size) for symbol, size in known.items()})
    if found not in (True, False):
        torch._check(condition_as_made(env, found))
