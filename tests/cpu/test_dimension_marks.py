"""mark_dynamic and its kin: which sizes are symbolic, and what is said when the code fixes one."""

import pytest
import torch

import core
from core import events
from core.errors import ConstraintViolated


def double(x):
    return x * 2


def run(compiled, fn, sizes):
    for size in sizes:
        x = torch.ones(size)
        assert torch.equal(compiled(x), fn(x))


def test_a_marked_dimension_is_symbolic_from_the_first_call():
    x = torch.ones(6, 3)
    core.mark_dynamic(x, 0)
    compiled = core.compile(double, backend="eager")
    compiled(x)
    run(compiled, double, [(7, 3), (9, 3), (2, 3)])
    assert len(compiled.entries()) == 1
    run(compiled, double, [(7, 4)])
    assert len(compiled.entries()) == 2


def test_code_that_fixes_a_marked_size_is_an_error_with_its_line():
    def fixes(x):
        y = x + 1
        if x.shape[0] == 6:
            return y * 2
        return y

    x = torch.ones(6, 3)
    core.mark_dynamic(x, 0)
    with pytest.raises(
        ConstraintViolated, match=r"dimension 0 of L\['x'\] was marked dynamic.*fixes its size to 6"
    ) as error:
        core.compile(fixes, backend="eager")(x)
    assert error.value.id == "CORE-C005"
    assert error.value.where.line == fixes.__code__.co_firstlineno + 2
    assert core.stats()["graphs"] == 0
    y = torch.ones(6, 3)
    core.maybe_mark_dynamic(y, 0)
    compiled = core.compile(fixes, backend="eager", fullgraph=True)
    assert torch.equal(compiled(y), fixes(y))
    run(compiled, fixes, [(7, 3), (9, 3)])
    assert len(compiled.entries()) == 2


def test_an_operation_that_fixes_a_marked_size_is_an_error_with_its_line():
    weight = torch.ones(6)

    def fixes(x):
        return x + weight

    x = torch.ones(6)
    core.mark_dynamic(x, 0)
    with pytest.raises(ConstraintViolated, match="fixes its size to 6") as error:
        core.compile(fixes, backend="eager")(x)
    assert error.value.where.line == fixes.__code__.co_firstlineno + 1


def test_code_that_narrows_a_marked_range_is_an_error():
    def narrows(x):
        return x + 1 if x.shape[0] > 50 else x - 1

    x = torch.ones(6)
    core.mark_dynamic(x, 0, min=2, max=100)
    with pytest.raises(ConstraintViolated, match="works for sizes up to 50, not 100"):
        core.compile(narrows, backend="eager")(x)
    y = torch.ones(6)
    core.mark_dynamic(y, 0, min=2, max=40)
    compiled = core.compile(narrows, backend="eager")
    compiled(y)
    run(compiled, narrows, [(40,), (3,)])
    assert len(compiled.entries()) == 1
    run(compiled, narrows, [(41,)])
    assert len(compiled.entries()) == 2


def test_a_static_mark_keeps_sizes_fixed():
    compiled = core.compile(double, backend="eager", dynamic=True)
    for size in (4, 5, 6):
        x = torch.ones(size, 3)
        core.mark_static(x, 0)
        compiled(x)
    assert len(compiled.entries()) == 3
    x = torch.ones(4, 3)
    core.mark_static(x)
    compiled(x)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("first", [0, 1, 7])
def test_an_unbacked_dimension_is_one_entry_for_every_size(backend, first):
    x = torch.ones(first, 3)
    core.mark_unbacked(x, 0)
    compiled = core.compile(lambda x: x.sin() + 1, backend=backend, fullgraph=True)
    compiled(x)
    run(compiled, lambda x: x.sin() + 1, [(0, 3), (1, 3), (5, 3)])
    assert len(compiled.entries()) == 1


def test_a_decision_by_an_unbacked_size_breaks_and_a_promise_is_a_guard():
    def decides(x):
        return x + 1 if x.shape[0] > 3 else x

    x = torch.ones(4)
    core.mark_unbacked(x, 0)
    with pytest.raises(core.Unsupported):
        core.compile(decides, backend="eager", fullgraph=True)(x)
    assert torch.equal(core.compile(decides, backend="eager")(x), decides(x))

    def promises(x):
        torch._check(x.shape[0] < 10)
        return x * 2

    compiled = core.compile(promises, backend="eager", fullgraph=True)
    compiled(x)
    run(compiled, promises, [(9,), (1,)])
    assert len(compiled.entries()) == 1
    with pytest.raises(RuntimeError):
        compiled(torch.ones(11))


def test_marks_of_torchs_own_functions_are_read():
    x, y = torch.ones(6, 3), torch.ones(6, 3)
    torch._dynamo.mark_dynamic(x, 0, min=2, max=50)
    torch._dynamo.maybe_mark_dynamic(y, 1)
    torch._dynamo.mark_static(y, 0)
    for marked, other, entries in ((x, (9, 3), 1), (y, (6, 9), 1)):
        compiled = core.compile(lambda x: x * 2, backend="eager")
        compiled(marked)
        run(compiled, double, [other])
        assert len(compiled.entries()) == entries


def test_a_mark_of_a_dimension_or_range_that_cannot_be_is_an_error():
    x = torch.ones(6, 3)
    for mark in (core.mark_dynamic, core.maybe_mark_dynamic, core.mark_static, core.mark_unbacked):
        with pytest.raises(core.InvalidOption, match="no dimension 2"):
            mark(x, 2)
    with pytest.raises(core.InvalidOption, match="outside of min"):
        core.mark_dynamic(x, 0, max=5)
    with pytest.raises(core.InvalidOption, match="min <= max"):
        core.mark_dynamic(x, 0, min=9, max=5)
    core.mark_dynamic(x, (0, -1))
    compiled = core.compile(double, backend="eager")
    compiled(x)
    run(compiled, double, [(8, 9)])
    assert len(compiled.entries()) == 1


def test_sizes_of_one_in_several_arguments_make_no_product_of_entries():
    def combined(a, b, c):
        return a * 2, b + 1, c.relu()

    compiled = core.compile(combined, backend="eager", recompile_limit=64)
    sizes = (5, 1, 7, 1, 9)
    for a in sizes:
        for b in sizes:
            for c in sizes:
                args = [torch.ones(n) for n in (a, b, c)]
                assert all(map(torch.equal, compiled(*args), combined(*args)))
    assert len(compiled.entries()) <= 8


def test_what_an_open_size_promises_must_hold_in_the_call_that_is_captured():
    def broadcasts(x):
        return x + torch.arange(3.0)

    x = torch.ones(1)
    core.mark_unbacked(x, 0)  # the graph of an unknown size would take it for 3
    for backend in ("eager", "aot_eager"):
        compiled = core.compile(broadcasts, backend=backend)
        assert torch.equal(compiled(x), broadcasts(x))
        run(compiled, broadcasts, [(3,), (1,)])


def test_crowded_sizes_of_one_give_eagers_results_where_they_broadcast():
    def mixed(a, b, c):
        return a + b * c

    compiled = core.compile(mixed, backend="aot_eager", recompile_limit=64)
    for a in (5, 1):
        for b in (5, 1):
            for c in (1, 5, 0):
                args = [torch.arange(n * 2.0).view(n, 2) for n in (a, b, c)]
                if c == 0 and 5 in (a, b):
                    continue
                assert torch.equal(compiled(*args), mixed(*args))


def test_a_backend_that_fails_on_sizes_without_a_value_gets_sizes_that_have_one():
    def only_known(gm, inputs):
        if any(str(size).startswith("u") for x in inputs for size in x.shape):
            raise RuntimeError("this compiler wants to know")
        return gm

    found = []
    stop = events.subscribe(lambda event: found.append(event) if isinstance(event, events.FellBack) else None)
    x = torch.ones(4, 3)
    core.mark_unbacked(x, 0)
    compiled = core.compile(double, backend=only_known)
    try:
        assert torch.equal(compiled(x), double(x))
    finally:
        stop()
    run(compiled, double, [(5, 3), (9, 3)])
    assert len(compiled.entries()) == 1
    assert [event.stage for event in found] == ["sizes without a value"]


def test_cases_of_training_keep_sizes_that_have_values():
    compiled = core.compile(lambda a, b: (a * 2).sum() + b.sum(), backend="aot_eager", recompile_limit=64)
    for a in (5, 1, 6, 1):
        for b in (5, 1, 7):
            left, right = torch.ones(a, requires_grad=True), torch.ones(b, requires_grad=True)
            compiled(left, right).backward()
            assert torch.equal(left.grad, torch.full((a,), 2.0)) and torch.equal(right.grad, torch.ones(b))
    bounds = [str(guard) for entry in compiled.entries() for guard in entry.user.guards]
    assert any(">= 1" in text for text in bounds)


def test_a_marked_size_of_one_is_a_case_of_its_own_and_no_error():
    core.reset()
    fast = core.compile(lambda x: x * 2, backend="eager")
    for size in (1, 5, 7, 1):
        x = torch.randn(size)
        core.mark_dynamic(x, 0)
        assert torch.equal(fast(x), x * 2)
    assert core.stats()["graphs"] == 2
