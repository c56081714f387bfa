"""Functional twins: for an operator that writes to its arguments, the one that returns the new values instead."""

from __future__ import annotations

import functools
from typing import Any

import torch


@functools.cache
def functional_twin(op: Any) -> Any:
    """The twin of `op`, None where none exists.

    It takes the same arguments without the `out` ones, and returns the results of `op` that are no arguments, followed
    by the new value of each written argument in order.
    """
    namespace, _, name = op._schema.name.partition("::")
    packets = getattr(torch.ops, namespace)
    written = [argument for argument in op._schema.arguments if _is_written(argument)]
    outs = out_names(op)
    wanted = [argument for argument in op._schema.arguments if argument.name not in outs]
    for candidate in (name.rstrip("_"), name + "_functional", name.rstrip("_") + "_functional"):
        if candidate == name and not outs:
            continue
        packet = getattr(packets, candidate, None)
        if packet is None:
            continue
        overloads = packet.overloads()
        overloads.sort(key=lambda overload: overload != op._overloadname)  # its own overload's name goes first
        for overload in overloads:
            twin = getattr(packet, overload)
            if _fits(op, twin, wanted, len(written)):
                return twin
    return None


@functools.cache
def out_names(op: Any) -> frozenset[str]:
    """Names of the `out=` arguments: keywords that the operator writes to."""
    return frozenset(
        argument.name for argument in op._schema.arguments if argument.kwarg_only and _is_written(argument)
    )


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _fits(op: Any, twin: Any, wanted: list[Any], written: int) -> bool:
    schema = twin._schema
    if schema.is_mutable or any(result.alias_info is not None for result in schema.returns):
        return False
    fresh = sum(1 for result in op._schema.returns if result.alias_info is None)
    if len(schema.returns) != fresh + written:
        return False
    offered = {argument.name: argument for argument in schema.arguments}
    names = [argument.name for argument in wanted]
    if any(name not in offered for name in names):
        return False
    if any(str(offered[argument.name].type) != str(argument.type) for argument in wanted):
        return False
    return all(argument.has_default_value() for name, argument in offered.items() if name not in names)


def twin_call(
    op: Any, twin: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments for `twin` from those of `op`: by name; defaults that only `op` has are filled in."""
    given = {argument.name: value for argument, value in zip(op._schema.arguments, args)}
    given.update(kwargs)
    for argument in op._schema.arguments:
        if argument.name not in given and argument.has_default_value():
            given[argument.name] = argument.default_value
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    for argument in twin._schema.arguments:
        if argument.name not in given:
            continue
        value = given[argument.name]
        if argument.has_default_value() and _equal_default(value, argument.default_value) and argument.kwarg_only:
            continue
        if argument.kwarg_only or len(positional) < _position(twin, argument.name):
            keywords[argument.name] = value
        else:
            positional.append(value)
    return tuple(positional), keywords


def _position(twin: Any, name: str) -> int:
    return next(at for at, argument in enumerate(twin._schema.arguments) if argument.name == name)


def _equal_default(value: Any, default: Any) -> bool:
    return type(value) is type(default) and not isinstance(value, torch.fx.Node) and value == default
