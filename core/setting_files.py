"""The two files that hold settings: `[tool.core]` of the project's pyproject.toml, and the user's own config.toml.

Enters: the working folder and the user's folder of settings. Leaves: tables, the project's first. A file is read again
when it has changed on disk. This module imports no torch.
State shared between threads: `_read`, a dict whose items are replaced as a whole, under the GIL.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import InvalidOption

PROJECT_FILE = "pyproject.toml"


@dataclass(frozen=True)
class SettingFile:
    """One file and the table of settings in it. `prefix` is how a key is written there: `tool.core` or nothing."""

    path: Path
    table: Mapping[str, Any]
    prefix: str = ""

    def spelled(self, key: str) -> str:
        """`[tool.core] backend in /x/pyproject.toml`, as errors name a key."""
        head, _, last = key.rpartition(".")
        section = ".".join(part for part in (self.prefix, head) if part)
        return f"{f'[{section}] ' if section else ''}{last} in {self.path}"

    def section(self, *names: str) -> Mapping[str, Any]:
        """The table below those names, empty when there is none. Raises InvalidOption for a value that is no table."""
        found: Any = self.table
        for at, name in enumerate(names):
            found = found.get(name, {})
            if not isinstance(found, dict):
                raise InvalidOption(
                    f"{self.spelled('.'.join(names[: at + 1]))} is {found!r}, not a table",
                    instead="the file was not used",
                    remedy=f"write a section [{'.'.join(filter(None, (self.prefix, *names[: at + 1])))}]",
                )
        table: Mapping[str, Any] = found
        return table


def nearest_project() -> Path | None:
    """The pyproject.toml of the working folder or of the nearest one above it."""
    try:
        here = Path.cwd()
    except FileNotFoundError:
        return None
    candidates = (folder / PROJECT_FILE for folder in (here, *here.parents))
    return next((path for path in candidates if path.is_file()), None)


def user_file() -> Path:
    """`core/config.toml` in the user's folder of settings; it need not exist."""
    chosen = os.environ.get("XDG_CONFIG_HOME", "")
    folder = Path(chosen) if chosen else Path(os.path.expanduser("~")) / ".config"
    return folder / "core" / "config.toml"


def setting_files(project: Path | None = None) -> Iterator[SettingFile]:
    """The files that exist, in order of precedence. `project`: a pyproject.toml, by default the nearest one."""
    project = nearest_project() if project is None else project
    if project is not None and (data := _data(project)) is not None:
        table: Any = data
        for name in ("tool", "core"):
            table = table.get(name, {}) if isinstance(table, dict) else {}
        yield SettingFile(project, table if isinstance(table, dict) else {}, "tool.core")
    user = user_file()
    if (data := _data(user)) is not None:
        yield SettingFile(user, data)


_read: dict[Path, tuple[tuple[int, int], Mapping[str, Any] | None]] = {}


def _data(path: Path) -> Mapping[str, Any] | None:
    """The content of a TOML file; None for one that doesn't exist, or that is broken and doesn't speak of core."""
    try:
        status = path.stat()
    except OSError:
        return None
    stamp = (status.st_mtime_ns, status.st_size)
    known = _read.get(path)
    if known is None or known[0] != stamp:
        known = _read[path] = (stamp, _parsed(path))
    return known[1]


def _parsed(path: Path) -> Mapping[str, Any] | None:
    import tomllib

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        if path.name == PROJECT_FILE and "tool.core" not in text:
            return None  # a project file that isn't ours to complain about
        raise InvalidOption(
            f"the settings in {path} can't be read: {error}",
            instead="nothing was compiled: a file that may forbid a plugin is not passed over",
            remedy="correct the file",
        ) from None
