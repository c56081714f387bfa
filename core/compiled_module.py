"""What compile(module) returns: a module that shares the original's state and runs compiled."""

from __future__ import annotations

import copy
import types
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules.lazy import LazyModuleMixin

from . import torch_compat
from .errors import InvalidOption
from .kept_calls import function_of

_ORIGINAL = "_core_original_class"
_VIEW_OF = "_core_view_of"


def compile_module(module: torch.nn.Module, compile_function: Callable[[Any], Any]) -> torch.nn.Module:
    """A module whose calls are compiled. It has the original's class to isinstance, type name and super(), and one
    `__dict__` with it: parameters, hooks, train/eval, attribute writes and state_dict keys are shared.
    """
    module = getattr(type(module), _VIEW_OF, module)
    original = getattr(type(module), _ORIGINAL, type(module))
    enter = original.__call__

    def make() -> Any:
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            return enter(self, *args, **kwargs)

        call.__name__ = call.__qualname__ = f"{original.__qualname__}.__call__"
        call._core_entry = True  # type: ignore[attr-defined]
        return call

    compiled = compile_function(function_of(module, enter, make))
    if not isinstance(module, LazyModuleMixin):  # that takes another class at its first call, and so must the view
        compiled = types.MethodType(compiled, module)  # not the view: the program may ask which object its module is
    return view(module, original, compiled, lambda other: compile_module(other, compile_function))


def compile_in_place(
    module: torch.nn.Module, compile_call: Callable[[Any], Any], *, undo: bool = False
) -> torch.nn.Module:
    """Have the module's own calls run compiled: its class, state and names stay. undo: as written again."""
    if not isinstance(module, torch.nn.Module) or torch_compat.call_is_overridden(module):
        raise InvalidOption(
            f"{type(module).__name__} "
            + ("has a __call__ of its own" if isinstance(module, torch.nn.Module) else "is no module"),
            instead="nothing was compiled",
            remedy="use what core.compile() returns for it",
        )
    torch_compat.set_compiled_call(module, None if undo else compile_call)
    return module


def disable_module(module: torch.nn.Module, disable_function: Callable[[Any], Any]) -> torch.nn.Module:
    """A module that shares the original's state and always runs in plain Python."""
    original = getattr(type(module), _ORIGINAL, type(module))
    enter = original.__call__

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return enter(self, *args, **kwargs)

    return view(module, original, disable_function(call), lambda other: disable_module(other, disable_function))


def view(module: torch.nn.Module, original: type, call: Any, again: Callable[[Any], Any]) -> torch.nn.Module:
    """An object over the same `__dict__`, of a subclass with `call` as `__call__`."""
    result: torch.nn.Module = object.__new__(_class_over(original, module, call, again))
    object.__setattr__(result, "__dict__", module.__dict__)
    return result


def _class_over(original: type, module: torch.nn.Module, call: Any, again: Callable[[Any], Any]) -> type:
    def plain(self: Any) -> torch.nn.Module:
        """The same state behind the original class."""
        result: torch.nn.Module = object.__new__(original)
        object.__setattr__(result, "__dict__", self.__dict__)
        return result

    def become(self: Any, cls: type) -> None:
        """Another class, as lazy modules take one at their first call: for both objects."""
        module.__class__ = cls
        object.__dict__["__class__"].__set__(self, _class_over(cls, module, call, again))

    namespace = {
        _ORIGINAL: original,
        _VIEW_OF: module,
        "__call__": call,
        "__module__": original.__module__,
        "__qualname__": original.__qualname__,
        "__doc__": original.__doc__,
        "__class__": property(lambda self: original, become),
        "__deepcopy__": lambda self, memo: again(copy.deepcopy(plain(self), memo)),
        "__copy__": lambda self: again(copy.copy(plain(self))),
        "__reduce_ex__": lambda self, protocol: plain(self).__reduce_ex__(protocol),
    }
    return type(original)(original.__name__, (original,), namespace)
