"""Calls, in the conventions of 3.11 to 3.13."""

from __future__ import annotations

from typing import Any

from .host import NULL, Host


class CallOpcodes(Host):
    """Handlers of calls."""

    def PRECALL(self, instruction: Any) -> None: ...

    def KW_NAMES(self, instruction: Any) -> None:
        self.keyword_names = instruction.argval

    def CALL(self, instruction: Any) -> None:
        names, self.keyword_names = self.keyword_names, ()
        self._call(instruction.arg, names)

    def CALL_KW(self, instruction: Any) -> None:
        self._call(instruction.arg, self.pop().as_constant())

    def _call(self, count: int, names: tuple[str, ...]) -> None:
        args = self.pop_many(count)
        second, first = self.pop(), self.pop()
        # Below the arguments: [NULL, callable] or [callable, self] on 3.11 and 3.12; [callable, NULL or self] on 3.13.
        if first is NULL:
            fn = second
        elif second is NULL:
            fn = first
        else:
            fn, args = first, [second, *args]
        split = len(args) - len(names)
        self.push(self.call_function(fn, args[:split], dict(zip(names, args[split:]))))

    def CALL_FUNCTION_EX(self, instruction: Any) -> None:
        keywords = self.pop() if instruction.arg & 1 else None
        args = self.pop()
        second = self.pop()
        if second is NULL:
            fn = self.pop()
        else:
            fn = second
            if self.stack and self.stack[-1] is NULL:
                self.pop()
        named = {}
        if keywords is not None:
            for key in self.mapping_keys(keywords):
                if not issubclass(key.realize(self).python_type(), str):
                    self.raise_exception(TypeError, "keywords must be strings")
                named[key.as_constant()] = keywords.get_item(self, key)
        self.push(self.call_function(fn, args.unpack(self), named))

    def CALL_INTRINSIC_1(self, instruction: Any) -> None:
        number = instruction.arg
        if number == 3:  # StopIteration raised in a generator's body becomes RuntimeError
            self.push(self.stop_iteration_error(self.pop()))
        elif number == 5:
            self.UNARY_POSITIVE(instruction)
        elif number == 6:
            self.LIST_TO_TUPLE(instruction)
        elif number in (7, 8, 9, 10, 11):
            raise self.unsupported("defining generic types is not traced", "define them at the top of the module")
        else:
            raise self.unsupported(f"the intrinsic function {number} is not traced", "move it out of the function")

    def CALL_INTRINSIC_2(self, instruction: Any) -> None:
        if instruction.arg == 4:  # set the type parameters of a function
            self.pop()
            return
        raise self.unsupported(f"the intrinsic function {instruction.arg} is not traced", "move it out of the function")
