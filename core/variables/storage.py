"""StorageVariable: the memory of a tensor, of which traced code may ask how large it is."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..guards.checks import Predicate
from .base import BuiltinMethodVariable, VariableTracker

if TYPE_CHECKING:
    from .protocols import Tracer

VT = VariableTracker
REMEDY = "take the storage outside the compiled function"
METHODS = frozenset(name for name in dir(torch.UntypedStorage) if callable(getattr(torch.UntypedStorage, name)))


class StorageVariable(VariableTracker):
    """tensor.untyped_storage(). Its size is known of inputs, which it guards, and of memory that the graph makes."""

    kind = "storage"

    def __init__(self, tensor: Any) -> None:
        super().__init__(None)
        self.tensor = tensor

    def python_type(self) -> type:
        return torch.UntypedStorage

    def truth(self, tx: Tracer) -> bool:
        return self._size(tx) != 0

    def length(self, tx: Tracer) -> VT:
        return tx.constant(self._size(tx))

    def call_method(self, tx: Tracer, name: str, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        if name in ("size", "nbytes", "__len__") and not args and not kwargs:
            return tx.constant(self._size(tx))
        if name == "element_size" and not args and not kwargs:
            return tx.constant(1)
        raise self.refuse(f"a call of {name}", REMEDY)

    def get_attr(self, tx: Tracer, name: str) -> VT:
        if name == "device":
            return self.tensor.get_attr(tx, name)  # type: ignore[no-any-return]
        if name in METHODS:
            return BuiltinMethodVariable(self, name)
        raise self.refuse(f"reading attribute {name!r}", REMEDY)

    def reconstruct(self, emit: Any) -> None:
        emit.push_null()
        emit.load_global_object(torch.Tensor.untyped_storage)
        emit.load(self.tensor)
        emit.call(1)

    def _size(self, tx: Tracer) -> int:
        real, source = self.tensor.real, self.tensor.source
        if real is not None:
            size = real.untyped_storage().nbytes()
            if source is not None:
                tx.guard(source, Predicate((source,), functools.partial(_has_bytes, size)))
            return size  # type: ignore[no-any-return]
        fake = self.tensor.fake
        size = fake.untyped_storage().nbytes()
        if fake._is_view() or not isinstance(size, int):
            raise self.refuse("the size", REMEDY)
        return size


def _has_bytes(size: int, tensor: torch.Tensor) -> bool:
    return tensor.untyped_storage().nbytes() == size
