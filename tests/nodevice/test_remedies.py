"""Every refusal in core says what to change."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import core

REFUSALS = ("Unsupported", "NotGivenBack", "NeedsFrame")
FILES = sorted(Path(core.__file__).parent.rglob("*.py"))


def refusals(tree):
    """Calls that make a refusal, a class that passes its own keywords on aside; what a plugin raises has no remedy."""
    plugins = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "plugin"
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in REFUSALS and name not in plugins and not any(keyword.arg is None for keyword in node.keywords):
                yield node


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FILES[0].parent)))
def test_refusals_of_a_file_name_a_remedy(path):
    for call in refusals(ast.parse(path.read_text())):
        remedies = [keyword.value for keyword in call.keywords if keyword.arg == "remedy"]
        assert remedies, f"line {call.lineno}: no remedy"
        assert not isinstance(remedies[0], ast.Constant) or remedies[0].value, f"line {call.lineno}: an empty remedy"


def test_the_search_finds_refusals():
    found = list(
        refusals(ast.parse('raise Unsupported("a")\nraise errors.Unsupported("b", remedy="c")\nUnsupported(**d)'))
    )
    assert len(found) == 2
