"""On a machine without a vendor's runtime, the doctor says which module is missing and what to install."""

from __future__ import annotations

import pytest

from core.backends import manifest
from core.backends.registry import Registry
from core.report.doctor import examine


@pytest.mark.parametrize(
    ("name", "module", "remedy"),
    [
        ("onnxrt", "onnxruntime", 'pip install "core-onnxrt[cpu]"'),
        ("openvino", "openvino", 'pip install "core-openvino[cpu]"'),
        ("tensorrt", "onnx", 'pip install "core-tensorrt[cu13]"'),
        ("ipex", "torch", 'pip install "core-ipex"'),
        ("ofi", "torch", 'pip install "core-ofi"'),
    ],
)
def test_a_missing_runtime_is_an_error_with_the_line_that_installs_it(monkeypatch, name, module, remedy):
    registry = Registry()
    if name not in {backend.name for backend in registry.installed()}:
        pytest.skip(f"the plugin of {name} is not installed")
    there = manifest._installed
    monkeypatch.setattr(manifest, "_installed", lambda asked: asked != module and there(asked))
    found = [finding for finding in examine(registry, name) if f"backend {name!r}" in finding.text]
    assert [(finding.level, finding.remedy) for finding in found] == [("error", remedy)]
    assert f"is unavailable: it needs {module}, which is not installed" in found[0].text
