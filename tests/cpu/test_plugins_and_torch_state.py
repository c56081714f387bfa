"""A plugin that changes torch's state while it is loaded: told, put back; and the doctor's verification."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import plugin_site
import pytest
import torch

import core
from core.backends import process_state
from core.backends.registry import Registry
from core.errors import BackendUnavailable

ROOT = Path(__file__).parents[2]
PLUGIN = plugin_site.PLUGIN.format(name="alpha", version="1")


def load(site, source):
    """The findings of loading a plugin that runs `source` on import."""
    plugin_site.add_distribution(site, "core-alpha", "alpha", source=f"import torch\n{source}\n{PLUGIN}")
    registry = Registry([str(site)], environ={}, project=site / "none.toml")
    registry.resolve("alpha")
    return registry.findings()


CHANGES = {
    "torch.set_default_dtype(torch.float64)": ("default dtype", torch.get_default_dtype),
    "torch.set_default_device('meta')": ("default device", torch.get_default_device),
    "torch.set_num_threads(torch.get_num_threads() + 1)": ("number of threads", torch.get_num_threads),
    "torch.set_grad_enabled(False)": ("grad mode", torch.is_grad_enabled),
    "torch.set_float32_matmul_precision('medium')": ("matmul precision", torch.get_float32_matmul_precision),
    "torch.backends.cudnn.benchmark = True": ("cudnn.benchmark", lambda: torch.backends.cudnn.benchmark),
    "torch.backends.cudnn.allow_tf32 = not torch.backends.cudnn.allow_tf32": (
        "cudnn.allow_tf32",
        lambda: torch.backends.cudnn.allow_tf32,
    ),
    "torch.use_deterministic_algorithms(True)": (
        "deterministic algorithms",
        torch.are_deterministic_algorithms_enabled,
    ),
    "torch.autograd.set_detect_anomaly(True)": ("anomaly mode", torch.is_anomaly_enabled),
    "torch.set_autocast_enabled('cpu', True)": ("autocast for cpu", lambda: torch.is_autocast_enabled("cpu")),
    "torch.rand(1)": ("torch's random generator", lambda: torch.get_rng_state().tolist()),
    "torch.backends.cuda.enable_flash_sdp(False)": ("flash_sdp", torch.backends.cuda.flash_sdp_enabled),
    "torch.set_flush_denormal(True)": (
        "subnormal numbers",
        lambda: (torch.full((4,), 1e-40) * torch.ones(4)).tolist(),
    ),
}


@pytest.mark.parametrize("source", CHANGES)
def test_what_a_plugin_sets_in_torch_is_told_and_put_back(site, source):
    words, read = CHANGES[source]
    before = read()
    findings = load(site, source)
    assert read() == before
    told = [finding.text for finding in findings if words in finding.text]
    assert len(told) == 1 and told[0].endswith("it was put back")
    assert all("put back" in finding.text for finding in findings)


def test_a_function_of_torch_that_was_replaced_is_told_and_stays(site, monkeypatch):
    monkeypatch.setattr(torch.nn.functional, "softsign", torch.nn.functional.softsign)
    findings = load(site, "torch.nn.functional.softsign = lambda x: x")
    (finding,) = findings
    assert "torch.nn.functional.softsign" in finding.text and finding.text.endswith("it can't be put back")


def test_new_names_in_torch_and_lazy_parts_of_it_are_no_findings(site):
    assert load(site, "torch.alpha_was_here = 1\nimport torch.distributions, torch.fx.passes.graph_drawer") == []
    del torch.alpha_was_here


def test_reading_the_state_changes_none_of_it():
    before = torch.get_rng_state()
    assert process_state.take().changes() == []
    assert torch.equal(torch.get_rng_state(), before)


def test_a_compiled_function_of_an_unloaded_backend_says_what_to_do(site, monkeypatch):
    plugin_site.add_distribution(
        site,
        "core-alpha",
        "alpha",
        source=PLUGIN + "\ndowns = []\n@hookimpl\ndef backend_teardown():\n    downs.append(1)\n",
    )
    registry = Registry()
    monkeypatch.setattr("core.backends.registry._default", registry)

    def twice(x):
        return x * 2

    compiled = core.compile(twice, backend="alpha")
    x = torch.arange(3.0)
    assert torch.equal(compiled(x), x * 2)
    core.unload_backend("alpha")
    assert sys.modules["core_alpha_plugin"].downs == [1]
    with pytest.raises(BackendUnavailable, match="was unloaded"):
        compiled(x)
    assert torch.equal(core.compile(twice, backend="alpha")(x), x * 2)


# -- doctor --verify --------------------------------------------------------------------------------------------------


def verified(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", "core", "doctor", *arguments, "--verify", "--json"], capture_output=True, text=True
    )
    return done.returncode, [(row["level"], row["text"]) for row in json.loads(done.stdout)]


@pytest.mark.slow
def test_verify_compares_results_and_gradients_with_eager(site):
    code, found = verified("aot_eager")
    label = f"backend 'aot_eager' (core {core.__version__})"
    assert code == 0
    assert found == [
        ("info", f"{label} works on cpu"),
        ("info", f"{label} computes the results of eager for a small function"),
        ("info", f"{label} computes the gradients of eager for a small function"),
    ]


@pytest.mark.slow
def test_verify_finds_a_backend_that_computes_something_else_and_one_that_does_not_compile(site):
    wrong = PLUGIN.replace("return Artifact(call=graph)", "return Artifact(call=lambda *a: [r + 1 for r in graph(*a)])")
    plugin_site.add_distribution(site, "core-alpha", "alpha", source=wrong)
    code, found = verified("alpha")
    assert code == 1
    assert found[-1][0] == "error" and "computes other results than eager" in found[-1][1]
    assert "largest difference 1" in found[-1][1]
    failing = PLUGIN.replace("return Artifact(call=graph)", "raise RuntimeError('no such chip')")
    plugin_site.add_distribution(site, "core-beta", "beta", source=failing.replace('"alpha"', '"beta"'))
    code, found = verified("beta")
    assert code == 1
    assert "does not compile a small function" in found[-1][1] and "no such chip" in found[-1][1]


def test_verify_tells_when_the_backend_was_not_asked(monkeypatch):
    monkeypatch.setenv("CORE_DISABLE", "1")
    code, found = verified("eager")
    assert code == 1 and found[-1][0] == "error" and "was not asked" in found[-1][1]


def test_a_function_of_torchs_that_a_plugin_replaces_is_warned_of_and_found_by_the_doctor(site, monkeypatch):
    monkeypatch.setattr(torch, "relu", torch.relu)  # put back afterwards
    with pytest.warns(UserWarning, match="torch's own: torch.relu replaced; it can't be put back"):
        load(site, "torch.relu = lambda x: x")
    done = subprocess.run([sys.executable, "-m", "core", "doctor", "alpha"], capture_output=True, text=True)
    assert done.returncode == 1 and "torch.relu replaced" in done.stdout, done.stdout
