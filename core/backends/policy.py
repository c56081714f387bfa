"""Which installed plugins may be used: environment variables and `[tool.core.plugins]` of the project's file."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from ..errors import InvalidOption


def normalise(name: str) -> str:
    """The form in which names are compared: case-folded, `-` as `_`."""
    return name.strip().casefold().replace("-", "_")


@dataclass(frozen=True)
class PluginPolicy:
    """allow, deny: globs of distribution names; pin: backend name -> distribution; only, disabled: names of backends or
    distributions from the environment (`only` None: all)."""

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    pin: Mapping[str, str] = field(default_factory=dict)
    only: frozenset[str] | None = None
    disabled: frozenset[str] = frozenset()

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
        if self.allow and not any(fnmatch(normalise(distribution), normalise(glob)) for glob in self.allow):
            return "[tool.core.plugins] allow does not name its distribution"
        return ""


def read_policy(environ: Mapping[str, str] | None = None, project: Path | None = None) -> PluginPolicy:
    """The policy of this process. `project`: a pyproject.toml, by default the nearest one upwards."""
    environ = os.environ if environ is None else environ
    table = _plugins_table(project if project is not None else _nearest_project())
    listed = frozenset(normalise(name) for name in environ.get("CORE_PLUGINS", "").split(",") if name.strip())
    autoload = environ.get("CORE_PLUGIN_AUTOLOAD", "1") not in ("0", "")
    return PluginPolicy(
        allow=_names(table, "allow"),
        deny=_names(table, "deny"),
        pin={normalise(name): str(dist) for name, dist in _pins(table).items()},
        only=listed if listed or not autoload else None,
        disabled=frozenset(normalise(n) for n in environ.get("CORE_DISABLE_PLUGINS", "").split(",") if n.strip()),
    )


def _nearest_project() -> Path | None:
    try:
        here = Path.cwd()
    except FileNotFoundError:
        return None
    candidates = (folder / "pyproject.toml" for folder in (here, *here.parents))
    return next((path for path in candidates if path.is_file()), None)


def _plugins_table(project: Path | None) -> Mapping[str, Any]:
    if project is None:
        return {}
    try:
        data = tomllib.loads(project.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return {}  # a project file that isn't ours to complain about: it sets no policy
    table: Any = data
    for key in ("tool", "core", "plugins"):
        table = table.get(key, {}) if isinstance(table, dict) else {}
    return table if isinstance(table, dict) else {}


def _names(table: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise InvalidOption(
            f"[tool.core.plugins] {key} is {value!r}", remedy=f'write a list of names: {key} = ["core-*"]'
        )
    return tuple(value)


def _pins(table: Mapping[str, Any]) -> Mapping[str, Any]:
    value = table.get("pin", {})
    if not isinstance(value, dict):
        raise InvalidOption(
            f"[tool.core.plugins] pin is {value!r}", remedy='write a table: pin = { tensorrt = "core-tensorrt" }'
        )
    return value
