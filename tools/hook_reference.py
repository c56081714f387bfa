"""docs/hooks.md from the hook specifications and from `core.plugin`.

python tools/hook_reference.py            # prints the page
python tools/hook_reference.py --write    # rewrites docs/hooks.md
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "hooks.md"
sys.path.insert(0, str(ROOT))

from core import plugin  # noqa: E402
from core.backends import hookspecs  # noqa: E402

HEAD = """# Hooks

Written by `python tools/hook_reference.py --write` from `core/backends/hookspecs.py` and `core/plugin.py`, plugin API
{api}. What the graphs look like is in [graph-contract.md](graph-contract.md), a first plugin in
[vendor-guide.md](vendor-guide.md).

A plugin is a module or an object that an entry point of the group `core.backends` names. Functions of it that are
marked with `core.plugin.hookimpl` and named as below are its hooks.

*Broadcast* hooks are called on every plugin that is loaded, with their parameters by name; a hook may leave out those
that it does not need. *Directed* hooks belong to one backend: they are bound once, when somebody asks for its name, and
take all their parameters in order. They are the function form of the methods of `core.plugin.Backend`; a plugin that
has both is asked through the function.
"""
TYPES = (
    plugin.Capabilities,
    plugin.CompileContext,
    plugin.Artifact,
    plugin.Support,
    plugin.Probe,
    plugin.Option,
    plugin.Finding,
    plugin.Pass,
)
ERRORS = (plugin.Unsupported, plugin.CompileFailed, plugin.StaleArtifact, plugin.PluginBug)


def page() -> str:
    """The text of the page."""
    parts = [HEAD.format(api=".".join(map(str, plugin.PLUGIN_API)))]
    hooks = {name: value for name, value in vars(hookspecs).items() if name.startswith(("core_", "backend_"))}
    for title, prefix in (("Broadcast", "core_"), ("Directed", "backend_")):
        parts.append(f"## {title}\n")
        parts += [_hook(name, function) for name, function in hooks.items() if name.startswith(prefix)]
    parts.append("## What hooks are given and give back\n")
    parts += [_type(kind) for kind in TYPES]
    parts.append("## What they may raise\n")
    parts += [f"### {kind.__name__}\n\n{_text(kind)}\n" for kind in ERRORS]
    return "\n".join(parts).rstrip() + "\n"


def _hook(name: str, function: Any) -> str:
    method = getattr(plugin.Backend, name.removeprefix("backend_"), None) if name.startswith("backend_") else None
    text = _text(method if method is not None else function)
    signature = f"{name}({', '.join(inspect.signature(function).parameters)})"
    result = _annotation(inspect.signature(function).return_annotation)
    spec = getattr(function, f"{plugin.PROJECT}_spec", {})
    notes = []
    if result != "None":
        notes.append(f"Returns: `{result}`.")
    if spec.get("historic"):
        notes.append("Called for plugins that are loaded later, too.")
    if spec.get("firstresult"):
        notes.append("The first answer that is not None counts.")
    return f"### {name}\n\n```python\n{signature}\n```\n\n{text}\n" + (f"\n{' '.join(notes)}\n" if notes else "")


def _type(kind: Any) -> str:
    rows = ["| field | type | default |", "|---|---|---|"]
    for field in dataclasses.fields(kind):
        rows.append(f"| `{field.name}` | `{_annotation(field.type, cell=True)}` | {_default(field)} |")
    return f"### {kind.__name__}\n\n{_text(kind)}\n\n" + "\n".join(rows) + "\n"


def _default(field: Any) -> str:
    if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
        return "required"
    value = field.default_factory() if field.default is dataclasses.MISSING else field.default
    if callable(value):
        return f"`{value.__name__.lstrip('_')}`"
    return f"`{value!r}`"


def _annotation(annotation: Any, *, cell: bool = False) -> str:
    return str(annotation).replace("|", "\\|" if cell else "|")


def _text(described: Any) -> str:
    """A docstring with its paragraphs as lines of at most 120 columns."""
    paragraphs = inspect.getdoc(described).split("\n\n")
    return "\n\n".join(_filled(" ".join(paragraph.split())) for paragraph in paragraphs if paragraph.strip())


def _filled(text: str) -> str:
    lines, line = [], ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > 118:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return "\n".join([*lines, line])


def main() -> None:
    """Print the page, or write it."""
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        print(page(), end="")


if __name__ == "__main__":
    main()
