"""FailureTests: what can't be done is said, by the documented error, and never answered with something else."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import pytest
import torch

from core.errors import BackendError, BackendUnavailable, InvalidOption
from core.plugin import CompileFailed, Probe, Unsupported

from ..assertions import assert_like_eager
from ..recording import asked_for
from ..rules import broken, closely, refused, require, rule_of
from .base import ConformanceTests
from .values import draw, needs_dtype, needs_training, normal

DEADLINE_S = 0.5
GRACE_S = 2.0

# An operator that no backend can have heard of.
_LIBRARY = torch.library.Library("core_conformance", "DEF")
_LIBRARY.define("unheard_of(Tensor x, float scale) -> Tensor")


def _unheard_of(x: torch.Tensor, scale: float) -> torch.Tensor:
    return torch.sin(x) * scale + x


_LIBRARY.impl("unheard_of", _unheard_of, "CompositeExplicitAutograd")


def _unheard_of_meta(x: torch.Tensor, scale: float) -> torch.Tensor:
    return torch.empty_like(x)


_LIBRARY.impl("unheard_of", _unheard_of_meta, "Meta")


class FailureTests(ConformanceTests):
    """Unknown options, missing devices, unknown operators, deadlines, errors while running."""

    def test_unknown_option_is_refused(self, subject: Any) -> None:
        with refused(InvalidOption, "error", "an unknown option") as caught:
            subject.compile(torch.sin, options={"no_such_option_as_this": 1})
        for word in ("no_such_option_as_this", subject.name):
            require(word in str(caught[0]), "error", f"the error does not name {word}: {caught[0]}")

    def test_option_of_another_type_is_refused(self, subject: Any) -> None:
        for name, option in subject.resolved.options().items():
            if option.type is object:
                continue
            with refused(InvalidOption, "error", f"an object as the option {name}") as caught:
                subject.compile(torch.sin, options={name: object()})
            require(name in str(caught[0]), "error", f"the error does not name {name}: {caught[0]}")

    def test_option_outside_its_choices_is_refused(self, subject: Any) -> None:
        for name, option in subject.resolved.options().items():
            if not option.choices or option.type is not str:
                continue
            with refused(InvalidOption, "error", f"another choice of the option {name}") as caught:
                subject.compile(torch.sin, options={name: "none of the choices"})
            require(str(option.choices[0]) in str(caught[0]), "error", f"no choices in the error: {caught[0]}")

    @pytest.mark.parametrize("device", ["cpu", "cuda", "xpu", "no_such_device"])
    def test_probe_answers_for_every_device(self, subject: Any, device: str) -> None:
        try:
            answer = subject.resolved.probe(device)
        except Exception as error:  # whatever it raises: a probe must not
            raise broken("error", f"the probe for {device} raised {type(error).__name__}: {error}") from None
        require(isinstance(answer, Probe), "error", f"the probe for {device} answered {answer!r}")
        require(answer.ok or answer.reason, "error", f"the probe for {device} says no without a reason")
        require(answer.ok or answer.remedy, "error", f"the probe for {device} says no without a remedy")

    def test_device_that_is_not_declared_is_refused(self, subject: Any) -> None:
        if not subject.capabilities.devices:
            pytest.skip("the backend declares no devices")
        with refused(BackendUnavailable, "error", "a device that is not declared") as caught:
            subject.resolved.require_device("no_such_device")
        require(subject.name in str(caught[0]), "error", f"the error does not name the backend: {caught[0]}")

    def test_unheard_of_operator_is_right_or_refused(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any, y: Any) -> Any:
            return torch.ops.core_conformance.unheard_of(x * 2, 1.5) + y

        self._right_or_refused(subject, program, normal((4, 5), (4, 5)), generator)

    def test_unheard_of_operator_alone_is_right_or_refused(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            return torch.ops.core_conformance.unheard_of(x, 0.5)

        self._right_or_refused(subject, program, normal((7,)), generator)

    def test_compile_ends_at_its_deadline(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            return torch.tanh(x) + 1

        found = asked_for(subject, program, draw(generator, 8))
        if not found:
            pytest.skip("the backend takes none of it")
        asked = found[0]
        ctx = dataclasses.replace(asked.ctx, deadline_s=DEADLINE_S)
        began = time.monotonic()
        try:
            subject.resolved.compile(asked.graph, asked.fakes, ctx)
        except (CompileFailed, Unsupported):
            pass
        took = time.monotonic() - began
        text = f"a compile with a deadline of {DEADLINE_S} s took {took:.1f} s"
        require(took < DEADLINE_S + GRACE_S, "deadline", text)

    def test_error_while_running_is_that_of_eager(self, subject: Any, generator: torch.Generator) -> None:
        needs_dtype(subject, torch.int64)

        def program(x: Any, places: Any) -> Any:
            return x[places] * 2

        compiled = subject.compile(program)
        x = draw(generator, 5)
        good, bad = torch.tensor([0, 4, 2]), torch.tensor([0, 9, 2])
        closely(compiled(x, good), program(x, good), "numerics")
        self._raises_alike(compiled, program, x, bad)
        closely(compiled(x, good), program(x, good), "stale-result", "the result after an error")

    def test_error_of_shapes_is_that_of_eager(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any, y: Any) -> Any:
            return x @ y

        assert_like_eager(subject, program, normal((3, 4), (3, 4)), generator=generator, calls=1)

    def test_error_after_a_write_leaves_what_eager_leaves(self, subject: Any, generator: torch.Generator) -> None:
        needs_dtype(subject, torch.int64)

        def program(x: Any, y: Any, places: Any) -> Any:
            z = y[places] + 1
            x.add_(1)
            return z

        compiled = subject.compile(program)
        good, bad = torch.tensor([0, 1]), torch.tensor([0, 7])
        x, y = draw(generator, 3), draw(generator, 3)
        compiled(x.clone(), y, good)
        before = x.clone()
        self._raises_alike(compiled, program, x, y, bad)
        closely(x, before, "mutation", "an input after a call that failed")

    def test_mode_that_is_not_declared_is_refused(self, subject: Any, generator: torch.Generator) -> None:
        if subject.has("training"):
            pytest.skip("the backend declares training")
        compiled = subject.compile(lambda x: x * 2)
        with refused(BackendUnavailable, "error", "a graph with gradients"):
            compiled(draw(generator, 4).requires_grad_())

    def test_failing_backward_is_an_error_that_names_the_backend(
        self, subject: Any, generator: torch.Generator
    ) -> None:
        needs_training(subject)
        x = draw(generator, 4).requires_grad_()
        loss = subject.compile(lambda x: (torch.sin(x) * x).sum())(x)
        try:
            loss.backward()
        except BackendError as error:
            require(subject.name in str(error), "error", f"the error does not name the backend: {error}")
            raise broken("manifest", f"training is declared, and the backward failed: {error}") from error
        require(x.grad is not None, "gradients", "a backward ended without an error and without a gradient")

    @staticmethod
    def _right_or_refused(subject: Any, program: Any, make: Any, generator: torch.Generator) -> None:
        try:
            assert_like_eager(subject, program, make, generator=generator)
        except AssertionError as error:
            if rule_of(error) != "exception":
                raise
            _require_refusal(error)
        except BackendError as error:
            _require_refusal(error)

    @staticmethod
    def _raises_alike(compiled: Any, program: Any, *inputs: Any) -> None:
        copies = [value.clone() for value in inputs]
        try:
            program(*copies)
        except Exception as error:  # whatever eager raises is what has to be raised
            expected = type(error)
        else:
            raise broken("exception", "eager raises nothing here")
        try:
            compiled(*inputs)
        except Exception as error:  # compared by class
            found = type(error)
        else:
            raise broken("exception", f"eager raises {expected.__name__}, the compiled program nothing")
        text = f"eager raises {expected.__name__}, the compiled program {found.__name__}"
        require(issubclass(found, expected) or issubclass(expected, found), "exception", text)


def _require_refusal(error: BaseException) -> None:
    """Behind an error stands a backend that said what it can't do, in the words of the contract."""
    cause = error
    while cause.__cause__ is not None or cause.__context__ is not None:
        cause = cause.__cause__ or cause.__context__  # type: ignore[assignment]
    if not isinstance(cause, (Unsupported, CompileFailed)):
        raise broken("error", f"an unknown operator is neither run nor refused as documented: {error}") from error
