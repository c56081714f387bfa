"""Binding: what a symbol in a relation of sizes stands for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .source import Source

Register = Callable[[Source], int]
"""Gives the register of a guard program that holds a source's value."""


@dataclass(frozen=True)
class Binding:
    """What a symbol stands for: `size`/`stride` of `source` at `dim`, its `offset`, or an `int`/`float` value."""

    source: Source
    kind: str = "int"
    dim: int = 0

    def name(self) -> str:
        """The Python expression that the symbol stands for."""
        name = self.source.name()
        return {
            "size": f"{name}.shape[{self.dim}]",
            "stride": f"{name}.stride({self.dim})",
            "offset": f"{name}.storage_offset()",
        }.get(self.kind, name)

    def measure(self, value: Any) -> Any:
        """The number, taken from the source's value."""
        if self.kind == "size":
            return value.shape[self.dim]
        if self.kind == "stride":
            return value.stride(self.dim)
        return value.storage_offset() if self.kind == "offset" else value
