"""Jumps, loops, returns."""

from __future__ import annotations

import types
from typing import Any

from ...errors import Unsupported
from ...variables.literal import run
from .host import Host

MATCH_SELF = 1 << 22  # Py_TPFLAGS of int, str, list and their kin: a positional pattern is matched with the object
STORED = {"STORE_FAST": 1, "STORE_FAST_STORE_FAST": 2}


def _match_called(pattern: Any) -> None:
    match None:
        case pattern():
            pass


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
        if not issubclass(cls.python_type(), type):
            run(self, _match_called, [cls.as_constant()])  # raises what this version of Python raises
        if not self.truth(self.call_builtin(isinstance, [subject, cls])):
            self.push(self.constant(None))
            return
        fields: list[Any] = []
        if instruction.arg:
            found = self._positional_names(cls, instruction.arg)
            if found is None:
                fields = [subject]
            else:
                names = (*found, *names)
        repeated = next((name for place, name in enumerate(names) if name in names[:place]), None)
        for name in names:
            value = self._field(subject, name)
            if value is None:
                self.push(self.constant(None))
                return
            if name == repeated:
                text = f"{cls.as_constant().__name__}() got multiple sub-patterns for attribute {name!r}"
                self.raise_exception(TypeError, text)
            fields.append(value)
        self.push(self.new_tuple(fields))

    def _field(self, subject: Any, name: str) -> Any:
        try:
            return subject.get_attr(self, name)
        except self.observed_exception as raised:
            if issubclass(raised.value.python_type(), AttributeError):
                return None
            raise

    def _positional_names(self, cls: Any, count: int) -> Any:
        """The attributes that positional patterns of a class stand for; None where one stands for the subject."""
        real = cls.as_constant()
        declared = self._field(cls.realize(self), "__match_args__")
        if declared is None and real.__flags__ & MATCH_SELF and count == 1:
            return None
        if declared is not None and declared.python_type() is not tuple:
            kind = declared.python_type().__name__
            self.raise_exception(TypeError, f"{real.__name__}.__match_args__ must be a tuple (got {kind})")
        names = [] if declared is None else [item.realize(self) for item in declared.unpack(self)]
        allowed = 1 if declared is None and real.__flags__ & MATCH_SELF else len(names)
        if allowed < count:
            patterns = "sub-pattern" if allowed == 1 else "sub-patterns"
            text = f"{real.__name__}() accepts {allowed} positional {patterns} ({count} given)"
            self.raise_exception(TypeError, text)
        for name in names[:count]:
            if name.python_type() is not str:
                kind = name.python_type().__name__
                self.raise_exception(TypeError, f"__match_args__ elements must be strings (got {kind})")
        return [name.as_constant() for name in names[:count]]

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
