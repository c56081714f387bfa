"""TrainingTests: gradients against float64, and what training loops do around them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ..assertions import assert_like_eager
from ..rules import closely, exactly, require
from .base import ConformanceTests
from .values import draw, needs_dtype, needs_training, normal, seeded

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.005),
}


def small_model(generator: torch.Generator) -> nn.Module:
    """Two linear layers with a norm between. x: [B, 6] -> [B, 3]."""
    return seeded(nn.Sequential(nn.Linear(6, 12), nn.LayerNorm(12), nn.Tanh(), nn.Linear(12, 3)), generator)


class TrainingTests(ConformanceTests):
    """Gradients, and the ways in which they are asked for."""

    @pytest.fixture(autouse=True)
    def require_declared(self, subject: Any) -> None:
        """Skips every test of a backend without training."""
        self.begin(subject)

    def begin(self, subject: Any) -> None:
        needs_training(subject)

    def test_gradients_of_pointwise_chains(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any, y: Any) -> Any:
            return torch.sin(x) * torch.exp(-y * y) + F.gelu(x) / (1 + y.abs())

        assert_like_eager(subject, program, normal((4, 5), (4, 5)), generator=generator, grad=True)

    def test_gradients_of_broadcast_inputs(self, subject: Any, generator: torch.Generator) -> None:
        def program(a: Any, b: Any, c: Any) -> Any:
            return (a * b + c).tanh()

        assert_like_eager(subject, program, normal((4, 1, 3), (5, 1), (3,)), generator=generator, grad=True)

    def test_gradients_of_reductions(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            return x.logsumexp(1), x.var(0), x.amax(1), F.softmax(x, -1).square().sum(), x.norm()

        assert_like_eager(subject, program, normal((4, 6)), generator=generator, grad=True)

    def test_gradients_through_views_and_indices(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            y = torch.cat([x[:, 1:], x[:, :1] * 2], 1).view(2, -1)
            return y.t()[::2] * 3, x[[0, 2, 2, 1]].sum(0), x.index_select(1, torch.tensor([0, 0, 3]))

        assert_like_eager(subject, program, normal((4, 6)), generator=generator, grad=True)

    def test_gradients_through_writes(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any, y: Any) -> Any:
            z = x * 2
            z[0] = y
            z.mul_(x)
            z[:, 1:].add_(y[1:])
            return z.sum(0)

        assert_like_eager(subject, program, normal((3, 4), (4,)), generator=generator, grad=True)

    def test_only_one_of_several_results_is_used(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any, w: Any) -> Any:
            return x * w, torch.sin(w), x.sum()

        compiled = subject.compile(program)
        for used in (0, 1, 2, 0):
            x, w = draw(generator, 5), draw(generator, 5)
            left = [x.clone().requires_grad_(), w.clone().requires_grad_()]
            right = [x.clone().requires_grad_(), w.clone().requires_grad_()]
            compiled(*left)[used].sum().backward()
            program(*right)[used].sum().backward()
            self._same_gradients(left, right, f"with result {used} alone")

    def test_incoming_gradients_of_every_layout(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any, w: Any) -> Any:
            return torch.tanh(x @ w)

        compiled = subject.compile(program)
        for name, make in (
            ("expanded", lambda: draw(generator, 1, 1).expand(4, 5)),
            ("transposed", lambda: draw(generator, 5, 4).t()),
            ("every second", lambda: draw(generator, 8, 5)[::2]),
            ("contiguous", lambda: draw(generator, 4, 5)),
        ):
            x, w = draw(generator, 4, 3), draw(generator, 3, 5)
            gradient = make()
            left = [x.clone().requires_grad_(), w.clone().requires_grad_()]
            right = [x.clone().requires_grad_(), w.clone().requires_grad_()]
            compiled(*left).backward(gradient)
            program(*right).backward(gradient)
            self._same_gradients(left, right, f"from a gradient that is {name}")

    def test_gradients_accumulate(self, subject: Any, generator: torch.Generator) -> None:
        model = small_model(generator)
        twin = copy.deepcopy(model)
        compiled = subject.compile(model)
        for _ in range(3):
            x = draw(generator, 4, 6)
            compiled(x).square().mean().backward()
            twin(x).square().mean().backward()
        self._same_gradients(list(model.parameters()), list(twin.parameters()), "after three backwards", factor=16)

    def test_each_backward_has_its_own_values(self, subject: Any, generator: torch.Generator) -> None:
        compiled = subject.compile(lambda x: (x * x * x).sum())
        inputs = [draw(generator, 6).requires_grad_() for _ in range(3)]
        losses = [compiled(x) for x in inputs]
        for loss in reversed(losses):
            loss.backward()
        for x in inputs:
            closely(x.grad, 3 * x.detach() ** 2, "gradients", "the gradient of a call among others")

    def test_graph_is_kept_for_a_second_backward(self, subject: Any, generator: torch.Generator) -> None:
        compiled = subject.compile(lambda x: torch.exp(x).sum())
        x = draw(generator, 5).requires_grad_()
        loss = compiled(x)
        loss.backward(retain_graph=True)
        loss.backward()
        closely(x.grad, 2 * torch.exp(x.detach()), "gradients", "the sum of two backwards")

    def test_second_derivatives_are_right_or_refused(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            return (torch.sin(x) * x).sum()

        compiled = subject.compile(program)
        x = draw(generator, 5).requires_grad_()
        twin = x.detach().clone().requires_grad_()
        (want,) = torch.autograd.grad(program(twin), twin, create_graph=True)
        (expected,) = torch.autograd.grad(want.sum(), twin)
        try:
            (first,) = torch.autograd.grad(compiled(x), x, create_graph=True)
            (second,) = torch.autograd.grad(first.sum(), x)
        except RuntimeError as error:
            require(str(error), "error", "a second derivative was refused without a word")
            return
        closely(first.detach(), want.detach(), "gradients", "the first derivative")
        closely(second, expected, "gradients", "the second derivative", factor=4)

    def test_frozen_parameters_get_no_gradient(self, subject: Any, generator: torch.Generator) -> None:
        model = small_model(generator)
        compiled = subject.compile(model)
        for frozen in (True, False, True):
            model.zero_grad()
            for parameter in model[0].parameters():
                parameter.requires_grad_(not frozen)
            compiled(draw(generator, 4, 6)).sum().backward()
            given = [parameter.grad is not None for parameter in model[0].parameters()]
            require(given == [not frozen] * 2, "gradients", f"frozen={frozen}, but gradients are there: {given}")
            require(model[3].weight.grad is not None, "gradients", "a parameter that is not frozen got no gradient")

    def test_leaf_changed_in_place_between_steps(self, subject: Any, generator: torch.Generator) -> None:
        compiled = subject.compile(lambda w, x: (w * x).square().sum())
        w, x = draw(generator, 5).requires_grad_(), draw(generator, 5)
        twin = w.detach().clone().requires_grad_()
        for _ in range(4):
            for leaf, loss in ((w, compiled(w, x)), (twin, (twin * x).square().sum())):
                loss.backward()
                with torch.no_grad():
                    leaf -= 0.1 * leaf.grad
                    leaf.grad.zero_()
        closely(w.detach(), twin.detach(), "stale-result", "a leaf after four steps", factor=8)

    def test_write_to_a_leaf_is_refused_as_in_eager(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            x.mul_(2)
            return x.sum()

        def inputs(numbers: torch.Generator) -> list[Any]:
            return [draw(numbers, 4).requires_grad_()]

        assert_like_eager(subject, program, inputs, generator=generator, calls=1)

    def test_value_changed_before_its_backward_is_refused(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any, w: Any) -> Any:
            return (x * w).sum()

        compiled = subject.compile(program)
        x, w = draw(generator, 4), draw(generator, 4).requires_grad_()
        before = x.clone()
        loss = compiled(x, w)
        x.add_(1)
        try:
            loss.backward()
        except RuntimeError:
            return  # as in eager
        closely(w.grad, before, "gradients", "the gradient of a call whose input was changed since")

    def test_dropout_of_backward_is_that_of_forward(self, subject: Any, generator: torch.Generator) -> None:
        compiled = subject.compile(lambda x: F.dropout(x * 2, 0.5, training=True))
        for seed in (1, 2):
            torch.manual_seed(seed)
            x = torch.ones(400).requires_grad_()
            y = compiled(x)
            y.sum().backward()
            exactly(x.grad, y.detach(), "rng", "the gradient of dropout of ones")
            kept = float((y != 0).float().mean())
            require(0.3 < kept < 0.7, "rng", f"dropout of a half keeps {kept:.2f}")

    def test_dropout_in_training_follows_the_seed(self, subject: Any, generator: torch.Generator) -> None:
        compiled = subject.compile(lambda x: F.dropout(x, 0.5, training=True))
        results = []
        for seed in (1, 1, 2):
            torch.manual_seed(seed)
            x = torch.ones(200).requires_grad_()
            results.append(compiled(x).detach())
        exactly(results[0], results[1], "rng", "a draw after the same seed")
        require(not torch.equal(results[0], results[2]), "rng", "two seeds give the same numbers")

    def test_gradients_are_clipped(self, subject: Any, generator: torch.Generator) -> None:
        model = small_model(generator)
        twin = copy.deepcopy(model)
        compiled = subject.compile(model)
        x = draw(generator, 4, 6)
        norms = []
        for module, run in ((model, compiled), (twin, twin)):
            (run(x).square().sum() * 100).backward()
            norms.append(nn.utils.clip_grad_norm_(module.parameters(), 1.0))
        closely(norms[0], norms[1], "gradients", "the norm of all gradients", factor=16)
        self._same_gradients(list(model.parameters()), list(twin.parameters()), "after clipping", factor=16)

    def test_hooks_on_parameters_are_called(self, subject: Any, generator: torch.Generator) -> None:
        model = small_model(generator)
        compiled = subject.compile(model)
        seen: list[Any] = []
        model[0].weight.register_hook(lambda gradient: seen.append(gradient) or gradient * 0)
        compiled(draw(generator, 4, 6)).sum().backward()
        require(len(seen) == 1, "gradients", f"a hook on a parameter was called {len(seen)} times")
        require(not bool(model[0].weight.grad.any()), "gradients", "what a hook returns was not used")

    @pytest.mark.parametrize("name", list(OPTIMIZERS))
    def test_twenty_steps_of_an_optimizer(self, subject: Any, generator: torch.Generator, name: str) -> None:
        model = small_model(generator)
        twin, wide = copy.deepcopy(model), copy.deepcopy(model).double()
        runs = [(subject.compile(model), model), (twin, twin), (wide, wide)]
        optimizers = [OPTIMIZERS[name](module.parameters()) for _, module in runs]
        x, target = draw(generator, 16, 6), draw(generator, 16, 3)
        losses: list[list[float]] = [[], [], []]
        for _ in range(20):
            for at, ((run, _), optimizer) in enumerate(zip(runs, optimizers)):
                dtype = torch.float64 if at == 2 else torch.float32
                optimizer.zero_grad()
                loss = F.mse_loss(run(x.to(dtype)), target.to(dtype))
                loss.backward()
                optimizer.step()
                losses[at].append(loss.item())
        require(losses[0][-1] < losses[0][0], "gradients", "twenty steps did not make the loss smaller")
        for step, (ours, theirs, truth) in enumerate(zip(*losses)):
            allowed = 4 * abs(theirs - truth) + 1e-5 * (abs(truth) + 1) * (step + 1)
            require(abs(ours - truth) <= allowed, "gradients", f"the loss of step {step} is {ours}, not {truth}")

    def test_sixteen_bit_training(self, subject: Any, generator: torch.Generator) -> None:
        needs_dtype(subject, torch.bfloat16)

        def program(x: Any, w: Any) -> Any:
            return torch.tanh(x @ w).float().sum(0)

        assert_like_eager(
            subject, program, normal((4, 6), (6, 3)), generator=generator, grad=True, dtype=torch.bfloat16
        )

    @staticmethod
    def _same_gradients(left: list[Any], right: list[Any], when: str, factor: float = 4) -> None:
        for at, (one, other) in enumerate(zip(left, right)):
            if other.grad is None:  # a graph of all results can't tell what one of them does not depend on
                require(one.grad is None or not one.grad.any(), "gradients", f"gradient {at} {when} is not zero")
            else:
                require(one.grad is not None, "gradients", f"gradient {at} {when} is missing")
                closely(one.grad, other.grad, "gradients", f"gradient {at} {when}", factor=factor)
