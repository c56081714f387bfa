"""One process that runs some of the tests and says what came of each: `python -m core_conformance.worker`.

Enters: a JSON object on standard input (see Order). Leaves: JSON lines on the standard output that it was started with:
`{"begin": id}` and `{"end": id, ...}`, or `{"tests": [...]}` for a listing. What tests print goes elsewhere.

The plugin under test shares this process. It is told neither a test's name nor that there is a test: bodies run on a
thread of their own, whose frames have neutral names, and the variable that names the running test is taken away.
"""

from __future__ import annotations

import json
import os
import sys
import time
import types
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from .identity import item_id
from .messages import for_report
from .refusals import refuses
from .rules import rule_of
from .subject import FALLBACK

NEUTRAL = "program"


@dataclass(frozen=True)
class Order:
    """What a worker is asked. tests: None lists what there is; unsupported: those declared so."""

    backend: str
    device: str = "cpu"
    seed: int = 0
    tests: tuple[str, ...] | None = None
    unsupported: frozenset[str] = frozenset()
    options: dict[str, Any] = field(default_factory=dict)
    precision: str = ""

    @staticmethod
    def parse(text: str) -> Order:
        """From the JSON on standard input."""
        data = json.loads(text)
        tests = data.get("tests")
        return Order(
            data["backend"],
            data.get("device", "cpu"),
            int(data.get("seed", 0)),
            None if tests is None else tuple(tests),
            frozenset(data.get("unsupported", ())),
            dict(data.get("options", {})),
            str(data.get("precision", "")),
        )


class Reporter:
    """The pytest plugin of a worker: chooses and orders the tests, runs their bodies, writes what came of them."""

    def __init__(self, order: Order, write: Callable[[dict[str, Any]], None]) -> None:
        self.order = order
        self.write = write
        self.results: dict[str, dict[str, Any]] = {}
        self.bodies = ThreadPoolExecutor(1, thread_name_prefix=NEUTRAL)

    def pytest_configure(self, config: pytest.Config) -> None:
        """Parametrised classes make the wanted tests alone."""
        config.core_wanted = None if self.order.tests is None else frozenset(self.order.tests)  # type: ignore[attr-defined]
        config.core_options = self.order.options  # type: ignore[attr-defined]
        config.core_precision = self.order.precision  # type: ignore[attr-defined]

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Exactly the tests of the order, in its order."""
        found = {test: item for item in items if (test := item_id(item)) is not None}
        if self.order.tests is None:
            self.write({"tests": sorted(found)})
            items[:] = []
            return
        missing = [test for test in self.order.tests if test not in found]
        for test in missing:
            self.write({"begin": test})
            self.write({"end": test, "outcome": "failed", "message": "the suite has no such test", "seconds": 0.0})
        items[:] = [found[test] for test in self.order.tests if test in found]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        """Say that a test begins and what came of it."""
        test = item_id(item) or item.nodeid
        self.write({"begin": test})
        self.results[test] = {"end": test, "outcome": "passed", "message": "", "rule": ""}
        began = time.perf_counter()
        handled = yield
        result = self.results.pop(test)
        result["seconds"] = round(time.perf_counter() - began, 3)
        self.write({**result, **_observations(item)})
        return handled

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
        """Note the worst that happened in the three phases of a test."""
        report = yield
        result = self.results[item_id(item) or item.nodeid]
        if call.excinfo is None or result["outcome"] in ("failed", "refused"):
            return report
        error = call.excinfo.value
        if isinstance(error, pytest.skip.Exception):
            result.update(outcome="skipped", message=str(error))
        elif refuses(error):
            result.update(outcome="refused", message=for_report(str(error)))
        else:
            text = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
            result.update(outcome="failed", rule=rule_of(text) or "exception", message=for_report(text))
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> bool:
        """Run the body out of sight of what could name it."""
        os.environ.pop("PYTEST_CURRENT_TEST", None)
        wanted = pyfuncitem._fixtureinfo.argnames
        values = {name: pyfuncitem.funcargs[name] for name in wanted}
        body = anonymous(pyfuncitem.obj)
        subject = values.get("subject")
        try:
            self.bodies.submit(body, **values).result()
        except BaseException as error:
            if item_id(pyfuncitem) not in self.order.unsupported or subject is None or not refuses(error):
                raise
            self._with_fallback(subject, body, values)
            raise
        return True

    def _with_fallback(self, subject: Any, body: Callable[..., Any], values: dict[str, Any]) -> None:
        """What a backend declares unsupported is right all the same where core may fall back."""
        subject.reset()
        subject.excused, subject.fallback = True, FALLBACK
        self.bodies.submit(body, **values).result()


def anonymous(body: Callable[..., Any]) -> Callable[..., Any]:
    """The same function or method with neutral names in its code and that of the functions inside it."""
    function = body.__func__ if isinstance(body, types.MethodType) else body
    if not isinstance(function, types.FunctionType):
        return body
    made = types.FunctionType(
        _anonymous_code(function.__code__), function.__globals__, NEUTRAL, function.__defaults__, function.__closure__
    )
    made.__kwdefaults__ = function.__kwdefaults__
    return types.MethodType(made, body.__self__) if isinstance(body, types.MethodType) else made


def _anonymous_code(code: types.CodeType) -> types.CodeType:
    inside = tuple(_anonymous_code(const) if isinstance(const, types.CodeType) else const for const in code.co_consts)
    plain = code.co_name.startswith("<")  # a lambda's or a comprehension's own kind of name
    name = code.co_name if plain else NEUTRAL
    return code.replace(co_name=name, co_qualname=name, co_filename=f"<{NEUTRAL}>", co_consts=inside)


def _observations(item: pytest.Item) -> dict[str, Any]:
    observed = getattr(item, "core_observed", None)
    if observed is None:
        return {}
    ratio = observed.error_ratio
    measured = {"measured": dict(observed.measured)} if observed.measured else {}
    return {
        **measured,
        "error_ratio": round(ratio, 4) if ratio < 1e12 else 1e12,
        "provenance": dict(observed.provenance),
        "kernels": observed.kernels,
    }


def main() -> int:
    """Run one order."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    order = Order.parse(sys.stdin.read())

    def write(line: dict[str, Any]) -> None:
        out.write(json.dumps(line) + "\n")
        out.flush()

    import torch

    torch.set_num_threads(1)
    here = Path(__file__).parent
    arguments = [str(here / "collected.py"), "-c", os.devnull, "--rootdir", str(here), "--assert=plain", "-q"]
    arguments += ["-p", "no:cacheprovider", "-p", "core_conformance.plugin", "-p", "no:faulthandler"]
    arguments += ["--core-backend", order.backend, "--core-device", order.device, "--core-seed", str(order.seed)]
    code = pytest.main(arguments, plugins=[Reporter(order, write)])
    write({"done": int(code)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
