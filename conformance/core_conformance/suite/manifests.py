"""ManifestTests: what a backend declares is what is observed."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from core.plugin import CAPABILITY_CHOICES, Artifact, Capabilities, Support

from ..assertions import assert_like_eager
from ..recording import asked_for, calculating
from ..rules import broken, closely, require
from .base import ConformanceTests
from .values import draw, needs_dynamic, needs_training, normal

FLOATS = ("float32", "float64", "float16", "bfloat16")
OTHERS = ("complex64", "complex128", "int8", "uint8", "int16", "int32", "int64", "bool")


def pointwise(x: Any, y: Any) -> Any:
    """Sums and products of equal shapes: what every backend has."""
    return x * y + x, x - y


def mixed_layers(x: Any, w: Any, b: Any) -> Any:
    """Operators that a small backend lacks."""
    h = F.layer_norm(F.gelu(x @ w + b), (b.shape[0],))
    return F.softmax(h, -1), h.cumsum(0), torch.sort(h, -1).values


class ManifestTests(ConformanceTests):
    """Names, capabilities, options, dtypes, provenance."""

    def test_backend_has_a_name_and_a_version(self, subject: Any) -> None:
        require(subject.name, "manifest", "the backend has no name")
        if not subject.name.startswith(("custom:", "dynamo:")):
            require(subject.resolved.version, "manifest", "the backend has no version")

    def test_capabilities_hold_known_words(self, subject: Any) -> None:
        declared = subject.capabilities
        for field, words in CAPABILITY_CHOICES.items():
            value = getattr(declared, field)
            require(value in words, "manifest", f"{field} is {value!r}, not one of {', '.join(words)}")
        strange = [mode for mode in declared.modes if mode not in ("inference", "training")]
        require(not strange, "manifest", f"modes has {strange}")
        strange = [name for name in declared.dtypes if not isinstance(getattr(torch, name, None), torch.dtype)]
        require(not strange, "manifest", f"dtypes has {strange}")

    def test_manifest_file_and_backend_agree(self, subject: Any) -> None:
        manifest = subject.manifest
        if manifest is None or manifest.capabilities is None:
            pytest.skip("the backend has no manifest file with capabilities")
        written, spoken = manifest.capabilities, subject.resolved.backend.capabilities
        for field in dataclasses.fields(Capabilities):
            if field.name in ("devices", "op_coverage"):
                continue
            left, right = getattr(written, field.name), getattr(spoken, field.name)
            require(left == right, "manifest", f"{field.name} is {left!r} in the file and {right!r} in the backend")

    def test_options_are_declared_in_full(self, subject: Any) -> None:
        for name, option in subject.resolved.options().items():
            require(option.help, "options", f"the option {name} has no help")
            fits = isinstance(option.default, option.type) or option.default is None
            require(fits, "options", f"the default of {name} is {option.default!r}, not a {option.type.__name__}")
            inside = not option.choices or option.default in option.choices
            require(inside, "options", f"the default of {name} is {option.default!r}, which is not among its choices")
        manifest = subject.manifest
        if manifest is not None and manifest.options:
            left, right = sorted(manifest.options), sorted(subject.resolved.options())
            require(left == right, "options", f"the manifest names the options {left}, the backend {right}")

    def test_every_choice_of_an_option_is_right(self, subject: Any, generator: torch.Generator) -> None:
        for name, option in subject.resolved.options().items():
            if option.type is not str:
                continue
            for choice in option.choices:
                try:
                    compiled = subject.compile(pointwise, options={name: choice})
                    x, y = draw(generator, 6), draw(generator, 6)
                    compiled(x, y)
                except Exception as error:  # whatever comes of a declared choice
                    raise broken("options", f"{name}={choice!r} is declared, and: {error}") from error

    def test_options_and_capabilities_do_not_change(self, subject: Any, generator: torch.Generator) -> None:
        before = (dict(subject.resolved.options()), subject.capabilities)
        subject.compile(pointwise)(draw(generator, 4), draw(generator, 4))
        after = (dict(subject.resolved.options()), subject.capabilities)
        require(before == after, "manifest", "options or capabilities changed by a compile")

    @pytest.mark.parametrize("name", [*FLOATS, *OTHERS])
    def test_declared_dtype_is_computed(self, subject: Any, generator: torch.Generator, name: str) -> None:
        dtype = getattr(torch, name)
        if not subject.supports(dtype):
            pytest.skip(f"the backend does not declare {name}")

        def program(x: Any, y: Any) -> Any:
            return (x & y, x | y) if dtype is torch.bool else (x * y + x, x - y)

        try:
            assert_like_eager(subject, program, normal((4, 5), (4, 5), dtype=dtype), generator=generator)
        except Exception as error:  # whatever it is: a declared dtype is computed
            raise broken("manifest", f"{name} is declared, and: {error}") from error

    def test_declared_training_has_a_backward(self, subject: Any, generator: torch.Generator) -> None:
        needs_training(subject)

        def program(x: Any, y: Any) -> Any:
            return (x * y).sum() + y.square().sum()

        try:
            assert_like_eager(subject, program, normal((5,), (5,)), generator=generator, grad=True)
        except Exception as error:  # whatever it is: what is declared is there
            raise broken("manifest", f"training is declared, and: {error}") from error

    def test_declared_dynamic_shapes_take_other_sizes(self, subject: Any, generator: torch.Generator) -> None:
        needs_dynamic(subject)
        compiled = subject.compile(pointwise, dynamic=True)
        for size in (4, 9, 2):
            x, y = draw(generator, size), draw(generator, size)
            try:
                closely(compiled(x, y), pointwise(x, y), "numerics")
            except Exception as error:  # whatever it is: what is declared is there
                raise broken("manifest", f"dynamic shapes are declared, and for the size {size}: {error}") from error

    def test_support_is_answered_alike_each_time(self, subject: Any, generator: torch.Generator) -> None:
        inputs = [draw(generator, 4, 5), draw(generator, 5, 6), draw(generator, 6)]
        for asked in asked_for(subject, mixed_layers, *inputs):
            for node in calculating(asked.graph):
                answers = [subject.resolved.supports(node, asked.ctx) for _ in range(3)]
                right = all(isinstance(a, Support) and a.kind in ("native", "library", "no") for a in answers)
                require(right, "manifest", f"supports says {answers[0]!r} of {node.name}")
                require(answers.count(answers[0]) == 3, "manifest", f"supports says several things of {node.name}")
                require(answers[0].kind != "no" or answers[0].reason, "manifest", f"no reason against {node.name}")

    def test_provenance_names_nodes_of_the_graph(self, subject: Any, generator: torch.Generator) -> None:
        for asked in asked_for(subject, pointwise, draw(generator, 6), draw(generator, 6)):
            artifact = asked.artifact
            require(isinstance(artifact, Artifact), "manifest", f"compile returned {type(artifact).__name__}")
            assert artifact is not None
            names = {node.name for node in asked.graph.graph.nodes}
            strange = [name for name in artifact.provenance if name not in names]
            require(not strange, "provenance", f"the provenance has {strange}, which no node is named")
            kinds = set(artifact.provenance.values())
            known = kinds <= {"native", "library", "fallback"}
            require(known, "provenance", f"the provenance has the words {sorted(kinds)}")
            counts = (artifact.kernels, artifact.extern_calls, artifact.size_bytes)
            right = all(isinstance(count, int) and count >= 0 for count in counts)
            require(right, "manifest", f"kernels, extern_calls and size_bytes are {counts}")

    def test_native_nodes_run_outside_torch(self, subject: Any, generator: torch.Generator) -> None:
        assert_like_eager(subject, pointwise, normal((6, 5), (6, 5)), generator=generator)

    def test_what_is_left_to_torch_is_declared(self, subject: Any, generator: torch.Generator) -> None:
        assert_like_eager(subject, mixed_layers, normal((4, 5), (5, 6), (6,)), generator=generator)
