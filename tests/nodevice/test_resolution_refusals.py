"""A name that can't become a backend: each refusal names the distribution, the versions and the line that helps."""

from __future__ import annotations

import sys

import pytest
from plugin_site import add_distribution as add
from plugin_site import registry

from core.backends.catalog import CATALOG, FOREIGN, GONE, CatalogEntry
from core.backends.compatibility import Mismatch
from core.backends.versions import side_of
from core.errors import (
    AmbiguousBackend,
    BackendIncompatible,
    BackendNotInstalled,
    BackendRetired,
    BackendUnavailable,
    InvalidOption,
)

HERE = "core 0.1.0 with plugin API 1.0, torch 2.13.0+cpu, Python 3.11.7"
REFUSES_IMPORT = "raise SystemExit('imported')"


def refused(error, found, name):
    with pytest.raises(error) as caught:
        found.resolve(name)
    assert type(caught.value) is error and caught.value.instead
    return caught.value


# -- versions ---------------------------------------------------------------------------------------------------------

RANGES = {
    'plugin_api = ">=1.3,<2"': (
        "needs plugin api >=1.3,<2, this process has 1.0",
        "upgrade core: pip install --upgrade core",
    ),
    'plugin_api = ">=2"': ("needs plugin api >=2, this process has 1.0", "or install an older core-alpha"),
    'plugin_api = "<1"': (
        "needs plugin api <1, this process has 1.0",
        "upgrade core-alpha (core speaks plugin API 1 and no",
    ),
    'core = ">=0.2"': ("needs core >=0.2, this process has 0.1.0", "upgrade core: pip install --upgrade core"),
    'core = "<0.1"': (
        "needs core <0.1, this process has 0.1.0",
        "upgrade core-alpha: pip install --upgrade core-alpha",
    ),
    'torch = ">=2.14"': ("needs torch >=2.14, this process has 2.13.0+cpu", 'pip install "torch>=2.14"'),
    'python = ">=3.12"': ("needs python >=3.12, this process has 3.11.7", "use Python >=3.12"),
    'python = "<3.11"': ("needs python <3.11, this process has 3.11.7", "upgrade core-alpha: pip install"),
    'torch = "!=2.13.0"': ("needs torch !=2.13.0, this process has", "bring torch into !=2.13.0"),
    'platforms = ["plan9"]': (f"works on plan9, this is {sys.platform}", "install another version of core-alpha"),
}


@pytest.mark.parametrize("line", RANGES)
def test_a_plugin_out_of_its_range_is_not_imported_and_the_side_to_change_is_named(site, line):
    words, remedy = RANGES[line]
    manifest = 'schema = 1\nname = "{name}"\n'
    add(site, "core-alpha", "alpha", source=REFUSES_IMPORT, manifest=manifest, extra=line)
    error = refused(BackendIncompatible, registry(site), "alpha")
    assert error.what.startswith("backend 'alpha' of core-alpha 1.0 does not fit this process: ")
    assert words in error.what and error.what.endswith(f"; here are {HERE}")
    assert remedy in error.remedy and error.instead == "the plugin was not loaded"


def test_every_reason_is_named_when_there_are_two(site):
    add(site, "core-alpha", "alpha", extra='torch = ">=3"\npython = ">=4"')
    error = refused(BackendIncompatible, registry(site), "alpha")
    assert "torch >=3" in error.what and "python >=4" in error.what
    assert 'pip install "torch>=3"' in error.remedy and "use Python >=4" in error.remedy


def test_a_newer_torch_than_the_plugin_knows_is_a_warning_and_under_strict_a_refusal(site, recwarn):
    add(site, "core-alpha", "alpha", extra='torch = ">=2.8,<2.12"')
    found = registry(site)
    words = "not tested with this torch: needs torch >=2.8,<2.12, this process has 2.13.0+cpu"
    assert found.state(found.find("alpha")) == ("ready", words)
    assert found.resolve("alpha").name == "alpha"
    found.resolve("alpha")
    assert [str(w.message) for w in recwarn] == [f"backend 'alpha' of core-alpha: {words}"]
    error = refused(BackendIncompatible, registry(site, environ={"CORE_STRICT": "1"}), "alpha")
    assert "upgrade core-alpha: pip install --upgrade core-alpha" in error.remedy


@pytest.mark.parametrize(
    "version, wanted, side",
    [
        ("1.0", ">=1.3,<2", "below"),
        ("2.0", ">=1,<2", "above"),
        ("1.5", ">=1,<2", ""),
        ("1.5", "!=1.5", "outside"),
        ("1.5", "==2.*", "below"),
        ("3", "==2.*", "above"),
        ("2.13.1", "~=2.12.0", "above"),
        ("2.11", "~=2.12.0", "below"),
        ("1.5", ">=2,<1", "outside"),
    ],
)
def test_a_version_lies_on_one_side_of_a_range(version, wanted, side):
    assert side_of(version, wanted) == side


def test_only_a_newer_torch_counts_as_untested():
    assert Mismatch("torch", "<2.12", "2.13", "above").untested
    assert not Mismatch("torch", ">=2.14", "2.13", "below").untested
    assert not Mismatch("core", "<0.1", "0.2", "above").untested


# -- names ------------------------------------------------------------------------------------------------------------


def test_ambiguous_names_show_both_distributions_and_the_line_that_pins(site):
    add(site, "core-one", "alpha", version="1.5")
    add(site, "core-two", "alpha")
    error = refused(AmbiguousBackend, registry(site), "Alpha")
    assert error.what == "2 distributions provide the backend 'Alpha': core-one 1.5, core-two 1.0"
    assert 'backend="core-one:alpha"' in error.remedy
    assert '[tool.core.plugins] pin = { alpha = "core-one" }' in error.remedy


def test_a_foreign_backend_is_named_with_its_pip_line_and_the_name_to_use(site):
    error = refused(BackendNotInstalled, registry(site), "hidet")
    assert error.remedy.startswith('pip install "hidet"; then pass backend="dynamo:hidet"')


@pytest.fixture
def reserved(monkeypatch):
    """(name, entry) of a name that is kept for a distribution that nobody has published yet."""
    entry = CatalogEntry("core-kept", "core-kept", "kept", name="kept", aliases=("kept_too",), state="reserved")
    monkeypatch.setitem(CATALOG, "kept", entry)
    return "kept", entry


def test_a_reserved_name_says_that_nothing_is_published_and_gives_no_pip_line(site, reserved):
    name, entry = reserved
    error = refused(BackendNotInstalled, registry(site), name)
    assert f"the name is kept for {entry.distribution}, of which nothing is published yet" in error.what
    assert "pip install" not in error.remedy and "core list --all" in error.remedy


@pytest.mark.parametrize("name", sorted(GONE))
def test_every_name_of_the_past_says_why_it_is_gone_and_what_to_use(site, name):
    entry = GONE[name]
    error = refused(BackendRetired, registry(site), name)
    assert error.id == "CORE-B009" and isinstance(error, BackendNotInstalled)
    assert error.what.startswith(f"the backend {name!r} is gone")
    assert not entry.note or entry.note.rstrip(".") in error.what
    successor = {**CATALOG, **FOREIGN}.get(entry.successor)
    assert f'use backend="{successor.use or entry.successor}"' in error.remedy
    assert ("pip install" in error.remedy) == (successor.state == "available")


ECOSYSTEM = (
    "aot_cudagraphs cudagraphs fx2trt ts ofi nvfuser aot_nvfuser nvprims_nvfuser nvprims_aten tvm onnxrt ipex openxla "
    "torchxla_trivial torchxla_trace_once aot_torchxla_trace_once onnx2tensorrt static_runtime aot_ts tensorrt"
).split()


@pytest.mark.parametrize("name", ECOSYSTEM)
def test_every_name_that_the_ecosystem_has_known_is_explained(site, name):
    error = refused_in_some_way(registry(site), name)
    assert "did you mean" not in error.remedy.partition(";")[0]
    assert "is gone" in error.what or "is kept for" in error.what or "pip install" in error.remedy


def refused_in_some_way(found, name):
    with pytest.raises(BackendNotInstalled) as caught:
        found.resolve(name)
    return caught.value


def test_an_installed_plugin_of_an_old_name_is_used_all_the_same(site):
    add(site, "somebody-ts", "ts")
    assert registry(site).resolve("ts").distribution == "somebody-ts"


def test_an_alias_of_a_reserved_name_means_its_owner(site, reserved):
    name, entry = reserved
    add(site, entry.distribution, name)
    assert registry(site).resolve(entry.aliases[0]).name == name


@pytest.mark.parametrize("spec", [3, None, [], {"name": "x"}])
def test_what_is_no_backend_at_all_is_an_error(site, spec):
    with pytest.raises(InvalidOption, match="neither a name, a Backend nor a callable"):
        registry(site).resolve(spec)


def test_a_list_names_its_first_failure_and_does_not_hide_a_broken_plugin(site):
    add(site, "core-alpha", "alpha", source="raise ValueError('x')")
    add(site, "core-beta", "beta")
    found = registry(site)
    with pytest.raises(BackendNotInstalled, match="'nowhere'"):
        found.resolve(["nowhere", "nothing"])
    with pytest.raises(Exception, match="ValueError: x"):
        found.resolve(["alpha", "beta"])


def test_a_distribution_that_does_not_provide_the_name_is_no_match(site):
    add(site, "core-alpha", "alpha")
    assert "'core-beta:alpha'" in refused(BackendNotInstalled, registry(site), "core-beta:alpha").what


def test_a_backend_that_a_policy_forbids_says_which_setting(site):
    add(site, "core-alpha", "alpha")
    found = registry(site, environ={"CORE_DISABLE_PLUGINS": "alpha"})
    assert "CORE_DISABLE_PLUGINS names it" in refused(BackendNotInstalled, found, "alpha").what
    assert "CORE_DISABLE_PLUGINS names it" in refused(BackendUnavailable, found, "core-alpha:alpha").what
