"""Backends that other projects publish for torch.compile are listed from metadata; none of them is imported."""

from __future__ import annotations

import sys

import pytest

from core.backends.discovery import scan
from core.backends.foreign import foreign_backends, named
from core.backends.registry import Registry
from core.errors import AmbiguousBackend, BackendNotInstalled, BackendUnavailable


def publish(site, distribution, points, version="1.0"):
    """A distribution with entry points of torch.compile's group, whose module fails when it is imported."""
    module = distribution.replace("-", "_")
    (site / f"{module}.py").write_text("raise RuntimeError('imported')\n")
    info = site / f"{module}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
    lines = "".join(f"{name} = {module}:{name}\n" for name in points)
    (info / "entry_points.txt").write_text(f"[torch_dynamo_backends]\n{lines}")


def registry(tmp_path, environ=None, project=None):
    return Registry(path=[str(tmp_path)], environ=environ or {}, project=project)


def test_entry_points_of_the_peer_are_found_without_an_import(tmp_path):
    publish(tmp_path, "some-compiler", ["some", "other"], version="2.5")
    found = foreign_backends(scan([str(tmp_path)]), registering=False)
    assert [(each.name, each.use, each.distribution, each.version) for each in found] == [
        ("other", "dynamo:other", "some-compiler", "2.5"),
        ("some", "dynamo:some", "some-compiler", "2.5"),
    ]
    assert "some_compiler" not in sys.modules


def test_cores_own_entry_points_are_no_foreign_backends(tmp_path):
    publish(tmp_path, "vendor", ["theirs"])
    points = tmp_path / "vendor-1.0.dist-info" / "entry_points.txt"
    points.write_text(points.read_text() + "core_vendor = core.bridge:vendor\n")
    assert [each.name for each in foreign_backends(scan([str(tmp_path)]), registering=False)] == ["theirs"]


def test_a_bare_name_means_a_foreign_backend_only_when_no_plugin_has_it(tmp_path):
    publish(tmp_path, "some-compiler", ["some", "eager", "tensorrt"])
    found = registry(tmp_path)
    assert found.find_foreign("some").name == "some"
    assert found.find_foreign("dynamo:Some").name == "some"
    assert found.find_foreign("eager") is None, "core's own"
    assert found.find_foreign("dynamo:eager").distribution == "some-compiler"
    assert found.find_foreign("tensorrt") is None, "the catalog keeps the name for a plugin"


def test_a_name_of_two_distributions_is_ambiguous_until_one_is_named(tmp_path):
    publish(tmp_path, "one-compiler", ["some"])
    publish(tmp_path, "two-compiler", ["some"])
    found = registry(tmp_path)
    with pytest.raises(AmbiguousBackend) as caught:
        found.find_foreign("dynamo:some")
    assert 'backend="dynamo:one-compiler:some"' in caught.value.remedy
    assert found.find_foreign("dynamo:two-compiler:some").distribution == "two-compiler"
    assert len(named(found.foreign(), "some")) == 2
    with pytest.raises(BackendNotInstalled):
        found.resolve("some")


@pytest.mark.parametrize(
    "environ, rule",
    [({"CORE_DISABLE_PLUGINS": "some-compiler"}, "CORE_DISABLE_PLUGINS"), ({}, "require_lock")],
    ids=["disabled", "lock"],
)
def test_what_the_policy_refuses_is_not_imported(tmp_path, environ, rule):
    publish(tmp_path, "some-compiler", ["some"])
    project = tmp_path / "pyproject.toml"
    project.write_text("[tool.core.plugins]\nrequire_lock = true\n" if rule == "require_lock" else "")
    found = registry(tmp_path, environ, project)
    assert rule in found.foreign_refusal(found.foreign()[0])
    with pytest.raises(BackendUnavailable) as caught:
        found.resolve("dynamo:some")
    assert rule in str(caught.value) and "some_compiler" not in sys.modules
