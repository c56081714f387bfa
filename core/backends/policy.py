"""Which installed plugins may be used: environment variables and the tables `plugins` of the setting files.

The project's file and the user's file count together: what one of them denies is denied, and a distribution must be
among the allowed of each that has such a list, so that a project can't widen what its user has narrowed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..errors import InvalidOption
from ..setting_files import SettingFile, nearest_project, setting_files, user_file

LOCK_FILE = "core.lock"
_KEYS = ("allow", "deny", "pin", "require_lock")


@lru_cache(maxsize=4096)
def normalise(name: str) -> str:
    """The form in which names are compared: case-folded, `-` as `_`."""
    return name.strip().casefold().replace("-", "_")


@dataclass(frozen=True)
class PluginPolicy:
    """allow: lists of globs of distribution names, each of which must admit one; deny: globs; pin: backend name ->
    distribution; require_lock: only what `lock_file` holds; only, disabled: names of backends or distributions from the
    environment (`only` None: all); strict: what is merely untested is refused too."""

    allow: tuple[tuple[str, ...], ...] = ()
    deny: tuple[str, ...] = ()
    pin: Mapping[str, str] = field(default_factory=dict)
    require_lock: bool = False
    lock_file: Path = Path(LOCK_FILE)
    only: frozenset[str] | None = None
    disabled: frozenset[str] = frozenset()
    strict: bool = False

    def refusal(self, name: str, distribution: str) -> str:
        """Why a backend may not be used, or an empty text. Core's own backends are always allowed."""
        if normalise(distribution) == "core":
            return ""
        keys = {normalise(name), normalise(distribution)}
        if keys & self.disabled:
            return "CORE_DISABLE_PLUGINS names it"
        if self.only is not None and not keys & self.only:
            return "CORE_PLUGIN_AUTOLOAD=0 or CORE_PLUGINS leaves it out"
        if any(fnmatch(normalise(distribution), normalise(glob)) for glob in self.deny):
            return "[tool.core.plugins] deny names its distribution"
        for globs in self.allow:
            if not any(fnmatch(normalise(distribution), normalise(glob)) for glob in globs):
                return "[tool.core.plugins] allow does not name its distribution"
        return ""


def read_policy(environ: Mapping[str, str] | None = None, project: Path | None = None) -> PluginPolicy:
    """The policy of this process. `project`: a pyproject.toml, by default the nearest one upwards."""
    environ = os.environ if environ is None else environ
    project = nearest_project() if project is None else project
    files = [(file, file.section("plugins")) for file in setting_files(project)]
    for file, table in files:
        _check_keys(file, table)
    allow = [_names(file, table, "allow") for file, table in files if table.get("allow")]
    pins = [_pins(file, table) for file, table in reversed(files)]
    listed = frozenset(normalise(name) for name in environ.get("CORE_PLUGINS", "").split(",") if name.strip())
    autoload = environ.get("CORE_PLUGIN_AUTOLOAD", "1") not in ("0", "")
    return PluginPolicy(
        allow=tuple(allow),
        deny=tuple(glob for file, table in files for glob in _names(file, table, "deny")),
        pin={normalise(name): distribution for table in pins for name, distribution in table.items()},
        require_lock=any([_flag(file, table, "require_lock") for file, table in files]),
        lock_file=(project or user_file()).with_name(LOCK_FILE),
        only=listed if listed or not autoload else None,
        disabled=frozenset(normalise(n) for n in environ.get("CORE_DISABLE_PLUGINS", "").split(",") if n.strip()),
        strict=environ.get("CORE_STRICT", "0") not in ("0", ""),
    )


def _check_keys(file: SettingFile, table: Mapping[str, Any]) -> None:
    for key in table:
        if key not in _KEYS:  # a misspelt `deny` must not pass for no rule at all
            raise _wrong(file, key, table[key], f"the keys are {', '.join(_KEYS)}")


def _names(file: SettingFile, table: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise _wrong(file, key, value, f'write a list of names: {key} = ["core-*"]')
    return tuple(value)


def _pins(file: SettingFile, table: Mapping[str, Any]) -> Mapping[str, str]:
    value = table.get("pin", {})
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise _wrong(file, "pin", value, 'write a table: pin = { tensorrt = "core-tensorrt" }')
    return value


def _flag(file: SettingFile, table: Mapping[str, Any], key: str) -> bool:
    value = table.get(key, False)
    if not isinstance(value, bool):
        raise _wrong(file, key, value, f"write {key} = true or {key} = false")
    return value


def _wrong(file: SettingFile, key: str, value: Any, remedy: str) -> InvalidOption:
    return InvalidOption(
        f"{file.spelled(f'plugins.{key}')}: {key} is {value!r}", instead="no plugin was loaded", remedy=remedy
    )
