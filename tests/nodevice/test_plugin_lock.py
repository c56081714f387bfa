"""core.lock holds what was approved; with require_lock nothing else is imported."""

from __future__ import annotations

import json
import sys

import pytest
from plugin_site import add_distribution as add
from plugin_site import write_record

from core.backends.lock import changed_files, digest_of, installed_plugins, lock_text, read_lock
from core.backends.policy import read_policy
from core.backends.registry import Registry
from core.errors import BackendUnavailable, InvalidOption, PluginNotLocked


@pytest.fixture
def site(site):
    """With one plugin that has a RECORD."""
    write_record(site, "core-alpha", add(site, "core-alpha", "alpha"))
    return site


@pytest.fixture
def project(tmp_path):
    file = tmp_path / "pyproject.toml"
    file.write_text("[tool.core.plugins]\nrequire_lock = true\n")
    return file


def registry(site, project):
    return Registry([str(site)], environ={}, project=project)


def lock(site, project):
    text = lock_text(installed_plugins(registry(site, project).installed()))
    project.with_name("core.lock").write_text(text)
    return text


def refusal(site, project):
    with pytest.raises(PluginNotLocked) as caught:
        registry(site, project).resolve("alpha")
    assert caught.value.id == "CORE-B010" and isinstance(caught.value, BackendUnavailable)
    assert caught.value.instead == "the plugin was not imported" and "core lock" in caught.value.remedy
    assert "core_alpha_plugin" not in sys.modules
    return caught.value.what


def test_a_locked_plugin_is_used_and_the_lock_names_version_digest_and_backends(site, project):
    (row,) = json.loads(lock(site, project))["plugins"]
    assert (row["distribution"], row["version"], row["backends"]) == ("core-alpha", "1.0", ["alpha"])
    assert row["digest"].startswith("sha256:") and len(row["digest"]) == 71
    assert registry(site, project).resolve("alpha").name == "alpha"


def test_without_a_lock_file_everything_but_cores_own_is_refused(site, project):
    assert "require_lock = true, and there is no " in refusal(site, project)
    assert registry(site, project).resolve("eager").name == "eager"


def test_a_plugin_that_the_lock_does_not_hold_is_refused(site, project):
    project.with_name("core.lock").write_text(lock_text([]))
    assert "it does not hold core-alpha" in refusal(site, project)


def test_another_version_is_refused(site, project):
    text = lock(site, project)
    project.with_name("core.lock").write_text(text.replace('"1.0"', '"0.9"'))
    assert "it holds core-alpha 0.9, installed is 1.0" in refusal(site, project)


def test_other_files_under_the_same_version_are_refused(site, project):
    lock(site, project)
    (site / "core_alpha_plugin" / "__init__.py").write_text("raise SystemExit")
    write_record(site, "core-alpha", "core_alpha_plugin")
    assert "the files of core-alpha 1.0 are not those that were locked" in refusal(site, project)


def test_a_plugin_without_a_record_of_its_files_can_not_be_locked(site, project):
    (site / "core_alpha-1.0.dist-info" / "RECORD").unlink()
    lock(site, project)
    assert "has no digest of core-alpha" in refusal(site, project)


@pytest.mark.parametrize("text", ["", "[]", '{"schema": 9, "plugins": []}', '{"schema": 1, "plugins": [{}]}', "\0"])
def test_a_lock_that_can_not_be_read_admits_nothing(site, project, text):
    project.with_name("core.lock").write_text(text)
    assert "core.lock" in refusal(site, project)


def test_without_require_lock_the_file_is_not_asked(site, project):
    project.write_text("")
    project.with_name("core.lock").write_text("nonsense")
    assert registry(site, project).resolve("alpha").name == "alpha"


def test_what_differs_between_machines_does_not_change_the_digest(site, project):
    backend = next(b for b in registry(site, project).installed() if b.name == "alpha")
    before = digest_of(backend)
    record = site / "core_alpha-1.0.dist-info" / "RECORD"
    record.write_text(
        record.read_text()
        + "core_alpha_plugin/__pycache__/__init__.cpython-311.pyc,,\n"
        + "core_alpha-1.0.dist-info/INSTALLER,sha256=abc,4\n"
        + "core_alpha-1.0.dist-info/direct_url.json,sha256=abc,4\n"
        + "../../../bin/alpha,sha256=abc,4\n"
    )
    assert digest_of(backend) == before
    record.write_text(record.read_text() + "core_alpha_plugin/more.py,sha256=abc,4\n")
    assert digest_of(backend) != before


def test_files_are_compared_with_their_record(site, project):
    backend = next(b for b in registry(site, project).installed() if b.name == "alpha")
    assert changed_files(backend.source) == []
    (site / "core_alpha_plugin" / "__init__.py").write_text("other")
    (site / "core_alpha_plugin" / "backend.toml").unlink()
    assert changed_files(backend.source) == ["core_alpha_plugin/__init__.py", "core_alpha_plugin/backend.toml"]


def test_a_lock_reads_back_what_was_written(site, project):
    lock(site, project)
    plugins = read_lock(project.with_name("core.lock"))
    assert list(plugins) == ["core_alpha"] and plugins["core_alpha"].version == "1.0"
    assert read_lock(project.with_name("no.lock")) is None


# -- the user's file and the project's --------------------------------------------------------------------------------


def user_file(tmp_path, text):
    (tmp_path / "settings" / "core").mkdir(parents=True)
    (tmp_path / "settings" / "core" / "config.toml").write_text(text)


def test_a_project_does_not_widen_what_the_user_has_narrowed(site, project, tmp_path):
    user_file(tmp_path, '[plugins]\ndeny = ["core-a*"]\nallow = ["core-*"]\nrequire_lock = true\n')
    project.write_text('[tool.core.plugins]\nallow = ["*"]\ndeny = ["other"]\nrequire_lock = false\n')
    policy = read_policy({}, project)
    assert policy.refusal("alpha", "core-alpha").startswith("[tool.core.plugins] deny")
    assert policy.refusal("beta", "somebody").startswith("[tool.core.plugins] allow")
    assert policy.refusal("x", "other").startswith("[tool.core.plugins] deny")
    assert policy.refusal("beta", "core-beta") == "" and policy.require_lock


def test_the_projects_pin_goes_before_the_users(site, project, tmp_path):
    user_file(tmp_path, '[plugins]\npin = { alpha = "one", beta = "two" }\n')
    project.write_text('[tool.core.plugins]\npin = { alpha = "three" }\n')
    assert read_policy({}, project).pin == {"alpha": "three", "beta": "two"}


@pytest.mark.parametrize(
    "line, remedy",
    [
        ("require_lock = 1", "require_lock = true"),
        ('dney = ["x"]', "allow, deny, pin, require_lock"),
        ("pin = { alpha = 3 }", "write a table"),
        ("deny = 'core-*'", "write a list"),
    ],
)
def test_a_wrong_policy_is_an_error_and_no_missing_rule(site, project, line, remedy):
    project.write_text(f"[tool.core.plugins]\n{line}\n")
    with pytest.raises(InvalidOption) as caught:
        read_policy({}, project)
    assert remedy in caught.value.remedy and "pyproject.toml" in caught.value.what
