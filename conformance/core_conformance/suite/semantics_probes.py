"""The sixteen probes: ordinary semantics that vendors' own wiring into torch loses most often."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ..assertions import assert_like_eager
from ..rules import closely, exactly, require
from .base import ConformanceTests
from .values import draw, needs_training, normal, seeded

TINY = 1e-40  # below the smallest normal float32


class SemanticProbes(ConformanceTests):
    """One test for each probe; `python -m core conformance probes` prints them as a table.

    What a backend does not declare is asked for all the same: core has somebody else do it, and the result is right.
    """

    abstract = True

    @pytest.mark.probe("gradients reach every input")
    def test_gradients_reach_every_input(self, subject: Any, generator: torch.Generator) -> None:
        needs_training(subject)

        def program(x: Any, w: Any, b: Any) -> Any:
            return torch.tanh(x @ w + b).sum(-1)

        assert_like_eager(subject, program, normal((4, 5), (5, 3), (3,)), generator=generator, grad=True)

    @pytest.mark.probe("an input written to is changed")
    def test_input_written_to_is_changed(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any, y: Any) -> Any:
            x.add_(y)
            x.mul_(2)
            return x.sum()

        assert_like_eager(subject, program, normal((3, 4), (3, 4)), generator=generator)

    @pytest.mark.probe("an input written to is changed, with gradients")
    def test_input_written_to_is_changed_with_gradients(self, subject: Any, generator: torch.Generator) -> None:
        needs_training(subject)

        def program(state: Any, weight: Any) -> Any:
            state.mul_(0.5).add_(weight.detach())
            return (state * weight).sum()

        compiled = subject.compile(program)
        for _ in range(3):
            state, weight = draw(generator, 6), draw(generator, 6)
            ours, theirs = state.clone(), state.clone()
            left, right = weight.clone().requires_grad_(), weight.clone().requires_grad_()
            got, want = compiled(ours, left), program(theirs, right)
            closely(got.detach(), want.detach(), "numerics")
            closely(ours, theirs, "mutation", "the input that is written to")
            require(got.requires_grad, "requires_grad", "the result has no history")
            got.backward()
            want.backward()
            require(left.grad is not None, "gradients", "the weight got no gradient")
            closely(left.grad, right.grad, "gradients", "the weight's gradient")

    @pytest.mark.probe("a view of an input stays a view")
    def test_view_of_an_input_stays_a_view(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            return x.view(-1), x[1:], x * 2

        assert_like_eager(subject, program, normal((3, 4)), generator=generator)
        compiled = subject.compile(program)
        x = draw(generator, 3, 4)
        flat, rest, _ = compiled(x)
        flat[0] = 7.0
        rest[0, 0] = 9.0
        require(float(x[0, 0]) == 7.0, "aliasing", "a write to x.view(-1) does not reach x")
        require(float(x[1, 0]) == 9.0, "aliasing", "a write to x[1:] does not reach x")

    @pytest.mark.probe("relu keeps NaN")
    def test_relu_keeps_nan(self, subject: Any, generator: torch.Generator) -> None:
        compiled = subject.compile(torch.nn.functional.relu)
        for _ in range(2):
            x = draw(generator, 16)
            x[3], x[5], x[7] = float("nan"), float("inf"), -float("inf")
            exactly(compiled(x), torch.relu(x), "nan-positions")

    @pytest.mark.probe("channels_last results keep their strides")
    def test_channels_last_strides(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            return torch.relu(x) + 1

        def inputs(numbers: torch.Generator) -> list[Any]:
            return [draw(numbers, 2, 3, 4, 5).to(memory_format=torch.channels_last)]

        assert_like_eager(subject, program, inputs, generator=generator)

    @pytest.mark.probe("float64 is computed in float64")
    def test_float64_is_computed_in_float64(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any, w: Any) -> Any:
            return torch.sin(x) @ w / 3

        compiled = subject.compile(program)
        for _ in range(2):
            x, w = draw(generator, 8, 16, dtype=torch.float64), draw(generator, 16, 8, dtype=torch.float64)
            closely(compiled(x, w), program(x, w), "numerics")

    @pytest.mark.probe("a linear layer is as precise as eager's")
    def test_linear_is_as_precise_as_eager(self, subject: Any, generator: torch.Generator) -> None:
        assert_like_eager(
            subject, torch.nn.functional.linear, normal((64, 256), (128, 256), (128,)), generator=generator
        )

    @pytest.mark.probe("random numbers follow the seed and differ")
    def test_random_numbers_follow_the_seed_and_differ(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            return torch.nn.functional.dropout(x, 0.25, training=True)

        compiled = subject.compile(program)
        ones = torch.ones(100, 200)
        runs = []
        for seed in (5, 5, 6):
            torch.manual_seed(seed)
            runs.append((compiled(ones), compiled(ones)))
        exactly(runs[0], runs[1], "rng", "a run after the same seed")
        for left, right in ((runs[0][0], runs[0][1]), (runs[0][0], runs[2][0])):
            require(not torch.equal(left, right), "rng", "two draws are the same")
        for result in runs[0]:
            kept = result != 0
            require(bool(((result - 4 / 3).abs() < 1e-5)[kept].all()), "rng", "what dropout keeps is not scaled right")
            share = float(kept.float().mean())
            require(abs(share - 0.75) < 0.02, "rng", f"dropout of a quarter keeps {share:.3f}")

    @pytest.mark.probe("tensors without elements")
    def test_tensors_without_elements(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            return x * 2, x.sum(), x.prod(), x.mean(), x.sum(0), torch.cat([x, x]), (x > 0).all()

        for shape in ((0, 3), (3, 0)):
            compiled = subject.compile(program, dynamic=False)
            x = draw(generator, *shape)
            exactly(tuple(compiled(x)), program(x), "numerics", f"a result for the shape {shape}")

    @pytest.mark.probe("new shapes give new results")
    def test_new_shapes_give_new_results(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            return torch.relu(x + 1).mean(-1), x.t() * x.shape[0]

        compiled = subject.compile(program)
        for shape in ((3, 4), (5, 4), (9, 4), (2, 7), (1, 4), (17, 33)):
            x = draw(generator, *shape)
            closely(compiled(x), program(x), "numerics", f"a result for the shape {shape}")

    @pytest.mark.probe("a weight changed in place is used")
    def test_weight_changed_in_place_is_used(self, subject: Any, generator: torch.Generator) -> None:
        module = seeded(torch.nn.Linear(6, 4), generator).eval()
        compiled = subject.compile(module)
        for _ in range(3):
            x = draw(generator, 5, 6)
            with torch.no_grad():
                closely(compiled(x), module(x), "stale-result", "the result after a change of the weight")
                module.weight.mul_(-1.5)
                module.bias.add_(1)

    @pytest.mark.probe("int32 wraps around")
    def test_int32_wraps_around(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any, y: Any) -> Any:
            return x + y, x * y, x - y, x * 3 + 1

        compiled = subject.compile(program)
        for _ in range(2):
            x = torch.randint(2**30, 2**31 - 1, (16,), generator=generator).int()
            y = torch.randint(2**30, 2**31 - 1, (16,), generator=generator).int()
            exactly(compiled(x, y), program(x, y), "numerics")

    @pytest.mark.probe("int64 is exact")
    def test_int64_is_exact(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any, y: Any) -> Any:
            return x + y, x * 3, x - y, x.sum(), x // 7

        compiled = subject.compile(program)
        for _ in range(2):
            x = torch.randint(2**53, 2**54, (16,), generator=generator) * 2 + 1
            y = torch.randint(1, 9, (16,), generator=generator)
            exactly(compiled(x, y), program(x, y), "numerics")

    @pytest.mark.probe("floor division rounds down")
    def test_floor_division_rounds_down(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any, y: Any) -> Any:
            return x // y, torch.div(x, y, rounding_mode="floor"), x % y

        for dtype in (torch.int64, torch.float32):
            compiled = subject.compile(program)
            x = torch.tensor([7, -7, 7, -7, 6, -6, 0, -1], dtype=dtype)
            y = torch.tensor([2, 2, -2, -2, 3, 3, 5, 4], dtype=dtype)
            closely(compiled(x, y), program(x, y), "numerics", f"a quotient of {dtype}")

    @pytest.mark.probe("subnormal numbers survive")
    def test_subnormal_numbers_survive(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            return x * 0.5, x + x, -x

        compiled = subject.compile(program)
        for _ in range(2):
            x = draw(generator, 16) * TINY
            exactly(compiled(x), program(x), "numerics")
