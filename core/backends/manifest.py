"""backend.toml: the static description of a plugin, read without importing it (nor torch)."""

from __future__ import annotations

import importlib.util
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from ..plugin import CAPABILITY_CHOICES, PLUGIN_API, Capabilities
from .compatibility import Mismatch, mismatches
from .distributions import version_of
from .plain_toml import read_toml
from .versions import in_range

SCHEMA = 1

_TRAINING_MODES = ("inference", "training")


class ManifestError(ValueError):
    """A manifest that can't be read; the text names the key."""


@dataclass(frozen=True)
class Manifest:
    """One backend.toml. Ranges are texts like `>=2.11,<3`; an empty one accepts everything.

    warnings: unknown keys and other oddities, for `core doctor`; loadable: False for a schema newer than this core.
    """

    name: str
    aliases: tuple[str, ...] = ()
    summary: str = ""
    plugin_api: str = ""
    core: str = ""
    torch: str = ""
    python: str = ""
    platforms: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    provider: str = ""
    issues: str = ""
    options: tuple[str, ...] = ()
    requires_import: tuple[str, ...] = ()
    requires_pip: str = ""
    capabilities: Capabilities | None = None
    schema: int = SCHEMA
    warnings: tuple[str, ...] = field(default=(), compare=False)

    @property
    def loadable(self) -> bool:
        return self.schema <= SCHEMA

    def mismatches(self, versions: Mapping[str, str]) -> list[Mismatch]:
        """One Mismatch for each range that `versions` (keys plugin_api, core, torch, python) falls out of."""
        ranges = {side: getattr(self, side) for side in ("plugin_api", "core", "torch", "python")}
        return mismatches(ranges, versions)

    def wrong_platform(self) -> str:
        """A sentence when the plugin is for other operating systems, else an empty text."""
        if not self.platforms or any(sys.platform.startswith(name) for name in self.platforms):
            return ""
        return f"works on {', '.join(self.platforms)}, this is {sys.platform}"

    def incompatibilities(self, versions: Mapping[str, str]) -> list[str]:
        """One sentence for each reason why the plugin does not fit this process."""
        platform = self.wrong_platform()
        return [*map(str, self.mismatches(versions)), *([platform] if platform else [])]

    def missing_imports(self) -> list[str]:
        """The required top-level modules that aren't installed, found without importing them; one entry for those of
        which any would do."""
        required = [entry.split("|") for entry in self.requires_import]
        missing = [names for names in required if not any(_installed(name.partition(".")[0]) for name in names)]
        return [" or ".join(names) for names in missing]


def _folders(package: str) -> Sequence[str]:
    """Where a top-level package lies, found without importing it."""
    try:
        spec = importlib.util.find_spec(package)
    except ValueError:  # a module that was made without a spec
        return ()
    return (spec.submodule_search_locations or ()) if spec is not None else ()


def _installed(module: str) -> bool:
    if module in sys.modules:
        return sys.modules[module] is not None
    try:
        return importlib.util.find_spec(module) is not None
    except ValueError:
        return False


def running_versions() -> dict[str, str]:
    """The versions of this process that manifests speak of. torch's comes from its metadata, without an import."""
    versions = {"plugin_api": ".".join(map(str, PLUGIN_API)), "python": platform.python_version()}
    found = {name: version_of(name) for name in ("torch", "core")}
    return versions | {name: version for name, version in found.items() if version}


def parse_manifest(text: str) -> Manifest:
    """Read the text of a backend.toml. Raises ManifestError."""
    try:
        data = read_toml(text)
    except ValueError as error:  # tomllib's errors are of this class
        raise ManifestError(f"not TOML: {error}") from None
    schema = _take(data, "schema", int, SCHEMA)
    name = _take(data, "name", str, "")
    if not name:
        raise ManifestError("`name` is missing")
    if schema > SCHEMA:
        return Manifest(name=name, summary=str(data.get("summary", "")), schema=schema)
    warnings: list[str] = []
    values: dict[str, Any] = {"name": name, "schema": schema}
    for key in ("summary", "plugin_api", "core", "torch", "python", "provider", "issues"):
        values[key] = _take(data, key, str, "")
    for key in ("plugin_api", "core", "torch", "python"):
        _check_range(key, values[key])
    for key in ("aliases", "platforms", "devices"):
        values[key] = _take_names(data, key)
    declared = data.pop("options", ())
    values["options"] = tuple(str(option) for option in declared)
    requires = _take(data, "requires", dict, {})
    values["requires_import"] = _take_names(requires, "import")
    values["requires_pip"] = _take(requires, "pip", str, "")
    if "capabilities" in data:
        table = _take(data, "capabilities", dict, {})
        values["capabilities"] = _capabilities(table, values["devices"], warnings)
    warnings += [f"unknown key `{key}`" for key in data]
    warnings += [f"unknown key `requires.{key}`" for key in requires]
    return Manifest(**values, warnings=tuple(warnings))


def _check_range(key: str, text: str) -> None:
    try:
        in_range("0", text)
    except ValueError as error:
        raise ManifestError(f"`{key}`: {error}") from None


def _take(table: dict[str, Any], key: str, kind: type, default: Any) -> Any:
    value = table.pop(key, default)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ManifestError(f"`{key}` must be of type {kind.__name__}, it is {value!r}")
    return value


def _take_names(table: dict[str, Any], key: str) -> tuple[str, ...]:
    value = table.pop(key, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ManifestError(f"`{key}` must be a list of strings, it is {value!r}")
    return tuple(value)


def _capabilities(table: dict[str, Any], devices: tuple[str, ...], warnings: list[str]) -> Capabilities:
    defaults = Capabilities()
    values: dict[str, Any] = {"devices": devices}
    for entry in fields(Capabilities):
        if entry.name not in table:
            continue
        default = getattr(defaults, entry.name)
        if isinstance(default, tuple):
            values[entry.name] = _take_names(table, entry.name)
        else:
            values[entry.name] = _take(table, entry.name, type(default), default)
        choices = CAPABILITY_CHOICES.get(entry.name)
        if choices is not None and values[entry.name] not in choices:
            raise ManifestError(
                f"`capabilities.{entry.name}` is {values[entry.name]!r}, it must be one of {', '.join(choices)}"
            )
    for mode in values.get("modes", ()):
        if mode not in _TRAINING_MODES:
            raise ManifestError(f"`capabilities.modes` holds {mode!r}, it may hold {', '.join(_TRAINING_MODES)}")
    warnings += [f"unknown key `capabilities.{key}`" for key in table]
    return Capabilities(**values)


def locate_manifest(distribution: Any, value: str) -> Path | None:
    """The file that an entry point `package:backend.toml` names, or None.

    Looked up in the distribution's own files, else beside the top-level package; no dotted module is imported for it.
    """
    package, _, filename = value.partition(":")
    filename = filename.strip() or "backend.toml"
    relative = Path(*package.strip().split("."), filename)
    located = Path(str(distribution.locate_file(relative)))
    if located.is_file():
        return located
    for folder in _folders(relative.parts[0]):
        beside = Path(folder).joinpath(*relative.parts[1:])
        if beside.is_file():
            return beside
    return None
