"""A call whose arguments are frozen dataclasses: a graph passes their fields, and the call puts them together again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Packing:
    """Where an instance of `cls` stands among the arguments; its attributes come in the order of `names`."""

    cls: type
    names: tuple[str, ...]

    def pack(self, values: list[Any]) -> Any:
        """An instance with these attributes; the class's __init__ has run where the program made its instance."""
        made = object.__new__(self.cls)
        for name, value in zip(self.names, values):
            object.__setattr__(made, name, value)
        return made


class PackedCall:
    """`fn(*args, **kwargs)` where each `(Packing, values)` in the lists it is given becomes an instance first."""

    def __init__(self, fn: Callable[..., Any], packings: tuple[Packing | None, ...], keywords: tuple[str, ...]) -> None:
        self.fn = fn
        self.packings = packings
        self.keywords = keywords
        self.__name__ = getattr(fn, "__name__", type(fn).__name__)
        self.__qualname__ = getattr(fn, "__qualname__", self.__name__)
        self.__module__ = getattr(fn, "__module__", None) or type(fn).__module__

    def __call__(self, *parts: Any) -> Any:
        values = [part if how is None else how.pack(part) for how, part in zip(self.packings, parts)]
        count = len(values) - len(self.keywords)
        return self.fn(*values[:count], **dict(zip(self.keywords, values[count:])))
