"""Programs that are no test of the suite: `python -m core_conformance.decoys` runs them with no test runner in sight.

A backend that is right where it believes to be tested, by a name on the stack or a module that is loaded, is compared
here with nothing of that kind about. Each program is made from the run's seed: operators, sizes and values.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

HEAD = "decoys::DecoyTests::program"
STEPS = 7


def decoy_tests(count: int) -> list[str]:
    """The ids of a profile's decoys."""
    return [f"{HEAD}[{number}]" for number in range(count)]


def program_of(seed: int, number: int) -> tuple[Callable[..., Any], Callable[..., list[Any]], Any]:
    """(program, make_inputs, generator) of one decoy."""
    import torch

    from .fixtures import generator_of

    generator = generator_of(seed, f"{HEAD}[{number}]")

    def below(limit: int) -> int:
        return int(torch.randint(limit, (), generator=generator))

    rows, columns, inner = 3 + below(30), 2 + below(30), 2 + below(30)
    one = (torch.tanh, torch.relu, torch.sigmoid, torch.abs, torch.square, torch.sin, torch.neg, torch.exp)
    two = (torch.add, torch.mul, torch.sub, torch.maximum)
    steps = [(one[below(len(one))], two[below(len(two))], below(3)) for _ in range(STEPS)]

    def run(x: Any, y: Any, w: Any) -> Any:
        value = x @ w
        for unary, binary, kind in steps:
            value = torch.softmax(value, -1) if kind == 0 else torch.tanh(unary(value))
            value = binary(value, y)
        return value, value.sum(-1), (value > 0.5).sum(0)

    def make_inputs(source: torch.Generator) -> list[Any]:
        shapes = ((rows, inner), (rows, columns), (inner, columns))
        return [torch.randn(shape, generator=source) for shape in shapes]

    return run, make_inputs, generator


def outcome_of(backend: str, device: str, seed: int, number: int) -> dict[str, Any]:
    """What came of one decoy, as a worker says it."""
    from .assertions import assert_like_eager
    from .fixtures import subject_of
    from .messages import for_report
    from .rules import rule_of

    program, make_inputs, generator = program_of(seed, number)
    began = time.perf_counter()
    result: dict[str, Any] = {"outcome": "passed", "message": "", "rule": ""}

    def placed(source: Any) -> list[Any]:
        return [value.to(device) for value in make_inputs(source)]

    with subject_of(backend, device) as subject:
        try:
            assert_like_eager(subject, program, placed, generator=generator)
        except Exception as error:  # whatever a backend raises is what came of the program
            text = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
            result = {"outcome": "failed", "rule": rule_of(text) or "exception", "message": for_report(text)}
    return {**result, "seconds": round(time.perf_counter() - began, 3)}


def main() -> int:
    """Run one order; see core_conformance.worker for its form."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    order = json.loads(sys.stdin.read())
    for test in order["tests"]:
        number = int(test.removeprefix(HEAD).strip("[]"))
        out.write(json.dumps({"begin": test}) + "\n")
        result = outcome_of(order["backend"], order["device"], order["seed"], number)
        out.write(json.dumps({"end": test, **result}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
