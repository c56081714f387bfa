"""Unary, binary and comparison operators, subscripts, formatting."""

from __future__ import annotations

import operator
from typing import Any

from ...bytecode.opcodes import BINARY_OPERATORS, TABLE
from ...errors import Unsupported
from ...variables import tensor_truth
from ...variables.late_text import late_parts
from ...variables.operators import negation
from ...variables.unread import joined, text_later
from .host import Host

OPERATORS = {
    "+": operator.add,
    "&": operator.and_,
    "//": operator.floordiv,
    "<<": operator.lshift,
    "@": operator.matmul,
    "*": operator.mul,
    "%": operator.mod,
    "|": operator.or_,
    "**": operator.pow,
    ">>": operator.rshift,
    "-": operator.sub,
    "/": operator.truediv,
    "^": operator.xor,
    "+=": operator.iadd,
    "&=": operator.iand,
    "//=": operator.ifloordiv,
    "<<=": operator.ilshift,
    "@=": operator.imatmul,
    "*=": operator.imul,
    "%=": operator.imod,
    "|=": operator.ior,
    "**=": operator.ipow,
    ">>=": operator.irshift,
    "-=": operator.isub,
    "/=": operator.itruediv,
    "^=": operator.ixor,
}
COMPARISONS = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
}


class OperatorOpcodes(Host):
    """Handlers of operators."""

    def BINARY_OP(self, instruction: Any) -> None:
        right, left = self.pop(), self.pop()
        self.push(self.binary(OPERATORS[BINARY_OPERATORS[instruction.arg]], left, right))

    def UNARY_NEGATIVE(self, instruction: Any) -> None:
        self.push(self.unary(operator.neg, self.pop()))

    def UNARY_POSITIVE(self, instruction: Any) -> None:
        self.push(self.unary(operator.pos, self.pop()))

    def UNARY_INVERT(self, instruction: Any) -> None:
        self.push(self.unary(operator.invert, self.pop()))

    def UNARY_NOT(self, instruction: Any) -> None:
        self.push(negation(self, self.pop()))

    def TO_BOOL(self, instruction: Any) -> None:
        # 3.13 tests before a jump: the value itself stays, so that a jump on a tensor can end the graph there.
        following = self.instructions[self.index].opname
        if following.startswith("POP_JUMP_IF"):
            return
        self.push(self.constant(self.truth(self.pop())))

    def COMPARE_OP(self, instruction: Any) -> None:
        right, left = self.pop(), self.pop()
        result = self.binary(COMPARISONS[instruction.argval], left, right)
        jumps = self.instructions[self.index].opname.startswith("POP_JUMP_IF")
        if instruction.flags & TABLE.compare_bool and not jumps:
            result = self.constant(self.truth(result))
        self.push(result)

    def IS_OP(self, instruction: Any) -> None:
        right, left = self.pop(), self.pop()
        self.push(self.binary(operator.is_not if instruction.arg else operator.is_, left, right))

    def CONTAINS_OP(self, instruction: Any) -> None:
        container, item = self.pop(), self.pop()
        late = tensor_truth.found_in(self, container.realize(self), item.realize(self))
        if late is not None:
            self.push(late.negated(self) if instruction.arg else late)
            return
        found = container.contains(self, item)
        self.push(self.constant(found != bool(instruction.arg)))

    def BINARY_SUBSCR(self, instruction: Any) -> None:
        key, container = self.pop(), self.pop()
        self.push(container.get_item(self, key).realize(self))

    def STORE_SUBSCR(self, instruction: Any) -> None:
        key, container, value = self.pop(), self.pop(), self.pop()
        container.set_item(self, key, value)

    def DELETE_SUBSCR(self, instruction: Any) -> None:
        key, container = self.pop(), self.pop()
        container.del_item(self, key)

    def BINARY_SLICE(self, instruction: Any) -> None:
        stop, start, container = self.pop(), self.pop(), self.pop()
        self.push(container.get_item(self, self.new_slice(start, stop, None)))

    def STORE_SLICE(self, instruction: Any) -> None:
        stop, start, container, value = self.pop(), self.pop(), self.pop(), self.pop()
        container.set_item(self, self.new_slice(start, stop, None), value)

    def BUILD_SLICE(self, instruction: Any) -> None:
        step = self.pop() if instruction.arg == 3 else None
        stop, start = self.pop(), self.pop()
        self.push(self.new_slice(start, stop, step))

    # -- formatting ------------------------------------------------------------------------------------------------

    def FORMAT_VALUE(self, instruction: Any) -> None:
        spec = self.pop() if instruction.arg & 4 else None
        self._format(instruction.arg & 3, spec)

    def CONVERT_VALUE(self, instruction: Any) -> None:
        self.push(self._converted(self.pop(), instruction.arg))

    def FORMAT_SIMPLE(self, instruction: Any) -> None:
        self._format(0, None)

    def FORMAT_WITH_SPEC(self, instruction: Any) -> None:
        self._format(0, self.pop())

    def _converted(self, value: Any, conversion: int) -> Any:
        if conversion == 0:
            return value
        return self.call_builtin((str, repr, ascii)[conversion - 1], [value])

    def _format(self, conversion: int, spec: Any) -> None:
        value = self._converted(self.pop(), conversion)
        self.push(self.call_builtin(format, [value, spec if spec is not None else self.constant("")]))

    def BUILD_STRING(self, instruction: Any) -> None:
        parts = self.pop_many(instruction.arg)
        later = text_later(self, joined, parts) or late_parts(joined, [part.realize(self) for part in parts])
        if later is not None:
            self.push(later)
            return
        if not all(part.is_constant() for part in parts):
            raise Unsupported(
                "a formatted string contains a value that only a run can tell",
                remedy="format it outside the compiled function",
            )
        self.push(self.constant("".join(part.as_constant() for part in parts)))
