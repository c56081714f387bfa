"""Errors that only a kernel sees: the function runs again as it was written, and handles or raises them itself."""

from __future__ import annotations

import contextlib
import random
import traceback

import pytest
import torch

import core
import core.events

X = torch.arange(1.0, 5.0)
GOOD, BAD = torch.tensor([1, 3]), torch.tensor([9, 0])
BACKENDS = pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
LOG: list[object] = []


@contextlib.contextmanager
def fallbacks():
    """Collects the events of stage "run again"."""
    seen = []
    unsubscribe = core.events.subscribe(
        lambda event: (
            seen.append(event) if isinstance(event, core.events.FellBack) and event.stage == "run again" else None
        )
    )
    try:
        yield seen
    finally:
        unsubscribe()


def line_of(error):
    """The last line of this file in a traceback, and how many steps of it there are in the file."""
    steps = [step for step in traceback.extract_tb(error.__traceback__) if step.filename == __file__]
    return steps[-1].lineno, steps[-1].name


def outcome(fn, *args):
    """What a call does: its result or exception, the lines of that, what it was called with, and LOG."""
    LOG.clear()
    torch.manual_seed(5)
    try:
        ended = fn(*args)
    except Exception as error:  # noqa: BLE001  compared with eager's
        ended = type(error).__name__, str(error), line_of(error)
    return ended, args, list(LOG), torch.rand(1).item()


def same(left, right):
    if isinstance(left, torch.Tensor):
        return isinstance(right, torch.Tensor) and left.dtype == right.dtype and torch.equal(left, right)
    if isinstance(left, (list, tuple)):
        return type(left) is type(right) and len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def agree(fn, *calls, backend="eager", graphs=1, breaks=0, ran_again=None, **options):
    """Each call (a function that makes the arguments) does what it does in eager; the counts hold over all of them."""
    core.reset()
    fast = core.compile(fn, backend=backend, **options)
    with fallbacks() as seen:
        for make in calls:
            got, want = outcome(fast, *make()), outcome(fn, *make())
            assert same(got, want), (got, want)
    stats = core.stats()
    assert (stats["graphs"], stats["breaks"], stats["recompiles"]) == (graphs, breaks, 0), stats
    if ran_again is not None:
        assert len(seen) == ran_again, seen
    return seen


def good():
    return X.clone(), GOOD


def bad():
    return X.clone(), BAD


def taken(x, i):
    """Inlined: the operation that raises stands in a callee."""
    LOG.append("in")
    y = x[i]
    LOG.append("out")
    return y


@BACKENDS
def test_the_program_catches_what_a_kernel_raises(backend):
    def fn(x, i):
        LOG.append("before")
        try:
            y = taken(x, i)
            LOG.append("after")
        except IndexError as error:
            LOG.append(type(error).__name__)
            y = x * 2
        return y + 1

    (event,) = agree(fn, good, bad, good, backend=backend, ran_again=1)
    assert "IndexError" in event.reason and event.line.filename == __file__


@BACKENDS
def test_the_first_call_may_be_the_one_that_fails(backend):
    def fn(x, i):
        try:
            return x[i]
        except IndexError:
            return x

    agree(fn, bad, good, backend=backend, ran_again=1)


@BACKENDS
@pytest.mark.parametrize("strict", [True, False])
def test_an_error_that_leaves_has_its_line_and_the_side_effects_before_it(backend, strict):
    def fn(x, i):
        LOG.append("before")
        y = taken(x + 1, i)
        LOG.append("never")
        return y

    with core.config.patch(strict=strict):
        agree(fn, good, bad, good, backend=backend, ran_again=1)


def test_a_traceback_shows_the_functions_of_the_program_alone():
    def fn(x, i):
        return taken(x, i)

    core.reset()
    fast = core.compile(fn, backend="eager")
    fast(*good())
    with core.config.patch(strict=False), pytest.raises(IndexError) as caught:
        fast(*bad())
    names = [step.name for step in traceback.extract_tb(caught.value.__traceback__)]
    assert names[1:] == ["fn", "taken"] and caught.value.__context__ is None


@BACKENDS
def test_arguments_that_a_functional_graph_writes_to_are_as_they_were(backend):
    def fn(x, i):
        x.add_(1)
        try:
            y = x[i]
        except IndexError:
            LOG.append("caught")
            y = x.sum()
        x.mul_(2)
        return y

    if backend == "eager":  # the graph has written when it raises: it ends before the operation
        agree(fn, good, bad, good, backend=backend, graphs=3, breaks=1, ran_again=0)
    else:
        agree(fn, good, bad, good, backend=backend, ran_again=1)


def test_a_graph_as_captured_runs_again_where_it_wrote_nothing_before_the_error():
    def fn(x, i):
        y = x[i]
        x.add_(y.sum())
        return y

    agree(fn, good, bad, good, ran_again=1)


def test_a_graph_as_captured_that_wrote_raises_at_the_line_of_the_operation():
    def fn(x, i):
        x.add_(1)
        y = taken(x, i)
        return y * 2

    core.reset()
    fast = core.compile(fn, backend="eager")
    fast(*good())
    x = X.clone()
    with fallbacks() as seen, pytest.raises(IndexError) as caught:
        fast(x, BAD)
    assert torch.equal(x, X + 1) and not seen
    with pytest.raises(IndexError) as eagers:
        fn(X.clone(), BAD)
    assert line_of(caught.value) == line_of(eagers.value)


@BACKENDS
def test_random_numbers_are_drawn_again_as_they_were(backend):
    def fn(x, i):
        noise = torch.rand(4)
        try:
            y = (x + noise)[i]
        except IndexError:
            y = torch.rand(2)
        return y, noise

    agree(fn, good, bad, good, backend=backend, ran_again=1)


@BACKENDS
def test_a_seed_set_inside_is_set_again(backend):
    def fn(x, i):
        y = x[i]
        torch.manual_seed(3)
        return y + torch.rand(1)

    agree(fn, good, bad, good, backend=backend, ran_again=1)


@BACKENDS
def test_a_resume_function_runs_again_from_the_break(backend):
    def fn(x, i):
        y = x + 1
        LOG.append("before")
        print("a break")
        LOG.append("behind")
        try:
            z = y[i]
        except IndexError:
            z = y
        return z

    agree(fn, good, bad, good, backend=backend, graphs=2, breaks=1, ran_again=1)


def test_every_kind_of_argument_slot_and_a_closure():
    shift = torch.ones(())
    calls = 0

    def fn(x, i, /, *rest, scale=2, **named):
        nonlocal calls
        calls += 1
        grown = x + shift

        def last():
            return grown[i]

        try:
            y = last()
        except IndexError:
            y = grown
        x = None
        return y * scale + len(rest) + named["more"]

    core.reset()
    fast = core.compile(fn, backend="eager", fullgraph=True)
    for i in (GOOD, BAD):
        for args, named in (((), {"more": 1}), ((1, 2), {"more": 2, "scale": 3})):
            assert torch.equal(fast(X, i, *args, **named), fn(X, i, *args, **named))
    assert calls == 8


def test_a_variable_of_the_caller_is_rebound_once():
    count = 0

    def fn(x, i):
        nonlocal count
        count += 1
        try:
            return x[i]
        finally:
            count += 10

    core.reset()
    fast = core.compile(fn, backend="eager")
    fast(*good())
    with pytest.raises(IndexError):
        fast(*bad())
    assert count == 22


def test_grad_mode_is_as_it_was():
    def fn(x, i):
        with torch.no_grad():
            try:
                y = x[i]
            except IndexError:
                LOG.append(torch.is_grad_enabled())
                y = x
        LOG.append(torch.is_grad_enabled())
        return y + 1

    agree(fn, good, bad, good, ran_again=1)
    assert torch.is_grad_enabled()


@BACKENDS
def test_gradients_flow_from_the_second_run(backend):
    def fn(x, i):
        try:
            y = x[i]
        except IndexError:
            y = x * 3
        return y.sum()

    core.reset()
    fast = core.compile(fn, backend=backend)
    for i in (GOOD, BAD, GOOD):
        found = []
        for function in (fn, fast):
            x = X.clone().requires_grad_()
            function(x, i).backward()
            found.append(x.grad)
        assert torch.equal(*found)


PROGRAMS = {
    "gather": (lambda x, i: x.gather(0, i), lambda: (X, torch.tensor([1])), lambda: (X, torch.tensor([7]))),
    "scatter": (lambda x, i: x.scatter(0, i, 1.0), lambda: (X, torch.tensor([1])), lambda: (X, torch.tensor([7]))),
    "index_select": (lambda x, i: x.index_select(0, i), good, bad),
    "take": (lambda x, i: x.take(i), good, bad),
    "index_add": (lambda x, i: x.index_add(0, i, x[: len(i)]), lambda: (X, BAD * 0), lambda: (X, BAD)),
    "embedding": (torch.nn.functional.embedding, lambda: (GOOD, X[:, None]), lambda: (BAD, X[:, None])),
    "cross entropy": (
        torch.nn.functional.cross_entropy,
        lambda: (X[None], torch.tensor([1])),
        lambda: (X[None], torch.tensor([9])),
    ),
    "one hot": (lambda i: torch.nn.functional.one_hot(i, 4), lambda: (GOOD,), lambda: (BAD,)),
    "cholesky": (torch.linalg.cholesky, lambda: (torch.eye(3),), lambda: (-torch.eye(3),)),
    "inverse": (torch.linalg.inv, lambda: (torch.eye(3),), lambda: (torch.zeros(3, 3),)),
    "solve": (torch.linalg.solve, lambda: (torch.eye(3), torch.ones(3)), lambda: (torch.zeros(3, 3), torch.ones(3))),
    "multinomial": (lambda p: torch.multinomial(p, 2), lambda: (X,), lambda: (X * 0,)),
    "bernoulli": (torch.bernoulli, lambda: (X / 9,), lambda: (X,)),
    "division by zero": (lambda a, b: a // b, lambda: (GOOD * 2, GOOD), lambda: (GOOD * 2, GOOD * 0)),
}


@BACKENDS
@pytest.mark.parametrize("name", PROGRAMS)
def test_operations_that_raise_for_some_values(backend, name):
    operation, well, wrong = PROGRAMS[name]

    def fn(*args):
        LOG.append("before")
        try:
            y = operation(*args)
        except (RuntimeError, IndexError) as error:
            LOG.append(type(error).__name__)
            y = args[0]
        LOG.append("after")
        return y

    seen = agree(fn, well, wrong, backend=backend, graphs=1)
    assert len(seen) <= 1


@BACKENDS
@pytest.mark.parametrize("dynamic", [None, True])
def test_one_hot_knows_its_classes(backend, dynamic):
    def fn(i):
        return torch.nn.functional.one_hot(i, 4), torch.nn.functional.one_hot(i, num_classes=5).float()

    core.reset()
    fast = core.compile(fn, backend=backend, dynamic=dynamic, fullgraph=True)
    for classes in (GOOD, GOOD[None], GOOD[0], torch.zeros(0, 3, dtype=torch.int64)):
        assert same(fast(classes), fn(classes))
    for wrong in (torch.tensor([1, 4]), torch.tensor([1, -1])):
        assert same(outcome(fast, wrong), outcome(fn, wrong))
    with pytest.raises(RuntimeError, match="LongTensor"):
        core.compile(fn, backend=backend)(GOOD.int())


def test_a_fault_of_the_graph_is_raised_in_strict_runs_alone():
    def fn(x):
        LOG.append("once")
        return x + 1

    def broken(module, examples):
        def run(*inputs):
            raise OverflowError("out of order")

        return run

    core.reset()
    fast = core.compile(fn, backend=broken)
    with core.config.patch(strict=True), pytest.raises(OverflowError, match="out of order"):
        fast(X)
    LOG.clear()
    with core.config.patch(strict=False), fallbacks() as seen:
        assert torch.equal(fast(X), X + 1)
    assert LOG == ["once"] and len(seen) == 1


def test_a_strict_run_knows_that_the_program_caught_the_error_itself():
    def fn(x, i):
        with contextlib.suppress(IndexError):
            return x[i]
        return x

    with core.config.patch(strict=True):
        agree(fn, good, bad, ran_again=1)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_what_is_no_error_of_the_program_goes_its_way(kind):
    def fn(x):
        LOG.append("again")
        return x + 1

    def stopping(module, examples):
        def run(*inputs):
            raise kind

        return run

    core.reset()
    LOG.clear()
    with fallbacks() as seen, pytest.raises(kind):
        core.compile(fn, backend=stopping)(X)
    assert not seen and not LOG


def test_out_of_memory_runs_again_and_is_no_fault():
    def fn(x):
        return x + 1

    def greedy(module, examples):
        def run(*inputs):
            raise torch.OutOfMemoryError("no room")

        return run

    core.reset()
    with core.config.patch(strict=True), fallbacks() as seen:
        assert torch.equal(core.compile(fn, backend=greedy)(X), X + 1)
    assert len(seen) == 1


def test_an_error_about_the_backend_keeps_its_way():
    def fn(x):
        return x + 1

    def wrong(module, examples):
        return lambda *inputs: (inputs[0].double(),)

    core.reset()
    with fallbacks() as seen, pytest.raises(core.errors.BackendMisbehaved):
        core.compile(fn, backend=wrong)(X)
    assert not seen


def test_a_graph_that_fails_on_most_calls_is_not_asked_any_more():
    runs = []

    def counting(module, examples):
        def run(*inputs):
            runs.append(1)
            return module(*inputs)

        return run

    def fn(x, i):
        try:
            return x[i]
        except IndexError:
            return x

    core.reset()
    fast = core.compile(fn, backend=counting)
    with fallbacks() as seen:
        for _ in range(40):
            assert torch.equal(fast(*bad()), X)
        assert torch.equal(fast(*good()), X[GOOD])
    assert len(runs) == 16 and len(seen) == 17
    assert "as written from now on" in seen[-1].reason


def test_a_graph_that_fails_now_and_then_is_asked_each_time():
    def fn(x, i):
        try:
            return x[i]
        except IndexError:
            return x

    core.reset()
    fast = core.compile(fn, backend="eager")
    random.seed(1)
    with fallbacks() as seen:
        for at in range(120):
            fast(*(bad() if at % 4 == 0 else good()))
    assert len(seen) == 30 and core.stats()["graphs"] == 1


def counted_operator(name):
    """An operator of which nobody knows what it does (it adds 1), and a list with an item for each of its runs."""
    ran = []

    @torch.library.custom_op(f"test_errors_of_kernels::{name}", mutates_args=())
    def counted(x: torch.Tensor) -> torch.Tensor:
        ran.append(1)
        return x + 1

    @counted.register_fake
    def _(x):
        return torch.empty_like(x)

    return counted, ran


def test_an_operator_of_unknown_effect_runs_once():
    noted, ran = counted_operator("noted")

    def behind(x, i):
        y = noted(x)
        return taken(y, i)

    def before(x, i):
        return noted(taken(x, i))

    for fn, count in ((behind, 1), (before, 0)):
        core.reset()
        fast = core.compile(fn, backend="eager")
        fast(*good())
        ran.clear()
        with fallbacks() as seen, pytest.raises(IndexError) as caught:
            fast(*bad())
        assert len(ran) == count and len(seen) == 1 - count and line_of(caught.value)[1] == "taken"


def test_a_handler_behind_a_write_sees_the_error_whatever_its_depth():
    def inner(x, i):
        try:
            return taken(x, i)
        finally:
            LOG.append("finally")

    def fn(x, i):
        x.add_(1)
        try:
            y = inner(x, i)
        except (KeyError, LookupError) as error:
            LOG.append(type(error).__name__)
            y = x
        return y + 1

    core.reset()
    agree(fn, good, bad, good, graphs=4, breaks=1, ran_again=1)


@BACKENDS
def test_a_suppressed_error_behind_a_write_is_suppressed(backend):
    def fn(x, i):
        x.add_(1)
        y = x * 0
        with contextlib.suppress(IndexError):
            y = x[i]
        return y + 1

    core.reset()
    fast = core.compile(fn, backend=backend)
    for make in (good, bad, good):
        got, want = outcome(fast, *make()), outcome(fn, *make())
        assert same(got, want), (got, want)
    assert core.stats()["breaks"] == (1 if backend == "eager" else 0)


def test_code_that_would_not_see_the_error_is_one_graph():
    def other_class(x, i):
        x.add_(1)
        try:
            return x[i]
        except (KeyError, AttributeError):
            return x

    def no_operation(x, i):
        x.add_(1)
        y = x[i]
        try:
            return y * x.sum()
        except RuntimeError:
            return x

    def manager(x, i):
        x.add_(1)
        with torch.no_grad():
            return x[i]

    def written_behind(x, i):
        try:
            y = x[i]
        except IndexError:
            y = x
        x.add_(1)
        return y

    def masked(x, i):
        x.add_(1)
        try:
            x[x > 2] = 0.0
            return x + 1
        except RuntimeError:
            return x

    def own_memory(x, i):
        y = x.clone().add_(1)
        try:
            return y[i]
        except IndexError:
            return x

    for fn in (masked, other_class, no_operation, manager, written_behind, own_memory):
        agree(fn, good, good, graphs=1, breaks=0)
    agree(written_behind, good, bad, ran_again=1)
    agree(own_memory, good, bad, ran_again=1)


@BACKENDS
def test_under_fullgraph_what_the_graph_wrote_is_undone(backend):
    held = X.clone()

    def caught(x, i):
        LOG.append("before")
        x.add_(1)
        held.mul_(2)
        try:
            y = x[i]
            LOG.append("after")
        except IndexError:
            LOG.append("caught")
            y = x * held
        x[1:].mul_(3)
        return y, held.clone()

    def suppressed(x, i):
        x.add_(1)
        with contextlib.suppress(IndexError):
            return x[i]
        return x * 2

    agree(suppressed, good, bad, good, backend=backend, ran_again=1, fullgraph=True)
    core.reset()
    fast = core.compile(caught, backend=backend, fullgraph=True)
    for make in (good, bad, good, bad):
        ended = []
        for fn in (caught, fast):
            held.copy_(X)
            ended.append((outcome(fn, *make()), held.clone()))
        assert same(*ended), ended


def test_under_fullgraph_a_history_is_not_undone_and_the_error_leaves_the_function():
    def fn(x, w, i):
        x.mul_(w)
        try:
            return x[i]
        except IndexError:
            return x

    core.reset()
    fast = core.compile(fn, backend="eager", fullgraph=True)
    w = torch.ones(4, requires_grad=True)
    assert torch.equal(fast(X.clone(), w, GOOD), X[GOOD])
    with pytest.raises(IndexError):
        fast(X.clone(), w, BAD)


@BACKENDS
def test_an_operator_of_unknown_effect_beside_a_try_runs_once(backend):
    counted, ran = counted_operator(f"counted_{backend}")

    def before(x, i):
        x = counted(x)
        try:
            return x[i]
        except IndexError:
            return x

    def behind(x, i):
        try:
            y = x[i]
        except IndexError:
            y = x
        return counted(y)

    for fn, breaks in ((before, 1), (behind, backend != "eager")):
        core.reset()
        fast = core.compile(fn, backend=backend)
        ran.clear()
        assert torch.equal(fast(*good()), fn(*good())) and len(ran) == 2
        assert (core.stats()["graphs"], core.stats()["breaks"]) == (1, breaks)
        assert torch.equal(fast(*bad()), fn(*bad())) and len(ran) == 4


def test_the_report_names_the_second_run():
    def fn(x, i):
        try:
            return x[i]
        except IndexError:
            return x

    core.reset()
    report = core.explain(fn, backend="eager")(X, BAD)
    (event,) = [event for event in report.fallbacks if event.stage == "run again"]
    assert event.line.line == fn.__code__.co_firstlineno + 2 and "IndexError" in str(report)
