"""Operators one by one: what torch's own table of operators says of each is what a compiled call of it does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from core.errors import Unsupported

from ..assertions import assert_like_eager, fail
from ..orders import settled_by
from ..samples import (
    SEVERAL_RIGHT,
    UNWRITTEN,
    Sample,
    cases,
    chosen,
    draws_numbers,
    function_of,
    name_of,
    parse_case,
    redrawn,
)
from ..subject import Subject, tensors_of
from .base import ConformanceTests

STRUCTURES = 2
"""Samples of different structure that each operator is compiled for."""


class OpTests(ConformanceTests):
    """Each operator on samples of the table: compiled once a structure, called with values made afterwards."""

    @classmethod
    def parameters(cls, metafunc: Any) -> None:
        """One test for each operator and dtype."""
        if "case" in metafunc.fixturenames:
            device = str(metafunc.config.getoption("--core-device", "cpu"))
            metafunc.parametrize("case", _selected(cases(device), metafunc), ids=str)

    def test_op(self, case: str, subject: Subject, generator: torch.Generator) -> None:
        """Results, effects on the arguments, aliasing and layout."""
        _check(case, subject, generator, grad=False)

    def test_gradients(self, case: str, subject: Subject, generator: torch.Generator) -> None:
        """Gradients of what the operator gives, against those in float64."""
        op, dtype = parse_case(case)
        if dtype not in op.supported_backward_dtypes(torch.device(subject.device).type) or not op.supports_autograd:
            pytest.skip("eager gives no gradient here")
        if not subject.has("training"):
            pytest.skip("the backend declares inference alone")
        _check(case, subject, generator, grad=True)


def _selected(found: tuple[str, ...], metafunc: Any) -> list[str]:
    """The cases of the profile, where there is one: making a test costs time."""
    wanted = getattr(metafunc.config, "core_wanted", None)
    if wanted is None:
        return list(found)
    name = metafunc.function.__name__.removeprefix("test_")
    return [case for case in found if f"ops::{metafunc.cls.__name__}::{name}[{case}]" in wanted]


def _check(case: str, subject: Subject, generator: torch.Generator, *, grad: bool) -> None:
    op, dtype = parse_case(case)
    subject.alone()
    if not subject.supports(dtype):
        pytest.skip(f"the backend does not declare {dtype}")
    samples = chosen(op, dtype, generator, STRUCTURES, device=subject.device, grad=grad)
    if not samples:
        pytest.skip("the table has no sample of a fitting size")
    for at, sample in samples:
        _check_sample(op, dtype, at, sample, subject, generator, grad=grad)


def _check_sample(
    op: Any, dtype: torch.dtype, at: int, sample: Sample, subject: Subject, generator: torch.Generator, *, grad: bool
) -> None:
    program = sample.program(function_of(op))

    def make_inputs(source: torch.Generator) -> list[Any]:
        return list(redrawn(op, dtype, at, sample, source, device=subject.device, grad=grad).tensors)

    if op.name in UNWRITTEN:
        _same_outside(subject, program, make_inputs(generator))
    elif draws_numbers(function_of(op), sample):
        if not grad:
            _follows_the_seed(subject, program, make_inputs, generator)
    else:
        _like_eager(op, sample, subject, program, make_inputs, generator, grad=grad)


def _like_eager(
    op: Any,
    sample: Sample,
    subject: Subject,
    program: Callable[..., Any],
    make_inputs: Callable[[torch.Generator], list[Any]],
    generator: torch.Generator,
    *,
    grad: bool,
) -> None:
    several = SEVERAL_RIGHT.search(name_of(op)) is not None
    like: dict[str, Any] = {"generator": generator, "grad": grad, "calls": 2, "random": several}
    like["settle"] = settled_by(op, sample)
    state = generator.get_state()
    try:
        assert_like_eager(subject, program, make_inputs, **like)
    except AssertionError as error:
        if not isinstance(error.__cause__, Unsupported):
            raise
        subject.observed.broken = True
    if subject.observed.broken:  # its results have sizes that depend on values, or it reads them: no one graph holds it
        generator.set_state(state)
        subject.reset()
        assert_like_eager(subject, program, make_inputs, **like, fullgraph=False)


def _same_outside(subject: Subject, program: Callable[..., Any], args: list[Any]) -> None:
    got, expected = tensors_of(subject.compile(program, fullgraph=False)(*args)), tensors_of(program(*args))
    for at, (one, other) in enumerate(zip(got, expected, strict=True)):
        for rule, have, want in (
            ("shape", one.shape, other.shape),
            ("dtype", one.dtype, other.dtype),
            ("device", one.device, other.device),
            ("strides", one.stride(), other.stride()),
        ):
            if have != want:
                fail(rule, f"result {at} has {rule} {have}, eager's has {want}")


def _follows_the_seed(
    subject: Subject,
    program: Callable[..., Any],
    make_inputs: Callable[[torch.Generator], list[Any]],
    generator: torch.Generator,
) -> None:
    """Equal seeds give equal numbers, other seeds give others, and their mean is that of eager's."""
    compiled = subject.compile(program, fullgraph=False)
    args = make_inputs(generator)

    def run(target: Callable[..., Any], seed: int) -> list[torch.Tensor]:
        torch.manual_seed(seed)
        copies = [tensor.detach().clone() if isinstance(tensor, torch.Tensor) else tensor for tensor in args]
        return [tensor.detach() for tensor in tensors_of(target(*copies))]

    first, again, other, eager = run(compiled, 11), run(compiled, 11), run(compiled, 12), run(program, 11)
    for one, expected in zip(first, eager, strict=True):
        if one.shape != expected.shape or one.dtype is not expected.dtype:
            fail("shape", f"{tuple(one.shape)} {one.dtype}, eager has {tuple(expected.shape)} {expected.dtype}")
    if not all(torch.equal(_known(a), _known(b)) for a, b in zip(first, again)):
        fail("rng", "the same seed gives other numbers")
    drawn = [run(program, seed) for seed in (11, 12)]
    differs = any(not torch.equal(_known(a), _known(b)) for a, b in zip(*drawn))
    if differs and all(torch.equal(_known(a), _known(b)) for a, b in zip(first, other)):
        fail("rng", "another seed gives the same numbers")


def _known(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.nan_to_num() if tensor.is_floating_point() else tensor
