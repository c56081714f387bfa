"""The command line lists, describes and diagnoses backends; its exit code says whether something was found."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import plugin_site
import pytest
from plugin_site import add_distribution as add

from core.cli import main
from core.report.doctor import _shadowing

ROOT = Path(__file__).parents[2]


def run(capsys, *arguments):
    code = main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_list_prints_a_line_a_backend(site, capsys):
    add(site, "core-alpha", "alpha")
    code, out, _ = run(capsys, "list")
    assert code == 0
    lines = out.splitlines()
    columns = ["name", "distribution", "version", "devices", "tier", "certificate", "state", "summary"]
    assert lines[0].split() == columns
    rows = [line.split(maxsplit=7) for line in lines[1:]]
    assert ["alpha", "core-alpha", "1.0", "cpu", "community", "none", "ready", "a backend for tests"] in rows
    assert any(line.startswith("eager ") for line in lines)


def test_list_as_json_with_known_names(site, capsys):
    add(site, "core-alpha", "alpha")
    code, out, _ = run(capsys, "list", "--all", "--json")
    rows = {row["name"]: row for row in json.loads(out)}
    assert code == 0
    assert rows["alpha"]["state"] == "ready" and rows["alpha"]["devices"] == ["cpu"]
    assert rows["hidet"]["state"] == "not installed"
    assert rows["hidet"]["reason"].startswith('pip install "hidet"')


def test_list_finds_an_incompatible_plugin(site, capsys):
    add(site, "core-alpha", "alpha", extra='python = ">=4"')
    code, out, _ = run(capsys, "list")
    assert code == 1
    assert "alpha (core-alpha): needs python >=4" in out


def test_info_shows_the_manifest(site, capsys):
    add(site, "core-alpha", "alpha", extra='[capabilities]\ngraph_level = "torch"')
    code, out, _ = run(capsys, "info", "alpha")
    assert code == 0
    assert "graph_level: torch" in out and "issues: https://example.org/alpha/issues" in out
    code, out, _ = run(capsys, "info", "Alpha", "--json")
    assert json.loads(out)["manifest"]["capabilities"]["graph_level"] == "torch"


def test_info_of_an_unknown_name_is_a_finding_with_the_error_id(site, capsys):
    code, out, err = run(capsys, "info", "hidet")
    assert (code, out) == (1, "")
    assert "CORE-B001" in err and 'pip install "hidet"' in err
    code, out, _ = run(capsys, "info", "hidet", "--json")
    assert code == 1 and json.loads(out)["error"]["id"] == "CORE-B001"


@pytest.mark.parametrize("arguments", [[], ["bogus"], ["info"], ["list", "--nonsense"]])
def test_wrong_usage_has_exit_code_two(site, capsys, arguments):
    assert run(capsys, *arguments)[0] == 2


def test_help_is_no_error(site, capsys):
    code, out, _ = run(capsys, "--help")
    assert code == 0 and "doctor" in out


def test_doctor_probes_a_working_plugin(site, capsys):
    add(site, "core-alpha", "alpha")
    code, out, _ = run(capsys, "doctor", "alpha")
    assert (code, out) == (0, "info: backend 'alpha' (core-alpha 1.0) works on cpu\n")


def test_doctor_survives_a_plugin_that_ends_its_process(site, capsys):
    add(site, "core-alpha", "alpha", source="import os; os._exit(7)")
    code, out, _ = run(capsys, "doctor", "alpha", "--json")
    assert code == 1
    assert json.loads(out) == [
        {
            "level": "error",
            "text": "backend 'alpha' (core-alpha 1.0) can't be loaded: exit status 7",
            "remedy": "",
        }
    ]


def test_doctor_reports_a_refusing_probe_with_its_remedy(site, capsys):
    source = plugin_site.PLUGIN.format(name="alpha", version="1") + (
        "\nfrom core.plugin import Probe\n"
        "@hookimpl\ndef backend_probe(device):\n    return Probe(False, 'no driver', 'install one')\n"
    )
    add(site, "core-alpha", "alpha", source=source)
    code, out, _ = run(capsys, "doctor", "alpha")
    assert code == 1
    assert out == ("error: backend 'alpha' (core-alpha 1.0) can't work on cpu: no driver\n  remedy: install one\n")


def test_doctor_tells_of_a_project_folder_that_shadows_the_compiler(tmp_path):
    assert _shadowing(tmp_path) == []
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "__init__.py").write_text("")
    finding = _shadowing(tmp_path)[0]
    assert finding.level == "warning" and str(tmp_path / "core") in finding.text
    assert _shadowing(ROOT) == []


def test_module_entry_lists_without_torch():
    code = "import sys, runpy; sys.argv = ['core', 'list']\ntry: runpy.run_module('core', run_name='__main__')\n"
    code += "except SystemExit as stop: assert stop.code == 0, stop.code\nassert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "aot_eager" in done.stdout


@pytest.mark.parametrize(
    "given",
    [
        ("new",),
        ("list", "--nonsense"),
        ("frobnicate",),
        ("conformance", "run"),
        ("list", "--plugins-dir", "nowhere-at-all"),
    ],
)
def test_wrong_usage_is_told_as_asked_for(capsys, given):
    assert main([*given, "--json"]) == 2
    captured = capsys.readouterr()
    error = json.loads(captured.out)["error"]
    assert error["what"].startswith("core") and error["remedy"].startswith("usage: core") and not captured.err
    assert main(list(given)) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("usage: core") and error["what"] in captured.err and not captured.out
