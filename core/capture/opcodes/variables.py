"""Names and the stack: locals, cells, globals, attributes, constants, stack shuffling, imports."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

from ...bytecode.instruction import CellName
from ...errors import Unsupported
from ...guards.checks import Is, MissingGlobal, MissingKey
from ...guards.source import BuiltinSource, ConstSource, DictItemSource, GlobalSource, ModuleSource
from ...variables.base import VariableTracker
from ...variables.cell import CellVariable
from .. import policy
from .host import NULL, Host


class VariableOpcodes(Host):
    """Handlers that move values between names and the stack."""

    def RESUME(self, instruction: Any) -> None: ...
    def NOP(self, instruction: Any) -> None: ...
    def CACHE(self, instruction: Any) -> None: ...

    def POP_TOP(self, instruction: Any) -> None:
        self.pop_top()

    def pop_top(self) -> None:
        """Drop the value on top of the stack."""
        self.pop()

    def PUSH_NULL(self, instruction: Any) -> None:
        self.push(NULL)

    def COPY(self, instruction: Any) -> None:
        self.push(self.stack[-instruction.arg])

    def SWAP(self, instruction: Any) -> None:
        depth = instruction.arg
        self.stack[-1], self.stack[-depth] = self.stack[-depth], self.stack[-1]

    def LOAD_CONST(self, instruction: Any) -> None:
        value = instruction.argval
        self.push(self._constant_tuple(value) if type(value) is tuple else self.constant(value))

    def _constant_tuple(self, value: Any) -> Any:
        """A tuple among the code's constants, which is one object in every call."""
        known = self.trace.constants.get(id(value))
        if known is None:
            items = [self._constant_tuple(item) if type(item) is tuple else self.constant(item) for item in value]
            known = self.trace.constants[id(value)] = self.new_tuple(items).standing_for(value)
            known.held = True
        return known

    # -- locals ----------------------------------------------------------------------------------------------------

    def _load_local(self, name: Any) -> None:
        if isinstance(name, CellName):
            self.push(self.cells[name])
            return
        value = self.locals.get(name)
        if value is None:
            if name in self.cells:
                self.push(self.cells[name])
                return
            self.raise_exception(
                UnboundLocalError, f"cannot access local variable '{name}' where it is not associated with a value"
            )
        value = self.locals[name] = value.realize(self)
        self.push(value)

    def LOAD_FAST(self, instruction: Any) -> None:
        self._load_local(instruction.argval)

    LOAD_FAST_CHECK = LOAD_FAST

    def LOAD_FAST_LOAD_FAST(self, instruction: Any) -> None:
        for name in instruction.argval:
            self._load_local(name)

    def LOAD_FAST_AND_CLEAR(self, instruction: Any) -> None:
        value = self.locals.pop(instruction.argval, None)
        self.push(NULL if value is None else value.realize(self))

    def STORE_FAST(self, instruction: Any) -> None:
        self._store_local(instruction.argval, self.pop())

    def _store_local(self, name: str, value: Any) -> None:
        if value is NULL:
            self.locals.pop(name, None)
        elif isinstance(value, CellVariable) and name in self.cells:
            self.cells[name] = value
        else:
            self.locals[name] = value

    def STORE_FAST_STORE_FAST(self, instruction: Any) -> None:
        for name in instruction.argval:
            self._store_local(name, self.pop())

    def STORE_FAST_LOAD_FAST(self, instruction: Any) -> None:
        store, load = instruction.argval
        self._store_local(store, self.pop())
        self._load_local(load)

    def DELETE_FAST(self, instruction: Any) -> None:
        if self.locals.pop(instruction.argval, None) is None:
            text = f"cannot access local variable '{instruction.argval}' where it is not associated with a value"
            self.raise_exception(UnboundLocalError, text)

    # -- cells -----------------------------------------------------------------------------------------------------

    def MAKE_CELL(self, instruction: Any) -> None:
        name = str(instruction.argval)
        self.cells[name] = CellVariable(name, self.locals.pop(name, None))

    def COPY_FREE_VARS(self, instruction: Any) -> None: ...

    def LOAD_CLOSURE(self, instruction: Any) -> None:
        self.push(self.cells[str(instruction.argval)])

    def LOAD_DEREF(self, instruction: Any) -> None:
        name = str(instruction.argval)
        value = self.cells[name].get(self)
        if value is None:
            if name in self.code.co_freevars:
                text = (
                    f"cannot access free variable '{name}' where it is not associated with a value in enclosing scope"
                )
                self.raise_exception(NameError, text)
            self.raise_exception(
                UnboundLocalError, f"cannot access local variable '{name}' where it is not associated with a value"
            )
        self.push(value)

    def LOAD_CLASSDEREF(self, instruction: Any) -> None:
        found = self._in_namespace(str(instruction.argval))
        if found is not None:
            self.push(found)
        else:
            self.LOAD_DEREF(instruction)

    def STORE_DEREF(self, instruction: Any) -> None:
        self.cells[str(instruction.argval)].set(self, self.pop())

    def DELETE_DEREF(self, instruction: Any) -> None:
        if self.cells[str(instruction.argval)].contents is None:
            self.LOAD_DEREF(instruction)  # raises
        self.cells[str(instruction.argval)].set(self, None)

    # -- globals ---------------------------------------------------------------------------------------------------

    def LOAD_GLOBAL(self, instruction: Any) -> None:
        if instruction.flags & 1 and self.null_before_callable:
            self.push(NULL)
        self.push(self.load_global(instruction.argval))
        if instruction.flags & 1 and not self.null_before_callable:
            self.push(NULL)

    # -- names of a class body -------------------------------------------------------------------------------------

    def LOAD_NAME(self, instruction: Any) -> None:
        found = self._in_namespace(instruction.argval)
        self.push(found if found is not None else self.load_global(instruction.argval))

    def _in_namespace(self, name: str) -> VariableTracker | None:
        """What the class body bound, None where it bound no such name."""
        if self.namespace is None:
            return self.locals.get(name)
        key = self.constant(name)
        try:
            return self.namespace.get_item(self, key).realize(self)
        except self.observed_exception as raised:
            if not issubclass(raised.value.python_type(), KeyError):
                raise
            return None

    def STORE_NAME(self, instruction: Any) -> None:
        self.namespace.set_item(self, self.constant(instruction.argval), self.pop())

    def DELETE_NAME(self, instruction: Any) -> None:
        try:
            self.namespace.del_item(self, self.constant(instruction.argval))
        except self.observed_exception as raised:
            if not issubclass(raised.value.python_type(), KeyError):
                raise
            self.raise_exception(NameError, f"name '{instruction.argval}' is not defined")

    def LOAD_LOCALS(self, instruction: Any) -> None:
        self.push(self.namespace)

    def LOAD_FROM_DICT_OR_GLOBALS(self, instruction: Any) -> None:
        self.pop()
        self.LOAD_NAME(instruction)

    def LOAD_FROM_DICT_OR_DEREF(self, instruction: Any) -> None:
        self.pop()
        self.LOAD_CLASSDEREF(instruction)

    def load_global(self, name: str) -> VariableTracker:
        """A global or builtin, as LOAD_GLOBAL finds it."""
        written, value = self.side_effects.global_value(self.globals_dict, name)
        if written and value is not None:
            return value.realize(self)
        if not written and name in self.globals_dict:
            return self.wrap(self.globals_dict[name], self._global_source(name))
        if not written:
            if self.globals_source is None:
                self.guard(GlobalSource(name), MissingGlobal())
            else:
                self.guard(self.globals_source, MissingKey(name))
        builtins = self.builtins_dict()
        if name not in builtins:
            self.guard(ConstSource(builtins), MissingKey(name))
            self.raise_exception(NameError, f"name '{name}' is not defined")
        if builtins is self.trace.frame.builtins:
            self.guard(BuiltinSource(name), Is(builtins[name]))
        else:
            self.guard(DictItemSource(ConstSource(builtins), name), Is(builtins[name]))
        return self.wrap(builtins[name], None, constant=True)

    def _global_source(self, name: str) -> Any:
        return GlobalSource(name) if self.globals_source is None else DictItemSource(self.globals_source, name)

    def builtins_dict(self) -> dict[str, Any]:
        """The builtins that this code sees."""
        found = self.globals_dict.get("__builtins__", self.trace.frame.builtins)
        return found if isinstance(found, dict) else found.__dict__

    def STORE_GLOBAL(self, instruction: Any) -> None:
        self.side_effects.store_global(self.globals_dict, self.globals_source, instruction.argval, self.pop())

    def DELETE_GLOBAL(self, instruction: Any) -> None:
        self.load_global(instruction.argval)
        self.side_effects.store_global(self.globals_dict, self.globals_source, instruction.argval, None)

    def LOAD_ASSERTION_ERROR(self, instruction: Any) -> None:
        self.push(self.wrap(AssertionError, None, constant=True))

    # -- attributes ------------------------------------------------------------------------------------------------

    def LOAD_ATTR(self, instruction: Any) -> None:
        receiver = self.pop()
        found = receiver.get_attr(self, instruction.argval)
        if instruction.flags & 1:  # the method form: a slot for self or NULL stands beside the callable
            self._push_callable(found)
        else:
            self.push(found)

    def LOAD_METHOD(self, instruction: Any) -> None:
        self._push_callable(self.pop().get_attr(self, instruction.argval))

    def _push_callable(self, found: VariableTracker) -> None:
        if self.null_before_callable:
            self.push(NULL)
            self.push(found)
        else:
            self.push(found)
            self.push(NULL)

    def STORE_ATTR(self, instruction: Any) -> None:
        receiver = self.pop()
        receiver.set_attr(self, instruction.argval, self.pop())

    def DELETE_ATTR(self, instruction: Any) -> None:
        self.pop().del_attr(self, instruction.argval)

    def LOAD_SUPER_ATTR(self, instruction: Any) -> None:
        receiver, cls, _ = self.pop(), self.pop(), self.pop()
        found = self.make_super(cls, receiver).get_attr(self, instruction.argval)
        if instruction.flags & 1:
            self._push_callable(found)
        else:
            self.push(found)

    # -- imports ---------------------------------------------------------------------------------------------------

    def IMPORT_NAME(self, instruction: Any) -> None:
        fromlist, level = self.pop().as_constant(), self.pop().as_constant()
        name = instruction.argval
        package = self.globals_dict.get("__package__") or self.globals_dict.get("__name__", "")
        if level:
            name = importlib.util.resolve_name("." * level + name, package)
        _require_loaded(name)
        package_path = getattr(sys.modules[name], "__path__", None)
        for part in fromlist or () if package_path is not None else ():
            if not hasattr(sys.modules[name], part) and importlib.util.find_spec(f"{name}.{part}") is not None:
                _require_loaded(f"{name}.{part}")
        top = name if fromlist else name.partition(".")[0]
        self.push(self.wrap(sys.modules[top], ModuleSource(top)))

    def IMPORT_FROM(self, instruction: Any) -> None:
        module = self.stack[-1]
        try:
            self.push(module.get_attr(self, instruction.argval))
        except self.observed_exception:
            submodule = f"{module.as_python_object().__name__}.{instruction.argval}"
            if submodule not in sys.modules:
                raise
            self.push(self.wrap(sys.modules[submodule], ModuleSource(submodule)))


def _require_loaded(name: str) -> None:
    """Import a module of torch or the standard library, which does nothing that the program could tell from eager.

    Raises Unsupported for any other that is not loaded yet, and for what can't be imported: Python raises that.
    """
    if name in sys.modules:
        return
    try:
        if policy.is_trusted(name):
            importlib.import_module(name)
            return
    except ImportError:
        pass
    raise Unsupported(
        f"importing {name}, which is not loaded yet, runs its code", remedy="import it at the top of the module"
    )
