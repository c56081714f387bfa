"""Higher-order operators (torch.cond and its kin): torch's private names around them. Checked with 2.11 and 2.13."""

from __future__ import annotations

import importlib

import torch

while_loop = torch._higher_order_ops.while_loop
"""The function that torch.while_loop names where a torch has it."""

run_captured = importlib.import_module("torch._higher_order_ops.utils")._maybe_compile_and_run_fn
"""(fn, *args): how torch's functions over higher-order operators call the part that is to be captured."""


def teach(mode: type) -> None:
    """Have the operators find their rule for fake tensors under a subclass of FakeTensorMode: they look by class."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    for op in torch._ops._higher_order_ops.values():
        rule = op.python_key_table.get(FakeTensorMode)
        if rule is not None:
            op.python_key_table.setdefault(mode, rule)
