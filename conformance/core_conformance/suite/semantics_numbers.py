"""Semantics of numbers: integers, bools, NaN and infinities, promotion of dtypes, rounding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from ..assertions import assert_like_eager
from ..rules import closely, exactly
from .base import ConformanceTests
from .values import draw, mixed, needs_dtype, normal

NAN, INF = float("nan"), float("inf")
SPECIAL = (NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 1e38, -1e38, 1e-38, 0.5, -0.5, 2.5, -2.5, 1.5, 3.0)


class NumberSemantics(ConformanceTests):
    """What a single element becomes."""

    abstract = True

    def _agrees(self, subject: Any, program: Callable[..., Any], *inputs: Any, rule: str = "numerics") -> None:
        """Compiled once; the results are those of eager to the bit."""
        compiled = subject.compile(program)
        exactly(compiled(*inputs), program(*inputs), rule)

    @pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16], ids=["int8", "uint8", "int16"])
    def test_short_integers_wrap_around(self, subject: Any, generator: torch.Generator, dtype: torch.dtype) -> None:
        needs_dtype(subject, dtype)

        def program(x: Any, y: Any) -> Any:
            return x + y, x * y, x - y, -x, x.abs()

        limits = torch.iinfo(dtype)
        x = torch.randint(limits.min, limits.max + 1, (64,), generator=generator).to(dtype)
        y = torch.randint(limits.min, limits.max + 1, (64,), generator=generator).to(dtype)
        self._agrees(subject, program, x, y)

    def test_sums_of_short_integers_are_long(self, subject: Any, generator: torch.Generator) -> None:
        needs_dtype(subject, torch.int8, torch.int64)

        def program(x: Any, flags: Any) -> Any:
            return x.sum(), x.cumsum(0), x.prod(), flags.sum(), flags.any(), x.max()

        x = torch.full((300,), 100, dtype=torch.int8)
        self._agrees(subject, program, x, draw(generator, 300, dtype=torch.bool))

    def test_bits_are_moved(self, subject: Any, generator: torch.Generator) -> None:
        needs_dtype(subject, torch.int32)

        def program(x: Any, y: Any) -> Any:
            return x & y, x | y, x ^ y, ~x, x << 3, x >> 2

        x = torch.randint(-(2**31), 2**31, (32,), generator=generator).int()
        self._agrees(subject, program, x, x.flip(0).contiguous())

    def test_remainders_have_the_sign_of_their_kind(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any, y: Any) -> Any:
            return torch.remainder(x, y), torch.fmod(x, y), torch.div(x, y, rounding_mode="trunc")

        for dtype in (torch.int64, torch.float32):
            if subject.supports(dtype):
                x = torch.tensor([7, -7, 7, -7, 0, 9], dtype=dtype)
                self._agrees(subject, program, x, torch.tensor([3, 3, -3, -3, 5, -3], dtype=dtype))

    def test_division_of_integers_by_zero_is_refused(self, subject: Any, generator: torch.Generator) -> None:
        needs_dtype(subject, torch.int64)

        def program(x: Any, y: Any) -> Any:
            return x // y

        def inputs(numbers: torch.Generator) -> list[Any]:
            return [draw(numbers, 4, dtype=torch.int64), torch.zeros(4, dtype=torch.int64)]

        assert_like_eager(subject, program, inputs, generator=generator, calls=1)

    def test_division_by_zero_gives_infinities(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            return x / 0.0, 1 / x, torch.log(x), torch.rsqrt(x), x - x

        self._agrees(subject, program, torch.tensor([1.0, -1.0, 0.0, -0.0, INF, -INF, NAN]), rule="nan-positions")

    def test_nan_wins_in_extremes(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any, y: Any) -> Any:
            return (
                torch.maximum(x, y),
                torch.minimum(x, y),
                torch.clamp(x, -1, 1),
                x.max(),
                x.amin(0),
                torch.fmax(x, y),
            )

        x = torch.tensor(SPECIAL)
        self._agrees(subject, program, x, torch.tensor(SPECIAL[::-1]), rule="nan-positions")

    def test_nan_goes_through_activations(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            names = (
                "relu",
                "relu6",
                "leaky_relu",
                "hardtanh",
                "silu",
                "sigmoid",
                "softplus",
                "elu",
                "gelu",
                "hardswish",
            )
            return tuple(torch.isnan(getattr(torch.nn.functional, name)(x)) for name in names)

        x = draw(generator, 16)  # of infinities, eager's own kernels disagree with each other
        x[::5] = NAN
        self._agrees(subject, program, x, rule="nan-positions")

    def test_comparisons_with_nan_are_false(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            return x == x, x != x, x < 1, x >= 1, torch.isnan(x), torch.isinf(x), torch.isfinite(x), x.bool()

        self._agrees(subject, program, torch.tensor(SPECIAL), rule="nan-positions")

    def test_where_does_not_mix_in_what_it_leaves_out(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            return torch.where(x > 0, torch.log(x), torch.zeros_like(x)), x.masked_fill(x != x, 0), torch.nan_to_num(x)

        compiled = subject.compile(program)
        x = torch.tensor(SPECIAL)
        closely(compiled(x)[0][3:], program(x)[0][3:], "nan-positions")
        exactly(compiled(x)[1:], program(x)[1:], "nan-positions")

    def test_negative_zero_keeps_its_sign(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            return -x, x * -1, torch.relu(x), torch.signbit(x), x.abs(), torch.round(x * 0.25), torch.copysign(x * 2, x)

        self._agrees(subject, program, torch.tensor([0.0, -0.0, 1.0, -1.0]))

    def test_rounding_goes_to_even(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            return torch.round(x), torch.floor(x), torch.ceil(x), torch.trunc(x), x.to(torch.int32), torch.sign(x)

        needs_dtype(subject, torch.int32)
        x = torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, 3.49, -3.51, 2**24 + 1.0])
        self._agrees(subject, program, x)

    def test_float16_overflows(self, subject: Any, generator: torch.Generator) -> None:
        needs_dtype(subject, torch.float16)

        def program(x: Any) -> Any:
            return x * 2, x + 1, (x.float() * 2).half()

        self._agrees(subject, program, torch.tensor([40000.0, 65504.0, 2049.0, 1e-7], dtype=torch.float16))

    def test_bfloat16_rounds_each_result(self, subject: Any, generator: torch.Generator) -> None:
        needs_dtype(subject, torch.bfloat16)

        def program(x: Any, y: Any) -> Any:
            return x + y, x * y

        assert_like_eager(subject, program, normal((64,), (64,), dtype=torch.bfloat16), generator=generator)

    def test_complex_numbers(self, subject: Any, generator: torch.Generator) -> None:
        needs_dtype(subject, torch.complex64)

        def program(x: Any, y: Any) -> Any:
            return x * y, x.abs(), (x + 1).real, torch.view_as_real(x / 2)

        assert_like_eager(subject, program, normal((8,), (8,), dtype=torch.complex64), generator=generator)

    @pytest.mark.parametrize(
        "left,right",
        [
            (torch.int32, torch.float32),
            (torch.bool, torch.int64),
            (torch.uint8, torch.int8),
            (torch.float16, torch.float32),
            (torch.float16, torch.bfloat16),
            (torch.float32, torch.float64),
            (torch.int64, torch.float16),
        ],
        ids=str,
    )
    def test_dtypes_meet(self, subject: Any, generator: torch.Generator, left: Any, right: Any) -> None:
        needs_dtype(subject, left, right)

        def program(x: Any, y: Any) -> Any:
            return x + y, x * y, torch.where(x > y, x, y)

        make = mixed(((8,), left), ((8,), right))
        assert_like_eager(subject, program, make, generator=generator)
        self._closely(subject, program, *make(generator))  # as precise as the dtype of the result, not of the inputs

    def test_numbers_of_python_promote_by_kind(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any, n: Any) -> Any:
            return x + 1, x + 1.5, n + 1, n + 1.5, n * True, n / 2, 2**n, x**2

        self._closely(subject, program, draw(generator, 4), torch.tensor([1, 2, 3]))

    def test_tensors_without_dimensions_promote_by_kind(self, subject: Any, generator: torch.Generator) -> None:
        needs_dtype(subject, torch.float64, torch.int64)

        def program(x: Any, wide: Any, n: Any) -> Any:
            return x + wide, n + wide, x * n.sum()

        wide = torch.tensor(0.1, dtype=torch.float64)
        self._closely(subject, program, draw(generator, 4), wide, torch.tensor([1, 2, 3, 4]))

    def test_quotients_of_integers_are_floats(self, subject: Any, generator: torch.Generator) -> None:
        needs_dtype(subject, torch.int64)

        def program(x: Any, y: Any) -> Any:
            return x / y, torch.true_divide(x, 3), x.float().mean()

        self._closely(subject, program, torch.tensor([1, 2, 3]), torch.tensor([3, 7, 11]))

    def test_default_dtype_is_followed(self, subject: Any, generator: torch.Generator) -> None:
        needs_dtype(subject, torch.float64)

        def program(n: Any) -> Any:
            return n / 2, torch.ones(3) + n.sum()

        compiled = subject.compile(program)
        before = torch.get_default_dtype()
        try:
            for dtype in (torch.float32, torch.float64, torch.float32):
                torch.set_default_dtype(dtype)
                closely(compiled(torch.arange(3)), program(torch.arange(3)), "numerics")
        finally:
            torch.set_default_dtype(before)

    def test_conversions_between_dtypes(self, subject: Any, generator: torch.Generator) -> None:
        needs_dtype(subject, torch.int64, torch.int8, torch.float64, torch.bool)

        def program(x: Any) -> Any:
            return x.long(), x.bool(), x.double(), x.to(torch.int8), x.half().float(), x.bfloat16().float()

        self._agrees(subject, program, torch.tensor([0.0, 1.0, -1.5, 100.25, -100.9, 0.1, 65504.0 / 1024]))

    def test_long_sums_are_as_precise_as_eager(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            return x.sum(), x.mean(), x.var(), torch.logsumexp(x, 0)

        assert_like_eager(subject, program, normal((50_000,)), generator=generator)

    def test_close_numbers_are_told_apart(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any, y: Any) -> Any:
            return (x - y) * 1024, torch.expm1(x * 1e-6), torch.log1p(y * 1e-6)

        def inputs(numbers: torch.Generator) -> list[Any]:
            x = draw(numbers, 32) + 4
            return [x, torch.nextafter(x, torch.full_like(x, 9.0))]

        assert_like_eager(subject, program, inputs, generator=generator)

    def _closely(self, subject: Any, program: Callable[..., Any], *inputs: Any) -> None:
        compiled = subject.compile(program)
        closely(compiled(*inputs), program(*inputs), "numerics")
