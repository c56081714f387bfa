"""TritonKernel: a printed program and how it is launched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..ir.expr import Index
from ..ir.nodes import Node


@dataclass(frozen=True)
class TritonKernel:
    """One Triton program.

    source: a module that defines the function `name`. Its parameters, in order: a pointer for each of `inputs`, one for
    each of `outputs` (at the tensors' first elements), `sizes` (int64), `scalars` (float64), then the `constants`.
    programs: number of programs in the grid. interpretable: whether Triton's interpreter can run it.
    """

    name: str
    source: str
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    sizes: tuple[str, ...]
    scalars: tuple[str, ...]
    constants: Mapping[str, int]
    programs: Index
    num_warps: int
    interpretable: bool

    @property
    def pointer_types(self) -> list[str]:
        """Triton's names of the pointer parameters, as "*fp32"."""
        return [f"*{_ELEMENT[node.dtype]}" for node in (*self.inputs, *self.outputs)]


_ELEMENT = {"bool": "i1", "uint8": "u8", "bfloat16": "bf16"}
_ELEMENT.update({f"int{bits}": f"i{bits}" for bits in (8, 16, 32, 64)})
_ELEMENT.update({f"float{bits}": f"fp{bits}" for bits in (16, 32, 64)})
