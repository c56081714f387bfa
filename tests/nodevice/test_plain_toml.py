"""Manifests are read as tomllib reads them: at once where every line is simple, else by tomllib itself."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.backends.plain_toml import read_toml

ROOT = Path(__file__).parents[2]
MANIFESTS = sorted(ROOT.glob("plugins/*/core_*/backend.toml"))

PIECES = (
    'a = "text"',
    "b = true",
    "c = 12",
    'd = ["x", "y"]',
    "e = []",
    "[table]",
    "[other]",
    "# a note",
    "",
    'f = "with # inside"  # a note',
    "a = 1",
    "g = 007",
    "h = -1",
    "i = 1.5",
    "j = 1_000",
    "k = nan",
    "l = 'single'",
    'm = "back\\\\slash"',
    'n = ["x", ]',
    'o = ["x",',
    '"y"]',
    "p.q = 1",
    "[table.deeper]",
    "[[table]]",
    'r = {s = "t"}',
    't = "tab\tinside"',
    'u = "\x7f"',
    'v = """',
    '"""',
    'w = "é"',
    "x = [1, 2]",
    "y = ",
    "z",
    '"quoted" = 1',
    "  indented = 1",
    "[ spaced ]",
    'aa = [ "x" ]',
    "bb = 1979-05-27",
    "cc = true false",
    'dd = "one" "two"',
    "ee\r",
    "ff = 0",
    "gg = null",
    "hh = [true]",
)


def outcome(read, text):
    try:
        return repr(read(text))
    except tomllib.TOMLDecodeError as error:
        return str(error)


@settings(deadline=None, max_examples=400)
@given(st.lists(st.sampled_from(PIECES), max_size=7), st.sampled_from(("\n", "\r\n")))
def test_a_file_says_what_it_says_to_tomllib(lines, end):
    text = end.join(lines)
    assert outcome(read_toml, text) == outcome(tomllib.loads, text)


@settings(deadline=None, max_examples=400)
@given(st.text(alphabet="ab[]=\"# \\\t\n1,'.{}-_t\r\x0b\u2028é", max_size=30))
def test_any_text_says_what_it_says_to_tomllib(text):
    assert outcome(read_toml, text) == outcome(tomllib.loads, text)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.parent.name)
def test_our_own_manifests_say_what_they_say_to_tomllib(path):
    text = path.read_text(encoding="utf-8")
    assert read_toml(text) == tomllib.loads(text)


def test_a_simple_file_needs_no_tomllib():
    program = "import sys; from core.backends.plain_toml import read_toml; read_toml('a = 1'); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert "tomllib" not in done.stdout.split(), done.stderr
