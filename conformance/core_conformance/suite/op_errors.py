"""Wrong arguments: a compiled call refuses them with eager's class of exception."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from ..assertions import fail
from ..samples import as_sample, function_of, operators
from ..subject import Subject
from .base import ConformanceTests

LIMIT = 6
"""Wrong calls of one operator that are tried."""


@functools.cache
def refusing() -> tuple[str, ...]:
    """The operators for which the table lists wrong arguments."""
    return tuple(name for name, op in operators().items() if op.error_inputs_func is not None)


class OpErrorTests(ConformanceTests):
    """What eager refuses stays refused, and nothing else is."""

    @classmethod
    def parameters(cls, metafunc: Any) -> None:
        """One test for each operator that has wrong arguments in the table."""
        if "operator" in metafunc.fixturenames:
            wanted = getattr(metafunc.config, "core_wanted", None)
            names = [n for n in refusing() if wanted is None or f"op_errors::{cls.__name__}::error[{n}]" in wanted]
            metafunc.parametrize("operator", names, ids=str)

    def test_error(self, operator: str, subject: Subject) -> None:
        """The class of exception is eager's, or one made from it."""
        op = operators()[operator]
        tried = 0
        for error_input in op.error_inputs(subject.device):
            one = error_input.sample_input
            sample = as_sample(one.input, one.args, one.kwargs)
            program = sample.program(function_of(op))
            expected = _raised(program, sample.tensors)
            if expected is None:
                continue
            tried += 1
            got = _raised(subject.compile(program, fullgraph=False), sample.tensors)
            if got is None:
                fail("exception", f"no error, eager raises {type(expected).__name__}: {expected}")
            if not isinstance(got, type(expected)):
                text = f"{type(got).__name__}: {got}\neager raises {type(expected).__name__}: {expected}"
                raise AssertionError(f"[exception] {text}") from got
            if tried == LIMIT:
                break
        if not tried:
            pytest.skip("eager refuses none of the table's wrong arguments here")


def _raised(call: Any, arguments: Any) -> Exception | None:
    try:
        call(*arguments)
    except Exception as error:  # what is raised is what is compared
        return error
    return None
