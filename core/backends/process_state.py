"""What belongs to the whole process, read before and after a plugin's code runs: what it changed is told and put back.

Enters: `take()` before, the snapshot's `changes()` after. Leaves: one Change a part that differs. A part is a way to
read a value, to word a difference and, where that is possible, to set the value again. torch's parts are read when
torch is loaded already; this module imports it never. Another thread that changes the same part meanwhile is taken for
the plugin.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .torch_state import torch_parts


@dataclass(frozen=True)
class Change:
    """One part that is not what it was. restored: it was put back; warned: programs compute something else now."""

    text: str
    restored: bool
    warned: bool = False

    def __str__(self) -> str:
        return self.text + ("" if self.restored else ", which can't be put back")


@dataclass(frozen=True)
class Part:
    """read gives a value that is compared with ==; tell words a difference; restore is None where there is no way;
    warned: the user is warned of a change, besides the event."""

    name: str
    read: Callable[[], Any]
    restore: Callable[[Any], None] | None = None
    tell: Callable[[Any, Any], str] | None = None
    warned: bool = False

    def difference(self, before: Any) -> str:
        """How the value differs from `before`, or an empty text."""
        after = self.read()
        if before == after:
            return ""
        return self.tell(before, after) if self.tell is not None else f"{self.name}: {before!r} became {after!r}"

    def put_back(self, before: Any) -> bool:
        """Set the value again; whether that worked."""
        if self.restore is None:
            return False
        try:
            self.restore(before)
        except (OSError, ValueError, RuntimeError):
            return False  # the folder is gone, torch refuses: the change stays, and is told
        return not self.difference(before)


@dataclass(frozen=True)
class Snapshot:
    """The values of the parts at one moment."""

    values: tuple[tuple[Part, Any], ...]

    def changes(self) -> list[Change]:
        """What differs now. Every part that can be is put back."""
        found = []
        for part, before in self.values:
            text = part.difference(before)
            if text:
                restored = part.put_back(before)
                found.append(Change(text, restored, part.warned and not restored))
        return found


def take() -> Snapshot:
    """The state of this process now."""
    parts = [*_PARTS, *(_numpy_parts() if "numpy.random" in sys.modules else ())]
    if sys.modules.get("torch") is not None:
        parts += [Part(*values) for values in torch_parts(sys.modules["torch"])]
    return Snapshot(tuple((part, part.read()) for part in parts))


# -- wording ----------------------------------------------------------------------------------------------------------


def _keys(name: str) -> Callable[[Mapping[Any, Any], Mapping[Any, Any]], str]:
    """Which keys differ. Values stay out of the text: an environment holds secrets."""

    def tell(before: Mapping[Any, Any], after: Mapping[Any, Any]) -> str:
        different = sorted(str(key) for key in before.keys() | after.keys() if before.get(key) != after.get(key))
        return f"{name} {', '.join(different)}"

    return tell


def _members(name: str) -> Callable[[Any, Any], str]:
    def tell(before: Any, after: Any) -> str:
        added = [item for item in after if item not in before]
        gone = [item for item in before if item not in after]
        listed = [f"added {', '.join(map(str, added))}"] if added else []
        listed += [f"removed {', '.join(map(str, gone))}"] if gone else []
        return f"{name}: {'; '.join(listed) or 'another order'}"

    return tell


def _plainly(name: str) -> Callable[[Any, Any], str]:
    return lambda before, after: name


# -- parts ------------------------------------------------------------------------------------------------------------


_OF_TORCH = {"TORCHINDUCTOR_CACHE_DIR"}
"""Variables that torch sets for itself when its compiler is imported."""


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in _OF_TORCH}


def _environment_restore(before: dict[str, str]) -> None:
    for name in _environment().keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)


def _folder() -> str | None:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None


def _folder_restore(before: str | None) -> None:
    if before is not None and os.path.isdir(before):
        os.chdir(before)


def _umask() -> int | None:
    """Read from the kernel's table: os.umask can be asked only by setting it, which other threads would see."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            line = next((line for line in status if line.startswith("Umask:")), "")
    except OSError:
        return None
    return int(line.split()[1], 8) if line else None


def _umask_restore(before: int | None) -> None:
    if before is not None:
        os.umask(before)


def _locale() -> str:
    import locale

    return locale.setlocale(locale.LC_ALL)


def _locale_restore(before: str) -> None:
    import locale

    locale.setlocale(locale.LC_ALL, before)


def _signals() -> dict[str, Any]:
    return {signal.Signals(number).name: signal.getsignal(number) for number in _named_signals()}


def _named_signals() -> Iterator[int]:
    numbers = {item.value for item in signal.Signals}
    return (number for number in signal.valid_signals() if number in numbers)


def _signals_restore(before: dict[str, Any]) -> None:
    if threading.current_thread() is not threading.main_thread():
        return  # Python sets handlers in the main thread only
    for name, handler in before.items():
        number = signal.Signals[name]
        if handler is not None and signal.getsignal(number) is not handler:
            signal.signal(number, handler)


def _for_everybody(entry: Any) -> bool:
    """Whether a filter of warnings has neither a text nor a module nor a category of its own."""
    return entry[1] is None and entry[3] is None and entry[2].__module__ == "builtins"


def _filters_restore(before: list[Any]) -> None:
    own = [entry for entry in warnings.filters if entry not in before and not _for_everybody(entry)]
    warnings.filters[:] = [*own, *before]  # type: ignore[index]
    with warnings.catch_warnings():
        pass  # leaving it makes warnings forget what it has decided under the other filters


def _filters_text(before: list[Any], after: list[Any]) -> str:
    broad = [[f"{entry[0]} {entry[2].__name__}" for entry in each if _for_everybody(entry)] for each in (before, after)]
    gone = [entry for entry in before if entry not in after]
    if broad[0] == broad[1] and not gone:
        return ""  # filters of the plugin's own warnings
    return _members("the filters of all warnings")(*broad)


def _streams() -> dict[str, Any]:
    return {name: getattr(sys, name) for name in ("stdin", "stdout", "stderr", "excepthook", "displayhook")}


def _streams_restore(before: dict[str, Any]) -> None:
    for name, value in before.items():
        setattr(sys, name, value)


def _tracing() -> tuple[Any, Any]:
    return sys.gettrace(), sys.getprofile()


def _tracing_restore(before: tuple[Any, Any]) -> None:
    sys.settrace(before[0])
    sys.setprofile(before[1])


def _collector() -> tuple[bool, tuple[int, int, int]]:
    return gc.isenabled(), gc.get_threshold()


def _collector_restore(before: tuple[bool, tuple[int, int, int]]) -> None:
    gc.set_threshold(*before[1])
    (gc.enable if before[0] else gc.disable)()


def _logging() -> tuple[int, list[Any]] | None:
    """The root logger's level and handlers, None while nobody has loaded logging."""
    logging = sys.modules.get("logging")
    return None if logging is None else (logging.root.level, list(logging.root.handlers))


def _logging_restore(before: tuple[int, list[Any]] | None) -> None:
    root = sys.modules["logging"].root
    level, handlers = before or (30, [])  # the level a root logger is born with: WARNING
    root.setLevel(level)
    root.handlers[:] = handlers


def _logging_text(before: Any, after: Any) -> str:
    if before is None and after == (30, []):
        return ""  # logging was loaded, nothing was set up
    return "the root logger's level or handlers"


def _start_method() -> str | None:
    """How multiprocessing starts processes; asking must not fix the default, nor load the package."""
    multiprocessing = sys.modules.get("multiprocessing")
    chosen: str | None = None
    if multiprocessing is not None:
        chosen = multiprocessing.get_start_method(allow_none=True)
    return chosen


def _start_method_restore(before: str | None) -> None:
    sys.modules["multiprocessing"].set_start_method(before, force=True)


def _threads() -> frozenset[str]:
    return frozenset(thread.name for thread in threading.enumerate())


def _threads_text(before: frozenset[str], after: frozenset[str]) -> str:
    started = sorted(after - before)
    return f"the running threads: started {', '.join(started)}" if started else ""


def _finders() -> list[str]:
    return [getattr(finder, "__name__", None) or type(finder).__name__ for finder in sys.meta_path]


def _slow_floats() -> bool:
    """Whether numbers below the normal range are kept: some libraries switch the processor to flush them to zero."""
    smallest = 5e-324
    return smallest * _one != 0.0


_one = 1.0


def _slow_floats_restore(before: bool) -> None:
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_flush_denormal(not before)


def _numpy_parts() -> list[Part]:
    generator = sys.modules["numpy.random"]

    def read() -> tuple[Any, ...]:
        name, keys, *rest = generator.get_state()
        return (name, keys.tobytes(), *rest)

    def restore(before: tuple[Any, ...]) -> None:
        keys = sys.modules["numpy"].frombuffer(before[1], dtype="uint32")
        generator.set_state((before[0], keys, *before[2:]))

    return [Part("numpy's random generator", read, restore, _plainly("the state of numpy's random generator"))]


_PARTS = (
    Part("environment", _environment, _environment_restore, _keys("the environment variables")),
    Part(
        "sys.path",
        lambda: list(sys.path),
        lambda before: sys.path.__setitem__(slice(None), before),
        _members("sys.path"),
    ),
    Part("the working folder", _folder, _folder_restore),
    Part("the umask", _umask, _umask_restore, lambda before, after: f"the umask: {before:03o} became {after:03o}"),
    Part("the locale", _locale, _locale_restore),
    Part("signals", _signals, _signals_restore, _keys("the handlers of the signals")),
    Part("warnings", lambda: list(warnings.filters), _filters_restore, _filters_text),
    Part("the recursion limit", sys.getrecursionlimit, sys.setrecursionlimit),
    Part("streams", _streams, _streams_restore, _keys("in sys:")),
    Part("tracing", _tracing, _tracing_restore, _plainly("the trace or profile function")),
    Part("the garbage collector", _collector, _collector_restore),
    Part("logging", _logging, _logging_restore, _logging_text),
    Part("random", random.getstate, random.setstate, _plainly("the state of Python's random generator")),
    Part("multiprocessing's start method", _start_method, _start_method_restore),
    Part("subnormal numbers are kept", _slow_floats, _slow_floats_restore),
    Part("threads", _threads, None, _threads_text),
    Part("finders", _finders, None, _members("the finders of imports")),
)
