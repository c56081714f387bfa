"""What folders of metadata say is what importlib.metadata says of them; it is not imported for that."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from plugin_site import add_distribution as add

from core.backends import distributions
from core.backends.distributions import entry_points_in, identity, version_of

ROOT = Path(__file__).parents[2]


def described(found):
    rows = []
    for each in found:
        points = sorted((point.group, point.name, point.value) for point in each.entry_points)
        rows.append((*identity(each), points))
    return sorted(rows)


def test_everything_installed_here_is_found_as_importlib_finds_it():
    assert described(distributions.distributions(sys.path)) == described(metadata.distributions(path=sys.path))


@pytest.mark.parametrize("name", ["torch", "core", "core-conformance", "Typing_Extensions", "nothing-of-this-name"])
def test_versions_are_those_of_importlib(name):
    try:
        wanted = metadata.version(name)
    except metadata.PackageNotFoundError:
        wanted = ""
    assert version_of(name) == wanted


def test_entry_points_are_read_as_importlib_reads_them():
    text = "# a note\n[a.group]\none = module\n two=module:attribute.inner [extra]\n\n[other]\n; = odd\nthree =four\n"
    wanted = [(point.name, point.value, point.group) for point in metadata.EntryPoints._from_text(text)]
    assert [(point.name, point.value, point.group) for point in entry_points_in(text)] == wanted


def test_an_entry_point_loads_a_module_or_what_it_names_there():
    points = entry_points_in("[g]\na = json\nb = json:JSONDecoder.decode\nc = json : loads [extra]\n")
    import json

    assert [point.load() for point in points] == [json, json.JSONDecoder.decode, json.loads]


def test_what_lies_in_an_archive_is_found_too(site, tmp_path):
    add(tmp_path / "plain", "core-alpha", "alpha")
    archive = tmp_path / "plugins.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in (tmp_path / "plain").rglob("*"):
            file.write(path, path.relative_to(tmp_path / "plain"))
    (found,) = distributions.distributions([str(archive), str(tmp_path / "absent.zip")])
    assert identity(found) == ("core-alpha", "1.0")


def test_a_finder_of_its_own_is_asked(monkeypatch, tmp_path):
    add(tmp_path, "core-alpha", "alpha")

    class Finder:
        @staticmethod
        def find_spec(name, path=None, target=None):
            return None

        @staticmethod
        def find_distributions(context):
            return iter([metadata.PathDistribution(tmp_path / "core_alpha-1.0.dist-info")])

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])
    assert [identity(each) for each in distributions.distributions([])] == [("core-alpha", "1.0")]


def test_listing_needs_no_importlib_metadata(site):
    add(site, "core-alpha", "alpha")
    program = (
        "import contextlib, io, sys\n"
        "from core.cli import main\n"
        "with contextlib.redirect_stdout(io.StringIO()):\n"
        "    main(['list', '--plugins-dir', sys.argv[1]])\n"
        "print([name for name in ('importlib.metadata', 'email') if name in sys.modules])\n"
    )
    command = [sys.executable, "-c", program, str(site)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=site)
    assert done.stdout == "[]\n", done.stderr
