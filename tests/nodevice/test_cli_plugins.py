"""Commands about plugins: what lists, searches, locks, installs and diagnoses them, and what those never do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import plugin_site
import pytest
from plugin_site import add_distribution as add
from plugin_site import write_record

from core.backends import discovery
from core.backends.catalog import CATALOG, CatalogEntry
from core.backends.registry import Registry
from core.cli import install, main
from core.errors import BackendBroken
from core.report import doctor

ROOT = Path(__file__).parents[2]
PLUGIN = plugin_site.PLUGIN.format(name="alpha", version="1")


def run(capsys, *arguments):
    code = main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def rows(capsys, *arguments):
    code, out, _ = run(capsys, *arguments, "--json")
    return code, {row["name"]: row for row in json.loads(out)}


# -- output -----------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("arguments", [["list"], ["list", "--all"], ["conformance", "--json"]])
def test_output_that_can_not_be_written_is_told_in_one_line(site, arguments):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "core", *arguments], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 1 and "No space left" in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr


def test_output_that_nobody_reads_is_no_failure(site):
    command = [sys.executable, "-m", "core", "list", "--all"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b"" and process.wait() == 0


# -- list and search --------------------------------------------------------------------------------------------------


def test_a_hundred_plugins_are_listed_and_none_of_them_nor_torch_is_imported(site):
    for number in range(100):
        add(site, f"core-many{number}", f"many{number}", source="raise SystemExit('imported')")
    program = (
        "import contextlib, io, sys\n"
        "from core.cli import main\n"
        "with contextlib.redirect_stdout(io.StringIO()) as out:\n"
        "    code = main(['list'])\n"
        "lines = [line for line in out.getvalue().splitlines() if line.startswith('many')]\n"
        "loaded = [name for name in sys.modules if name.partition('.')[0] in ('torch', 'numpy') or 'many' in name]\n"
        "print(code, len(lines), loaded)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=dict(os.environ))
    assert done.stdout == "0 100 []\n", done.stderr


def test_list_shows_tier_and_certificate_and_all_shows_old_names_with_their_successor(site, capsys):
    add(site, "core-alpha", "alpha")
    code, found = rows(capsys, "list", "--all")
    assert code == 0
    assert (found["alpha"]["tier"], found["alpha"]["certificate"]) == ("community", "none")
    assert found["eager"]["tier"] == "official"
    assert found["hidet"]["state"] == "not installed"
    assert found["nnc"]["state"] == "gone" and found["nnc"]["successor"] == "inductor"
    assert 'use backend="inductor"' in found["nnc"]["reason"]
    assert found["hidet"]["reason"] == 'pip install "hidet"; then pass backend="dynamo:hidet"'


def test_what_is_unavailable_is_listed_with_the_line_that_installs_it(site, capsys):
    needs = '[requires]\nimport = ["no_such_runtime"]\npip = "core-alpha[runtime]"\n'
    add(site, "core-alpha", "alpha", extra=needs)
    code, out, _ = run(capsys, "list")
    remedy = 'pip install "core-alpha[runtime]"'
    assert code == 0
    assert f"alpha (core-alpha): it needs no_such_runtime, which is not installed; {remedy}" in out
    assert f"remedy: {remedy}" in run(capsys, "info", "alpha")[1]


def test_certificates_and_examples_are_told_in_words(capsys):
    out = run(capsys, "info", "eager")[1]
    assert "  smoke on cpu: certified, " in out and "options_set" not in out and "{" not in out
    code, found = rows(capsys, "search", "abacus")
    assert found["abacus"]["reason"] == 'pip install "./examples/core-abacus" in the sources of core'


def test_the_working_folder_is_no_place_for_plugins_unless_it_is_named(site, tmp_path, capsys, monkeypatch):
    here = tmp_path / "work"
    add(here, "core-alpha", "alpha")
    monkeypatch.setattr(sys, "path", ["", str(here), *sys.path])
    assert "alpha" not in rows(capsys, "list")[1]
    monkeypatch.setenv("PYTHONPATH", str(here))
    assert "alpha" in rows(capsys, "list")[1]
    assert discovery.search_path()[0] == ""


def test_a_folder_of_plugins_counts_when_it_is_given(site, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    folder = tmp_path / "plugins"
    folder.mkdir()
    add(folder, "core-alpha", "alpha")
    assert "alpha" not in rows(capsys, "list")[1]
    assert rows(capsys, "list", "--plugins-dir", str(folder))[1]["alpha"]["state"] == "ready"
    code, out, _ = run(capsys, "doctor", "alpha", "--plugins-dir", str(folder))
    assert (code, out) == (0, "info: backend 'alpha' (core-alpha 1.0) works on cpu\n")
    assert run(capsys, "list", "--plugins-dir", str(tmp_path / "nowhere"))[0] == 2
    assert run(capsys, "list", "--plugins-dir", "https://example.org/plugins")[0] == 2


def test_search_looks_into_names_summaries_and_aliases_offline(site, capsys):
    add(site, "core-alpha", "alpha")
    code, found = rows(capsys, "search", "NVIDIA")
    assert code == 0 and {"tensorrt", "nvfuser"} <= set(found)
    assert set(rows(capsys, "search", "a backend for tests")[1]) == {"alpha"}
    assert "nvfuser" in rows(capsys, "search", "aot_nvfuser")[1]
    add(site, "core-beta", "beta", manifest='aliases = ["second_letter"]\n' + plugin_site.MANIFEST)
    assert set(rows(capsys, "search", "second_letter")[1]) == {"beta"}
    code, out, _ = run(capsys, "search", "no such thing at all")
    assert code == 1 and "'no such thing at all'" in out


# -- install ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def pip(monkeypatch):
    """The commands that would have run."""
    commands = []

    def record(command, **_):
        commands.append(command)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(install.subprocess, "run", record)
    return commands


def test_install_prints_the_line_and_runs_it_only_after_a_yes(site, capsys, monkeypatch, pip):
    line = f"{sys.executable} -m pip install 'core[inductor]'"
    code, out, _ = run(capsys, "install", "inductor")
    assert (code, out, pip) == (1, f"{line}\nnot run\n", [])
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda prompt: "no")
    assert run(capsys, "install", "inductor")[0] == 1 and pip == []
    monkeypatch.setattr("builtins.input", lambda prompt: "y")
    assert run(capsys, "install", "inductor")[0] == 0
    assert pip == [[sys.executable, "-m", "pip", "install", "core[inductor]"]]
    assert run(capsys, "install", "inductor", "--yes")[0] == 0 and len(pip) == 2
    code, out, _ = run(capsys, "install", "inductor", "--dry-run")
    assert (code, out) == (0, f"{line}\n") and len(pip) == 2


def test_install_as_json_says_whether_it_ran(site, capsys, pip):
    code, out, _ = run(capsys, "install", "inductor", "--json")
    assert code == 1 and json.loads(out)["ran"] is False
    code, out, _ = run(capsys, "install", "inductor", "--yes", "--json")
    assert code == 0 and json.loads(out)["exit"] == 0


@pytest.mark.parametrize("name", ["kept", "ts", "nobody_knows_this", "-r requirements.txt", "git+https://x/y"])
def test_install_gives_pip_nothing_but_names_of_the_catalog(site, capsys, pip, name, monkeypatch):
    unpublished = CatalogEntry("core-kept", "core-kept", "kept", name="kept", state="reserved")
    monkeypatch.setitem(CATALOG, "kept", unpublished)
    code, out, err = run(capsys, "install", "--yes", "--", name)
    assert (code, out, pip) == (1, "", []) and "CORE-B0" in err


# -- lock -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [("lock", "--file"), ("explain", "--html")])
def test_a_file_that_can_not_be_written_is_wrong_usage(site, tmp_path, capsys, command):
    script = tmp_path / "script.py"
    script.write_text("raise SystemExit('it ran')")
    name, option = command
    arguments = [name, option, str(script / "below-a-file"), *([str(script)] if name == "explain" else [])]
    code, _, err = run(capsys, *arguments)
    assert code == 2 and "can't be written" in err and "it ran" not in err
    code, out, _ = run(capsys, name, "--json", *arguments[1:])
    assert code == 2 and "can't be written" in json.loads(out)["error"]["what"]
    code, _, err = run(capsys, name, option, str(tmp_path), *arguments[3:])
    assert code == 2 and "it is a folder" in err


def test_lock_writes_beside_the_project_file_and_check_finds_what_differs(site, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(site), str(ROOT)])
    module = add(site, "core-alpha", "alpha")
    write_record(site, "core-alpha", module)
    (tmp_path / "pyproject.toml").write_text("[tool.core.plugins]\nrequire_lock = true\n")
    assert rows(capsys, "list")[1]["alpha"]["state"] == "denied"
    code, out, _ = run(capsys, "lock", "--check")
    assert code == 1 and f"there is no {tmp_path / 'core.lock'}" in out
    code, out, _ = run(capsys, "lock")
    assert code == 0 and f"written to {tmp_path / 'core.lock'}" in out and "core-alpha 1.0 sha256:" in out
    assert rows(capsys, "list")[1]["alpha"]["state"] == "ready"
    assert run(capsys, "lock", "--check")[0] == 0
    (site / module / "__init__.py").write_text("changed = True")
    code, out, _ = run(capsys, "lock", "--check", "--json")
    findings = json.loads(out)["findings"]
    assert code == 1 and findings == [f"files of core-alpha differ from its record: {module}/__init__.py"]


def test_lock_says_which_plugin_can_not_be_locked(site, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(site), str(ROOT)])
    add(site, "core-alpha", "alpha")
    code, out, _ = run(capsys, "lock", "--file", str(tmp_path / "other.lock"))
    assert code == 1 and "core-alpha has no record of its files" in out
    assert (tmp_path / "other.lock").is_file() and not (tmp_path / "core.lock").exists()


# -- doctor -----------------------------------------------------------------------------------------------------------


def findings(capsys, *arguments):
    code, out, _ = run(capsys, "doctor", *arguments, "--json")
    return code, json.loads(out)


def test_doctor_shows_the_traceback_of_a_plugin_that_can_not_be_imported(site, capsys):
    add(site, "core-alpha", "alpha", source="def broken():\n    raise ValueError('no licence')\nbroken()")
    code, (finding,) = findings(capsys, "alpha")
    assert code == 1 and finding["level"] == "error"
    assert "[CORE-B005]" in finding["text"] and "ValueError: no licence" in finding["text"]
    assert "core_alpha_plugin/__init__.py" in finding["text"] and "in broken" in finding["text"]
    assert finding["remedy"] == "reinstall core-alpha, or report it at https://example.org/alpha/issues"


def test_doctor_shows_what_failed_in_the_process_that_calls_it(site, monkeypatch):
    monkeypatch.setattr(doctor, "_probed", lambda label, qualified, verify: [])
    add(site, "core-alpha", "alpha", source="raise ValueError('no licence')")
    registry = Registry([str(site)], environ={})
    with pytest.raises(BackendBroken):
        registry.resolve("alpha")
    (finding,) = [each for each in doctor.examine(registry) if "could not be loaded" in each.text and "\n" in each.text]
    assert finding.level == "error" and "Traceback" in finding.text and "no licence" in finding.text
    assert "reinstall core-alpha" in finding.remedy


@pytest.mark.slow
def test_doctor_says_where_an_import_hangs(site, capsys, monkeypatch):
    monkeypatch.setattr(doctor, "PROBE_SECONDS", 1.0)
    monkeypatch.setattr(doctor, "patience", float)
    add(site, "core-alpha", "alpha", source="import threading\ndef forever():\n    threading.Event().wait()\nforever()")
    code, (finding,) = findings(capsys, "alpha")
    assert code == 1
    assert "loading and probing took longer than 1 s; it was in " in finding["text"]
    assert "CORE_DISABLE_PLUGINS" in finding["remedy"]


@pytest.mark.slow
def test_doctor_tells_what_loading_changed_and_what_the_plugin_says_of_itself(site, capsys):
    source = (
        "import os\nos.environ['CORE_TEST_DOCTOR'] = '1'\nfrom core.plugin import Finding\n"
        + PLUGIN
        + "\n@hookimpl\ndef core_diagnose():\n    return [Finding('warning', 'the driver is old', 'upgrade it')]\n"
    )
    add(site, "core-alpha", "alpha", source=source)
    code, found = findings(capsys, "alpha")
    texts = [finding["text"] for finding in found]
    assert code == 1
    assert any("CORE_TEST_DOCTOR" in text and "it was put back" in text for text in texts)
    assert "backend 'alpha' (core-alpha 1.0) works on cpu" in texts
    assert {"level": "warning", "text": "the driver is old", "remedy": "upgrade it"} in found


def test_doctor_names_conflicts_strangers_settings_nobody_reads_and_plugins_without_manifest(
    site, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(sys, "path", [str(site), str(ROOT)])
    monkeypatch.setattr(doctor, "_probed", lambda label, qualified, verify: [])
    add(site, "core-one", "alpha")
    add(site, "core-two", "alpha")
    add(site, "evil-rt", "tensorrt")
    add(site, "core-bare", "bare", manifest=None)
    (tmp_path / "pyproject.toml").write_text("[tool.core]\nfalback = []\n")
    code, found = findings(capsys)
    by_text = {finding["text"]: finding["remedy"] for finding in found}
    assert code == 1
    pin = '[tool.core.plugins] pin = { alpha = "core-one" }'
    assert pin in by_text["the backend name 'alpha' is provided by core-one 1.0, core-two 1.0"]
    assert "backend 'tensorrt' of evil-rt 1.0 has a name that belongs to core-tensorrt" in by_text
    assert any("falback" in text and "did you mean 'fallback'" in text for text in by_text)
    assert any(text.startswith("backend 'bare' (core-bare 1.0) has no manifest") for text in by_text)
    (tmp_path / "pyproject.toml").write_text('[tool.core.plugins]\npin = { alpha = "core-two" }\n')
    levels = {finding["text"]: finding["level"] for finding in findings(capsys)[1]}
    assert levels["the backend name 'alpha' is provided by core-one 1.0, core-two 1.0; pinned is core-two"] == "info"


@pytest.mark.parametrize(
    "extra, words, remedy",
    [
        ('torch = ">=99"', "is incompatible: needs torch >=99", 'pip install "torch>=99"'),
        ('[requires]\nimport = ["no_such_module"]\npip = "alpha-rt"', "is unavailable", 'pip install "alpha-rt"'),
    ],
)
def test_doctor_gives_the_remedy_of_what_can_not_be_used(site, capsys, extra, words, remedy):
    add(site, "core-alpha", "alpha", extra=extra)
    code, (finding,) = findings(capsys, "alpha")
    assert code == 1 and words in finding["text"] and remedy in finding["remedy"]


@pytest.mark.parametrize("content, words", [(None, "there is no"), ("garbage", "is no lock file of core")])
@pytest.mark.slow
def test_doctor_finds_a_required_lock_that_is_absent_or_damaged(site, tmp_path, capsys, content, words):
    (tmp_path / "pyproject.toml").write_text("[tool.core.plugins]\nrequire_lock = true\n")
    if content is not None:
        (tmp_path / "core.lock").write_text(content)
    code, found = findings(capsys)
    (finding,) = [each for each in found if "every plugin is left out" in each["text"]]
    assert code == 1 and finding["level"] == "error" and words in finding["text"]


def test_doctor_warns_of_a_torch_that_core_was_not_tested_with(monkeypatch):
    monkeypatch.setattr(doctor, "running_versions", lambda: {"torch": "2.99.0"})
    finding = doctor._torch()
    assert finding.level == "warning" and finding.text.startswith("torch 2.99.0 is not one that core was tested with")
    monkeypatch.setattr(doctor, "running_versions", lambda: {"torch": "2.13.0+cpu"})
    assert doctor._torch().level == "info"


# -- cache ------------------------------------------------------------------------------------------------------------


def test_the_cache_is_listed_and_cleared_by_folder(site, tmp_path, capsys, monkeypatch):
    root = tmp_path / "cache"
    monkeypatch.setenv("CORE_CACHE_DIR", str(root))
    code, out, _ = run(capsys, "cache", "list")
    assert (code, out) == (0, f"nothing is kept in {root}\n")
    for name in ("artifacts", "inductor"):
        (root / name / "deep").mkdir(parents=True)
        (root / name / "deep" / "file").write_bytes(b"12345")
    outside = tmp_path / "outside"
    outside.mkdir()
    (root / "link").symlink_to(outside)
    (outside / "kept").write_text("")
    (root / "inductor" / "deep" / "link").symlink_to(outside)
    code, out, _ = run(capsys, "cache", "list", "--json")
    assert [(f["name"], f["files"], f["bytes"]) for f in json.loads(out)["folders"]] == [
        ("artifacts", 1, 5),
        ("inductor", 1, 5),
    ]
    code, out, _ = run(capsys, "cache", "clear", "inductor")
    assert code == 0 and out.splitlines()[-1] == "cleared"
    assert (root / "artifacts").is_dir() and not (root / "inductor").exists()
    assert run(capsys, "cache", "clear", "inductor")[0] == 2
    assert run(capsys, "cache", "clear")[0] == 0 and not (root / "artifacts").exists()
    assert (outside / "kept").exists()
    assert run(capsys, "cache", "paint")[0] == 2
