"""Trackers of what registering a hook on a tensor returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from torch.utils.hooks import RemovableHandle

from .base import BuiltinMethodVariable, VariableTracker

if TYPE_CHECKING:
    from .protocols import Emitter, Tracer

VT = VariableTracker


class HookHandleVariable(VariableTracker):
    """A handle: its hook can be removed. The log of side effects knows it, for a hook takes effect without its handle.

    settle: called before the replacement code is written; it raises Unsupported where the registration can't be kept.
    """

    kind = "hook_handle"
    mutable = True
    held = True  # the registration exists outside the traced code

    def __init__(self, settle: Callable[[], None]) -> None:
        super().__init__(None)
        self.settle = settle
        self.removed = False

    def python_type(self) -> type:
        return RemovableHandle

    def truth(self, tx: Tracer) -> bool:
        return True

    def get_attr(self, tx: Tracer, name: str) -> VT:
        if name in ("remove", "__enter__", "__exit__"):
            return BuiltinMethodVariable(self, name)
        if name == "__class__":
            return tx.wrap(RemovableHandle, None, constant=True)
        raise self.refuse(f"reading attribute {name!r}")

    def call_method(self, tx: Tracer, name: str, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        if name == "__enter__":
            return self
        if name not in ("remove", "__exit__"):
            raise self.refuse(f"calling {name!r}")
        self.remove(tx)
        return tx.constant(None)

    def remove(self, tx: Tracer) -> None:
        """The hook is gone."""
        tx.side_effects.mutated(self)
        self.removed = True


class InputHookVariable(HookHandleVariable):
    """A hook on a tensor from outside. It is registered for real when the graph has run, before anyone can ask for a
    gradient; hooks of one tensor in their order."""

    def __init__(self, settle: Callable[[], None], tensor: Any, method: str, hook: VT) -> None:
        super().__init__(settle)
        self.tensor = tensor
        self.method = method
        self.hook = hook
        self.earlier = list(tensor.hooks)
        tensor.hooks.append(self)

    def reconstruct(self, emit: Emitter) -> None:
        self.settle()
        for handle in self.earlier:
            handle.write_back(emit)
        emit.load(self.tensor)
        emit.call_method(self.method, [self.hook])
        if self.removed:
            emit.remember(self)
            emit.copy_top()
            emit.call_method("remove", [])
            emit.pop_top()

    def write_back(self, emit: Emitter) -> None:
        if not self.removed:
            emit.load(self)
            emit.pop_top()


class InnerHookVariable(HookHandleVariable):
    """A hook on a tensor that the graph makes: the graph registers it itself."""

    def __init__(self, settle: Callable[[], None], hook: Any) -> None:
        super().__init__(settle)
        self.hook = hook

    def remove(self, tx: Tracer) -> None:
        super().remove(tx)
        self.hook.remove()

    def write_back(self, emit: Emitter) -> None:
        if not self.removed:
            self.settle()
