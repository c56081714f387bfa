"""What the opcode families need of the interpreter they are mixed into."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...variables.base import VariableTracker
    from ..trace import Trace

VT = Any


class Null:
    """The NULL that calls keep on the stack."""

    def __repr__(self) -> str:
        return "NULL"


NULL = Null()


class Host:
    """Attributes of the interpreter; see interpreter.Interpreter."""

    trace: Trace
    code: Any
    decoded: Any
    instructions: list[Any]
    globals_dict: dict[str, Any]
    globals_source: Any
    locals: dict[str, VariableTracker]
    cells: dict[str, Any]
    stack: list[Any]
    index: int
    current: Any
    keyword_names: tuple[str, ...]
    namespace: Any
    parent: Any
    function: Any
    line: Any
    builder: Any
    side_effects: Any
    options: Any

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...
