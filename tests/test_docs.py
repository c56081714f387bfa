"""The pages say something about everything that has a name, and name nothing that isn't there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import core
from core import errors, events, options
from core.backends import hookspecs
from core.guards import checks
from core.settings import SETTINGS

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("*.md"), ROOT / "README.md", ROOT / "ARCHITECTURE.md"])
FOLDERS = (ROOT / "tests", ROOT / "conformance/meta_tests", *(ROOT / "plugins").glob("*/tests"))
TESTS = [path for folder in FOLDERS for path in folder.rglob("*.py")]
TESTED = "\n".join(path.read_text() for path in TESTS if path != Path(__file__).resolve())
TOP_FOLDERS = {"core", "plugins", "tests", "docs", "tools", "bench", "conformance"}


def page(name: str) -> str:
    return (DOCS / name).read_text()


def named(text: str, name: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text) is not None


# -- errors -----------------------------------------------------------------------------------------------------------

ID = re.compile(r"\bCORE-[A-Z]\d{3}\b")


def error_classes() -> list[tuple[str, str]]:
    """(id, class name) of every class with an id in core, the module beside it and the plugins."""
    found = []
    for root in ("core", "plugins"):
        for path in sorted([*(ROOT / root).rglob("*.py"), *ROOT.glob(f"{root}_*.py")]):
            if {"tests", "build"} & set(path.relative_to(ROOT).parts):
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    for statement in node.body:
                        if isinstance(statement, ast.Assign) and getattr(statement.targets[0], "id", "") == "id":
                            found.append((ast.literal_eval(statement.value), node.name))
    return found


ERRORS = error_classes()


def test_the_catalogue_is_read_from_the_sources():
    classes = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.CoreError)]
    assert {(c.id, c.__name__) for c in classes} <= set(ERRORS)


def test_an_id_belongs_to_one_class():
    ids = [id for id, _ in ERRORS]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("id, name", ERRORS)
def test_every_error_has_a_heading_that_says_cause_consequence_and_remedy(id, name):
    section = re.search(rf"^### {id} {name}\n(.*?)(?=^##|\Z)", page("errors.md"), re.M | re.S)
    assert section, f"docs/errors.md has no heading '### {id} {name}'"
    for part in ("Cause:", "What core does:", "What to change:"):
        assert part in section.group(1), f"{id}: no {part!r}"


@pytest.mark.parametrize("id, name", ERRORS)
def test_every_error_is_in_a_test(id, name):
    assert named(TESTED, id) or named(TESTED, name)


def test_no_page_and_no_source_names_an_unknown_id():
    known = {id for id, _ in ERRORS}
    sources = [p for root in ("core", "plugins") for p in (ROOT / root).rglob("*") if p.suffix in (".py", ".c", ".cpp")]
    found = {(p.name, id) for p in (*PAGES, *sources) for id in ID.findall(p.read_text(errors="replace"))}
    assert not {(name, id) for name, id in found if id not in known}


# -- guards -----------------------------------------------------------------------------------------------------------

KINDS = sorted(c.__name__ for c in vars(checks).values() if isinstance(c, type) and checks.Check in c.__bases__)


@pytest.mark.parametrize("kind", KINDS)
def test_every_guard_check_has_a_line_in_the_docs(kind):
    assert re.search(rf"^\| `{kind}` \| \S", page("guards.md"), re.M)


@pytest.mark.parametrize("kind", KINDS)
def test_every_guard_check_is_in_a_test(kind):
    assert named(TESTED, kind)


def test_the_guard_page_names_no_check_that_is_gone():
    table = page("guards.md").partition("## Checks")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.M)) == set(KINDS)


# -- settings ---------------------------------------------------------------------------------------------------------

READS = re.compile(r"""(?:environ(?:\.get\(|\[)|getenv\(|VARIABLE = )\s*["'](CORE_[A-Z_]+)["']""")


def environment_variables() -> list[str]:
    roots = [ROOT / "core", *(ROOT / "plugins").glob("*/core_*")]
    files = [p for root in roots for p in root.rglob("*") if p.suffix in (".py", ".c", ".cpp", ".h")]
    read = {name for path in files for name in READS.findall(path.read_text(errors="replace"))}
    return sorted(read | {setting.variable for setting in SETTINGS.values() if setting.variable})


def test_the_environment_is_read_where_the_pattern_sees_it():
    assert {"CORE_STRICT", "CORE_DISABLE", "CORE_LOGS", "CORE_CACHE_DIR", "CORE_CXX"} <= set(environment_variables())


@pytest.mark.parametrize("name", environment_variables())
def test_every_environment_variable_has_a_line_in_the_index_and_a_test(name):
    assert re.search(rf"^\| `{name}(=[^`]*)?` \| \S", page("index.md"), re.M)
    assert named(TESTED, name)


@pytest.mark.parametrize("field", sorted(options.CompileOptions.__dataclass_fields__))
def test_every_compile_option_has_a_line_in_the_index_and_a_test(field):
    shown = {"backend_options": "options", "guard_filter": "guard_filter_fn"}.get(field, field)
    assert re.search(rf"^\| `{shown}` \| \S", page("index.md"), re.M)
    assert re.search(rf"\b{field}\b|\b{shown}\b", TESTED)


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_every_setting_has_a_line_on_the_api_page_and_a_test(name):
    assert re.search(rf"^\| `{name}` \| \S", page("api.md"), re.M)
    assert named(TESTED, name)


@pytest.mark.parametrize("name", sorted({*core._EXPORTS, "capture"}))
def test_every_public_name_is_in_the_docs_and_in_a_test(name):
    assert any(named(page(name_of_page), name) for name_of_page in ("index.md", "api.md", "errors.md", "guards.md"))
    assert named(TESTED, name)


def test_every_option_of_inductor_has_a_line_on_its_page():
    plugin = (ROOT / "plugins/inductor/core_inductor/plugin.py").read_text()
    names = re.findall(r'^ {12}"(\w+)": Option\(', plugin, re.M)
    assert len(names) >= 4
    missing = [name for name in names if not re.search(rf"^\| `{name}` \| \S", page("inductor.md"), re.M)]
    assert not missing


@pytest.mark.parametrize("channel", ["graph", "guards", "breaks", "recompiles", "code", "kernels"])
def test_every_log_channel_has_a_line_in_the_index(channel):
    assert re.search(rf"^\| `{channel}` \| \S", page("index.md"), re.M)


@pytest.mark.parametrize("counter", events.COUNTERS)
def test_every_counter_of_stats_is_explained(counter):
    assert re.search(rf"^\| `{counter}` \| \S", page("index.md"), re.M)


@pytest.mark.parametrize("hook", sorted(n for n in vars(hookspecs) if n.startswith(("core_", "backend_"))))
def test_every_hook_has_a_line_on_the_backends_page(hook):
    assert named(page("backends.md"), hook)


# -- the pages themselves ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_between_pages_lead_somewhere(path):
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", path.read_text())
    assert not [target for target in targets if not (path.parent / target).exists()]


def test_the_index_links_every_page():
    linked = set(re.findall(r"\]\(([\w-]+\.md)", page("index.md")))
    assert linked >= {path.name for path in DOCS.glob("*.md")} - {"index.md"}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_file_that_a_page_names_exists(path):
    quoted = re.findall(r"`([\w./-]+)`", path.read_text())
    paths = [name for name in quoted if "/" in name and name.split("/")[0] in TOP_FOLDERS]
    assert not [name for name in paths if not (ROOT / name).exists()]


def walked() -> list[tuple[str, str]]:
    """(file, name) of each row of the tables of ARCHITECTURE.md that name functions of a file."""
    found = []
    for line in (ROOT / "ARCHITECTURE.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        for at, cell in enumerate(cells[:-1]):
            file = re.fullmatch(r"\|?\s*`([\w./]+\.(?:py|c|cpp|h))`", cell)
            names = re.fullmatch(r"`\w+`(?:, `\w+`)*", cells[at + 1])
            if file and names:
                found += [(file.group(1), name) for name in re.findall(r"`(\w+)`", cells[at + 1])]
    return found


def test_the_walk_is_read_from_the_page():
    assert len(walked()) > 80


@pytest.mark.parametrize("file, name", walked())
def test_the_architecture_page_names_what_its_files_hold(file, name):
    assert named((ROOT / file).read_text(), name), f"{file} has no {name}"
