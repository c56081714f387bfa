"""The blocks of docs/vendor-guide.md, run in their order in an empty folder: what a reader types is what works."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from fresh_environment import fresh_environment

from core.cli import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "vendor-guide.md"


@dataclass(frozen=True)
class Block:
    """One fenced block: `kind` is its language, `words` what follows it on the fence."""

    kind: str
    words: list[str]
    text: str
    line: int


def blocks(page: str) -> list[Block]:
    found = []
    for match in re.finditer(r"^```(\w+)([^\n]*)\n(.*?)^```$", page, re.M | re.S):
        line = page[: match.start()].count("\n") + 1
        found.append(Block(match[1], match[2].split(), match[3], line))
    return found


class Reader:
    """Somebody who does what the page says."""

    def __init__(self, folder: Path, environment: Path) -> None:
        self.folder = folder
        clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        path = os.pathsep.join((str(environment / "bin"), clean["PATH"]))
        offline = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        self.environ = {**clean, **offline, "PATH": path, "CORE_STRICT": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        self.said = ""

    def do(self, block: Block) -> None:
        match block.kind, block.words[:1]:
            case "console", _:
                self._console(block)
            case "python", []:
                self.said = self._run([str(self.folder / ".." / "bin" / "python"), "-c", block.text], block)
            case "python", ["append"]:
                path = self.folder / block.words[1]
                path.write_text(path.read_text() + "\n\n" + block.text)
            case "python", ["replace"]:
                path = self.folder / block.words[1]
                old, _, new = block.text.partition("---\n")
                assert path.read_text().count(old) == 1, f"line {block.line}: {path.name} has not once:\n{old}"
                path.write_text(path.read_text().replace(old, new))
            case "text", _:
                assert_like(self.said, block.text, block.line)
            case _:
                raise AssertionError(f"line {block.line}: nothing is known to do with {block.kind} {block.words}")

    def _console(self, block: Block) -> None:
        for part in re.split(r"^\$ ", block.text, flags=re.M)[1:]:
            command, _, expected = part.partition("\n")
            said = self._run(["bash", "-c", command], block)
            if expected.strip():
                assert_like(said, expected, block.line)

    def _run(self, command: list[str], block: Block) -> str:
        done = subprocess.run(command, cwd=self.folder, env=self.environ, capture_output=True, text=True)
        assert done.returncode == 0, f"line {block.line}: {command}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done.stdout


def assert_like(said: str, expected: str, line: int) -> None:
    """`...` stands for anything, lines included."""
    pattern = r"[\s\S]*".join(re.escape(part.strip("\n")) for part in expected.strip("\n").split("..."))
    wanted = re.compile(re.sub(r"(?:\\ |\s)+$", "", pattern), re.M)
    text = "\n".join(part.rstrip() for part in said.splitlines())
    assert wanted.fullmatch(text) or wanted.fullmatch(text + "\n"), f"line {line} expects\n{expected}\nand got\n{said}"


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("reader")
    fresh_environment(folder)
    return folder


@pytest.mark.timeout(1200)  # it runs the suite more than once
def test_every_block_of_the_guide_does_what_the_page_says(environment):
    pytest.importorskip("core_conformance")
    folder = environment / "work"
    folder.mkdir()
    reader = Reader(folder, environment)
    done = blocks(PAGE.read_text())
    assert len(done) > 20 and {block.kind for block in done} == {"console", "python", "text"}
    for block in done:
        if "core conformance" not in block.text or "conformance" in COMMANDS:
            reader.do(block)


def test_a_block_that_prints_something_else_is_found():
    assert_like("a  b\n3 files\nend\n", "a  b\n...\nend", 1)
    with pytest.raises(AssertionError, match="line 7"):
        assert_like("a\nc\n", "a\nb\n", 7)
