"""What the commands print, as text or as JSON, and their exit codes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

OK, FOUND, USAGE = 0, 1, 2


class WrongUsage(Exception):
    """Arguments that no command takes: what is wrong, and how it is used."""

    def __init__(self, what: str, usage: str) -> None:
        self.what = what
        self.usage = usage
        super().__init__(what)


def print_json(value: Any) -> None:
    """A value as indented JSON; what JSON doesn't know is printed as its text."""
    print(json.dumps(value, indent=2, default=str))


def print_table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """The named columns of each row under their names, aligned."""
    cells = [list(columns)] + [[_cell(row[column]) for column in columns] for row in rows]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    for line in cells:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths)).rstrip())


def print_facts(facts: Mapping[str, Any], indent: str = "") -> None:
    """One `key: value` a line, nested tables indented; empty values are left out."""
    for key, value in facts.items():
        if isinstance(value, dict) and value:
            print(f"{indent}{key}:")
            print_facts(value, indent + "  ")
        elif value not in ("", (), [], {}, None):
            text = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
            print(f"{indent}{key}: {text}")


def _cell(value: Any) -> str:
    return ",".join(value) if isinstance(value, list) else str(value)
