"""DeterministicTests: the same call gives the same bits, always or where the process asks for it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from ..recording import asked_for
from ..rules import exactly, require
from .base import ConformanceTests
from .values import draw, indices, needs_dtype, needs_training

RUNS = 6


@contextlib.contextmanager
def asked(subject: Any) -> Iterator[None]:
    """Deterministic algorithms are asked for, where the backend does not always have them."""
    declared = subject.capabilities.deterministic
    if declared == "no":
        pytest.skip("the backend declares that it is not deterministic")
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(declared == "on-request" or before)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


class DeterministicTests(ConformanceTests):
    """Bits are compared, not values within a tolerance."""

    def _repeats(self, subject: Any, program: Callable[..., Any], *inputs: Any) -> None:
        with asked(subject):
            compiled = subject.compile(program)
            first = compiled(*inputs)
            for run in range(1, RUNS):
                exactly(compiled(*inputs), first, "determinism", f"the result of run {run}")

    def test_pointwise_results_repeat(self, subject: Any, generator: torch.Generator) -> None:
        self._repeats(subject, lambda x: torch.exp(torch.sin(x)) * 3, draw(generator, 1000))

    def test_long_sums_repeat(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            return x.sum(), x.view(300, -1).mean(0), x.view(300, -1).var(1)

        self._repeats(subject, program, draw(generator, 300_000))

    def test_products_repeat(self, subject: Any, generator: torch.Generator) -> None:
        self._repeats(subject, lambda x, y: F.relu(x @ y), draw(generator, 96, 130), draw(generator, 130, 70))

    def test_accumulation_repeats(self, subject: Any, generator: torch.Generator) -> None:
        needs_dtype(subject, torch.int64)

        def program(places: Any, values: Any) -> Any:
            return torch.zeros(8).index_add(0, places, values), torch.zeros(8).scatter_add(0, places, values)

        self._repeats(subject, program, indices(generator, 8, 500), draw(generator, 500))

    def test_gradients_repeat(self, subject: Any, generator: torch.Generator) -> None:
        needs_training(subject)
        weight, x = draw(generator, 20, 10), draw(generator, 64, 20)
        with asked(subject):
            compiled = subject.compile(lambda x, w: F.softmax(x @ w, -1).square().sum())
            gradients = []
            for _ in range(RUNS):
                w = weight.clone().requires_grad_()
                compiled(x, w).backward()
                gradients.append(w.grad)
        for run, gradient in enumerate(gradients[1:], 1):
            exactly(gradient, gradients[0], "determinism", f"the gradient of run {run}")

    def test_two_compiles_give_the_same_bits(self, subject: Any, generator: torch.Generator) -> None:
        x = draw(generator, 64, 33)
        results = []
        with asked(subject):
            for _ in range(2):
                subject.reset()
                results.append(subject.compile(lambda x: F.layer_norm(x, (33,)).sum(0))(x))
        exactly(results[1], results[0], "determinism", "the result of a second compile")

    def test_backend_is_told_that_determinism_is_asked_for(self, subject: Any, generator: torch.Generator) -> None:
        with asked(subject):
            wanted = torch.are_deterministic_algorithms_enabled()
            contexts = [note.ctx for note in asked_for(subject, lambda x: torch.cos(x), draw(generator, 4))]
        told = all(ctx.deterministic == wanted for ctx in contexts)
        require(told, "determinism", f"deterministic={wanted} is not what the backend was told")

    def test_request_for_determinism_is_part_of_what_is_compiled(
        self, subject: Any, generator: torch.Generator
    ) -> None:
        compiled = subject.compile(lambda x: torch.sin(x).sum())
        x = draw(generator, 40)
        plain = compiled(x)
        with asked(subject):
            exactly(compiled(x), compiled(x), "determinism")
        exactly(compiled(x), plain, "determinism", "the result after the request is gone")
