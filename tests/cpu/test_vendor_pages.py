"""The pages for vendors say what is: graphs, hooks, and the examples of a ported backend."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
import torch

import core
from core.plugin import GRAPH_LEVELS, Artifact, Backend, Capabilities

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
CONTRACT = (DOCS / "graph-contract.md").read_text()
SHOWN = re.findall(r"<!-- graph (\w+) ([\w-]+) ?(\w*) -->\n```python\n(.*?)```", CONTRACT, re.S)
ARGUMENTS = {
    "f": lambda: (torch.randn(2, 3), torch.randn(3, 4)),
    "g": lambda: (torch.randn(2, 3), torch.randn(3, 4, requires_grad=True)),
    "h": lambda: (torch.randn(2, 3),),
}


class Recording(Backend):
    """Keeps the text of each graph by its mode."""

    name = "recording"

    def __init__(self, level: str) -> None:
        self.capabilities = Capabilities(graph_level=level)
        self.seen: dict[str, str] = {}

    def compile(self, graph, fake_inputs, ctx):
        self.seen[ctx.mode] = re.sub(r";  [\w =]+= None$", "", graph.code.strip(), flags=re.M)
        return Artifact(call=graph)


def program_of(name: str):
    source = re.search(rf"```python\n(def {name}\(.*?)```", CONTRACT, re.S).group(1)
    namespace = {"torch": torch}
    # The capture reads no source, so that a function without a file is as good as any.
    exec(source, namespace)
    return namespace[name]


def test_the_contract_shows_every_level_and_both_graphs_of_training():
    assert {level for _, level, _, _ in SHOWN} == set(GRAPH_LEVELS)
    assert {mode for _, _, mode, _ in SHOWN} == {"", "forward", "backward"}


@pytest.mark.parametrize("name, level, mode, text", SHOWN, ids=lambda value: str(value)[:20])
def test_the_graphs_of_the_contract_are_those_that_core_makes(name, level, mode, text):
    backend, program, arguments = Recording(level), program_of(name), ARGUMENTS[name]()
    result = core.compile(program, backend=backend, dynamic=name == "h" or None)(*arguments)
    if mode == "backward":
        result.backward()
    assert backend.seen[mode or "inference"] == text.strip()


def test_the_blocks_of_the_porting_page_run():
    page = (DOCS / "porting-a-dynamo-backend.md").read_text()
    found = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
    assert len(found) == 2
    namespace: dict[str, object] = {}
    for block in found:
        exec(compile(block, "porting-a-dynamo-backend.md", "exec"), namespace)


def test_the_hook_reference_is_current():
    spec = importlib.util.spec_from_file_location("hook_reference", ROOT / "tools" / "hook_reference.py")
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    assert (DOCS / "hooks.md").read_text() == reference.page(), "run `python tools/hook_reference.py --write`"


def test_every_field_that_hooks_are_given_is_explained():
    page = (DOCS / "hooks.md").read_text()
    for name in ("CompileContext", "Artifact", "Capabilities"):
        section = re.search(rf"^### {name}\n(.*?)(?=^###|\Z)", page, re.M | re.S).group(1)
        explained, table = section.split("| field |")
        fields = re.findall(r"^\| `(\w+)` \|", table, re.M)
        assert len(fields) > 5
        # What a name says by itself needs no words; those fields are listed here.
        plain = {"precision_default", "precision_modes", "serializable", "thread_safe", "compile_isolation"}
        plain |= {"op_coverage", "shape_env"}
        assert [field for field in fields if not re.search(rf"\b{field}\b", explained) and field not in plain] == []


def test_the_certification_page_has_every_state_tier_and_level():
    from core.backends.certificates import STATES

    page = (DOCS / "certification.md").read_text()
    for word in (
        *STATES,
        "official",
        "verified",
        "community",
        "foreign",
        "self-reported",
        "vendor-signed",
        "reproduced",
    ):
        assert re.search(rf"^\| {word} \| \S", page, re.M), word
