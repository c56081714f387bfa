"""The names of torch that the suite uses and torch calls private. Checked with torch 2.8 to 2.13."""

from __future__ import annotations

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
