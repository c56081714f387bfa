"""ScriptedFunctionVariable: a function of TorchScript, which torch.jit.script or torch.jit.trace has made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .base import VariableTracker
from .torch_function import TorchFunctionVariable

if TYPE_CHECKING:
    from .protocols import Tracer

VT = VariableTracker


class ScriptedFunctionVariable(TorchFunctionVariable):
    """One call in the torch-level graph, by the rules of TorchScript, which aren't Python's; its operators are in the
    record.
    """

    kind = "scripted_function"

    def describe(self) -> str:
        return f"the TorchScript function {self.fn.name}"  # type: ignore[attr-defined]

    def call(self, tx: Tracer, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        return tx.graph_call(_as_function(self.fn), args, kwargs)


def _as_function(scripted: Any) -> Callable[..., Any]:
    """A Python function that calls it: the text of a graph can name no other callable of its class."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return scripted(*args, **kwargs)

    call.__name__ = call.__qualname__ = f"scripted_{scripted.name}"
    return call
