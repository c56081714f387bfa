"""What a graph leaves behind that a second run would do again: asked where a run raised and the program runs anew.

A graph that only computes can have run in vain. One that writes to its caller's tensors, draws random numbers or calls
operators of unknown effect can't, from that node on. data_errors.py tells which calls
fail by what a tensor holds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from .captured import CapturedGraph
from .data_errors import PURE_NAMESPACES, may_raise
from .functionalize import is_random
from .geometry import has_storage, storage_key
from .mutation import written_arguments
from .recorder import AtenRecord, Call
from .tree import leaves

EFFECT = "effect"
"""Of a torch-level node's meta: True for a call that is made for what no record shows."""


def draws(call: Call) -> bool:
    """True for random numbers of a default generator."""
    return is_random(call) and not draws_elsewhere(call)


def draws_elsewhere(call: Call) -> bool:
    """True for random numbers that the CPU's default generator doesn't give."""
    if torch.Tag.nondeterministic_seeded not in call.op.tags:
        return False
    made = [leaf for leaf in leaves((call.args, call.kwargs, call.result)) if isinstance(leaf, torch.Tensor)]
    return call.kwargs.get("generator") is not None or any(tensor.device.type != "cpu" for tensor in made)


def is_lasting(call: Call) -> bool:
    """True for a call that leaves something behind which nothing undoes, the caller's tensors aside."""
    return call.op.namespace not in PURE_NAMESPACES or draws_elsewhere(call)


def writes_to(call: Call, storages: frozenset[int]) -> bool:
    """True for a call that writes to memory of one of the storages."""
    return any(has_storage(fake) and storage_key(fake) in storages for fake in written_arguments(call))


def has_effect(calls: Iterable[Call], operands: Any) -> bool:
    """Whether some of the calls is made for more than its results: it writes to one of `operands`, a tree, say."""
    given = [leaf for leaf in leaves(operands) if isinstance(leaf, torch.Tensor) and has_storage(leaf)]
    storages = frozenset(map(storage_key, given))
    return any(is_random(call) or is_lasting(call) or writes_to(call, storages) for call in calls)


def callers_storages(record: AtenRecord) -> frozenset[int]:
    """The storages that the graph's caller has."""
    return frozenset(facts.storage._cdata for facts in record.facts if facts is not None)


@dataclass(frozen=True)
class Footprint:
    """What a run of a graph leaves behind.

    lasting: torch-level nodes whose effect nothing undoes; writing: those that write to the caller's tensors, which a
    functional graph does at its end; None where nobody knows. draws: takes random numbers of the CPU's default
    generator; may_raise: numbers are drawn, and some call raises for some values. why: the first effect, in words.
    """

    lasting: frozenset[str] | None
    writing: frozenset[str] = frozenset()
    draws: bool = False
    may_raise: bool = False
    why: str = ""


def footprint(graph: CapturedGraph, draws_before: bool = False) -> Footprint:
    """The footprint of a captured graph. draws_before: its frame takes random numbers of other generators first."""
    record = graph.record
    if record is None or record.refused is not None:
        return Footprint(None, why="calls what its record does not show")
    nodes = {node.name for node in graph.module.graph.nodes}
    storages = callers_storages(record)
    lasting: set[str] = set()
    writing: set[str] = set()
    why = ""
    for call in record.calls:
        effect, kind = "", lasting
        if draws_elsewhere(call):
            effect = "draws random numbers of a generator of their own"
        elif call.op.namespace not in PURE_NAMESPACES:
            effect = f"calls {call.op}, whose effects are not known"
        elif writes_to(call, storages):
            effect, kind = "writes to a tensor that the caller has", writing
        if not effect:
            continue
        why = why or effect
        if call.backward or call.node is None or call.node.name not in nodes:
            return Footprint(None, why=effect)
        kind.add(call.node.name)
    if graph.mutated and not writing:  # a tensor made of others, whose memory is theirs
        return Footprint(None, why="writes to a tensor that the caller has")
    random = any(map(draws, record.calls))
    raises = (random or draws_before) and any(map(may_raise, record.calls))
    return Footprint(frozenset(lasting), frozenset(writing), random, raises, why)
