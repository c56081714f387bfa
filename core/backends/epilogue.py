"""The epilogue of a functional graph as straight-line source: write-backs to inputs, then the program's outputs.

The functions here append lines to a `Code` in which the inputs are named `i0, i1, ...` and the graph's results
`s0, s1, ...`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from .. import torch_compat
from ..graph.outputs import (
    BASE,
    Constant,
    Epilogue,
    InputItself,
    Slot,
    SlotRef,
    ViewOfInput,
    ViewOfSlot,
    ViewStep,
    as_strided_within,
    data_of,
)
from .generated import Code, tuple_text

FOREACH_FROM = 4
"""From this many plain write-backs on, one foreach call replaces the single copies: less argument parsing."""


def write_epilogue(
    code: Code,
    epilogue: Epilogue,
    fakes: Sequence[Any],
    *,
    grad_enabled: bool,
    requires_grad: Sequence[bool],
    also: Sequence[str] = (),
) -> None:
    """Append write-backs, outputs and the return statement.

    fakes: the program's outputs as captured; those that are one object are made once, two equal views are made twice;
    grad_enabled: grad mode of the calls this code is for (it is guarded); requires_grad: that of each input;
    also: names of what is returned behind the outputs.
    """
    written = EpilogueCode(code, epilogue, fakes, grad_enabled=grad_enabled, requires_grad=requires_grad)
    written.untracked_writes()
    for write in epilogue.write_backs:
        if write.mode == "grad":
            written.tracked_write(write.input, write.slot)
    written.results(also)


class EpilogueCode:
    """The parts of an epilogue, in the order in which they may be written: writes without autograd, then those with it
    and outputs as they are needed, then all results. The arguments are those of `write_epilogue`."""

    def __init__(
        self, code: Code, epilogue: Epilogue, fakes: Sequence[Any], *, grad_enabled: bool, requires_grad: Sequence[bool]
    ) -> None:
        self._code, self._epilogue, self._fakes = code, epilogue, fakes
        self._grad_enabled, self._requires_grad = grad_enabled, requires_grad
        self._made: dict[int, str] = {}
        self._cuts: set[int] = set()

    def untracked_writes(self) -> None:
        """Writes that autograd does not follow. What fails from here on has changed inputs."""
        code, plain, unseen = self._code, [], []
        if self._epilogue.write_backs:  # a `try` that nothing raises in is free
            code.line("try:")
            code.depth += 1
        for write in self._epilogue.write_backs:
            if write.mode == "data":
                plain.append((f"i{write.input}.data", f"s{write.slot}"))
            elif write.mode == "no_grad":
                hidden = self._requires_grad[write.input] and self._grad_enabled
                (unseen if hidden else plain).append((f"i{write.input}", f"s{write.slot}"))
        _copies(code, plain)
        if unseen:
            with _GradMode(code, wanted=False, current=self._grad_enabled):
                _copies(code, unseen)
        for index in self._epilogue.counted:
            code.line(f"{code.bind(torch.autograd.graph.increment_version, 'increment_version')}(i{index})")

    def tracked_write(self, index: int, slot: int) -> None:
        """A write that gives an input a new history."""
        self._code.line(f"i{index}.copy_(s{slot})")

    def output(self, at: int) -> str:
        """The name of an output, which is made now if it was not yet."""
        fake = self._fakes[at]
        if id(fake) not in self._made or not isinstance(fake, torch.Tensor):
            kind = self._epilogue.outputs[at]
            self._made[id(fake)] = _output(self._code, kind, f"o{at}", self._grad_enabled, self._cuts)
        return self._made[id(fake)]

    def results(self, also: Sequence[str] = ()) -> None:
        """The outputs that are left, and the return statement."""
        code, names = self._code, [self.output(at) for at in range(len(self._epilogue.outputs))]
        code.line(f"return {tuple_text([*names, *also])}")
        if self._epilogue.write_backs:
            code.depth -= 1
            code.line("except Exception as error:")
            code.line("    error.after_writes = True")
            code.line("    raise")


def _copies(code: Code, pairs: Sequence[tuple[str, str]], *, foreach: bool = True) -> None:
    if foreach and len(pairs) >= FOREACH_FROM:
        copy = code.bind(torch._foreach_copy_, "foreach_copy_")
        code.line(f"{copy}([{', '.join(target for target, _ in pairs)}], [{', '.join(value for _, value in pairs)}])")
        return
    for target, value in pairs:
        code.line(f"{target}.copy_({value})")


class _GradMode:
    """Lines written inside run in the grad mode `wanted`; nothing is switched when that is the current one."""

    def __init__(self, code: Code, *, wanted: bool, current: bool) -> None:
        self.code = code
        self.wanted = wanted
        self.current = current

    def __enter__(self) -> None:
        if self.wanted != self.current:
            self.switch = self.code.bind(torch_compat.set_grad_enabled_function(), "set_grad_enabled")
            self.code.line(f"{self.switch}({self.wanted})")
            self.code.line("try:")
            self.code.depth += 1

    def __exit__(self, *exception: object) -> None:
        if self.wanted != self.current:
            self.code.depth -= 1
            self.code.line("finally:")
            self.code.line(f"    {self.switch}({self.current})")


def _output(code: Code, output: Any, name: str, grad_enabled: bool, cuts: set[int]) -> str:
    match output:
        case Constant(value):
            return _literal(code, value, "")
        case Slot(index):
            return f"s{index}"
        case InputItself(index):
            return f"i{index}"
        case ViewOfInput(index, steps):
            return _views(code, f"i{index}", steps, name, grad_enabled, cuts)
        case ViewOfSlot(index, steps):
            return _views(code, f"s{index}", steps, name, grad_enabled, cuts)
    raise TypeError(f"unknown kind of output {output!r}")


def _views(code: Code, base: str, steps: Sequence[ViewStep], name: str, grad_enabled: bool, cuts: set[int]) -> str:
    """Lines that take the views; those with which autograd begins anew, `cuts`, are made once for all results."""
    known = [at for at, step in enumerate(steps) if step.same in cuts]
    if known:
        base, steps = f"c{steps[known[-1]].same}", steps[known[-1] + 1 :]
    for step in steps:
        made = f"c{step.same}" if step.same else name
        with _GradMode(code, wanted=step.grad, current=grad_enabled):
            code.line(f"{made} = {_view(code, base, step)}")
        if step.same:
            cuts.add(step.same)
        base = made
    return base


def _view(code: Code, base: str, step: ViewStep) -> str:
    args = [_literal(code, arg, base) for arg in step.args]
    if step.op is as_strided_within:  # written out: a function of ours has no place on a warm call
        _, size, stride, offset = args
        return f"{base}.as_strided({size}, {stride}, {base}.storage_offset() + {offset})"
    if step.op is data_of:
        return f"{base}.data"
    args += [f"{key}={_literal(code, value, base)}" for key, value in step.kwargs]
    item = "" if step.item is None else f"[{step.item}]"
    return f"{code.bind(step.op, _op_name(step.op))}({', '.join(args)}){item}"


def _op_name(op: Any) -> str:
    text = str(op).rpartition("aten.")[2].replace(".", "_")
    return f"op_{text}" if text.isidentifier() else "op"


def _literal(code: Code, value: Any, base: str) -> str:
    """Source for an argument; objects that have none are bound."""
    if value is BASE:
        return base
    if isinstance(value, SlotRef):
        return f"s{value.index}"
    if isinstance(value, list):
        return "[" + ", ".join(_literal(code, item, base) for item in value) + "]"
    if type(value) is tuple:
        return tuple_text(_literal(code, item, base) for item in value)
    if value is None or type(value) in (bool, int, str) or (type(value) is float and math.isfinite(value)):
        return repr(value)
    return code.bind(value, "constant")
