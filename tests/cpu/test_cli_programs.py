"""`core explain` and `core bench` run a program and say what happened, as text, JSON and a page."""

from __future__ import annotations

import html.parser
import json

import pytest

import core
from core.cli import main

SCRIPT = """
import sys
import torch, core

def program(x):
    y = x.sin() + 1
    print("told", *sys.argv[1:])
    return y.cos()

def factory():
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU()), (torch.randn(3, 4),)

def alone():
    return 5

if __name__ == "__main__":
    core.compile(program, backend="aot_eager")(torch.ones(2))
    if "auto" in sys.argv:
        core.compile(lambda x: x * 2 + 1, backend="auto", options={"candidates": ["aot_eager"]})(torch.ones(3))
    if "fail" in sys.argv:
        raise ValueError("<no>")
"""


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.setenv("CORE_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "program.py"
    path.write_text(SCRIPT)
    yield str(path)
    core.reset()


def test_explain_prints_breaks_artifacts_and_the_table_of_auto(script, capsys):
    assert main(["explain", script, "auto"]) == 1, "a break is a finding"
    out = capsys.readouterr().out
    assert "told auto" in out and "3 graphs" in out and "1 graph breaks" in out
    assert "program.py:7" in out and "reason lost" in out and "aot_eager" in out
    assert "guards; --guards prints them" in out and "  guard: " not in out
    main(["explain", "--guards", script])
    assert "  guard: " in capsys.readouterr().out


def test_explain_as_json_is_readable_although_the_script_prints(script, capsys):
    assert main(["explain", "--json", script, "fail"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert (data["graph_count"], data["graph_break_count"], data["failure"]) == (2, 1, "ValueError: <no>")
    assert data["breaks"][0]["line"].endswith("program.py:7 in program")
    assert [artifact["backend"] for artifact in data["artifacts"]] == ["aot_eager", "aot_eager"]
    assert all("sin" in graph["code"] or "cos" in graph["code"] for graph in data["graphs"]) and data["guards"]


def test_explain_writes_one_page_that_needs_nothing_else(script, tmp_path, capsys):
    page = tmp_path / "page.html"
    main(["explain", "--html", str(page), script, "auto"])
    text = page.read_text()

    class Tags(html.parser.HTMLParser):
        seen = set()

        def handle_starttag(self, tag, attrs):
            self.seen.add(tag)
            assert not {"src", "href"} & {name for name, _ in attrs}

    Tags().feed(text)
    assert "script" not in Tags.seen and {"table", "pre", "h2"} <= Tags.seen
    assert "Graph breaks" in text and "auto, " in text and "winner: inductor" in text


def test_explain_of_no_script_is_wrong_usage(tmp_path, capsys):
    assert main(["explain", str(tmp_path / "none.py")]) == 2
    assert "there is no script" in capsys.readouterr().err


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
def test_bench_has_a_row_for_eager_and_one_a_backend(script, capsys, training):
    extra = ["--training"] if training else []
    given = ["bench", f"{script}:factory", "--backends", "aot_eager,inductor", "--rounds", "3", "--json", *extra]
    assert main(given) == 0
    data = json.loads(capsys.readouterr().out)
    assert [row["backend"] for row in data["rows"]] == ["eager (torch)", "aot_eager", "inductor"]
    assert all(row["us"] > 0 and row["ratio"] > 0 and row["error"] < 1e-5 and not row["note"] for row in data["rows"])
    assert data["training"] is training and data["rows"][0]["error_ratio"] in (1.0, None)


def test_bench_of_several_models_says_what_the_catalog_asks_for(script, capsys, tmp_path):
    from catalog.site.benchmarks import read_benchmarks

    given = ["bench", f"{script}:factory", f"{script}:factory", "--backends", "eager", "--rounds", "2", "--json"]
    assert main([*given, "--clock", "cpu", "--machine", "made up"]) == 0
    out = capsys.readouterr().out
    assert json.loads(out)["clock"] == "cpu"
    (tmp_path / "own.json").write_text(out)
    (benchmark,) = read_benchmarks(tmp_path)
    assert benchmark.machine.startswith("made up, ") and "torch" in benchmark.versions and len(benchmark.day) == 10
    assert [(row.model, row.backend) for row in benchmark.rows] == [
        ("factory", "eager (torch)"),
        ("factory", "eager"),
    ] * 2
    assert all(row.run_us > 0 and row.ratio > 0 and row.compile_s > 0 for row in benchmark.rows)


def test_bench_says_why_a_backend_has_no_numbers(script, capsys):
    assert main(["bench", f"{script}:factory", "--backends", "aot_eager,none_such", "--rounds", "1"]) == 1
    out = capsys.readouterr().out
    assert "none_such" in out and "no installed distribution provides" in out and "error_ratio" in out


@pytest.mark.parametrize("model", ["alone", "absent"])
def test_bench_of_what_is_no_model_is_wrong_usage(script, capsys, model):
    assert main(["bench", f"{script}:{model}"]) == 2
    assert "returns (model, arguments)" in capsys.readouterr().err
    assert main(["bench", "no_such_module_anywhere:model"]) == 2
    assert main(["bench", "nothing"]) == 2
