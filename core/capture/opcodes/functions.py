"""Making functions and classes."""

from __future__ import annotations

from typing import Any

from ...variables.function import NestedFunctionVariable
from .host import Host

DEFAULTS, KEYWORD_DEFAULTS, ANNOTATIONS, CLOSURE = 1, 2, 4, 8


class FunctionOpcodes(Host):
    """Handlers of function definitions."""

    def MAKE_FUNCTION(self, instruction: Any) -> None:
        code = self.pop().as_constant()
        flags = instruction.arg or 0
        closure = self.pop() if flags & CLOSURE else None
        annotations = self.pop() if flags & ANNOTATIONS else None
        kwdefaults = self.pop() if flags & KEYWORD_DEFAULTS else None
        defaults = self.pop() if flags & DEFAULTS else None
        cells = tuple(closure.unpack(self)) if closure is not None else ()
        self.push(
            NestedFunctionVariable(
                code, self.globals_dict, self.globals_source, defaults, kwdefaults, annotations, cells
            )
        )

    def SET_FUNCTION_ATTRIBUTE(self, instruction: Any) -> None:
        function, value = self.pop(), self.pop()
        if instruction.arg == DEFAULTS:
            function.defaults = value
        elif instruction.arg == KEYWORD_DEFAULTS:
            function.kwdefaults = value
        elif instruction.arg == ANNOTATIONS:
            function.annotations = value
        else:
            function.closure = tuple(value.unpack(self))
        self.push(function)

    def LOAD_BUILD_CLASS(self, instruction: Any) -> None:
        self.push(self.wrap(self.builtins_dict()["__build_class__"], None, constant=True))

    def SETUP_ANNOTATIONS(self, instruction: Any) -> None:
        name = self.constant("__annotations__")
        if not self.namespace.contains(self, name):
            self.namespace.set_item(self, name, self.new_dict([]))
