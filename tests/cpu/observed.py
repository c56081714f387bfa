"""Programs run in eager and compiled: results, gradients, what the program left behind and the random generator agree.

A program is a function without arguments that builds everything anew: it returns (fn, args) or (fn, args, observe);
`observe()` gives what else must agree after each call: parameters, buffers, logs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np
import torch

import core
import core.errors
from core import events

BACKENDS = ("eager", "aot_eager")


def tensors(tree: Any) -> Iterator[torch.Tensor]:
    """The tensors in lists, tuples and dicts."""
    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, (list, tuple)):
        for item in tree:
            yield from tensors(item)
    elif isinstance(tree, dict):
        for item in tree.values():
            yield from tensors(item)


def snapshot(value: Any) -> Any:
    """What can be compared later: tensors become their properties, a copy of their data, and their gradient's."""
    if isinstance(value, torch.Tensor):
        plain = value.detach()
        if plain.layout is not torch.strided or plain.is_quantized or plain.is_nested:
            return ("tensor", plain.layout, str(plain))
        grad = value.grad if value.is_leaf else None
        data = plain.clone() if plain.device.type != "meta" else tuple(plain.shape)
        return ("tensor", type(value), value.requires_grad, value.is_inference(), data, snapshot(grad))
    if isinstance(value, (list, tuple)):
        return [type(value), *map(snapshot, value)]
    if isinstance(value, dict):
        return {key: snapshot(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return [value.dtype, value.tolist()]
    return value


def equal(left: Any, right: Any) -> bool:
    """Equality of snapshots; NaNs equal each other, dtypes and shapes must agree."""
    if isinstance(left, torch.Tensor):
        same_kind = isinstance(right, torch.Tensor) and left.dtype == right.dtype and left.shape == right.shape
        return same_kind and torch.allclose(left, right, rtol=1e-6, atol=1e-6, equal_nan=True)
    if type(left) is not type(right):
        return False
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(equal, left, right))
    if isinstance(left, dict):
        return list(left) == list(right) and all(equal(left[key], right[key]) for key in left)
    return bool(left == right)


def history(build: Callable[[], Any], compiled: Callable[[Any], Any], calls: int = 3) -> list[Any]:
    """What can be seen after each call, each followed by a backward where the result carries gradients."""
    torch.manual_seed(0)
    fn, args, *rest = build()
    observe = rest[0] if rest else lambda: None
    run = compiled(fn)
    torch.manual_seed(1)
    seen = []
    for _ in range(calls):
        try:
            result = run(*args)
        except core.errors.CoreError:
            raise
        except Exception as error:  # noqa: BLE001  whatever the program raises is compared
            seen.append((type(error), str(error)))
            continue
        found = snapshot(result)
        carrying = [t for t in tensors(result) if t.requires_grad and t.grad_fn is not None]
        if carrying:
            sum(t.abs().sum() if t.is_complex() else t.sum() for t in carrying).backward()
        seen.append([found, snapshot(list(args)), snapshot(observe()), torch.get_rng_state()])
    return seen


def agrees(
    build: Callable[[], Any],
    backend: Any = "eager",
    *,
    graphs: int | None = 1,
    breaks: int | None = 0,
    strict: bool = True,
    calls: int = 3,
) -> dict[str, int]:
    """Assert that a few calls agree, and how many graphs and breaks there were (None: not asserted).

    strict: nothing may fall back to another road than the backend asks for.
    """
    want = history(build, lambda fn: fn, calls)
    core.reset()
    with mock.patch.dict(os.environ, {"CORE_STRICT": str(int(strict))}):
        got = history(build, lambda fn: core.compile(fn, backend=backend), calls)
    for call, (ours, theirs) in enumerate(zip(got, want)):
        assert equal(ours, theirs), (call, ours, theirs)
    stats = core.stats()
    assert graphs is None or stats["graphs"] == graphs, stats
    assert breaks is None or stats["breaks"] == breaks, stats
    return stats


def reasons(heard):
    """Of the events: why something took another road."""
    return [event.reason for event in heard if isinstance(event, events.FellBack)]


def captures(heard):
    """Of the events: the calls that were captured."""
    return [event for event in heard if isinstance(event, events.CallCaptured)]
