"""Names become backends, or errors that say what to do; listing imports nothing, a broken plugin harms no other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import plugin_site
import pytest
from plugin_site import VERSIONS, registry
from plugin_site import add_distribution as add

from core.backends.registry import Registry
from core.backends.resolved import ResolvedBackend
from core.errors import (
    AmbiguousBackend,
    BackendBroken,
    BackendIncompatible,
    BackendNotInstalled,
    BackendUnavailable,
    InvalidOption,
)
from core.plugin import Artifact, Backend, Option, Probe

ROOT = Path(__file__).parents[2]


# -- listing ----------------------------------------------------------------------------------------------------------


def test_listing_imports_neither_plugins_nor_torch(site):
    add(site, "core-alpha", "alpha", source="raise SystemExit('imported')")
    code = (
        "import sys; from core.backends.registry import Registry;"
        f"names = [b.name for b in Registry([{str(site)!r}]).installed()];"
        "assert names == ['alpha', 'aot_eager', 'aot_eager_decomp_partition', 'eager'], names;"
        "assert 'torch' not in sys.modules and 'core_alpha_plugin' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_built_in_backends_are_the_entry_points_of_the_project_file():
    import tomllib

    from core.backends.discovery import BUILTIN

    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["core.backends"]
    assert declared == BUILTIN


def test_listing_shows_manifest_facts_and_states(site):
    add(site, "core-alpha", "alpha")
    add(site, "core-beta", "beta", extra='torch = ">=9"')
    add(site, "core-gamma", "gamma", manifest="name = 3")
    add(site, "core-delta", "delta", extra='[requires]\nimport = ["no_such_module_here"]\npip = "delta-runtime"')
    found = registry(site)
    states = {backend.name: found.state(backend) for backend in found.installed()}
    assert states["alpha"] == ("ready", "")
    assert states["beta"] == ("incompatible", "needs torch >=9, this process has 2.13.0+cpu")
    assert states["gamma"][0] == "broken" and "`name`" in states["gamma"][1]
    assert states["delta"] == ("unavailable", "it needs no_such_module_here, which is not installed")


def test_list_backends_names_what_this_process_can_use():
    from core.backends.registry import list_backends

    names = list_backends()
    assert names == sorted(names) and {"eager", "aot_eager"} <= set(names)


def test_first_distribution_of_one_name_on_the_path_counts(site, tmp_path):
    add(site, "core-alpha", "alpha", version="2.0")
    other = tmp_path / "other"
    other.mkdir()
    add(other, "core-alpha", "alpha", version="1.0")
    found = Registry([str(site), str(other)], environ={}, versions=VERSIONS)
    assert [b.version for b in found.installed() if b.name == "alpha"] == ["2.0"]


# -- resolution -------------------------------------------------------------------------------------------------------


def test_a_name_resolves_to_the_plugins_backend_with_hooks_bound(site):
    add(site, "core-alpha", "alpha")
    resolved = registry(site).resolve("alpha")
    assert resolved.label == "alpha (core-alpha 1.0)"
    assert resolved.compile("graph", [], None).call == "graph"
    assert resolved.issues == "https://example.org/alpha/issues"


@pytest.mark.parametrize("spelling", ["My-Backend", "my_backend", "MY_BACKEND", "core-mine:my-backend", "other"])
def test_case_dashes_aliases_and_qualified_names_are_accepted(site, spelling):
    add(site, "core-mine", "my-backend", extra='aliases = ["other"]')
    assert registry(site).resolve(spelling).distribution == "core-mine"


def test_resolving_twice_gives_the_same_object(site):
    add(site, "core-alpha", "alpha")
    found = registry(site)
    assert found.resolve("alpha") is found.resolve("alpha")


def test_missing_backend_of_the_catalog_names_the_pip_line(site):
    with pytest.raises(BackendNotInstalled) as caught:
        registry(site).resolve("inductor")
    assert caught.value.id == "CORE-B001"
    assert caught.value.what == "no installed distribution provides the backend 'inductor'"
    assert caught.value.remedy == 'pip install "core[inductor]"'


def test_misspelt_name_suggests_near_ones(site):
    add(site, "core-alpha", "alphabet")
    with pytest.raises(BackendNotInstalled, match="did you mean 'alphabet'"):
        registry(site).resolve("alphabt")
    with pytest.raises(BackendNotInstalled, match=r"'inductor'\?; pip install \"core\[inductor\]\""):
        registry(site).resolve("inducter")


def test_peer_module_that_is_no_plugin_is_named(site):
    (site / "openvino").mkdir()
    (site / "openvino" / "__init__.py").write_text("raise SystemExit('imported')")
    with pytest.raises(BackendNotInstalled, match="openvino is installed, but it is no plugin of core"):
        registry(site).resolve("openvino")


def test_a_backend_installed_later_is_found_without_restart(site):
    found = registry(site)
    with pytest.raises(BackendNotInstalled):
        found.resolve("alpha")
    add(site, "core-alpha", "alpha")
    assert found.resolve("alpha").name == "alpha"


def test_two_distributions_with_one_name_are_ambiguous_until_pinned(site, tmp_path):
    add(site, "core-one", "alpha")
    add(site, "core-two", "alpha")
    with pytest.raises(AmbiguousBackend, match="core-one 1.0, core-two 1.0") as caught:
        registry(site).resolve("alpha")
    assert 'pin = { alpha = "core-one" }' in caught.value.remedy
    assert registry(site).resolve("core-two:alpha").distribution == "core-two"
    project = tmp_path / "pyproject.toml"
    project.write_text('[tool.core.plugins]\npin = { alpha = "core-two" }\n')
    assert registry(site, project=project).resolve("alpha").distribution == "core-two"
    assert set(registry(site).conflicts()) == {"alpha"}


def test_the_owner_of_a_catalog_name_is_preferred(site):
    add(site, "evil-rt", "tensorrt")
    add(site, "core-tensorrt", "tensorrt")
    assert registry(site).resolve("tensorrt").distribution == "core-tensorrt"


def test_a_stranger_under_an_owned_name_warns_once(site, recwarn):
    add(site, "evil-rt", "tensorrt")
    found = registry(site)
    assert found.resolve("tensorrt").distribution == "evil-rt"
    found.resolve("tensorrt")
    assert [str(w.message) for w in recwarn] == [
        "backend 'tensorrt' comes from evil-rt 1.0; the name belongs to core-tensorrt, which does not provide it here"
    ]


def test_incompatible_plugin_is_not_imported_and_names_the_versions(site):
    add(site, "core-alpha", "alpha", source="raise SystemExit('imported')", extra='python = ">=4"')
    with pytest.raises(BackendIncompatible, match=r"needs python >=4, this process has 3\.11\.7"):
        registry(site).resolve("alpha")


def test_newer_manifest_schema_is_listed_but_not_loaded(site):
    add(site, "core-alpha", "alpha", manifest='schema = 7\nname = "alpha"\nbrand_new = true')
    found = registry(site)
    assert "alpha" in [backend.name for backend in found.installed()]
    with pytest.raises(BackendIncompatible, match="schema 7"):
        found.resolve("alpha")


def test_missing_runtime_is_unavailable_with_the_pip_line(site):
    add(site, "core-alpha", "alpha", extra='[requires]\nimport = ["no_such_module_here"]\npip = "core-alpha[gpu]"')
    with pytest.raises(BackendUnavailable, match="no_such_module_here") as caught:
        registry(site).resolve("alpha")
    assert caught.value.remedy == 'pip install "core-alpha[gpu]"'


def test_a_list_takes_the_first_usable_backend(site):
    add(site, "core-alpha", "alpha")
    found = registry(site)
    assert found.resolve(["tensorrt", "alpha"]).name == "alpha"
    with pytest.raises(BackendNotInstalled, match="tensorrt"):
        found.resolve(["tensorrt", "onnxrt"])


def test_objects_and_callables_are_backends(site):
    class Mine(Backend):
        name = "mine"

    found = registry(site)
    assert found.resolve(Mine()).name == "mine"
    assert found.resolve(Mine).name == "mine"
    resolved = found.resolve(lambda gm, inputs: gm)
    assert resolved.name.startswith("custom:") and resolved.capabilities.graph_level == "torch"
    assert isinstance(resolved, ResolvedBackend) and found.resolve(resolved) is resolved
    with pytest.raises(InvalidOption, match="neither a name, a Backend nor a callable"):
        found.resolve(3)


# -- broken plugins ---------------------------------------------------------------------------------------------------

BROKEN = {
    "import error": ("import no_such_module_here", "ModuleNotFoundError"),
    "exception": ("raise RuntimeError('boom')", "RuntimeError: boom"),
    "syntax error": ("def (", "SyntaxError"),
    "no hook": ("x = 1", "core_backend returned nothing"),
    "unknown hook": (
        "from core.plugin import hookimpl\n@hookimpl\ndef core_no_such_hook():\n    pass",
        "PluginValidationError",
    ),
    "wrong signature": (
        "from core.plugin import hookimpl\n@hookimpl\ndef core_backend(nonsense):\n    pass",
        "PluginValidationError",
    ),
    "no backend": (
        "from core.plugin import hookimpl\n@hookimpl\ndef core_backend():\n    return 3",
        "core_backend returned 3",
    ),
    "other name": (
        "from core.plugin import Backend, hookimpl\nclass B(Backend):\n    name = 'beta'\n"
        "@hookimpl\ndef core_backend():\n    return B()",
        "its Backend is named 'beta'",
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_plugin_is_quarantined_and_named_while_others_work(site, kind):
    source, message = BROKEN[kind]
    add(site, "core-alpha", "alpha", source=source)
    add(site, "core-beta", "beta")
    found = registry(site)
    with pytest.raises(BackendBroken) as first:
        found.resolve("alpha")
    assert message in str(first.value) and "core-alpha 1.0" in str(first.value)
    assert "https://example.org/alpha/issues" in first.value.remedy
    with pytest.raises(BackendBroken) as second:
        found.resolve("alpha")
    assert second.value is first.value
    assert found.resolve("beta").name == "beta"
    assert found.state(found.find("alpha"))[0] == "broken"


def test_manifest_and_backend_must_agree(site):
    source = """
        from core.plugin import Backend, Capabilities, hookimpl
        class B(Backend):
            name = "alpha"
            capabilities = Capabilities(graph_level="torch")
        @hookimpl
        def core_backend():
            return B()
    """
    add(site, "core-alpha", "alpha", source=source, extra='[capabilities]\ngraph_level = "core-aten"')
    with pytest.raises(BackendBroken, match="its manifest says graph_level = 'core-aten', its Backend 'torch'"):
        registry(site).resolve("alpha")


def test_manifest_speaks_for_a_backend_without_capabilities(site):
    add(site, "core-alpha", "alpha", extra='[capabilities]\ngraph_level = "torch"\nmodes = ["inference"]')
    capabilities = registry(site).resolve("alpha").capabilities
    assert (capabilities.graph_level, capabilities.modes, capabilities.devices) == ("torch", ("inference",), ("cpu",))


def test_functions_named_after_methods_are_bound_in_their_place(site):
    source = """
        from core.plugin import Artifact, Backend, Probe, hookimpl
        class B(Backend):
            name = "alpha"
        @hookimpl
        def core_backend():
            return B()
        @hookimpl
        def backend_compile(graph, fake_inputs, ctx):
            return Artifact(call=("function", graph))
        @hookimpl
        def backend_probe(device):
            return Probe(False, "no luck", "buy some")
    """
    add(site, "core-alpha", "alpha", source=source)
    resolved = registry(site).resolve("alpha")
    assert resolved.compile("graph", [], None) == Artifact(call=("function", "graph"))
    with pytest.raises(BackendUnavailable, match="no luck") as caught:
        resolved.require_device("cpu")
    assert caught.value.remedy == "buy some"


def test_configure_reaches_each_plugin_when_it_is_loaded(site):
    source = plugin_site.PLUGIN.format(name="alpha", version="1") + (
        "\nseen = []\n@hookimpl\ndef core_configure(config):\n    seen.append(sorted(config))\n"
    )
    module = add(site, "core-alpha", "alpha", source=source)
    found = registry(site)
    assert module not in sys.modules
    found.resolve("alpha")
    assert sys.modules[module].seen == [["plugin_api", "policy", "settings", "versions"]]


def test_diagnoses_are_collected_and_a_failing_one_is_a_finding(site):
    good = "\nfrom core.plugin import Finding\n@hookimpl\ndef core_diagnose():\n    return [Finding('info', 'fine')]\n"
    bad = "\n@hookimpl\ndef core_diagnose():\n    raise ValueError('ill')\n"
    add(site, "core-alpha", "alpha", source=plugin_site.PLUGIN.format(name="alpha", version="1") + good)
    add(site, "core-beta", "beta", source=plugin_site.PLUGIN.format(name="beta", version="1") + bad)
    found = registry(site)
    found.resolve("alpha")
    found.resolve("beta")
    texts = sorted(finding.text for finding in found.diagnose())
    assert texts == ["core-beta:beta: core_diagnose raised ValueError: ill", "fine"]


# -- policy -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "allowed"),
    [
        ({}, True),
        ({"CORE_DISABLE_PLUGINS": "core-alpha"}, False),
        ({"CORE_DISABLE_PLUGINS": "alpha,x"}, False),
        ({"CORE_PLUGIN_AUTOLOAD": "0"}, False),
        ({"CORE_PLUGIN_AUTOLOAD": "0", "CORE_PLUGINS": "alpha"}, True),
        ({"CORE_PLUGINS": "beta"}, False),
    ],
)
def test_environment_decides_which_plugins_may_be_used(site, environ, allowed):
    add(site, "core-alpha", "alpha")
    found = registry(site, environ=environ)
    assert found.resolve("eager").name == "eager"
    if allowed:
        assert found.resolve("alpha").name == "alpha"
    else:
        with pytest.raises(BackendNotInstalled, match="is installed by core-alpha, but not allowed"):
            found.resolve("alpha")
        with pytest.raises(BackendUnavailable, match="not allowed"):
            found.resolve("core-alpha:alpha")


@pytest.mark.parametrize(
    ("table", "allowed"),
    [('allow = ["core-*"]', True), ('allow = ["other-*"]', False), ('deny = ["*alpha"]', False), ("", True)],
)
def test_project_file_allows_and_denies_distributions(site, tmp_path, table, allowed):
    add(site, "core-alpha", "alpha")
    project = tmp_path / "pyproject.toml"
    project.write_text(f"[tool.core.plugins]\n{table}\n")
    found = registry(site, project=project)
    assert found.state(next(b for b in found.installed() if b.name == "alpha"))[0] == ("ready" if allowed else "denied")


def test_ill_typed_policy_is_an_error(site, tmp_path):
    project = tmp_path / "pyproject.toml"
    project.write_text("[tool.core.plugins]\nallow = 3\n")
    with pytest.raises(InvalidOption, match="allow is 3"):
        registry(site, project=project)


# -- options and devices ----------------------------------------------------------------------------------------------


class WithOptions(Backend):
    name = "optional"

    def options(self):
        return {
            "workspace_mb": Option(int, 64, help="scratch memory"),
            "level": Option(str, "fast", ("fast", "small")),
            "ratio": Option(float, 0.5),
        }

    def probe(self, device):
        if device == "xpu":
            raise RuntimeError("driver gone")
        return Probe(device == "cpu", "only the CPU", "move to the CPU")


def test_options_are_completed_and_checked(site):
    resolved = registry(site).resolve(WithOptions())
    assert resolved.validate_options({"ratio": 1}) == {"workspace_mb": 64, "level": "fast", "ratio": 1}
    with pytest.raises(InvalidOption, match="did you mean 'workspace_mb'"):
        resolved.validate_options({"workspce_mb": 1})
    with pytest.raises(InvalidOption, match="pass a value of type int"):
        resolved.validate_options({"workspace_mb": True})
    with pytest.raises(InvalidOption, match="pass one of 'fast', 'small'"):
        resolved.validate_options({"level": "slow"})


def test_options_of_a_function_are_its_parameters(site):
    def backend(gm, inputs, *, level=1):
        return gm

    resolved = registry(site).resolve(backend)
    assert resolved.validate_options({"level": 3}) == {"level": 3}
    with pytest.raises(InvalidOption, match="does not take the options depth"):
        resolved.validate_options({"depth": 3})


def test_a_device_is_probed_once_and_a_raising_probe_is_a_reason(site):
    resolved = registry(site).resolve(WithOptions())
    resolved.require_device("cpu")
    with pytest.raises(BackendUnavailable, match="only the CPU"):
        resolved.require_device("cuda")
    with pytest.raises(BackendUnavailable, match="its probe raised RuntimeError: driver gone"):
        resolved.require_device("xpu")


def test_a_device_that_is_not_declared_is_not_probed(site):
    add(site, "core-alpha", "alpha")
    with pytest.raises(BackendUnavailable, match="it declares the devices cpu"):
        registry(site).resolve("alpha").require_device("cuda")
