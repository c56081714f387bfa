"""Branches on a tensor of which one way raises: one graph, and eager's exception when the check fails.

PYTEST_DONT_REWRITE: the assertions inside the compiled functions are looked at as Python compiles them.
"""

from __future__ import annotations

import pytest
import torch
from torch.distributions import Categorical, Independent, Normal

import core
import core.events

X = torch.arange(1.0, 7.0).reshape(2, 3)
BACKENDS = pytest.mark.parametrize("backend", ["eager", "inductor"])


@pytest.fixture(autouse=True)
def checked_distributions(monkeypatch):
    """Distributions look at their arguments, though torch's own compiler, which another test may use, turns it off."""
    monkeypatch.setattr(torch.distributions.Distribution, "_validate_args", True)


def outcome(fn, *args):
    try:
        return fn(*args)
    except Exception as error:  # noqa: BLE001  compared with eager's
        return type(error), str(error)


def agree(fn, *calls, backend="eager", graphs=1, breaks=0, **options):
    """Each call gives eager's result or exception; the counts hold over all of them."""
    core.reset()
    fast = core.compile(fn, backend=backend, **options)
    for make in calls:
        got, want = outcome(fast, *make()), outcome(fn, *make())
        assert type(got) is type(want) and (torch.equal(got, want) if isinstance(got, torch.Tensor) else got == want)
    stats = core.stats()
    assert (stats["graphs"], stats["breaks"], stats["recompiles"]) == (graphs, breaks, 0), stats


def good():
    return (X.clone(),)


def bad():
    return (-X.clone(),)


@BACKENDS
def test_an_assertion_on_a_tensor_is_one_graph_and_raises_its_message(backend):
    def fn(x):
        assert (x > 0).all(), "not positive"
        y = x * 2
        if not torch.all(y < 100):
            raise ValueError(f"too large: {tuple(y.shape)} {y.sum()}")
        return y + 1

    def large():
        return (X * 100,)

    agree(fn, good, bad, large, good, backend=backend)


def test_the_first_call_may_be_the_one_that_fails():
    def fn(x):
        assert (x > 0).all()
        return x + 1

    agree(fn, bad, good)


@BACKENDS
def test_a_check_that_keeps_the_graph_from_failing_raises_first(backend):
    def fn(x, places):
        assert (places < len(x)).all(), "no such place"
        return x[places] * 2

    agree(fn, lambda: (X, torch.tensor([0, 1])), lambda: (X, torch.tensor([0, 9])), backend=backend)


def test_a_check_in_a_called_function_of_many_arguments_and_with_a_closure():
    shift = torch.ones(3)

    def check(x):
        if (x < 0).any():
            raise KeyError("negative")
        return x

    def fn(x, *rest, scale=2, **named):
        return check(x) * scale + shift + len(rest) + named["more"]

    core.reset()
    fast = core.compile(fn, backend="eager", fullgraph=True)
    assert torch.equal(fast(X, 1, 2, scale=3, more=4), fn(X, 1, 2, scale=3, more=4))
    with pytest.raises(KeyError, match="negative"):
        fast(-X, 1, 2, scale=3, more=4)


def test_nothing_is_changed_when_a_check_fails_before_the_change():
    seen = []

    def fn(x):
        assert (x > 0).all()
        seen.append(x + 1)
        return x

    core.reset()
    fast = core.compile(fn, backend="eager", fullgraph=True)
    fast(X)
    with pytest.raises(AssertionError):
        fast(-X)
    assert len(seen) == 1


@BACKENDS
def test_random_numbers_are_drawn_again_as_they_were(backend):
    def fn(x):
        y = x + torch.rand(2, 3)
        if not (y > 0).all():
            raise ValueError(str(y))
        return y

    def seeded(make):
        torch.manual_seed(3)
        return make()

    agree(fn, lambda: seeded(good), lambda: seeded(bad), lambda: seeded(good), backend=backend)
    core.reset()
    fast = core.compile(fn, backend=backend, fullgraph=True)
    fast(X)
    texts = []
    for function in (fn, fast):
        torch.manual_seed(7)
        texts.append((outcome(function, -X), torch.rand(1).item()))
    assert texts[0] == texts[1]


def test_a_graph_that_writes_to_an_input_ends_before_the_check():
    def fn(x):
        y = x.add_(1)
        assert (y > 0).all(), "not positive"
        return y * 2

    agree(fn, good, bad, graphs=2, breaks=1)
    with pytest.raises(core.Unsupported, match="check"):
        core.compile(fn, backend="eager", fullgraph=True)(X.clone())


def test_a_checked_tensor_that_is_written_to_later_is_checked_where_the_program_does():
    def fn(x):
        wrong = (x < 0).any()
        if wrong:
            raise ValueError("negative")
        wrong.fill_(False)
        return x + 1, wrong

    core.reset()
    fast = core.compile(fn, backend="eager")
    assert torch.equal(fast(X)[0], X + 1)
    with pytest.raises(ValueError, match="negative"):
        fast(-X)


@BACKENDS
def test_gradients_flow_past_a_check(backend):
    def fn(x):
        y = x.exp()
        assert torch.isfinite(y).all(), "not finite"
        return (y * 2).sum()

    x, again = X.clone().requires_grad_(), X.clone().requires_grad_()
    core.compile(fn, backend=backend, fullgraph=True)(x).backward()
    fn(again).backward()
    assert torch.allclose(x.grad, again.grad)


def test_a_check_that_the_program_handles_is_a_branch_like_any_other():
    def fn(x):
        try:
            assert (x > 0).all()
        except AssertionError:
            return x - 1
        return x + 1

    agree(fn, good, graphs=2, breaks=1)


def test_checks_inside_no_grad_and_behind_a_graph_break():
    def fn(x):
        with torch.no_grad():
            assert (x > 0).all(), "first"
        y = x * 2
        print(end="")
        assert (y < 100).all(), "second"
        return y + 1

    agree(fn, good, bad, lambda: (X * 100,), graphs=2, breaks=1)


@BACKENDS
def test_distributions_with_their_checks_are_one_graph(backend):
    def fn(x):
        return Independent(Normal(x, x.abs() + 1), 1).log_prob(x + 1)

    agree(fn, good, lambda: (X * float("nan"),), backend=backend, fullgraph=True)


def test_the_entropy_of_a_categorical_is_one_graph():
    def fn(x):
        return Categorical(logits=x).entropy()

    agree(fn, good, lambda: (X * float("nan"),))


@pytest.mark.parametrize("strict", [False, True])
def test_a_graph_that_fails_although_the_check_holds_is_no_silent_fallback(strict):
    def broken(module, examples):
        def run(*inputs):
            raise OverflowError("out of order")

        return run

    def fn(x):
        assert (x > 0).all()
        return x + 1

    seen = []
    unsubscribe = core.events.subscribe(
        lambda event: seen.append(event) if type(event).__name__ == "FellBack" else None
    )
    try:
        with core.config.patch(strict=strict):
            result = outcome(core.compile(fn, backend=broken), X)
    finally:
        unsubscribe()
    assert [event.stage for event in seen] == ["run again"] and "OverflowError" in seen[0].reason
    if strict:
        assert result == (OverflowError, "out of order")
    else:
        assert torch.equal(result, X + 1)


def test_assertions_of_torch_testing_are_traced():
    def sizes(x):
        torch.testing.assert_close(x.shape, torch.Size([3]))
        return x + 1

    def values(x):
        torch.testing.assert_close({"x": x}, {"x": x.clone()}, msg="differs")
        return x + 1

    for fn, breaks in ((sizes, 0), (values, 1)):
        core.reset()
        assert torch.equal(core.compile(fn, backend="eager")(torch.ones(3)), torch.ones(3) + 1)
        assert core.stats()["breaks"] == breaks
    with pytest.raises(AssertionError, match="not equal"):
        core.compile(sizes, backend="eager")(torch.ones(4))
