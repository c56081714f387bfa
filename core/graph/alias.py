"""Store and Alias: the memory model of the functionalisation.

A Store is one piece of memory. Its root Alias has a node for the whole; every other Alias is a view of a parent Alias.
A write gives the root a new node and the Store a new version; views of older versions are taken again when read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch.fx as fx


@dataclass(eq=False)
class Store:
    """One piece of memory. input: the graph input it belongs to; offset: the root's recorded storage offset."""

    root: Alias = field(init=False)
    version: int = 0
    input: int | None = None
    offset: Any = 0


@dataclass(eq=False)
class Alias:
    """A tensor of the recorded program: a view of `parent`, or the root of its store.

    op, args, kwargs, item: how the view is taken; `hole` is the position of the base among args. args hold nodes for
    symbolic ints, never for tensors. node gives the value of version `version`. val: the recorded geometry; fake: the
    recorded tensor itself, which later calls may have changed. recorded_args: args as recorded, grad: the grad mode of
    the view, is_data: it was taken as `.data`.
    """

    store: Store
    val: Any
    node: fx.Node
    version: int = 0
    parent: Alias | None = None
    op: Any = None
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    item: int | None = None
    recorded_args: tuple[Any, ...] = ()
    grad: bool = True
    hole: int = 0
    fake: Any = None
    is_data: bool = False

    @property
    def is_root(self) -> bool:
        return self.parent is None

    def chain(self) -> list[Alias]:
        """From just below the root down to this alias."""
        links: list[Alias] = []
        at: Alias | None = self
        while at is not None and at.parent is not None:
            links.append(at)
            at = at.parent
        return links[::-1]
