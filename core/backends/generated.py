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
    filename = f"<core generated {next(_numbers)}>"
    exec(compile(source, filename, "exec"), namespace)  # noqa: S102 - the purpose of this module
    function: Callable[..., Any] = namespace.pop(name)
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    weakref.finalize(function, linecache.cache.pop, filename, None)
    return function


def source_of(function: Callable[..., Any]) -> str:
    """The source that compile_source made `function` from."""
    return "".join(linecache.getlines(function.__code__.co_filename))
