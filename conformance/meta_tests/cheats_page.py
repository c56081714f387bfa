"""The lines of docs/conformance-tests.md that follow from the code; `python cheats_page.py` writes them there."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from cheats_table import CAUGHT_BY, CAUGHT_ON_CARDS
from core_conformance.evil import CHEATS, ON_CARDS
from core_conformance.rules import RULES
from suite_cases import ON_IMPORT, OWN, all_cases

PAGE = Path(__file__).parents[2] / "docs" / "conformance-tests.md"
WHEN_IMPORTED = (
    "Takes threads, changes the default dtype, the environment and the filters of warnings when it is imported"
)


def cheat_rows() -> dict[str, str]:
    """Cheat -> its line of the table."""
    rows = {}
    kinds = {**CHEATS, **ON_CARDS}
    for cheat, caught in {**CAUGHT_BY, **CAUGHT_ON_CARDS}.items():
        summary = WHEN_IMPORTED if cheat == ON_IMPORT else _first_sentence(str(kinds[cheat].__doc__))
        tests = ", ".join(f"`{test.partition('::')[2]}` [{rule}]" for test, rule in caught)
        rows[cheat] = f"| `{cheat}` | {summary} | {tests} |"
    return rows


def rule_rows() -> dict[str, str]:
    """Rule -> its line of the table."""
    return {rule: f"| `{rule}` | {meaning} |" for rule, meaning in RULES.items()}


def class_beginnings() -> dict[str, str]:
    """Class -> how its line of the table begins: name and number of tests."""
    counts = Counter(test.split("::")[1] for test in all_cases())
    return {name: f"| `{name}` | {counts[name]} | " for name in OWN}


def _first_sentence(text: str) -> str:
    return " ".join(text.split("\n\n")[0].split()).rstrip(".")


def rewritten(page: str) -> str:
    """The page with the lines of the code in place of those that it has."""
    lines: list[str] = []
    for line in page.splitlines():
        name = line.split("`")[1] if line.startswith("| `") else ""
        if name in class_beginnings():
            line = class_beginnings()[name] + line.split(" | ", 2)[2]
        if name.startswith("evil-") or name in RULES:
            continue
        lines.append(line)
        if line == "| rule | broken when |" or line == "| backend | what it does | caught by |":
            lines.append("")
    text = "\n".join(lines) + "\n"
    for head, bar, rows in (
        ("| rule | broken when |", "|---|---|", rule_rows()),
        ("| backend | what it does | caught by |", "|---|---|---|", cheat_rows()),
    ):
        text = text.replace(f"{head}\n\n{bar}\n", "\n".join([head, bar, *rows.values()]) + "\n")
    return text


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
