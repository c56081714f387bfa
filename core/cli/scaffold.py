"""A plugin distribution from templates: which files, with which values, written as a whole or not at all."""

from __future__ import annotations

import keyword
import re
import shutil
import string
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from ..backends.catalog import EVERYTHING, CatalogEntry
from ..backends.discovery import installed_backends
from ..backends.manifest import running_versions
from ..backends.policy import normalise
from ..errors import PluginNameRefused, PluginNotWritten

TEMPLATES = Path(__file__).parent / "templates"
LICENSES = ("BSD-3-Clause", "MIT", "Apache-2.0", "none")
PLACES = {
    "package": "{package}",
    "workflows": ".github/workflows",
    "gitignore": ".gitignore",
}
"""Template -> place in the project, where the two differ. Templates have no dot in front: package data leaves those."""

_SUFFIX = ".tmpl"
_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")


class _Template(string.Template):
    """`@@{name}`: the files hold dollars and braces of their own."""

    delimiter = "@@"


@dataclass(frozen=True)
class Plugin:
    """What a new distribution is called. `name` is the backend's, in the form in which names are compared."""

    name: str
    license: str = LICENSES[0]
    author: str = ""
    url: str = ""

    @property
    def distribution(self) -> str:
        return "core-" + self.name.replace("_", "-")

    @property
    def package(self) -> str:
        return f"core_{self.name}"

    @property
    def class_name(self) -> str:
        return "".join(part.capitalize() for part in self.name.split("_")) + "Backend"

    def values(self) -> dict[str, str]:
        """The value of each placeholder."""
        versions = running_versions()
        torch_minor, core_minor = _minor(versions.get("torch", "2.11")), _minor(versions.get("core", "0.1"))
        return {
            "name": self.name,
            "distribution": self.distribution,
            "package": self.package,
            "class_name": self.class_name,
            "summary": f"The {self.name.replace('_', ' ')} backend for PyTorch programs compiled by core",
            "author": self.author or f"The {self.distribution} authors",
            "url": (self.url or f"https://example.org/{self.distribution}").rstrip("/"),
            "year": str(date.today().year),
            "license_line": self._license_line(),
            "core_pin": f">={core_minor},<{_next(core_minor)}",
            "torch_pin": f">={torch_minor},<{_next(torch_minor)}",
            "torch_matrix": f'"{torch_minor}"',
        }

    def _license_line(self) -> str:
        if self.license == "none":
            return 'classifiers = ["Private :: Do Not Upload"]  # no licence was chosen'
        return f'license = "{self.license}"\nlicense-files = ["LICENSE"]'


def plugin_name(given: str, *, claim: bool = False) -> str:
    """The backend's name in the form that the project uses. Raises PluginNameRefused.

    claim: the name is one of the catalog's, and whoever asks says that it is theirs.
    """
    name = normalise(given).removeprefix("core_")
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise PluginNameRefused(
            f"{given!r} is no name for a backend",
            instead="nothing was written",
            remedy="use letters, digits and single underscores, a letter first, as in `python -m core new my_chip`",
        )
    owner = _catalogued(name)
    if owner is not None and not claim:
        held = f"by {owner.distribution}" if owner.distribution else "for what it used to mean"
        raise PluginNameRefused(
            f"the catalog keeps the name {name!r} {held}: {owner.summary}",
            instead="nothing was written",
            remedy="choose another name, or pass --claim when the name is yours",
        )
    if owner is None:
        for backend in installed_backends():
            if name in backend.names and normalise(backend.distribution) != f"core_{name}":
                raise PluginNameRefused(
                    f"the installed distribution {backend.distribution} {backend.version} has a backend {name!r}",
                    instead="nothing was written",
                    remedy="choose another name: two distributions with one name need a pin in every project",
                )
    return name


def _catalogued(name: str) -> CatalogEntry | None:
    for entry in EVERYTHING.values():
        if name in map(normalise, (entry.name, *entry.aliases)):
            return entry
    return None


def write_plugin(plugin: Plugin, folder: Path) -> list[Path]:
    """Write the distribution to `folder`, which must not exist, and return its files, relative to it.

    It is written beside its place and renamed when it is complete. Raises PluginNotWritten.
    """
    if folder.exists():
        raise PluginNotWritten(
            f"{folder} exists", instead="nothing was written", remedy="remove it, or choose another folder with --dir"
        )
    partial: Path | None = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        written = [_write(partial, place, text) for place, text in rendered(plugin).items()]
        partial.chmod(0o755)
        partial.rename(folder)
    except OSError as error:
        if partial is not None:
            shutil.rmtree(partial, ignore_errors=True)
        raise PluginNotWritten(
            f"{folder} can't be written: {error}",
            instead="nothing was left behind",
            remedy="choose another folder with --dir",
        ) from error
    return sorted(written)


def rendered(plugin: Plugin) -> dict[str, str]:
    """Place in the project -> text, for every file."""
    values = plugin.values()
    return {_place(path, values): _Template(text).substitute(values) for path, text in _templates(plugin)}


def _templates(plugin: Plugin) -> Iterator[tuple[str, str]]:
    root = TEMPLATES / "plugin"
    for path in sorted(root.rglob(f"*{_SUFFIX}")):
        yield path.relative_to(root).as_posix().removesuffix(_SUFFIX), path.read_text(encoding="utf-8")
    if plugin.license != "none":
        yield "LICENSE", (TEMPLATES / "licenses" / (plugin.license + _SUFFIX)).read_text(encoding="utf-8")


def _place(template: str, values: Mapping[str, str]) -> str:
    first, slash, rest = template.partition("/")
    return PLACES.get(first, first).format(**values) + slash + rest


def _write(folder: Path, place: str, text: str) -> Path:
    path = folder / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")
    return Path(place)


def _minor(version: str) -> str:
    return ".".join(version.partition("+")[0].split(".")[:2])


def _next(minor: str) -> str:
    major, _, number = minor.partition(".")
    return f"{major}.{int(number or 0) + 1}"
