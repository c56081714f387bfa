"""TOML files as most manifests are: a key and a text, a number, a truth value or a list of texts on each line.

Such a file is read in a fifth of the time that tomllib takes, and a hundred of them are read whenever backends are
listed. At the first line of any other kind the whole file is left to tomllib, which also says what is wrong in it.
"""

from __future__ import annotations

import re
from typing import Any

_LINE = re.compile(
    r"""(?:\[(?P<table>[A-Za-z0-9_-]+)\]
    | (?P<key>[A-Za-z0-9_-]+)\ *=\ *
      (?: "(?P<text>[^"\\]*)" | (?P<truth>true|false) | (?P<number>0|[1-9][0-9]*)
        | (?P<list>\[\ *(?:"[^"\\]*"(?:\ *,\ *"[^"\\]*")*)?\ *\]) )
    )?\ *(?:\#.*)?""",
    re.VERBOSE,
)
_TEXT = re.compile(r'"([^"\\]*)"')


def read_toml(text: str) -> dict[str, Any]:
    """The tables of a TOML file. Raises tomllib.TOMLDecodeError."""
    found = _plain(text)
    if found is None:
        import tomllib

        found = tomllib.loads(text)
    return found


def _plain(text: str) -> dict[str, Any] | None:
    """The tables of a file of the simple kind, None for any other."""
    tables: dict[str, Any] = {}
    table = tables
    for line in text.split("\n"):
        match = _LINE.fullmatch(line)
        if match is None or not line.isprintable():
            return None
        kind = match.lastgroup
        if kind is None:
            continue
        key = match["table"] if kind == "table" else match["key"]
        into = tables if kind == "table" else table
        if key in into:
            return None  # an error, or one table in two places
        if kind == "table":
            table = into[key] = {}
        elif kind == "text":
            into[key] = match["text"]
        elif kind == "truth":
            into[key] = match["truth"] == "true"
        elif kind == "number":
            into[key] = int(match["number"])
        else:
            into[key] = _TEXT.findall(match["list"])
    return tables
