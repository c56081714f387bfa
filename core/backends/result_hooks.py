"""Hooks on results that share a node of autograd here, and have nodes of their own in eager.

A backward through one of several results meets the node of all of them, and autograd calls the hooks of the others
with None; eager does not come by there. So such results are given the table that their hooks go into, before callers
register any: it keeps None from them.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

from ..graph.functional import JointGraph
from ..graph.outputs import Slot
from .generated import Code


class HookTable(OrderedDict[int, Callable[..., Any]]):
    """What `register_hook` puts hooks into, by number."""

    def __setitem__(self, number: int, hook: Callable[..., Any]) -> None:
        # a hook for several tensors counts its calls against the nodes that run
        if getattr(hook, "__module__", None) != "torch.autograd.graph":
            hook = functools.wraps(hook, updated=("__dict__",) if hasattr(hook, "__dict__") else ())(_Told(hook))
        super().__setitem__(number, hook)


class _Told:
    """The hook, for the gradients that there are."""

    def __init__(self, hook: Callable[..., Any]) -> None:
        self._hook = hook

    def __call__(self, gradient: Any) -> Any:
        return None if gradient is None else self._hook(gradient)


def telling_slots(joint: JointGraph, starts: Iterable[int]) -> list[int]:
    """The slots among those of `starts`, which share a node, to which this applies: results as they are."""
    starts = [at for at in starts if at < len(joint.tangent_slots)]
    if len(starts) < 2:
        return []
    results = {output.index for output in joint.epilogue.outputs if isinstance(output, Slot)}
    return [joint.tangent_slots[at] for at in starts if at in joint.reach.alone and joint.tangent_slots[at] in results]


def write_tables(code: Code, slots: Iterable[int]) -> None:
    """Lines that give the results at `slots` their tables."""
    for slot in slots:
        code.line(f"s{slot}._backward_hooks = {code.bind(HookTable, 'HookTable')}()")
        code.line(f"s{slot}.grad_fn._register_hook_dict(s{slot})")
