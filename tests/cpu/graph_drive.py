"""Drives GraphBuilder with unmodified modules: a torch function mode hands each call on tensors to the builder."""

from __future__ import annotations

import torch
from torch.overrides import TorchFunctionMode

from core.errors import UserLine
from core.graph.builder import GraphBuilder, GraphValue
from core.graph.tree import leaves, map_tree


class ToBuilder(TorchFunctionMode):
    """Inside, programs hold fake tensors; the builder's GraphValues are found by their identity."""

    def __init__(self, builder):
        super().__init__()
        self.builder = builder
        self.values = {}

    def add(self, value):
        self.values[id(value.fake)] = value
        return value.fake

    def __torch_function__(self, fn, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if getattr(fn, "__name__", "") in ("__get__", "__set__", "size", "dim", "stride", "numel", "is_floating_point"):
            return fn(*args, **kwargs)
        if fn is torch._C._set_grad_enabled:
            self.builder.set_grad_enabled(args[0])
            return None
        args, kwargs = map_tree(self._value, (args, kwargs))
        line = UserLine("model.py", len(self.values), "forward")
        return map_tree(self._fake, self.builder.call_function(fn, args, kwargs, line=line))

    def _value(self, leaf):
        return self.values.get(id(leaf), leaf) if isinstance(leaf, torch.Tensor) else leaf

    def _fake(self, leaf):
        return self.add(leaf) if isinstance(leaf, GraphValue) else leaf


def capture_module(module, inputs, *, dynamic=None, **options):
    """(CapturedGraph, names of parameters and buffers in the order of the leading inputs)."""
    builder = GraphBuilder(**options)
    mode = ToBuilder(builder)
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    fakes = {name: mode.add(builder.add_tensor_input(value, name)) for name, value in state.items()}
    arguments = [
        mode.add(builder.add_tensor_input(value, f"arg{at}", dynamic_dims=(dynamic or {}).get(at)))
        for at, value in enumerate(inputs)
    ]
    with mode, builder.fake_mode:
        results = torch.func.functional_call(module, fakes, tuple(arguments))
    tensors = [leaf for leaf in leaves(results) if isinstance(leaf, torch.Tensor)]
    return builder.finish([mode.values[id(leaf)] for leaf in tensors], keep_unused=True), list(state)
