"""What each option of compile() does, by results and counts."""

import pytest
import torch

import core
from core import events
from core.errors import BackendNotInstalled
from core.guards.checks import TypeUnchanged
from core.guards.guard import Guard
from core.guards.tree import build_program


def counts(*names: str) -> tuple[int, ...]:
    return tuple(core.stats()[name] for name in names)


def double(x):
    return x * 2


def test_core_backend_names_the_backend_where_none_is_given(monkeypatch):
    monkeypatch.setenv("CORE_BACKEND", "eager")
    seen = []
    stop = events.subscribe(lambda event: seen.append(event) if isinstance(event, events.GraphCaptured) else None)
    try:
        core.compile(double)(torch.ones(2))
    finally:
        stop()
    assert [event.backend for event in seen] == ["eager"]


def test_an_unknown_core_backend_is_an_error_of_compile(monkeypatch):
    monkeypatch.setenv("CORE_BACKEND", "no-such-backend")
    with pytest.raises(BackendNotInstalled):
        core.compile(double)


def test_a_list_of_backends_takes_the_first_that_is_installed():
    compiled = core.compile(double, backend=["no-such-backend", "eager"])
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
    assert counts("graphs") == (1,)


@pytest.mark.parametrize("dynamic, entries", [(None, 2), (False, 3), (True, 1)])
def test_dynamic_says_when_a_size_becomes_symbolic(dynamic, entries):
    compiled = core.compile(double, backend="eager", dynamic=dynamic)
    for size in (8, 9, 10):
        assert torch.equal(compiled(torch.ones(size)), torch.full((size,), 2.0))
    assert len(compiled.entries()) == entries and counts("recompiles") == (entries - 1,)


def test_sizes_zero_and_one_are_cases_of_their_own():
    compiled = core.compile(double, backend="eager")
    for size in (8, 9, 1, 0, 2, 7):
        assert torch.equal(compiled(torch.ones(size)), torch.full((size,), 2.0))
    assert len(compiled.entries()) == 4


def test_a_number_from_data_breaks_the_graph_unless_capture_scalar_outputs():
    def scaled(x):
        return x * x.sum().item()

    x = torch.ones(3)
    assert torch.equal(core.compile(scaled, backend="eager")(x), scaled(x))
    assert counts("graphs", "breaks") == (2, 1)
    core.reset()
    compiled = core.compile(scaled, backend="eager", capture_scalar_outputs=True)
    assert torch.equal(compiled(x), scaled(x)) and torch.equal(compiled(x * 2), scaled(x * 2))
    assert counts("graphs", "breaks", "recompiles") == (1, 0, 0)


def broken_inside(x):
    y = x * 2
    print("inside", end="")
    return y + 1


def calls_it(x):
    return broken_inside(x + 1) * 3


@pytest.mark.parametrize("nested, graphs", [(True, 4), (False, 2)])
def test_nested_says_whether_functions_behind_a_break_are_captured(nested, graphs, capsys):
    x = torch.ones(2)
    compiled = core.compile(calls_it, backend="eager", nested=nested)
    for _ in range(2):
        assert torch.equal(compiled(x), calls_it(x))
    assert counts("graphs") == (graphs,)


def test_name_is_the_name_of_the_graphs_in_events():
    seen = []
    stop = events.subscribe(lambda event: seen.append(event) if isinstance(event, events.GraphCaptured) else None)
    try:
        core.compile(double, backend="eager", name="twice")(torch.ones(2))
    finally:
        stop()
    assert [event.function for event in seen] == ["twice"]


def test_equal_options_give_the_same_callable_and_others_another():
    first = core.compile(double, backend="eager")
    assert core.compile(double, backend="eager") is first
    assert core.compile(double, backend="eager", dynamic=True) is not first


def test_a_class_that_changed_is_told_by_its_guard():
    class Settings:
        factor = 2

    settings = Settings()

    def scaled(x):
        return x * settings.factor

    compiled = core.compile(scaled, backend="eager")
    x = torch.ones(2)
    assert torch.equal(compiled(x), torch.full((2,), 2.0))
    Settings.factor = 3
    assert torch.equal(compiled(x), torch.full((2,), 3.0))
    assert counts("recompiles") == (1,)


def test_type_unchanged_holds_until_an_attribute_of_the_class_or_a_base_is_set():
    class Base:
        pass

    class Derived(Base):
        pass

    check = TypeUnchanged(Derived)
    program, (guard,) = build_program([Guard(None, check)])
    assert guard.describe().startswith("no attribute of the class") and "Derived" in guard.describe()
    assert program.check((), {}, {}, None) == -1
    Base.added = 1
    assert program.check((), {}, {}, None) == 0
    assert "was set or deleted" in check.explain(None)


def test_is_compiling_is_true_while_captured_and_false_in_plain_python():
    def by_state(x):
        return x + 1 if core.is_compiling() else x + 2

    x = torch.zeros(2)
    assert torch.equal(by_state(x), x + 2)
    assert torch.equal(core.compile(by_state, backend="eager", fullgraph=True)(x), x + 1)
    assert counts("graphs", "breaks") == (1, 0)
    assert core.is_compiling() is False
