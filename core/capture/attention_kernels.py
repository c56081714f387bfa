"""Which kernels attention may use (torch.nn.attention.sdpa_kernel, torch.backends.cuda): read, guarded and switched."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .. import torch_compat
from ..errors import Unsupported
from ..graph.switches import switch, switched
from ..guards.checks import Predicate
from ..variables.base import VariableTracker
from .special_calls import callable_object

VT = VariableTracker


def _is(getter: Callable[[], bool], value: bool) -> bool:
    return getter() is value


def _register(getter: Callable[[], bool], setter: Callable[[bool], None]) -> None:
    @callable_object(getter)
    def read(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
        value = getter()
        if all(flag.apply is not setter for flag in switched(tx.builder)):
            tx.trace.guard(None, Predicate((), functools.partial(_is, getter, value)), tx.line, getter.__name__)
        return tx.constant(value)

    @callable_object(setter)
    def write(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
        mode = args[0].realize(tx)
        if not mode.is_constant() or type(mode.as_constant()) is not bool:
            raise Unsupported("switching a kernel of attention by this value is not traced", remedy="pass a bool")
        read(tx, [], {})  # what it is before the graph decides what the graph has to do
        switch(tx.builder, setter, mode.as_constant(), getter(), tx.line)
        return tx.constant(None)


for _pair in torch_compat.attention_kernel_flags():
    _register(*_pair)
