"""DynamicTests: compiled once, called with sizes that nobody named before; what is compiled again is counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

import core

from ..rules import closely, require
from .base import ConformanceTests
from .values import draw, needs_dynamic, needs_training, seeded

SIZES = (6, 2, 3, 17, 64, 129, 1000)
SMALL = (0, 1)
"""Sizes that may have a graph of their own."""


class DynamicTests(ConformanceTests):
    """With dynamic=True one graph serves every size from 2 on; 0 and 1 may cost one more each."""

    def _check(
        self,
        subject: Any,
        program: Callable[..., Any],
        make: Callable[[int], Sequence[Any]],
        sizes: Sequence[int] = SIZES,
        *,
        graphs: int = 1,
        dynamic: bool | None = True,
        factor: float = 4,
    ) -> None:
        needs_dynamic(subject)
        compiled = subject.compile(program, dynamic=dynamic)
        before = core.stats()["graphs"]
        for size in sizes:
            inputs = make(size)
            closely(compiled(*inputs), program(*inputs), "numerics", f"the result for the size {size}", factor=factor)
        made = core.stats()["graphs"] - before
        if made > graphs:  # a torch whose shape rules for an operator divide costs every backend the same graphs
            graphs = max(graphs, self._captured(program, make, sizes, dynamic))
        text = f"{made} graphs were compiled for {len(sizes)} sizes, not 1 to {graphs}"
        require(1 <= made <= graphs, "recompiles", text)

    def _captured(
        self, program: Callable[..., Any], make: Callable[[int], Sequence[Any]], sizes: Sequence[int], dynamic: Any
    ) -> int:
        """How many graphs the capture alone needs for these sizes, with no backend at work."""

        def again(*inputs: Any) -> Any:
            return program(*inputs)

        compiled = core.compile(again, backend="eager", dynamic=dynamic)
        before = core.stats()["graphs"]
        for size in sizes:
            compiled(*make(size))
        return core.stats()["graphs"] - before

    def test_pointwise_over_any_size(self, subject: Any, generator: torch.Generator) -> None:
        self._check(subject, lambda x, y: torch.tanh(x) * y + 1, lambda n: [draw(generator, n), draw(generator, n)])

    def test_sizes_zero_and_one(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            return x * 2, x.sum(), (x + 1).prod(), torch.cat([x, x])

        self._check(subject, program, lambda n: [draw(generator, n, 3)], (5, *SMALL, 7, 0, 1), graphs=3)

    def test_reductions_over_any_size(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            return x.sum(0), x.mean(1), x.amax(), F.softmax(x, 0), x.var(0)

        self._check(subject, program, lambda n: [draw(generator, n, 5)])

    def test_size_as_a_number(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            return x * x.shape[0] + x.numel() / 2, torch.arange(x.shape[0]), x.sum() / len(x)

        self._check(subject, program, lambda n: [draw(generator, n, 2)])

    def test_views_over_any_size(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            return x.view(-1, 2, 3).transpose(0, 1).reshape(2, -1) + 1, x[: x.shape[0] // 2], x.flatten()[1:]

        self._check(subject, program, lambda n: [draw(generator, n, 6)])

    def test_products_over_any_size(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any, w: Any) -> Any:
            return F.relu(x @ w), x @ x.t()

        self._check(subject, program, lambda n: [draw(generator, n, 4), draw(generator, 4, 3)], SIZES[:-1])

    def test_two_sizes_at_once(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any, y: Any) -> Any:
            return x @ y, (x.sum(1, keepdim=True) + y.sum(0))

        sizes = ((4, 5, 6), (7, 2, 3), (33, 9, 20))
        needs_dynamic(subject)
        compiled = subject.compile(program, dynamic=True)
        before = core.stats()["graphs"]
        for m, k, n in sizes:
            x, y = draw(generator, m, k), draw(generator, k, n)
            closely(compiled(x, y), program(x, y), "numerics", f"the result for {m}, {k}, {n}", factor=4)
        made = core.stats()["graphs"] - before
        require(made == 1, "recompiles", f"{made} graphs were compiled for three sets of sizes")

    def test_convolution_over_any_image(self, subject: Any, generator: torch.Generator) -> None:
        weight = draw(generator, 4, 3, 3, 3)

        def program(x: Any, w: Any) -> Any:
            return F.max_pool2d(F.relu(F.conv2d(x, w, padding=1)), 2).mean((2, 3))

        self._check(subject, program, lambda n: [draw(generator, 2, 3, n, n + 4), weight], (6, 9, 16, 31))

    def test_attention_over_any_length(self, subject: Any, generator: torch.Generator) -> None:
        def program(q: Any, k: Any, v: Any) -> Any:
            mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril()
            return F.softmax((q @ k.transpose(-2, -1) / 2).masked_fill(~mask, float("-inf")), -1) @ v

        self._check(subject, program, lambda n: [draw(generator, 2, n, 4) for _ in range(3)], (6, 2, 3, 17, 64))

    def test_module_over_any_batch(self, subject: Any, generator: torch.Generator) -> None:
        module = seeded(torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.Linear(8, 2)), generator)
        needs_dynamic(subject)
        compiled = subject.compile(module, dynamic=True)
        before = core.stats()["graphs"]
        with torch.no_grad():
            for size in (4, 2, 9, 100):
                x = draw(generator, size, 6)
                closely(compiled(x), module(x), "numerics", f"the result for a batch of {size}", factor=4)
        made = core.stats()["graphs"] - before
        require(made == 1, "recompiles", f"{made} graphs were compiled for four batches")

    def test_size_that_changes_becomes_dynamic(self, subject: Any, generator: torch.Generator) -> None:
        self._check(
            subject,
            lambda x: torch.sin(x).sum(-1) + x[:, 0],
            lambda n: [draw(generator, n, 3)],
            (6, 9, 4, 33, 128),
            graphs=2,
            dynamic=None,
        )

    def test_fixed_sizes_are_compiled_one_by_one(self, subject: Any, generator: torch.Generator) -> None:
        compiled = subject.compile(lambda x: torch.cos(x) + 1, dynamic=False)
        before = core.stats()["graphs"]
        for size in (3, 5, 3, 5):
            x = draw(generator, size)
            closely(compiled(x), torch.cos(x) + 1, "numerics", f"the result for the size {size}")
        made = core.stats()["graphs"] - before
        require(made == 2, "recompiles", f"{made} graphs were compiled for two sizes")

    def test_layouts_over_any_size(self, subject: Any, generator: torch.Generator) -> None:
        needs_dynamic(subject)

        def program(x: Any) -> Any:
            return (x + 1).transpose(0, 1), torch.relu(x.t())

        compiled = subject.compile(program, dynamic=True)
        for size in (4, 7, 2, 19):
            x = draw(generator, size, 5)
            got, want = compiled(x), program(x)
            closely(got, want, "numerics")
            for one, other in zip(got, want):
                require(one.stride() == other.stride(), "strides", f"{one.stride()} for size {size}: {other.stride()}")

    def test_writes_to_inputs_of_any_size(self, subject: Any, generator: torch.Generator) -> None:
        needs_dynamic(subject)

        def program(x: Any) -> Any:
            x[1:] += x.mean()
            return x.sum()

        compiled = subject.compile(program, dynamic=True)
        for size in (4, 7, 2, 19):
            x = draw(generator, size, 5)
            twin = x.clone()
            closely(compiled(x), program(twin), "numerics", factor=4)
            closely(x, twin, "mutation", f"the input of size {size}", factor=4)

    def test_gradients_over_any_size(self, subject: Any, generator: torch.Generator) -> None:
        needs_dynamic(subject)
        needs_training(subject)

        def program(x: Any, w: Any) -> Any:
            return torch.tanh(x @ w).sum()

        compiled = subject.compile(program, dynamic=True)
        weight = draw(generator, 4, 3)
        for size in (5, 2, 17, 64):
            x = draw(generator, size, 4)
            left, right = weight.clone().requires_grad_(), weight.clone().requires_grad_()
            compiled(x, left).backward()
            program(x, right).backward()
            require(left.grad is not None, "gradients", f"no gradient for the size {size}")
            closely(left.grad, right.grad, "gradients", f"the gradient for the size {size}", factor=8)

    def test_integers_given_as_arguments(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any, n: int) -> Any:
            return x * n + n // 2

        x = draw(generator, 5)
        self._check(subject, program, lambda n: [x, n], (4, 7, 100, 31), graphs=2, dynamic=None)
