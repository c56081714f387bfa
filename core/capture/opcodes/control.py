"""Jumps, loops, returns."""

from __future__ import annotations

import types
from typing import Any

from ...errors import Unsupported
from .host import Host

STORED = {"STORE_FAST": 1, "STORE_FAST_STORE_FAST": 2}


class ControlOpcodes(Host):
    """Handlers of control flow."""

    def RETURN_VALUE(self, instruction: Any) -> None:
        self.finish("return", self.pop())

    def RETURN_CONST(self, instruction: Any) -> None:
        self.finish("return", self.constant(instruction.argval))

    def JUMP_FORWARD(self, instruction: Any) -> None:
        self.jump(instruction.target)

    JUMP_BACKWARD = JUMP_BACKWARD_NO_INTERRUPT = JUMP = JUMP_FORWARD

    def _pop_jump(self, instruction: Any, wanted: bool) -> None:
        if self._decide(instruction, wanted) is wanted:
            self.jump(instruction.target)
        self.pop()

    def _decide(self, instruction: Any, wanted: bool) -> bool:
        try:
            return bool(self.truth(self.stack[-1]))
        except Unsupported:
            from ..assumptions import assume

            assumed = assume(self, instruction, wanted)
            if assumed is None:
                raise
            return assumed

    def POP_JUMP_IF_TRUE(self, instruction: Any) -> None:
        self._pop_jump(instruction, True)

    def POP_JUMP_IF_FALSE(self, instruction: Any) -> None:
        self._pop_jump(instruction, False)

    POP_JUMP_FORWARD_IF_TRUE = POP_JUMP_BACKWARD_IF_TRUE = POP_JUMP_IF_TRUE
    POP_JUMP_FORWARD_IF_FALSE = POP_JUMP_BACKWARD_IF_FALSE = POP_JUMP_IF_FALSE

    def POP_JUMP_IF_NONE(self, instruction: Any) -> None:
        if self.is_none(self.pop()):
            self.jump(instruction.target)

    def POP_JUMP_IF_NOT_NONE(self, instruction: Any) -> None:
        if not self.is_none(self.pop()):
            self.jump(instruction.target)

    POP_JUMP_FORWARD_IF_NONE = POP_JUMP_BACKWARD_IF_NONE = POP_JUMP_IF_NONE
    POP_JUMP_FORWARD_IF_NOT_NONE = POP_JUMP_BACKWARD_IF_NOT_NONE = POP_JUMP_IF_NOT_NONE

    def is_none(self, value: Any) -> bool:
        """value is None."""
        return value.kind == "constant" and value.python_type() is type(None)

    def _jump_or_pop(self, instruction: Any, wanted: bool) -> None:
        if self.truth(self.stack[-1]) is wanted:
            self.jump(instruction.target)
        else:
            self.pop()

    def JUMP_IF_TRUE_OR_POP(self, instruction: Any) -> None:
        self._jump_or_pop(instruction, True)

    def JUMP_IF_FALSE_OR_POP(self, instruction: Any) -> None:
        self._jump_or_pop(instruction, False)

    # -- loops -----------------------------------------------------------------------------------------------------

    def GET_ITER(self, instruction: Any) -> None:
        self.push(self.pop().iterate(self))

    def FOR_ITER(self, instruction: Any) -> None:
        item = self.stack[-1].next_item(self)
        if item is not None:
            self.push(item if self.stores_ahead() else item.realize(self))
            return
        if self.for_iter_pops:
            self.pop()
            self.jump(instruction.target)
        else:
            # the exit jumps behind END_FOR, which would pop the iterator and the item there is not
            self.pop()
            self.jump(instruction.target)
            self.skip_end_for()

    def stores_ahead(self) -> int:
        """How many values the next instructions only store in locals: a variable that nobody reads needs no guard."""
        count, index = 0, self.index
        while (stored := STORED.get(self.instructions[index].opname)) is not None:
            count, index = count + stored, index + 1
        return count

    def END_FOR(self, instruction: Any) -> None:
        self.pop()

    def GET_LEN(self, instruction: Any) -> None:
        self.push(self.stack[-1].length(self))

    # -- match -----------------------------------------------------------------------------------------------------

    def MATCH_SEQUENCE(self, instruction: Any) -> None:
        import collections.abc

        cls = self.stack[-1].python_type()
        found = issubclass(cls, collections.abc.Sequence) and not issubclass(cls, (str, bytes, bytearray))
        self.push(self.constant(found))

    def MATCH_MAPPING(self, instruction: Any) -> None:
        import collections.abc

        self.push(self.constant(issubclass(self.stack[-1].python_type(), collections.abc.Mapping)))

    def MATCH_KEYS(self, instruction: Any) -> None:
        keys, subject = self.stack[-1].unpack(self), self.stack[-2]
        if all(subject.contains(self, key) for key in keys):
            self.push(self.new_tuple([subject.get_item(self, key) for key in keys]))
        else:
            self.push(self.constant(None))

    def MATCH_CLASS(self, instruction: Any) -> None:
        names, cls, subject = self.pop().as_constant(), self.pop(), self.pop()
        if not self.truth(self.call_builtin(isinstance, [subject, cls])):
            self.push(self.constant(None))
            return
        fields: list[Any] = []
        if instruction.arg:
            real = cls.as_constant()
            if getattr(real, "__match_args__", None):
                names = (*real.__match_args__[: instruction.arg], *names)
            else:
                fields = [subject]
        try:
            fields += [subject.get_attr(self, name) for name in names]
        except self.observed_exception:
            self.push(self.constant(None))
            return
        self.push(self.new_tuple(fields))

    # -- generators ------------------------------------------------------------------------------------------------

    def RETURN_GENERATOR(self, instruction: Any) -> None:
        self.push(self.constant(None))  # the interpreter itself is the generator; POP_TOP follows

    def YIELD_VALUE(self, instruction: Any) -> None:
        self.finish("yield", self.pop())

    def GET_YIELD_FROM_ITER(self, instruction: Any) -> None:
        if self.stack[-1].python_type() is not types.GeneratorType:
            self.push(self.pop().iterate(self))

    def SEND(self, instruction: Any) -> None:
        value = self.pop()
        receiver = self.stack[-1]
        kind, result = self.send_to(receiver, value)
        if kind == "yield":
            self.push(result)
            return
        if self.send_keeps_receiver:
            self.push(result)
        else:
            self.stack[-1] = result
        self.jump(instruction.target)

    def END_SEND(self, instruction: Any) -> None:
        del self.stack[-2]

    def ASYNC_GEN_WRAP(self, instruction: Any) -> None:
        raise self.unsupported("async code is not traced", "compile the functions it calls")

    GET_AWAITABLE = GET_AITER = GET_ANEXT = BEFORE_ASYNC_WITH = END_ASYNC_FOR = ASYNC_GEN_WRAP
