"""Semantics of memory: who shares it with whom, what a write reaches, how results lie in it."""

from __future__ import annotations

from typing import Any

import torch

import core

from ..assertions import assert_like_eager
from ..rules import closely, exactly, require
from .base import ConformanceTests
from .values import draw, needs_dtype, normal


class MemorySemantics(ConformanceTests):
    """In-place operations, views, overlap, layouts."""

    abstract = True

    def test_write_through_a_view_reaches_its_base(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            x[1:].mul_(2)
            x.t()[0].add_(1)
            return x.sum(0)

        assert_like_eager(subject, program, normal((3, 4)), generator=generator)

    def test_write_to_a_base_is_seen_in_its_view(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            y = x + 1
            row = y[0]
            y.mul_(3)
            return row, y

        assert_like_eager(subject, program, normal((3, 4)), generator=generator)

    def test_slices_are_assigned(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any, y: Any) -> Any:
            z = x.clone()
            z[:, 1:3] = y
            z[0] = 0
            z[..., -1] += 1
            return z

        assert_like_eager(subject, program, normal((3, 4), (3, 2)), generator=generator)

    def test_overlapping_write_is_refused_as_in_eager(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            return x.add_(1)

        def inputs(numbers: torch.Generator) -> list[Any]:
            return [draw(numbers, 3, 1).expand(3, 4)]

        assert_like_eager(subject, program, inputs, generator=generator)

    def test_one_tensor_given_twice(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any, y: Any) -> Any:
            x.add_(1)
            return x * y

        compiled = subject.compile(program)
        for _ in range(2):
            x = draw(generator, 5)
            twin = x.clone()
            closely(compiled(x, x), program(twin, twin), "aliasing")
            exactly(x, twin, "mutation", "the input")
        left, right = draw(generator, 5), draw(generator, 5)
        closely(compiled(left.clone(), right), program(left.clone(), right), "aliasing", "the result for two tensors")

    # Writes to inputs that overlap are what core's recorder refuses: torch's own machinery takes the graph, where
    # config.strict does not forbid it.

    def test_view_and_base_as_two_inputs(self, subject: Any, generator: torch.Generator) -> None:
        def program(base: Any, view: Any) -> Any:
            base.mul_(2)
            return view + 1

        compiled = subject.compile(program)
        for _ in range(2):
            base = draw(generator, 4, 4)
            twin = base.clone()
            with core.config.patch(strict=False):
                got = compiled(base, base[1])
            closely(got, program(twin, twin[1]), "aliasing")
            exactly(base, twin, "mutation", "the base")

    def test_two_views_with_common_elements_as_inputs(self, subject: Any, generator: torch.Generator) -> None:
        def program(left: Any, right: Any) -> Any:
            left.add_(10)
            right.mul_(2)
            return left + right

        compiled = subject.compile(program)
        for _ in range(2):
            base = draw(generator, 9)
            twin = base.clone()
            with core.config.patch(strict=False):
                got = compiled(base[:6], base[3:])
            closely(got, program(twin[:6], twin[3:]), "aliasing")
            exactly(base, twin, "mutation", "the base")

    def test_transposed_input(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            return x * 2, x.contiguous(), x.sum(0)

        assert_like_eager(subject, program, lambda numbers: [draw(numbers, 4, 3).t()], generator=generator)

    def test_every_second_element(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            return torch.tanh(x), x.reshape(-1), x.cumsum(0)

        assert_like_eager(subject, program, lambda numbers: [draw(numbers, 8, 6)[::2, ::3]], generator=generator)

    def test_expanded_input(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            return x + 1, x.sum(1), x @ x.t()

        assert_like_eager(subject, program, lambda numbers: [draw(numbers, 4, 1).expand(4, 5)], generator=generator)

    def test_zero_stride_result(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            return (x * 2).unsqueeze(0).expand(3, -1)

        assert_like_eager(subject, program, normal((4,)), generator=generator)

    def test_tensors_without_dimensions(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any, y: Any) -> Any:
            return x * y, y + 1, y.expand(2), x.sum(), y.reshape(1)

        assert_like_eager(subject, program, normal((3,), ()), generator=generator)

    def test_input_that_begins_inside_its_storage(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            return x * 2 + 1, x.sum()

        assert_like_eager(subject, program, lambda numbers: [draw(numbers, 40)[1:38]], generator=generator)

    def test_alignment_changes_between_calls(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any, y: Any) -> Any:
            return x * y + 1

        compiled = subject.compile(program)
        for offset in (0, 1, 2, 3, 0, 7):
            base, y = draw(generator, 64), draw(generator, 32)
            x = base[offset : offset + 32]
            closely(compiled(x, y), program(x, y), "numerics", f"the result at offset {offset}")

    def test_conjugated_and_negated_views(self, subject: Any, generator: torch.Generator) -> None:
        needs_dtype(subject, torch.complex64)

        def program(x: Any) -> Any:
            return x.conj() * 2, x.conj().imag + 1

        assert_like_eager(subject, program, normal((5,), dtype=torch.complex64), generator=generator)

    def test_results_are_the_same_object_or_two(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            y = x + 1
            return y, y, y.clone()

        compiled = subject.compile(program)
        first, second, third = compiled(draw(generator, 4))
        require(first is second, "aliasing", "one tensor came back as two")
        require(first.data_ptr() != third.data_ptr(), "aliasing", "two tensors came back in the same memory")

    def test_results_share_memory_among_themselves(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            y = x * 2
            return y, y[1:], y.t()

        assert_like_eager(subject, program, normal((3, 4)), generator=generator)

    def test_equal_result_is_not_the_input(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            return x + 0, x * 1, torch.relu(x)

        compiled = subject.compile(program)
        for _ in range(2):
            x = draw(generator, 6).abs() + 0.5
            for result in compiled(x):
                require(result.data_ptr() != x.data_ptr(), "aliasing", "a result lies in the memory of an input")

    def test_input_comes_back_itself(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any, y: Any) -> Any:
            return x, y + 1

        compiled = subject.compile(program)
        for _ in range(2):
            x = draw(generator, 4)
            got, _ = compiled(x, x.clone())
            require(got is x, "aliasing", "an input that is returned came back as another tensor")

    def test_written_input_comes_back_itself(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            return x.mul_(2)

        compiled = subject.compile(program)
        for _ in range(2):
            x = draw(generator, 4)
            want = x * 2
            got = compiled(x)
            require(got is x, "aliasing", "an input that is written to came back as another tensor")
            exactly(x, want, "mutation", "the input")

    def test_inputs_are_left_alone(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any, y: Any) -> Any:
            return torch.exp(x) + y, x.softmax(-1)

        compiled = subject.compile(program)
        for _ in range(3):
            values = [draw(generator, 4, 6), draw(generator, 4, 6)]
            before, versions = [value.clone() for value in values], [value._version for value in values]
            compiled(*values)
            exactly(values, before, "mutation", "an input")
            require([v._version for v in values] == versions, "mutation", "an input was written to")

    def test_copy_between_dtypes(self, subject: Any, generator: torch.Generator) -> None:
        needs_dtype(subject, torch.float64)

        def program(x: Any, y: Any) -> Any:
            x.copy_(y)
            return x + 1

        def inputs(numbers: torch.Generator) -> list[Any]:
            return [draw(numbers, 4), draw(numbers, 4, dtype=torch.float64)]

        assert_like_eager(subject, program, inputs, generator=generator)

    def test_operation_that_changes_metadata_in_place(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            y = x + 1
            y.unsqueeze_(0)
            y.transpose_(0, 1)
            return y

        assert_like_eager(subject, program, normal((3, 4)), generator=generator)

    def test_permuted_results_keep_their_strides(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            return (x + 1).permute(2, 0, 1), torch.relu(x.transpose(0, 2)), x.transpose(0, 1) * 2

        assert_like_eager(subject, program, normal((2, 3, 4)), generator=generator)

    def test_earlier_results_are_not_written_to(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any, y: Any) -> Any:
            return x * y + 1, (x + y).sum(0)

        compiled = subject.compile(program)
        kept: list[tuple[Any, Any]] = []
        for _ in range(6):
            x, y = draw(generator, 8, 8), draw(generator, 8, 8)
            results = compiled(x, y)
            kept.append((results, tuple(value.clone() for value in results)))
        for results, copies in kept:
            exactly(tuple(results), copies, "buffer-reuse", "an earlier result")

    def test_results_belong_to_the_caller(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            return torch.sin(x) + 1

        compiled = subject.compile(program)
        x = draw(generator, 16)
        want = program(x)
        for _ in range(4):
            got = compiled(x)
            closely(got, want, "stale-result")
            got.fill_(float("nan"))  # what the caller does to a result is its own affair

    def test_input_changed_in_place_is_read_again(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any, y: Any) -> Any:
            return x * y + x

        compiled = subject.compile(program)
        x, y = draw(generator, 12), draw(generator, 12)
        for _ in range(4):
            closely(compiled(x, y), program(x, y), "stale-result", "the result after a change of an input")
            x.mul_(-0.5)
            y.add_(1)

    def test_change_of_one_element_is_seen(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any, y: Any) -> Any:
            return x * y + 1

        compiled = subject.compile(program)
        x, y = draw(generator, 6, 9), draw(generator, 6, 9)
        for row, column in ((5, 8), (3, 4), (5, 8), (0, 8)):
            closely(compiled(x, y), program(x, y), "stale-result", "the result after a change of one element")
            x[row, column] += 1.5

    def test_many_calls_are_as_right_as_the_first(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            return torch.sigmoid(x) * 3

        compiled = subject.compile(program)
        x = draw(generator, 8)
        want = program(x)
        for call in range(300):
            closely(compiled(x), want, "stale-result", f"the result of call {call}")

    def test_long_results_are_right_everywhere(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any, y: Any) -> Any:
            return x * y + 0.25

        compiled = subject.compile(program)
        for _ in range(2):
            x, y = torch.randn(1 << 20, generator=generator), torch.randn(1 << 20, generator=generator)
            closely(compiled(x, y), program(x, y), "numerics")
