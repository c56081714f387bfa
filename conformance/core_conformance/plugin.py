"""The pytest plugin: collects the suite's classes and gives them their subject. Inert where neither is asked for.

It imports no torch before a test of the suite runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from .identity import is_suite_class, item_id

if TYPE_CHECKING:
    import torch

    from .subject import Subject


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of the suite."""
    group = parser.getgroup("core conformance")
    group.addoption("--core-backend", default=None, metavar="NAME", help="the backend to test")
    group.addoption("--core-device", default="cpu", metavar="DEVICE", help="the device of its tensors")
    group.addoption("--core-profile", default=None, metavar="PROFILE", help="collect the tests of this profile only")
    group.addoption("--core-seed", default=0, type=int, metavar="N", help="what the values of the tests are made from")
    group.addoption("--core-declarations", default=None, metavar="FILE", help="a conformance.toml")


def pytest_configure(config: pytest.Config) -> None:
    """The marks that the suite's tests bear."""
    config.addinivalue_line("markers", "probe(text): one of the semantic probes that are printed as a table")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With --core-profile: the tests of the suite that are not the profile's are left out."""
    name = config.getoption("--core-profile")
    if name is None:
        return
    from .profiles import load

    profile = load(name)
    left_out = [item for item in items if (test := item_id(item)) is not None and not profile.holds(test)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


def pytest_pycollect_makeitem(collector: Any, name: str, obj: Any) -> Any:
    """A class of the suite is collected wherever it is imported, whatever its name."""
    if is_suite_class(obj) and name == obj.__name__ and not getattr(obj, "abstract", False):
        return pytest.Class.from_parent(collector, name=name, obj=obj)
    return None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Classes whose parameters cost an import to list have a method for it."""
    parameters = getattr(metafunc.cls, "parameters", None)
    if is_suite_class(metafunc.cls) and parameters is not None:
        parameters(metafunc)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """With --core-declarations: what is declared is an expected failure where it is true, and a failure where not."""
    report = yield
    file = item.config.getoption("--core-declarations")
    test = item_id(item)
    if file is not None and test is not None and call.when == "call":
        from .excuses import excuse

        excuse(file, test, report, call.excinfo.value if call.excinfo is not None else None)
    return report


@pytest.fixture
def core_backend(request: pytest.FixtureRequest) -> Any:
    """The backend under test, as `backend=` takes it: --core-backend, or what a conftest.py returns in its place."""
    name = request.config.getoption("--core-backend")
    if name is None:
        pytest.skip("no backend: give --core-backend NAME, or write a fixture core_backend")
    return name


@pytest.fixture
def core_device(request: pytest.FixtureRequest) -> str:
    """The device under test."""
    return str(request.config.getoption("--core-device"))


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """What the values of this run are made from."""
    return int(request.config.getoption("--core-seed"))


@pytest.fixture
def generator(request: pytest.FixtureRequest, seed: int) -> torch.Generator:
    """Random numbers of this test in this run: no test sees those of another."""
    from .fixtures import generator_of

    return generator_of(seed, item_id(request.node) or request.node.nodeid)


@pytest.fixture
def subject(request: pytest.FixtureRequest, core_backend: Any, core_device: str) -> Iterator[Subject]:
    """The backend under test, with nothing compiled; what was observed of it is kept with the test."""
    from .fixtures import subject_of

    with subject_of(core_backend, core_device, getattr(request.config, "core_options", None)) as made:
        made.precision = getattr(request.config, "core_precision", "")
        request.node.core_observed = made.observed
        yield made
