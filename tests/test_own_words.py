"""The project speaks of itself alone, and its machinery knows no program that it is tried on."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Words of these lists are written in two parts, so that this file passes its own test.
PROGRAMS = (
    "be~rt",
    "distil~bert",
    "rob~erta",
    "deb~erta",
    "g~pt",
    "g~pt2",
    "lla~ma",
    "mis~tral",
    "mix~tral",
    "qw~en",
    "gem~ma",
    "fal~con",
    "whis~per",
    "wav2~vec2",
    "res~net",
    "res~net50",
    "mobile~net",
    "efficient~net",
    "v~it",
    "de~it",
    "sw~in",
    "yo~lo",
    "un~et",
    "ti~mm",
    "transfor~mers",
    "torch~bench",
    "hugging~face",
    "mn~ist",
    "ci~far",
    "image~net",
    "nano~gpt",
)
OTHER_SPEAKERS = (
    "ag~ent",
    "ag~ents",
    "sess~ion",
    "sess~ions",
    "assis~tant",
    "assis~tants",
    "l~lm",
    "l~lms",
    "chat~bot",
    "co~pilot",
    "lang~uage mod~el",
)
PLACES = (
    r"/wo~rk/",
    r"/ro~ot/",
    r"\bpy~pi\.org",
    r"python~hosted\.org",
    r"anacon~da\.(?:org|com)",
    r"/ho~me/(?!nobody)",
)


def joined(halves: str) -> str:
    return halves.replace("~", "")


# pytest's own word, and the keyword of `generate` for a smaller model that drafts
ALLOWED = re.compile(rf"""scope=["']{joined("sess~ion")}["']|["']{joined("assis~tant")}_model["']""")


def words(*lists: tuple[str, ...]) -> re.Pattern[str]:
    """The words as whole words; an underscore parts words too."""
    inner = "|".join(joined(word) for names in lists for word in names)
    return re.compile(rf"(?<![a-z0-9])(?:{inner})(?![a-z0-9])", re.I)


def places() -> re.Pattern[str]:
    """Paths of one machine and hosts of package registries."""
    return re.compile("|".join(joined(place) for place in PLACES))


def tracked(*patterns: str) -> list[Path]:
    """The text files that git tracks."""
    listed = subprocess.run(["git", "ls-files", "-z", *patterns], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [path for path in paths if path.is_file() and b"\0" not in path.read_bytes()[:4096]]


def hits(pattern: re.Pattern[str], paths: list[Path]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in paths
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if pattern.search(ALLOWED.sub("", line))
    ]


def test_no_model_test_or_benchmark_is_named_in_core_or_the_plugins():
    paths = [path for path in tracked("core", "plugins") if "tests" not in path.relative_to(ROOT).parts]
    assert len(paths) > 100
    assert not hits(words(PROGRAMS), paths)


def test_the_patterns_find_what_they_are_for():
    assert words(PROGRAMS).search(f"if name == '{joined('be~rt')}-large'")
    assert words(OTHER_SPEAKERS).search(f"the {joined('ag~ent')} wrote this")
    assert not words(PROGRAMS).search("convert, alert, Vitruvius")
    assert places().search(f"see https://{joined('py~pi')}.org/simple") and places().search(joined("/ro~ot/x"))


def test_the_project_speaks_of_itself_alone():
    assert not hits(words(OTHER_SPEAKERS), tracked())


def test_no_path_of_one_machine_and_no_package_registry_is_named():
    assert not hits(places(), tracked())
