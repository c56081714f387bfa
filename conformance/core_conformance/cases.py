"""The tests of a class as plain callables: for the table of probes, and for running a test without a test runner."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from core.errors import BackendError

from .fixtures import generator_of, subject_of
from .identity import test_id
from .refusals import refuses
from .rules import rule_of


@dataclass(frozen=True)
class Case:
    """One test: `call(subject=..., generator=..., seed=...)` passes, or raises."""

    id: str
    cls: type
    method: str
    parameters: tuple[tuple[str, Any], ...]
    probe: str = ""
    """The text of the probe, empty for a test that is none."""

    def call(self, **fixtures: Any) -> None:
        """Run the test in a fresh instance of its class."""
        instance = self.cls()
        begin = getattr(instance, "begin", None)
        if begin is not None:
            begin(fixtures["subject"])
        bound = getattr(instance, self.method)
        wanted = inspect.signature(bound).parameters
        bound(**{name: value for name, value in fixtures.items() if name in wanted}, **dict(self.parameters))


@dataclass(frozen=True)
class Result:
    """What came of a test: "passed", "failed", "refused" (the backend said that it can't) or "skipped"."""

    case: Case
    outcome: str
    rule: str = ""
    message: str = ""


def cases_of(cls: type) -> Iterator[Case]:
    """The tests of a class, with their parameters, in the order of its source."""
    names = dict.fromkeys(name for base in reversed(cls.__mro__) for name in vars(base) if name.startswith("test_"))
    for name in names:
        marks = getattr(getattr(cls, name), "pytestmark", [])
        probe = next((str(mark.args[0]) for mark in marks if mark.name == "probe"), "")
        for words, values in _combinations([mark for mark in marks if mark.name == "parametrize"]):
            suffix = f"[{words}]" if words else ""
            yield Case(test_id(cls, name) + suffix, cls, name, values, probe)


def _combinations(marks: list[Any]) -> Iterator[tuple[str, tuple[tuple[str, Any], ...]]]:
    columns = []
    for mark in marks:
        names = [name.strip() for name in mark.args[0].split(",")] if isinstance(mark.args[0], str) else mark.args[0]
        ids = mark.kwargs.get("ids")
        rows = []
        for at, row in enumerate(mark.args[1]):
            values = (row,) if len(names) == 1 else tuple(row)
            given = ids[at] if isinstance(ids, (list, tuple)) else None
            word = given or "-".join(ids(value) if callable(ids) else str(value) for value in values)
            rows.append((word, tuple(zip(names, values))))
        columns.append(rows)
    for chosen in itertools.product(*columns):
        yield "-".join(word for word, _ in chosen), tuple(pair for _, pairs in chosen for pair in pairs)


def run_case(case: Case, spec: Any, *, device: str = "cpu", seed: int = 0) -> Result:
    """Run one test on a backend, given as `backend=` takes it, with the fixtures that the test runner would make."""
    with subject_of(spec, device) as subject:
        return _outcome(case, lambda: case.call(subject=subject, generator=generator_of(seed, case.id), seed=seed))


def _outcome(case: Case, run: Callable[[], None]) -> Result:
    try:
        run()
    except pytest.skip.Exception as skipped:
        return Result(case, "skipped", message=str(skipped))
    except pytest.fail.Exception as failure:
        return Result(case, "failed", rule_of(failure) or "exception", str(failure))
    except Exception as error:  # whatever a backend raises is what came of the test
        text = f"{type(error).__name__}: {error}"
        if refuses(error):
            return Result(case, "refused", message=text)
        return Result(
            case, "failed", rule_of(error) or ("error" if isinstance(error, BackendError) else "exception"), text
        )
    return Result(case, "passed")
