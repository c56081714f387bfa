"""The rules that a test may find broken, and how a test says so: `[rule] text` is the first line of its failure."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import torch

RULES = {
    "structure": "the result is not built as eager builds it",
    "shape": "a result has another shape",
    "dtype": "a result has another dtype",
    "device": "a result lies on another device",
    "strides": "a result lies in memory in another order",
    "numerics": "values are further from the truth than eager's own errors explain",
    "nan-positions": "NaN or infinity stand elsewhere",
    "mutation": "an input holds other values after the call than after eager's",
    "aliasing": "results share memory with inputs or each other where eager's don't, or the other way round",
    "gradients": "a gradient differs, is missing or is one too many",
    "requires_grad": "a result's place in autograd differs",
    "exception": "another exception than eager's, or none",
    "provenance": "operators ran elsewhere than the backend declares",
    "stale-result": "a result belongs to an earlier call, or to values that are gone",
    "buffer-reuse": "a later call wrote into an earlier result",
    "rng": "random numbers don't follow the seed, repeat themselves, or are distributed otherwise",
    "recompiles": "the number of compiled graphs is not the promised one",
    "global-state": "a setting of the process changed",
    "output": "something was printed",
    "leak": "memory, objects or threads are left behind",
    "files": "files are left behind",
    "surroundings": "results depend on who is looking",
    "options": "an option acts on another compile, or is not what was declared",
    "error": "a failure is reported in another way than documented",
    "deadline": "a compile went on after its deadline",
    "manifest": "what is declared and what is observed differ",
    "serialization": "a stored artifact is not what was stored",
    "determinism": "the same call gave two results",
    "threads": "a call from another thread gave another result",
    "streams": "work ran out of the order of a device's streams, or waited for the device",
    "report": "a report lacks what it has to say",
}
"""Every rule with its meaning."""

_FIRST_LINE = re.compile(r"\[([a-z_-]+)\] ")


def broken(rule: str, text: str) -> AssertionError:
    """The failure to raise when a rule is broken."""
    if rule not in RULES:
        raise ValueError(f"{rule!r} is not one of the rules: {', '.join(RULES)}")
    return AssertionError(f"[{rule}] {text}")


def require(condition: Any, rule: str, text: str) -> None:
    """Raise unless `condition` holds."""
    if not condition:
        raise broken(rule, text)


@contextlib.contextmanager
def refused(kind: type[BaseException], rule: str, what: str) -> Iterator[list[Any]]:
    """Raise unless the block raises `kind`, which is put into the yielded list."""
    caught: list[Any] = []
    try:
        yield caught
    except kind as error:
        caught.append(error)
    else:
        raise broken(rule, f"{what} was taken without an error")


def rule_of(error: BaseException | str) -> str:
    """The rule that a failure names; empty for a failure of another kind."""
    match = _FIRST_LINE.match(str(error))
    return match.group(1) if match else ""


def exactly(got: Any, want: Any, rule: str, what: str = "the result") -> None:
    """Raise unless two trees of values are equal bit for bit, NaN where NaN is, -0.0 where -0.0 is."""
    if isinstance(want, (list, tuple)):
        require(type(got) is type(want) and len(got) == len(want), "structure", f"{what} is {type(got).__name__}")
        for index, (left, right) in enumerate(zip(got, want)):
            exactly(left, right, rule, f"{what}[{index}]")
        return
    if not isinstance(want, torch.Tensor):
        require(type(got) is type(want) and got == want, rule, f"{what} is {got!r}, not {want!r}")
        return
    _alike(got, want, what)
    if not want.numel():
        return
    equal = _bits(got) == _bits(want)
    if want.is_floating_point():
        equal = equal | (torch.isnan(got) & torch.isnan(want))
    if not bool(equal.all()):
        at = tuple(int(i) for i in (~equal).nonzero()[0])
        raise broken(rule, f"{what} at {at} is {got[at].tolist()!r}, not {want[at].tolist()!r}")


def closely(got: Any, want: Any, rule: str, what: str = "the result", *, factor: float = 1.0) -> None:
    """Raise unless two trees of tensors agree within a few roundings of their dtype, times `factor`."""
    if isinstance(want, (list, tuple)):
        require(type(got) is type(want) and len(got) == len(want), "structure", f"{what} is {type(got).__name__}")
        for index, (left, right) in enumerate(zip(got, want)):
            closely(left, right, rule, f"{what}[{index}]", factor=factor)
        return
    if not isinstance(want, torch.Tensor):
        require(got == want, rule, f"{what} is {got!r}, not {want!r}")
        return
    _alike(got, want, what)
    if not (want.is_floating_point() or want.is_complex()):
        return exactly(got, want, rule, what)
    eps = torch.finfo(want.dtype).eps
    difference = (got.detach() - want.detach()).abs().double()
    size = want.detach().abs().double()
    spread = size.square().mean().sqrt() if want.numel() else size.sum()
    allowed = factor * 64 * eps * (size + spread)
    wrong = (difference > allowed) | (torch.isnan(got.detach()) != torch.isnan(want.detach()))
    if bool(wrong.any()):
        at = tuple(int(i) for i in wrong.nonzero()[0])
        raise broken(rule, f"{what} at {at} is {got[at].tolist()!r}, not {want[at].tolist()!r}")


def _alike(got: Any, want: torch.Tensor, what: str) -> None:
    require(isinstance(got, torch.Tensor), "structure", f"{what} is {type(got).__name__}, not a tensor")
    require(got.shape == want.shape, "shape", f"{what} is {tuple(got.shape)}, not {tuple(want.shape)}")
    require(got.dtype is want.dtype, "dtype", f"{what} is {got.dtype}, not {want.dtype}")
    require(got.device == want.device, "device", f"{what} is on {got.device}, not {want.device}")


_INTEGERS = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.int8}


def _bits(value: torch.Tensor) -> torch.Tensor:
    value = value.detach()
    if value.is_complex():
        value = torch.view_as_real(value.resolve_conj())
        return value.contiguous().view(_INTEGERS[value.element_size()]).flatten(-1).sum(-1)
    if not value.is_floating_point():
        return value
    return value.resolve_neg().contiguous().view(_INTEGERS[value.element_size()])
