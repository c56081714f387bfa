"""The names of torch that the suite uses and torch calls private. Checked with torch 2.8 to 2.13."""

from __future__ import annotations

import functools
import importlib.util
import sys
import types
import unittest
from typing import Any

import torch
from torch._ops import OpOverload as OpOverload
from torch._ops import OpOverloadPacket as OpOverloadPacket
from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode
from torch.utils._pytree import tree_flatten as tree_flatten
from torch.utils._pytree import tree_leaves as tree_leaves
from torch.utils._pytree import tree_map as tree_map
from torch.utils._pytree import tree_unflatten as tree_unflatten

COMPILERS = (
    ("torch", "compile"),
    ("torch.jit", "script"),
    ("torch.jit", "trace"),
    ("torch._dynamo", "optimize"),
    ("torch._inductor.compile_fx", "compile_fx"),
)
"""(module, function) of the compilers that torch brings. They are looked at where they are loaded, never imported."""

LOADED_FOR_USE = ("torch._inductor.compile_fx",)
"""Modules of COMPILERS that torch loads for no other reason than to compile."""


@functools.cache
def operator_table() -> tuple[Any, ...]:
    """torch's own table of its operators, with sample inputs for each: OpInfo objects.

    The table stands among torch's own tests, which import a package for comparing texts. The table does not use it, so
    where it is not installed an empty one stands in while the table is loaded.
    """
    missing = "expecttest"
    stands_in = importlib.util.find_spec(missing) is None and missing not in sys.modules
    if stands_in:
        module = types.ModuleType(missing)
        module.TestCase = unittest.TestCase  # type: ignore[attr-defined]
        sys.modules[missing] = module
    try:
        from torch.testing._internal.common_methods_invocations import op_db
    finally:
        if stands_in:
            del sys.modules[missing]
    return tuple(op_db)


def keep_busy(cycles: int) -> None:
    """Give the current CUDA stream something to do that takes `cycles` of its clock."""
    torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]
