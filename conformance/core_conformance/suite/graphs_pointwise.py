"""Graphs of pointwise operations and reductions: what a compiler fuses, and what it leaves out."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from ..assertions import assert_like_eager
from .base import ConformanceTests
from .values import draw, mixed, needs_dtype, normal, positive


class PointwiseGraphs(ConformanceTests):
    """Chains, broadcasting, sharing, reductions, masks, integers and bools."""

    abstract = True

    def test_long_chain_of_pointwise_operations(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any, y: Any) -> Any:
            z = x
            for _ in range(12):
                z = torch.tanh(z) * 1.1 + y * 0.1
            return z

        assert_like_eager(subject, program, normal((6, 5), (6, 5)), generator=generator)

    def test_every_common_activation(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            return (
                F.relu(x),
                F.gelu(x),
                F.gelu(x, approximate="tanh"),
                F.silu(x),
                F.elu(x),
                F.leaky_relu(x, 0.1),
                F.softplus(x),
                F.hardtanh(x),
                torch.sigmoid(x),
                F.mish(x),
            )

        assert_like_eager(subject, program, normal((5, 7)), generator=generator)

    def test_functions_of_positive_numbers(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            return x.log(), x.sqrt(), x.rsqrt(), x.reciprocal(), x.pow(1.5), x.log1p(), torch.lgamma(x), x.exp2()

        assert_like_eager(subject, program, positive((40,)), generator=generator)

    def test_trigonometric_functions(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            return x.sin(), x.cos(), x.tan(), x.atan(), torch.atan2(x, x + 1), x.sinh(), x.cosh(), torch.erf(x)

        assert_like_eager(subject, program, normal((40,)), generator=generator)

    def test_broadcasting_in_every_direction(self, subject: Any, generator: torch.Generator) -> None:
        def program(a: Any, b: Any, c: Any, d: Any) -> Any:
            return a + b, a * c, (b - c) / (d.abs() + 1), torch.maximum(a, d)

        assert_like_eager(subject, program, normal((4, 1, 3), (5, 1), (3,), ()), generator=generator)

    def test_value_used_by_many(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            shared = torch.exp(-x * x)
            return shared + 1, shared.sum(), shared * x, shared.t() @ shared

        assert_like_eager(subject, program, normal((4, 4)), generator=generator)

    def test_equal_subgraphs(self, subject: Any, generator: torch.Generator) -> None:
        def part(x: Any) -> Any:
            return F.softmax(x * 2 + 1, -1)

        def program(x: Any, y: Any) -> Any:
            return part(x) + part(y) + part(x), part(y)

        assert_like_eager(subject, program, normal((3, 4), (3, 4)), generator=generator)

    def test_dead_code_is_without_effect(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any, y: Any) -> Any:
            unused = torch.log(y) @ y.t()
            unused.add_(1)
            _ = x.sum() + unused.mean()
            return x * 2

        assert_like_eager(subject, program, normal((4, 3), (4, 3)), generator=generator)

    def test_no_operation_at_all(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any, y: Any) -> Any:
            return y, x, 3, None, "word"

        assert_like_eager(subject, program, normal((4,), (4,)), generator=generator)

    def test_constant_results(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            return torch.zeros(3), torch.arange(5), torch.full((2, 2), 1.5), torch.eye(3), x + torch.ones(4)

        assert_like_eager(subject, program, normal((4,)), generator=generator)

    def test_nested_results(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            return {"sum": x.sum(), "parts": [x[0], (x[1] * 2, None)], "n": x.shape[0]}

        assert_like_eager(subject, program, normal((3, 4)), generator=generator)

    def test_many_results(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            return tuple(x * k + k for k in range(20))

        assert_like_eager(subject, program, normal((3, 3)), generator=generator)

    def test_many_inputs(self, subject: Any, generator: torch.Generator) -> None:
        def program(*values: Any) -> Any:
            total = values[0]
            for at, value in enumerate(values[1:]):
                total = total * 0.5 + value * at
            return total

        assert_like_eager(subject, program, normal(*[(4, 3)] * 24), generator=generator)

    def test_sums_over_every_dimension(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            return x.sum(), x.sum(0), x.sum((0, 2)), x.sum(-1, keepdim=True), x.mean(1), x.prod(2)

        assert_like_eager(subject, program, normal((3, 5, 4)), generator=generator)

    def test_extremes_and_their_places(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            return x.max(), x.min(1), x.max(-1), x.argmax(), x.argmin(0), x.amax((0, 1)), torch.aminmax(x)

        assert_like_eager(subject, program, normal((5, 6)), generator=generator)

    def test_variance_and_norms(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            return x.var(), x.std(0), x.var(1, unbiased=False), x.norm(), torch.linalg.vector_norm(x, 1, dim=-1)

        assert_like_eager(subject, program, normal((6, 9)), generator=generator)

    def test_reduction_between_pointwise_operations(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            y = (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-5)
            return y * y.abs().max() + y.sum(0)

        assert_like_eager(subject, program, normal((6, 33)), generator=generator)

    def test_prefix_sums(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            return x.cumsum(0), (x * 0.5).cumprod(1), x.flip(0).cumsum(0), x.cummax(1)

        assert_like_eager(subject, program, normal((5, 6)), generator=generator)

    def test_masks_choose_between_values(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any, mask: Any) -> Any:
            filled = x.masked_fill(mask, float("-inf"))
            return torch.where(mask, x, -x), F.softmax(filled, -1).nan_to_num(0.0), torch.where(x > 0, 1.0, x)

        make = mixed(((5, 6), torch.float32), ((5, 6), torch.bool))
        assert_like_eager(subject, program, make, generator=generator)

    def test_graph_of_bools(self, subject: Any, generator: torch.Generator) -> None:
        def program(a: Any, b: Any) -> Any:
            return a & b, a | ~b, a ^ b, a.any(), b.all(0), a.sum(), (a == b), torch.logical_xor(a, b).float()

        make = mixed(((4, 5), torch.bool), ((4, 5), torch.bool))
        assert_like_eager(subject, program, make, generator=generator)

    def test_graph_of_integers(self, subject: Any, generator: torch.Generator) -> None:
        needs_dtype(subject, torch.int64)

        def program(a: Any, b: Any) -> Any:
            return a * b - a, a.clamp(-5, 5), a.sum(0), a.max(), (a + 60) % 7, a.abs() // 3, a > b, a.sign()

        make = mixed(((4, 5), torch.int64), ((4, 5), torch.int64))
        assert_like_eager(subject, program, make, generator=generator)

    def test_integers_and_floats_in_one_graph(self, subject: Any, generator: torch.Generator) -> None:
        needs_dtype(subject, torch.int64)

        def program(x: Any, n: Any) -> Any:
            return x * n, (x > 0).long() + n, x[(n % 4).long()].sum(0), n.float().mean()

        assert_like_eager(subject, program, mixed(((4, 4), torch.float32), ((4, 4), torch.int64)), generator=generator)

    def test_losses(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any, y: Any) -> Any:
            return (
                F.mse_loss(x, y),
                F.l1_loss(x, y, reduction="sum"),
                F.smooth_l1_loss(x, y),
                F.binary_cross_entropy_with_logits(x, torch.sigmoid(y)),
                F.kl_div(F.log_softmax(x, -1), F.softmax(y, -1), reduction="batchmean"),
                F.cosine_similarity(x, y),
            )

        assert_like_eager(subject, program, normal((6, 5), (6, 5)), generator=generator)

    def test_cross_entropy_with_ignored_targets(self, subject: Any, generator: torch.Generator) -> None:
        needs_dtype(subject, torch.int64)

        def program(x: Any, target: Any) -> Any:
            return F.cross_entropy(x, target, ignore_index=2), F.nll_loss(F.log_softmax(x, 1), target)

        def inputs(numbers: torch.Generator) -> list[Any]:
            return [draw(numbers, 8, 5), torch.randint(0, 5, (8,), generator=numbers)]

        assert_like_eager(subject, program, inputs, generator=generator)
