"""Manifests are read strictly where it matters and leniently where a newer core may know more."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from core.backends import hookspecs
from core.backends.manifest import ManifestError, parse_manifest
from core.backends.versions import Version, in_range
from core.plugin import PLUGIN_API, Backend, Capabilities, Unsupported

FULL = """
schema = 1
name = "tensorrt"
aliases = ["trt"]
summary = "NVIDIA TensorRT"
plugin_api = ">=1.0,<2"
core = ">=0.1"
torch = ">=2.11"
python = ">=3.11"
platforms = ["linux"]
devices = ["cuda:sm80+"]
provider = "somebody"
issues = "https://example.org"
options = ["workspace_mb"]
[requires]
import = ["tensorrt"]
pip = "core-tensorrt[cu13]"
[capabilities]
graph_level = "core-aten"
modes = ["inference"]
dtypes = ["float32", "float16"]
dynamic_shapes = "bounded"
layouts = "contiguous"
deterministic = "no"
precision_modes = ["ieee", "tf32"]
cudagraph_safe = "per-artifact"
serializable = true
"""


def test_every_key_of_a_full_manifest_is_read():
    manifest = parse_manifest(FULL)
    assert manifest.warnings == ()
    assert (manifest.name, manifest.aliases, manifest.devices) == ("tensorrt", ("trt",), ("cuda:sm80+",))
    assert (manifest.requires_import, manifest.requires_pip) == (("tensorrt",), "core-tensorrt[cu13]")
    assert manifest.capabilities == Capabilities(
        graph_level="core-aten",
        modes=("inference",),
        dtypes=("float32", "float16"),
        devices=("cuda:sm80+",),
        dynamic_shapes="bounded",
        layouts="contiguous",
        deterministic="no",
        precision_modes=("ieee", "tf32"),
        cudagraph_safe="per-artifact",
        serializable=True,
    )


def test_unknown_keys_are_warnings():
    manifest = parse_manifest('name = "x"\nfuture = 1\n[requires]\nluck = 1\n[capabilities]\nspeed = "high"')
    assert sorted(manifest.warnings) == [
        "unknown key `capabilities.speed`",
        "unknown key `future`",
        "unknown key `requires.luck`",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "`name` is missing"),
        ("name = ", "not TOML"),
        ('name = "x"\ntorch = 2', "`torch` must be of type str"),
        ('name = "x"\ntorch = ">=banana"', "`torch`: 'banana' is not a version"),
        ('name = "x"\ndevices = "cuda"', "`devices` must be a list of strings"),
        ('name = "x"\n[capabilities]\ngraph_level = "hlo"', "it must be one of torch, aten-functional, core-aten"),
        ('name = "x"\n[capabilities]\nmodes = ["dreaming"]', "'dreaming'"),
        ('name = "x"\n[capabilities]\nserializable = "yes"', "`serializable` must be of type bool"),
        ('name = "x"\nschema = true', "`schema` must be of type int"),
    ],
)
def test_wrong_manifests_are_errors_that_name_the_key(text, message):
    with pytest.raises(ManifestError) as caught:
        parse_manifest(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("version", "range_", "inside"),
    [
        ("2.13.0+cpu", ">=2.11", True),
        ("2.13.0+cpu", "<2.13", False),
        ("2.13.0", "==2.13.*", True),
        ("2.1.0", "==2.13.*", False),
        ("2.13", "!=2.13.*", False),
        ("1.4.5", "~=1.4.2", True),
        ("1.5.0", "~=1.4.2", False),
        ("1.9", "~=1.4", True),
        ("2.14.0.dev20261101", ">=2.14", False),
        ("2.14.0rc1", ">=2.13,<2.14", True),
        ("1.0.post1", ">1.0", True),
        ("1.0", "==1.0.0", True),
        ("3.11.7", "", True),
        ("1.0", ">=1.0,<2", True),
        ("2.0", ">=1.0,<2", False),
    ],
)
def test_version_ranges(version, range_, inside):
    assert in_range(version, range_) is inside


def test_versions_are_ordered_by_release_then_stage():
    texts = ["1.0.dev2", "1.0a1", "1.0b1", "1.0rc1", "1.0rc2", "1.0", "1.0.post1", "1.1"]
    versions = [Version.parse(text) for text in texts]
    assert sorted(versions) == versions


def test_text_that_is_no_range_is_an_error():
    with pytest.raises(ValueError, match="not a version range"):
        in_range("1.0", "banana")


def test_every_directed_hook_is_a_method_of_backend_with_the_same_arguments():
    assert PLUGIN_API == (1, 0)
    for name in hookspecs.DIRECTED:
        method = list(inspect.signature(getattr(Backend, name)).parameters)[1:]
        function = list(inspect.signature(getattr(hookspecs, f"backend_{name}")).parameters)
        assert method == function, name


def test_every_hook_and_method_is_documented():
    for name in hookspecs.DIRECTED:
        assert inspect.getdoc(getattr(Backend, name))
    for name, hook in vars(hookspecs).items():
        if name.startswith(("core_", "backend_")):
            assert inspect.getdoc(hook), name


def test_unsupported_names_nodes_and_reason():
    assert str(Unsupported(["a", "b"], "no sparse tensors")) == "a, b: no sparse tensors"
    assert str(Unsupported()) == "unsupported graph"


def test_the_vendor_module_imports_no_torch():
    code = "import core.plugin, core.backends.hookspecs, core.cli, sys; assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_one_of_several_modules_is_enough_and_is_named_with_the_others_where_all_are_missing():
    manifest = parse_manifest('name = "x"\n[requires]\nimport = ["nowhere_a|json", "nowhere_a|nowhere_b", "sys"]')
    assert manifest.missing_imports() == ["nowhere_a or nowhere_b"]
