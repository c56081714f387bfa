"""Graphs of products, convolutions, norms, attention, and of operations that move elements."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from ..assertions import assert_like_eager
from .base import ConformanceTests
from .values import draw, indices, needs_dtype, needs_training, normal


class TensorGraphs(ConformanceTests):
    """Linear algebra, layers, views, indexing."""

    abstract = True

    def test_products_with_pointwise_ends(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any, w: Any, b: Any) -> Any:
            return F.relu(x @ w + b) * 2, torch.addmm(b, x, w, beta=0.5, alpha=2)

        assert_like_eager(subject, program, normal((5, 8), (8, 6), (6,)), generator=generator)

    def test_products_of_transposed_operands(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any, y: Any) -> Any:
            return x.t() @ y, y.t() @ x, x @ y.t(), (x.t() @ y).t()

        assert_like_eager(subject, program, normal((5, 4), (5, 4)), generator=generator)

    def test_batched_products(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any, y: Any, v: Any) -> Any:
            return x @ y, torch.bmm(x, y) + 1, x @ v, torch.einsum("bij,bjk->bik", x, y), y.mT @ x.mT

        assert_like_eager(subject, program, normal((3, 4, 5), (3, 5, 2), (5,)), generator=generator)

    def test_products_of_vectors(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any, y: Any) -> Any:
            return x.dot(y), torch.outer(x, y), x @ y, torch.einsum("i,j->", x, y)

        assert_like_eager(subject, program, normal((7,), (7,)), generator=generator)

    def test_chain_of_products(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any, *weights: Any) -> Any:
            for weight in weights:
                x = torch.tanh(x @ weight)
            return x

        assert_like_eager(subject, program, normal((3, 6), *[(6, 6)] * 6), generator=generator)

    def test_convolutions_of_each_kind(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any, w: Any, b: Any, grouped: Any) -> Any:
            return (
                F.conv2d(x, w, b, stride=2, padding=1),
                F.conv2d(x, w, dilation=2),
                F.conv2d(x, grouped, groups=4),
                F.conv_transpose2d(x, w.transpose(0, 1), stride=2),
            )

        assert_like_eager(subject, program, normal((2, 4, 9, 9), (6, 4, 3, 3), (6,), (4, 1, 3, 3)), generator=generator)

    def test_convolution_block(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any, w: Any, scale: Any, shift: Any, mean: Any, var: Any) -> Any:
            y = F.conv2d(x, w, padding=1)
            y = F.relu(F.batch_norm(y, mean, var.abs() + 0.5, scale, shift))
            return F.max_pool2d(y, 2) + F.avg_pool2d(y, 2), F.adaptive_avg_pool2d(y, 1).flatten(1)

        shapes = ((2, 3, 8, 8), (4, 3, 3, 3), (4,), (4,), (4,), (4,))
        assert_like_eager(subject, program, normal(*shapes), generator=generator)

    def test_one_dimensional_convolutions(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any, w: Any) -> Any:
            return F.conv1d(x, w, padding=2), F.conv1d(F.pad(x, (2, 0)), w).transpose(1, 2)

        assert_like_eager(subject, program, normal((2, 3, 11), (5, 3, 3)), generator=generator)

    def test_normalisations(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any, w: Any, b: Any) -> Any:
            return (
                F.layer_norm(x, (8,), w, b),
                F.group_norm(x.transpose(1, 2), 2, w, b),
                x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w,
                F.normalize(x, dim=-1),
            )

        assert_like_eager(subject, program, normal((3, 5, 8), (8,), (8,)), generator=generator)

    def test_softmax_over_each_dimension(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            return F.softmax(x, 0), F.log_softmax(x, 1), F.softmax(x * 30, -1), torch.logsumexp(x, (0, 1))

        assert_like_eager(subject, program, normal((3, 5, 7)), generator=generator)

    def test_attention_written_out(self, subject: Any, generator: torch.Generator) -> None:
        def program(q: Any, k: Any, v: Any) -> Any:
            scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
            mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril()
            return F.softmax(scores.masked_fill(~mask, float("-inf")), -1) @ v

        assert_like_eager(subject, program, normal(*[(2, 3, 6, 4)] * 3), generator=generator)

    def test_attention_in_one_call(self, subject: Any, generator: torch.Generator) -> None:
        def program(q: Any, k: Any, v: Any) -> Any:
            attend = F.scaled_dot_product_attention
            return attend(q, k, v), attend(q, k, v, is_causal=True)

        # Which of its kernels runs is eager's choice, and so is the layout of its result.
        assert_like_eager(subject, program, normal(*[(2, 2, 6, 8)] * 3), generator=generator, check_layout=False)

    def test_concatenation_and_stacking(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any, y: Any) -> Any:
            return (
                torch.cat([x, y * 2], 0),
                torch.cat([x, x[:, :1]], 1),
                torch.stack([x, y[:3]], 1),
                torch.hstack([x, x]),
            )

        assert_like_eager(subject, program, normal((3, 4), (5, 4)), generator=generator)

    def test_splitting(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            a, b = x.chunk(2, -1)
            parts = x.split([1, 4, 3], -1)
            return F.silu(a) * b, parts[1].sum(-1) + parts[0][..., 0], torch.stack(x.unbind(0)).mean(0)

        assert_like_eager(subject, program, normal((4, 8)), generator=generator)

    def test_views_of_views(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            y = x.view(2, 3, 4).permute(2, 0, 1)
            return y.reshape(4, 6) + 1, y[1:, :, -1].unsqueeze(-1).expand(3, 2, 5), y.flatten(), x.unfold(1, 4, 2) * 2

        assert_like_eager(subject, program, normal((2, 12)), generator=generator)

    def test_rows_are_gathered(self, subject: Any, generator: torch.Generator) -> None:
        needs_dtype(subject, torch.int64)

        def program(x: Any, rows: Any) -> Any:
            return x[rows], x.index_select(0, rows), F.embedding(rows.view(2, 3), x), x[rows, 1:3], x[:, [0, 2]]

        def inputs(numbers: torch.Generator) -> list[Any]:
            return [draw(numbers, 7, 4), indices(numbers, 7, 6)]

        assert_like_eager(subject, program, inputs, generator=generator)

    def test_gather_and_take_along(self, subject: Any, generator: torch.Generator) -> None:
        needs_dtype(subject, torch.int64)

        def program(x: Any, places: Any) -> Any:
            return x.gather(1, places), torch.take_along_dim(x, places, 1), x.flatten()[places.flatten()]

        def inputs(numbers: torch.Generator) -> list[Any]:
            return [draw(numbers, 5, 6), indices(numbers, 6, 5, 3)]

        assert_like_eager(subject, program, inputs, generator=generator)

    def test_scatter_and_accumulation(self, subject: Any, generator: torch.Generator) -> None:
        needs_dtype(subject, torch.int64)

        def program(x: Any, places: Any, values: Any) -> Any:
            zeros = torch.zeros(5, 6)
            return (
                zeros.scatter_add(1, places, values),
                torch.zeros(6).index_add(0, places[0], values[0]),
                x.index_put((places[:, 0],), values.sum(1, keepdim=True).expand(5, 6), accumulate=True),
                zeros.scatter_reduce(1, places, values, "amax", include_self=False),
            )

        def inputs(numbers: torch.Generator) -> list[Any]:
            return [draw(numbers, 6, 6), indices(numbers, 5, 5, 3), draw(numbers, 5, 3)]

        assert_like_eager(subject, program, inputs, generator=generator)

    def test_elements_are_assigned_by_index_and_mask(self, subject: Any, generator: torch.Generator) -> None:
        needs_dtype(subject, torch.int64)

        def program(x: Any, row: Any, mask: Any) -> Any:
            y = x.clone()
            y[row] = 0
            y[mask] = -1
            y[:, 0] += 5
            return y

        def inputs(numbers: torch.Generator) -> list[Any]:
            return [draw(numbers, 5, 4), indices(numbers, 5, 2), draw(numbers, 5, 4, dtype=torch.bool)]

        assert_like_eager(subject, program, inputs, generator=generator)

    def test_padding_and_rolling(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            return (
                F.pad(x, (1, 2, 0, 1)),
                F.pad(x, (-1, 1), value=3.0),
                F.pad(x, (2, 2), mode="reflect"),
                torch.roll(x, (1, -2), (1, 2)),
                x.flip(0, 2),
                x.repeat(1, 2, 1),
                x.repeat_interleave(2, dim=1),
            )

        assert_like_eager(subject, program, normal((2, 3, 5)), generator=generator)

    def test_triangles_and_diagonals(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            return x.tril(), x.triu(1), x.diagonal(), torch.diag(x[0]), x.trace(), torch.diag_embed(x)

        assert_like_eager(subject, program, normal((5, 5)), generator=generator)

    def test_sorting_and_selection(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            values, places = x.sort(-1)
            top, where = x.topk(3, -1)
            return values, places, top, where, x.median(), x.argsort(0, descending=True), x.kthvalue(2, -1)

        assert_like_eager(subject, program, normal((4, 9)), generator=generator)

    def test_upsampling(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            return (
                F.interpolate(x, scale_factor=2, mode="nearest"),
                F.interpolate(x, size=(7, 5), mode="bilinear", align_corners=False),
                F.pixel_shuffle(x, 2),
            )

        assert_like_eager(subject, program, normal((1, 4, 3, 4)), generator=generator)

    def test_rotary_positions(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            half = x.shape[-1] // 2
            positions = torch.arange(x.shape[-2], dtype=x.dtype)
            rates = torch.pow(10.0, -torch.arange(half, dtype=x.dtype) / half)
            angles = torch.outer(positions, rates)
            a, b = x[..., :half], x[..., half:]
            return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)

        assert_like_eager(subject, program, normal((2, 5, 8)), generator=generator)

    def test_branches_that_join(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any, w: Any) -> Any:
            left, right = F.relu(x @ w), torch.sigmoid(x @ w.t())
            joined = torch.cat([left, right, left * right], -1)
            return joined.view(x.shape[0], 3, -1).sum(1) + x

        assert_like_eager(subject, program, normal((4, 6), (6, 6)), generator=generator)

    def test_loop_unrolled_over_time(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any, h: Any, w: Any, u: Any) -> Any:
            states = []
            for step in x.unbind(1):
                h = torch.tanh(step @ w + h @ u)
                states.append(h)
            return torch.stack(states, 1), h

        assert_like_eager(subject, program, normal((2, 5, 3), (2, 4), (3, 4), (4, 4)), generator=generator)

    def test_matrix_decompositions(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any, b: Any) -> Any:
            positive = x @ x.t() + 5 * torch.eye(4)
            return torch.linalg.cholesky(positive), torch.linalg.solve(positive, b), torch.linalg.det(positive)

        assert_like_eager(subject, program, normal((4, 4), (4, 2)), generator=generator)

    def test_gradients_of_a_layer(self, subject: Any, generator: torch.Generator) -> None:
        needs_training(subject)

        def program(x: Any, w: Any, b: Any) -> Any:
            y = F.layer_norm(F.gelu(F.linear(x, w, b)), (6,))
            return y.sum(-1), y[:, 0]

        assert_like_eager(subject, program, normal((5, 8), (6, 8), (6,)), generator=generator, grad=True)
