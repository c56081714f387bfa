"""CellVariable: a closure cell, real or made by the traced code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .base import VariableTracker

if TYPE_CHECKING:
    from .protocols import Emitter, Tracer


class CellVariable(VariableTracker):
    """One cell. `contents` is None while the cell is empty.

    A real cell is reached by `source` and `name` is the variable it holds, for messages.
    """

    kind = "cell"
    mutable = True

    def __init__(self, name: str, contents: VariableTracker | None, source: Any = None) -> None:
        super().__init__(source)
        self.name = name
        self.contents = contents

    def python_type(self) -> type:
        return type((lambda value: lambda: value)(0).__closure__[0])  # type: ignore[index]

    def get(self, tx: Tracer) -> VariableTracker | None:
        """What the cell holds."""
        if self.contents is not None:
            self.contents = self.contents.realize(tx)
        return self.contents

    def set(self, tx: Tracer, value: VariableTracker | None) -> None:
        """Put `value` into the cell; None empties it."""
        tx.side_effects.mutated(self)
        self.contents = value

    def get_attr(self, tx: Tracer, name: str) -> VariableTracker:
        if name == "cell_contents":
            value = self.get(tx)
            if value is None:
                tx.raise_exception(ValueError, "Cell is empty")
            return value
        return super().get_attr(tx, name)

    def reconstruct(self, emit: Emitter) -> None:
        emit.push_null()
        emit.load_global_object(self.python_type())
        emit.call(0)
        emit.remember(self)
        if self.contents is not None:
            self._store_contents(emit)

    def write_back(self, emit: Emitter) -> None:
        emit.load(self)
        if self.contents is None:
            emit.delete_attr("cell_contents")
        else:
            self._store_contents(emit)
            emit.pop_top()

    def _store_contents(self, emit: Emitter) -> None:
        # stack: cell -> cell
        assert self.contents is not None
        emit.copy_top()
        emit.load(self.contents)
        emit.swap(2)
        emit.store_attr("cell_contents")
