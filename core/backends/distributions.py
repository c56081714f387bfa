"""Installed distributions as their folders on a path show them: names, versions, entry points.

The answers are those of importlib.metadata, whose import alone (it brings the parser of e-mail) costs more than reading
a hundred plugins; what lies in an archive, or is found by a finder of its own, is left to it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

_ENDINGS = (".dist-info", ".egg-info")
_ARCHIVES = (".egg", ".zip", ".whl")


@dataclass(frozen=True)
class EntryPoint:
    """`name = value` of a group; value is `module`, or `module:attribute`."""

    name: str
    value: str
    group: str

    def load(self) -> Any:
        """Import the module, and give it or the attribute of it."""
        module, _, path = self.value.partition("[")[0].partition(":")
        found: Any = import_module(module.strip())
        for attribute in path.strip().split(".") if path.strip() else ():
            found = getattr(found, attribute)
        return found


@dataclass(frozen=True)
class Distribution:
    """One distribution by the folder of its metadata."""

    folder: str

    def read_text(self, name: str) -> str | None:
        """A file of the metadata, None where there is none that can be read."""
        try:
            with open(os.path.join(self.folder, name), encoding="utf-8") as file:
                return file.read()
        except (OSError, UnicodeDecodeError):
            return None

    def locate_file(self, name: str | os.PathLike[str]) -> Path:
        """Where a file of the distribution lies."""
        return Path(os.path.dirname(self.folder), name)

    @cached_property
    def entry_points(self) -> list[EntryPoint]:
        return entry_points_in(self.read_text("entry_points.txt") or "")


def entry_points_in(text: str) -> list[EntryPoint]:
    """The entry points of an entry_points.txt, in order."""
    found, group = [], ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            group = line[1:-1]
        elif line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.append(EntryPoint(name.strip(), value.strip(), group))
    return found


def identity(distribution: Any) -> tuple[str, str]:
    """(name, version) from the head of the metadata."""
    name = version = ""
    for line in (distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or "").splitlines():
        key, colon, value = line.partition(":")
        if not colon:
            break  # the blank line behind the headers
        if key == "Name":
            name = value.strip()
        elif key == "Version":
            version = value.strip()
        if name and version:
            break
    return name, version or "0"


def distributions(path: Sequence[str]) -> Iterator[Any]:
    """Every distribution on a path, in its order: a Distribution, or one of importlib.metadata where that must look."""
    if any(hasattr(finder, "find_distributions") and finder is not PathFinder for finder in sys.meta_path):
        from importlib import metadata

        yield from metadata.distributions(path=list(path))
        return
    for place in path:
        if place.endswith(_ARCHIVES) and os.path.exists(place):  # Python names an archive of its own that never is
            from importlib import metadata

            yield from metadata.distributions(path=[place])
        else:
            yield from map(Distribution, _folders(place))


def _folders(place: str, first: str = "") -> list[str]:
    """The metadata folders right below a place; only those that begin with a letter, where one is given."""
    try:
        names = os.listdir(place or os.curdir)
    except OSError:
        return []
    ending = [name for name in names if name.endswith(_ENDINGS)]
    return [os.path.join(place, name) for name in ending if not first or name[0].lower() == first]


def version_of(name: str) -> str:
    """The version of an installed distribution, "" where it is not installed; nothing is imported."""
    wanted = _canonical(name)
    for place in sys.path:
        if place.endswith(_ARCHIVES):
            continue
        for folder in _folders(place, wanted[:1]):
            if _canonical(os.path.basename(folder).rpartition(".")[0].partition("-")[0]) == wanted:
                return identity(Distribution(folder))[1]
    return ""


def _canonical(name: str) -> str:
    return name.lower().replace("-", "_").replace(".", "_")
