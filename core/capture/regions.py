"""What tracing a region needs besides the graph's part of it: refusals, and the check that nothing escapes."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..errors import Unsupported
from ..graph.region import Region, escaped
from ..variables.base import ObservedException, VariableTracker
from ..variables.tensor import TensorVariable

VT = VariableTracker


def trace_body(tx: Any, what: str, body: Callable[[], VT]) -> VT:
    """Run `body`, which traces into user code inside an open region; an exception of the program breaks the graph."""
    try:
        return body().realize(tx)
    except ObservedException as raised:
        name = raised.value.python_type().__name__
        raise Unsupported(
            f"{what} raised {name}", remedy="catch the exception inside, or call it outside the compiled function"
        ) from None


def refuse_escapes(tx: Any, moment: int, regions: tuple[Region, ...]) -> None:
    """Raise Unsupported when an object older than `moment` now holds a tensor that one of the regions made."""
    bound = [value for _, _, value in tx.side_effects.globals.values() if value is not None]
    for tensor in tensors_in([*tx.side_effects.older_than(moment), *bound]):
        if tensor.value.region in regions:
            raise escaped(tensor.value)


def tensors_in(start: Any) -> Iterator[TensorVariable]:
    """The tensors among trackers and what they hold."""
    seen: set[int] = set()
    waiting = [start]
    while waiting:
        item = waiting.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, TensorVariable):
            yield item
        if isinstance(item, VariableTracker):
            waiting.append(list(vars(item).values()))
        elif type(item) in (list, tuple):
            waiting.extend(item)
        elif type(item) is dict:
            waiting.extend(item.values())


class TensorTree:
    """A tree of lists, tuples and dicts of trackers: its tensors, and the same tree over other tensors.

    Raises Unsupported, naming `what`, for tensors inside other kinds of objects.
    """

    def __init__(self, tx: Any, tree: VT, what: str) -> None:
        self.tx = tx
        self.what = what
        self.tensors: list[TensorVariable] = []
        self.constants = 0  # leaves that are no tensors
        self._root = self._structure(tree)

    def _structure(self, tree: VT) -> Any:
        tree = tree.realize(self.tx)
        if isinstance(tree, TensorVariable):
            self.tensors.append(tree)
            return None
        kind = tree.python_type()
        if tree.kind in ("list", "tuple") and (tree.kind == "tuple" or kind is list):
            return kind, None, [self._structure(item) for item in tree.unpack(self.tx)]
        if tree.kind == "dict" and kind in (dict, collections.OrderedDict):
            keys = tree.unpack(self.tx)
            return kind, keys, [self._structure(tree.get_item(self.tx, key)) for key in keys]
        if any(tensors_in(tree)):
            raise Unsupported(
                f"{self.what} holds tensors in {tree.describe()}", remedy="use tuples, lists and dicts of tensors"
            )
        self.constants += 1
        return tree

    @property
    def is_tensor(self) -> bool:
        """True when the tree is a tensor, not a container."""
        return self._root is None

    def same_structure(self, other: TensorTree) -> bool:
        """True for a tree of the same containers and keys, whose leaves that are no tensors are equal constants."""
        return self._alike(self._root, other._root)

    def _alike(self, left: Any, right: Any) -> bool:
        if left is None or right is None:
            return left is right
        if isinstance(left, VariableTracker) or isinstance(right, VariableTracker):
            constants = [item for item in (left, right) if isinstance(item, VariableTracker) and item.is_constant()]
            values = [item.as_constant() for item in constants]
            return len(values) == 2 and type(values[0]) is type(values[1]) is int and values[0] == values[1]
        if left[0] is not right[0] or len(left[2]) != len(right[2]) or len(left[1] or ()) != len(right[1] or ()):
            return False
        keys = all(self.tx.compare_equal(a, b) for a, b in zip(left[1] or (), right[1] or ()))
        return keys and all(self._alike(a, b) for a, b in zip(left[2], right[2]))

    def spread(self, values: Any) -> list[Any]:
        """A value for each tensor from a tree of values that stops anywhere above: one for all, one an element, ..."""
        found: list[Any] = []
        self._spread(self._root, values, found)
        return found

    def _spread(self, structure: Any, values: Any, found: list[Any]) -> None:
        if structure is None:
            found.append(values)
            return
        if isinstance(structure, VariableTracker):
            return
        _, keys, parts = structure
        if isinstance(values, (tuple, list)) and len(values) == len(parts) and keys is None:
            children = list(values)
        elif isinstance(values, dict) and keys is not None and len(values) == len(keys):
            children = [values[key.as_constant()] for key in keys]
        elif isinstance(values, (tuple, list, dict)):
            raise Unsupported(f"{self.what} is not built as its dimensions say", remedy="give both the same structure")
        else:
            children = [values] * len(parts)
        for part, child in zip(parts, children):
            self._spread(part, child, found)

    def over(self, tensors: Iterable[VT]) -> VT:
        """The tree with these tensors in place of its own."""
        return self._rebuilt(self._root, iter(tensors))

    def _rebuilt(self, structure: Any, tensors: Iterator[VT]) -> VT:
        if structure is None:
            return next(tensors)
        if isinstance(structure, VariableTracker):
            return structure
        kind, keys, parts = structure
        items = [self._rebuilt(part, tensors) for part in parts]
        if keys is not None:
            return self.tx.new_dict(list(zip(keys, items)), kind)
        return self.tx.new_list(items) if kind is list else self.tx.new_tuple(items, kind)
