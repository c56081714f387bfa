"""Lowering: each ATen operation of a functional graph becomes loop IR, an index map, or a call of ATen.

Enters: an fx graph of ATen overloads with fake values. Leaves: a `LoopGraph`. A lowering that does not cover a case
returns NotImplemented, and the operation is called as it is. This folder must not know kernels, C++ or Triton.
"""

from . import accumulate, activation, creation, foreach, index, norm, pointwise, pool, reduce, view
from .lowering import GraphLowering

__all__ = [
    "GraphLowering",
    "accumulate",
    "activation",
    "creation",
    "foreach",
    "index",
    "norm",
    "pointwise",
    "pool",
    "reduce",
    "view",
]
