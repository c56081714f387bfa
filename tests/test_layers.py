"""The rules of the house that a parser can check: import direction, file size, private names, names of our own."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
RANKS = [
    ("_C", "errors", "events", "options", "settings", "setting_files", "stance", "marks", "step", "plugin"),
    ("torch_compat",),
    ("bytecode",),
    ("guards",),
    ("graph",),
    ("variables",),
    ("capture",),
    ("cache",),
    ("backends",),
    ("report",),
    ("kept_calls", "compiled_module", "api", "bridge"),
    ("cli",),
]
RANK = {name: rank for rank, names in enumerate(RANKS) for name in names}
MAX_LINES = 700


def python_files(*roots: str) -> list[Path]:
    return sorted(path for root in roots for path in (ROOT / root).rglob("*.py") if "build" not in path.parts)


def source_files() -> list[Path]:
    kinds = (".py", ".c", ".cpp", ".h")
    roots = ("core", "plugins", "conformance", "catalog", "examples", "tests", "bench", "tools")
    return sorted(
        path
        for root in roots
        for path in (ROOT / root).rglob("*")
        if path.suffix in kinds and "build" not in path.parts and ".venv" not in path.parts
    )


def imports_of(path: Path) -> list[tuple[int, str]]:
    """(line, absolute module) of every import of a file of core, those inside functions too; type checking excluded."""
    tree = ast.parse(path.read_text())
    package = ["core", *path.relative_to(ROOT / "core").with_suffix("").parts]
    hidden = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    found = []
    for node in ast.walk(tree):
        if id(node) in hidden:
            continue
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            if node.level and not node.module:
                found += [(node.lineno, f"{module}.{alias.name}") for alias in node.names]
            else:
                found.append((node.lineno, module))
    return found


@pytest.mark.parametrize("path", python_files("core"), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_to_lower_layers_only(path):
    parts = path.relative_to(ROOT / "core").with_suffix("").parts
    own = RANK.get(parts[0])
    if own is None:
        assert parts[0] in ("__init__", "__main__"), f"{parts[0]} has no rank"
        return
    wrong = [
        f"{path}:{line} imports {module}"
        for line, module in imports_of(path)
        if module.startswith("core.") and RANK.get(module.split(".")[1], -1) > own
    ]
    assert not wrong, "\n".join(wrong)


def test_modules_of_core_form_no_cycle():
    files = {path: ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in python_files("core")}
    names = {name.removesuffix(".__init__"): path for path, name in files.items()}
    edges = {
        name.removesuffix(".__init__"): {
            target
            for _, module in imports_of(path)
            for target in (module,)
            if target in names and target != name and not target.count(".") == 0
        }
        for path, name in files.items()
    }
    state: dict[str, int] = {}

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert state.get(name) != 1, "import cycle: " + " -> ".join((*trail, name))
        if state.get(name) == 2:
            return
        state[name] = 1
        for target in sorted(edges.get(name, ())):
            visit(target, (*trail, name))
        state[name] = 2

    for name in sorted(edges):
        visit(name, ())


@pytest.mark.parametrize("path", source_files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_no_file_is_longer_than_the_ceiling(path):
    lines = path.read_text(errors="replace").count("\n")
    assert lines <= MAX_LINES, f"{path} has {lines} lines"


def test_no_file_is_named_for_nothing():
    vague = {"utils", "util", "misc", "common", "helpers", "helper"}
    assert not [path for path in source_files() if path.stem in vague]


def test_neither_core_nor_its_plugins_use_the_peers_compiler():
    pattern = re.compile(r"^\s*(import|from)\s+torch\._(dynamo|inductor)|torch\._(dynamo|inductor)\.\w+\(", re.M)
    allowed = {ROOT / "core" / "backends" / "bridge.py"}
    found = [
        path for path in python_files("core", "plugins") if path not in allowed and pattern.search(path.read_text())
    ]
    assert not found


def test_the_interpreter_version_is_read_in_one_package():
    found = [
        path
        for path in python_files("core")
        if "sys.version_info" in path.read_text() and path.parent != ROOT / "core" / "bytecode"
    ]
    assert not found


def test_private_imports_of_torch_stand_in_one_place_per_distribution():
    pattern = re.compile(r"^\s*(?:from|import)\s+(torch\._\w+|torch\.fx\.experimental|torch\.utils\._\w+)", re.M)
    found = [
        f"{path}: {match.group(1)}"
        for path in python_files("core", "plugins/inductor/core_inductor")
        if "torch_compat" not in (path.stem, path.parent.name)
        for match in pattern.finditer(path.read_text())
    ]
    assert not found, "\n".join(found)
