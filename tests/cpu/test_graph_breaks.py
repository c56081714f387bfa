"""Graph breaks: what runs before, at and after one must do what eager does, in whatever the break lies."""

from __future__ import annotations

import gc
import sys
import weakref

import breaking_programs
import pytest
import torch
from agreement import agree
from breaking_programs import PROGRAMS

import core
from core.events import GraphBroken, subscribe

X = torch.arange(6.0).reshape(2, 3)
MAKES_CLASSES = (breaking_programs.defining_classes,)  # new ones with each call: no entry fits the next


@core.disable
def doubled(x):
    return x * 2


@pytest.mark.parametrize(("fn", "counts"), [pytest.param(fn, counts, id=fn.__name__) for fn, counts in PROGRAMS])
def test_a_break_keeps_the_meaning_of_the_program(fn, counts):
    stats = agree(fn, X, settles=fn not in MAKES_CLASSES)
    assert {name: stats[name] for name in counts} == counts
    assert stats["skipped"] == 0


def test_two_thousand_iterations_with_a_break_share_their_resume_functions():
    def fn(x, n):
        for _ in range(n):
            x = doubled(x * 0.5) + 1
        return x

    stats = agree(fn, X, 2000, calls=2)
    assert stats["frames"] == 3
    assert stats["graphs"] == 3


def test_a_while_loop_on_a_tensor_runs_two_thousand_times_without_recursion():
    def fn(x):
        n = 0
        while x.sum() < 12015:
            x = x + 1
            n += 1
        return x, n

    stats = agree(fn, X, calls=2)
    assert stats["frames"] < 12


def test_a_loop_inside_a_callee_of_a_broken_frame_runs_flat():
    def loop(x, n):
        for _ in range(n):
            x = doubled(x) * 0.5
        return x

    def fn(x):
        return loop(x, 1500) + 1

    assert agree(fn, X, calls=2)["skipped"] == 0


def test_values_of_an_iteration_are_freed_before_the_next():
    alive = []

    @core.disable
    def watch(t):
        gc.collect()
        alive.append(sum(ref() is not None for ref in refs))
        refs.append(weakref.ref(t))
        return t

    refs: list[weakref.ref[torch.Tensor]] = []

    def fn(x):
        for _ in range(6):
            x = watch(x + 1)
        return x

    fn(X)
    eager, alive[:] = list(alive), []
    refs.clear()
    core.compile(fn, backend="eager")(X)
    assert max(alive) <= max(eager) + 1


def test_an_attribute_read_before_a_call_that_changes_it_keeps_its_value():
    class Box:
        def __init__(self, value):
            self.value = value
            self.items = [value]

        @core.disable
        def change(self):
            self.value = self.value + 100
            self.items = [self.value]

    def fn(box):
        before, items = box.value, box.items
        pair = (box.value, [box.items])
        box.change()
        return before, items, pair, box.value, items is box.items

    agree(fn, Box(X))


def test_an_empty_list_keeps_its_identity_over_a_break():
    def fn(x):
        made, again = [], {}
        holders = [made, made, again]
        made.append(doubled(x))
        again["x"] = doubled(x)
        return holders, made is holders[0], again is holders[2]

    agree(fn, X)


def test_what_a_graph_needs_from_a_broken_frame_keeps_its_gradient():
    def fn(x):
        y = x * 3
        print(y.shape)
        return (y * y).sum()

    compiled = core.compile(fn, backend="eager")
    ours, theirs = X.clone().requires_grad_(), X.clone().requires_grad_()
    compiled(ours).backward()
    fn(theirs).backward()
    assert torch.equal(ours.grad, theirs.grad)


def test_functions_called_after_a_break_are_captured_unless_nested_is_off():
    def callee(x):
        return x + 1

    def fn(x):
        print("here", doubled(callee(x)).shape)
        return [callee(doubled(x))]

    assert agree(fn, X)["graphs"] >= 2
    assert agree(fn, X, nested=False)["skipped"] == 0


def test_a_frame_that_can_not_be_captured_has_its_callees_captured():
    def callee(x):
        return x * 2 + 1

    def fn(x):
        names = sorted(locals())
        return callee(x), names

    assert agree(fn, X)["graphs"] == 1


def test_set_grad_enabled_stays_in_force_after_the_function():
    def fn(x):
        torch.set_grad_enabled(False)
        return x * 2

    x = X.clone().requires_grad_()
    compiled = core.compile(fn, backend="eager")
    for _ in range(2):
        with torch.enable_grad():
            assert not compiled(x).requires_grad
            assert not torch.is_grad_enabled()


def test_grad_mode_is_restored_to_what_the_manager_found():
    def fn(x):
        torch.set_grad_enabled(False)
        with torch.enable_grad():
            y = x * 2
            print(y.requires_grad)
            z = y * 3
        off = torch.is_grad_enabled()
        torch.set_grad_enabled(True)
        return y, z, off

    stats = agree(fn, X.clone().requires_grad_())
    assert stats["breaks"] == 1
    assert stats["recompiles"] == 0


def test_an_exception_inside_no_grad_leaves_grad_mode_as_eager_does():
    def fn(x):
        try:
            with torch.no_grad():
                print(x.shape)
                raise KeyError("inside")
        except KeyError:
            return x * 2, torch.is_grad_enabled()

    agree(fn, X.clone().requires_grad_())


def test_a_step_with_a_break_in_a_training_loop_learns_as_eager():
    def step(model, optimizer, x):
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        value = loss.item()
        loss.backward()
        optimizer.step()
        return value

    def run(call):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses = [call(model, optimizer, X) for _ in range(4)]
        return losses, [p.detach().clone() for p in model.parameters()]

    losses, weights = run(core.compile(step, backend="eager"))
    expected, expected_weights = run(step)
    assert losses == pytest.approx(expected, rel=1e-6)
    assert all(torch.allclose(a, b) for a, b in zip(weights, expected_weights))
    assert core.stats()["graphs"] >= 1


def test_autocast_left_entered_stays_entered():
    def fn(x):
        manager = torch.autocast("cpu", dtype=torch.bfloat16)
        manager.__enter__()
        return x @ x.t()

    compiled = core.compile(fn, backend="eager")
    for call in (fn, compiled, compiled):
        try:
            assert call(X).dtype == torch.bfloat16
            assert torch.is_autocast_enabled("cpu")
        finally:
            torch.set_autocast_enabled("cpu", False)
            torch.autocast_decrement_nesting()
            torch.clear_autocast_cache()


def test_a_function_with_except_star_runs_as_written_and_leaves_nothing_handled():
    def fn(x):
        try:
            raise ValueError("boom")
        except* ValueError:
            y = x + 1
        return y

    assert torch.equal(core.compile(fn, backend="eager")(X), X + 1)
    assert sys.exception() is None
    assert core.stats()["graphs"] == 0
    with pytest.raises(core.Unsupported, match="except"):
        core.compile(fn, backend="eager", fullgraph=True)(X)


def test_an_autocast_region_entered_before_a_break_is_left_in_the_graph_behind_it():
    def fn(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            with torch.autocast("cpu", enabled=False):
                y = x @ x.t()
                print(y.dtype)
                z = x @ x.t()
            u = x @ x.t()
        v = x @ x.t()
        return y, z, u, v, torch.is_autocast_enabled("cpu")

    stats = agree(fn, X)
    assert (stats["graphs"], stats["breaks"]) == (2, 1)
    assert not torch.is_autocast_enabled("cpu")


def test_an_exception_behind_a_break_leaves_autocast_as_eager_does():
    def fn(x):
        try:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                print(x.shape)
                y = x @ x.t()
                raise KeyError("inside")
        except KeyError:
            return y, x @ x.t(), torch.is_autocast_enabled("cpu")

    assert agree(fn, X)["breaks"] <= 2
    assert not torch.is_autocast_enabled("cpu")


def breaks_of(fn, *args, **options):
    """The GraphBroken events of one call."""
    found = []
    stop = subscribe(lambda event: found.append(event) if isinstance(event, GraphBroken) else None)
    try:
        core.compile(fn, backend="eager", **options)(*args)
    finally:
        stop()
    return found


def test_a_break_inside_torchs_own_python_code_names_the_users_line():
    def fn(x):
        return torch.unique(x) + 1

    [event] = breaks_of(fn, X)
    assert event.line.filename == __file__
    assert event.line.line == fn.__code__.co_firstlineno + 1


def test_a_generator_made_before_a_break_says_what_to_do():
    def fn(x):
        total = x
        for y in (x + i for i in range(2)):
            print(y.shape)
            total = total + y
        return total

    reasons = {event.reason: event.remedy for event in breaks_of(fn, X)}
    assert reasons["iterating a generator made outside is not traced"]
    assert all(reasons.values())


def test_a_refusal_that_the_program_raised_its_own_error_from_ends_up_in_no_endless_circle():
    """The second capture is refused while the first refusal's successor is handled: causes form a circle."""

    def fn(x):
        return x.tolist()

    x = torch.ones(2)
    fast = core.compile(fn, backend="eager", fullgraph=True, capture_scalar_outputs=False)
    refused = []
    try:
        try:
            fast(x)
        except core.Unsupported as error:
            refused.append(error)
            raise AssertionError("the program's own") from error
    except AssertionError:
        assert core.compile(fn, backend="eager")(x) == [1.0, 1.0]
    assert len(refused) == 1
