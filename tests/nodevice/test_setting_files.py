"""Which of the call, the block, the variable, the project's file and the user's file decides a setting."""

from __future__ import annotations

import pytest

from core.errors import InvalidOption
from core.setting_files import setting_files, user_file
from core.settings import config, options_of_backend, unknown_keys

VARIABLES = ("BACKEND", "FALLBACK", "ON_FAILURE", "PRECISION", "MAX_FALLBACK_COST", "REQUIRE_CERTIFIED")


@pytest.fixture
def places(tmp_path, monkeypatch):
    """(write the project's file, write the user's file); the working folder is a folder below the project."""
    for name in VARIABLES:
        monkeypatch.delenv(f"CORE_{name}", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    below = tmp_path / "project" / "below"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)

    def project(text):
        (tmp_path / "project" / "pyproject.toml").write_text(text)

    def user(text):
        (tmp_path / "settings" / "core").mkdir(parents=True, exist_ok=True)
        (tmp_path / "settings" / "core" / "config.toml").write_text(text)

    return project, user


def test_each_place_gives_way_to_the_stronger_one(places, monkeypatch):
    project, user = places
    assert config.backend == "inductor"
    user('backend = "from_user"')
    assert config.backend == "from_user"
    project('[tool.core]\nbackend = "from_project"')
    assert config.backend == "from_project"
    monkeypatch.setenv("CORE_BACKEND", "from_variable")
    assert config.backend == "from_variable"
    with config.patch(backend="from_block"):
        assert config.backend == "from_block"
    assert config.backend == "from_variable"


FILE = """
fallback = ["alpha", "eager"]
on_failure = "fallback"
precision = "ieee"
max_fallback_cost = 0.2
require_certified = false
"""
WANTED = {
    "fallback": ("alpha", "eager"),
    "on_failure": "fallback",
    "precision": "ieee",
    "max_fallback_cost": 0.2,
    "require_certified": False,
}
DEFAULTS = {
    "fallback": ("inductor", "eager"),
    "on_failure": "raise",
    "precision": "eager",
    "max_fallback_cost": None,
    "require_certified": True,
}


def values():
    return {name: getattr(config, name) for name in WANTED}


def test_every_setting_of_the_files_has_a_default_a_key_and_a_variable(places, monkeypatch):
    project, user = places
    assert values() == DEFAULTS
    project("[tool.core]\n" + FILE)
    assert values() == WANTED
    project("")
    assert values() == DEFAULTS
    user(FILE)
    assert values() == WANTED
    monkeypatch.setenv("CORE_FALLBACK", "eager, beta")
    monkeypatch.setenv("CORE_ON_FAILURE", "raise")
    monkeypatch.setenv("CORE_PRECISION", "eager")
    monkeypatch.setenv("CORE_MAX_FALLBACK_COST", "0.5")
    monkeypatch.setenv("CORE_REQUIRE_CERTIFIED", "1")
    assert values() == {
        "fallback": ("eager", "beta"),
        "on_failure": "raise",
        "precision": "eager",
        "max_fallback_cost": 0.5,
        "require_certified": True,
    }


@pytest.mark.parametrize(
    "line, remedy",
    [
        ("fallback = 3", "pass tuple"),
        ("fallback = [1]", "pass a list of names"),
        ('on_failure = "explode"', "pass one of 'raise', 'fallback'"),
        ("max_fallback_cost = -1", "pass at least 0"),
        ('require_certified = "yes"', "pass bool"),
        ("backend = { tensorrt = { workspace_mb = 1 } }", r"stand in [tool.core.backends.NAME]"),
    ],
)
def test_a_wrong_value_in_a_file_names_the_file_the_key_and_what_to_write(places, line, remedy):
    project, _ = places
    project(f"[tool.core]\n{line}\n")
    key = line.partition(" ")[0]
    with pytest.raises(InvalidOption) as caught:
        getattr(config, key)
    assert f"[tool.core] {key} in " in caught.value.what and "pyproject.toml" in caught.value.what
    assert remedy in caught.value.remedy


def test_a_wrong_value_in_a_variable_names_the_variable(places, monkeypatch):
    monkeypatch.setenv("CORE_MAX_FALLBACK_COST", "much")
    with pytest.raises(InvalidOption, match="CORE_MAX_FALLBACK_COST=much") as caught:
        _ = config.max_fallback_cost
    assert caught.value.remedy == "pass float or None"


def test_options_of_a_backend_come_from_both_files_the_projects_first(places):
    project, user = places
    project("[tool.core.backends.tensor-rt]\nworkspace_mb = 2048\n")
    user('[backends.tensor_rt]\nworkspace_mb = 1\nlevel = "fast"\n')
    assert options_of_backend("Tensor_RT") == {"workspace_mb": 2048, "level": "fast"}
    assert options_of_backend("other") == {}
    project("[tool.core]\nbackends = 3\n")
    with pytest.raises(InvalidOption, match=r"\[tool.core\] backends in .* is 3, not a table"):
        options_of_backend("other")


def test_a_broken_project_file_is_an_error_only_where_it_speaks_of_core(places):
    project, user = places
    project("[project\nname = ")
    assert config.backend == "inductor"
    project('[tool.core\nbackend = "x"')
    with pytest.raises(InvalidOption, match="pyproject.toml can't be read"):
        _ = config.backend
    project("")
    user("backend = ")
    with pytest.raises(InvalidOption, match="config.toml can't be read"):
        _ = config.backend


def test_a_key_that_nothing_reads_is_told_with_what_looks_alike(places):
    project, user = places
    project("[tool.core]\nfalback = []\n")
    user("colour = 1\n")
    first, second = unknown_keys()
    assert first.startswith("[tool.core] falback in ") and first.endswith("is not read; did you mean 'fallback'?")
    assert second.startswith("colour in ") and second.endswith("is not read")


def test_the_files_are_the_nearest_project_and_the_users_folder(places, tmp_path):
    project, user = places
    assert list(setting_files()) == []
    project("")
    user("")
    assert [file.path for file in setting_files()] == [tmp_path / "project" / "pyproject.toml", user_file()]
