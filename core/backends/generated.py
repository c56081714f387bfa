"""Python source written at compile time: the only Python of ours that runs on a warm call.

It is compiled under the file name `<core generated N>` and registered with linecache, so that tracebacks and debuggers
show it.
"""

from __future__ import annotations

import itertools
import linecache
import weakref
from collections.abc import Callable, Iterable
from typing import Any

_numbers = itertools.count()


def compile_source(lines: Iterable[str], namespace: dict[str, Any], name: str) -> Callable[..., Any]:
    """Run generated source in `namespace` and return the function `name` that it defines.

    The namespace is the function's globals: what it refers to lives exactly as long as the function.
    """
    source = "\n".join(lines) + "\n"
    namespace.setdefault("__name__", __name__)  # capture leaves frames of core alone, and knows them by module
    filename = f"<core generated {next(_numbers)}>"
    exec(compile(source, filename, "exec"), namespace)  # noqa: S102 - the purpose of this module
    function: Callable[..., Any] = namespace.pop(name)
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    weakref.finalize(function, linecache.cache.pop, filename, None)
    return function


def source_of(function: Callable[..., Any]) -> str:
    """The source that compile_source made `function` from."""
    return "".join(linecache.getlines(function.__code__.co_filename))


class Code:
    """The source of one function while it is written, with the objects it refers to."""

    def __init__(self, name: str, parameters: Iterable[str]) -> None:
        self.name = name
        self.lines = [f"def {name}({', '.join(parameters)}):"]
        self.namespace: dict[str, Any] = {}
        self.depth = 1
        self._bound: dict[int, str] = {}

    def line(self, text: str) -> None:
        """One more line at the current depth."""
        self.lines.append("    " * self.depth + text)

    def bind(self, value: Any, hint: str) -> str:
        """The name under which the function sees `value`; one object has one name."""
        name = self._bound.get(id(value))
        if name is None:
            name = hint if hint not in self.namespace else f"{hint}_{len(self.namespace)}"
            self._bound[id(value)] = name
            self.namespace[name] = value
        return name

    def finish(self) -> Callable[..., Any]:
        """The function."""
        return compile_source(self.lines, self.namespace, self.name)


def names(prefix: str, count: int) -> list[str]:
    """`prefix0`, `prefix1`, ..."""
    return [f"{prefix}{index}" for index in range(count)]


def tuple_text(items: Iterable[str]) -> str:
    """Source of a tuple; also a target list for unpacking."""
    return "(" + "".join(f"{item}, " for item in items).rstrip() + ")"
