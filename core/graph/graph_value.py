"""GraphValue: a tensor or symbolic number of a graph; and what a node says of the value that it gives."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx as fx

from ..errors import UserLine
from .region import Region
from .symbols import plain

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


class GraphValue:
    """A tensor or symbolic number of the graph.

    node: the fx node that gives it; after an in-place operation, the newest node that returned the same object.
    fake: its FakeTensor, SymInt, SymFloat or SymBool. region: the region that made it, None for the graph itself.
    """

    __slots__ = ("node", "fake", "region", "__weakref__")

    def __init__(self, node: fx.Node, fake: Any, region: Region | None = None) -> None:
        self.node = node
        self.fake = fake
        self.region = region

    def __repr__(self) -> str:
        return f"GraphValue({self.node.name}: {self.fake})"


def is_value(leaf: Any) -> bool:
    """True for a tensor, and for a number that is symbolic still."""
    return isinstance(leaf, torch.Tensor) or (isinstance(leaf, SYMBOLIC) and isinstance(plain(leaf), SYMBOLIC))


def fake_of_leaf(leaf: Any) -> Any:
    """The fake of a GraphValue; anything else as it is."""
    return leaf.fake if isinstance(leaf, GraphValue) else leaf


def annotate(node: fx.Node, fake: Any, line: UserLine | None) -> None:
    """Say on the node what it gives, and the line that it stands for. Other tools of torch look for `val`."""
    node.meta["fake"] = node.meta["val"] = fake
    if line is not None:
        node.meta["user_line"] = line
        node.meta["stack_trace"] = f'File "{line.filename}", line {line.line}, in {line.function}'
