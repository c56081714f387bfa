"""Exceptions in handlers: what was being handled is known to what runs there, also where a graph break stands."""

from __future__ import annotations

import contextlib
import gc
import sys

import pytest
import torch
from agreement import agree

import core

X = torch.arange(4.0)


class Problem(Exception):
    pass


def chain(error):
    """The classes of an exception and of its contexts."""
    found = []
    while error is not None:
        found.append((type(error), error.__suppress_context__))
        error = error.__context__
    return found


def raised(fn, *args):
    with pytest.raises(Exception) as info:
        fn(*args)
    return info.value


def handled_and(action):
    def fn(x):
        try:
            [][1]
        except IndexError:
            return action(x)

    return fn


def raising(x):
    raise Problem(x.shape)


def dividing(x):
    return 1 // 0


def adding(x):
    return x + torch.ones(7)


@pytest.mark.parametrize("action", [raising, dividing, adding], ids=lambda fn: fn.__name__)
def test_an_exception_that_leaves_a_handler_has_the_handled_one_as_context(action):
    fn = handled_and(action)
    assert chain(raised(core.compile(fn, backend="eager"), X)) == chain(raised(fn, X))


def test_statements_of_a_handler_that_raise_by_themselves():
    def fn(x):
        try:
            int("k")
        except ValueError:
            x += undefined_name  # noqa: F821

    def nested(x):
        try:
            try:
                [][1]
            except IndexError:
                {}[1]
        except KeyError:
            1 // 0  # noqa: B018

    def final(x):
        try:
            [][1]
        finally:
            raise Problem

    for each in (fn, nested, final):
        assert chain(raised(core.compile(each, backend="eager"), X)) == chain(raised(each, X)), each.__name__


def test_a_decision_by_data_in_a_handler_keeps_the_context_of_what_follows():
    def fn(x):
        try:
            [][1]
        except IndexError:
            if x.sum() > 0:
                x = x + 1
            raise Problem  # noqa: B904

    assert chain(raised(core.compile(fn, backend="eager"), X)) == chain(raised(fn, X))
    assert core.stats()["graphs"] == 2


def test_a_graph_break_in_a_handler_sees_the_exception_and_leaves_none_behind():
    def fn(x):
        x = x * 2
        try:
            [][1]
        except IndexError:
            print(sys.exc_info()[0])
            x = x + 1
        print(sys.exc_info()[0])
        return x - 1

    stats = agree(fn, X)
    assert (stats["graphs"], stats["breaks"]) == (3, 4)
    assert sys.exc_info()[0] is None


def test_errors_of_operators_have_the_words_of_eager_in_handlers():
    def fn(x, texts):
        try:
            x + torch.ones(7)
        except RuntimeError as error:
            texts.append(str(error))
        return x + 1

    agree(fn, X, [])
    assert core.stats()["graphs"] >= 1


def test_an_unset_variable_that_a_closure_shares_raises_as_in_eager():
    def fn(x):
        x = x + 1
        y = y + x  # noqa: F821

        def inner():
            return y

        return inner()

    stats = agree(fn, X)
    assert (stats["graphs"], stats["breaks"]) == (1, 0)


def test_deleting_an_unset_variable_that_a_closure_shares():
    def fn(x):
        y = x
        del y
        try:
            del y
        except NameError as error:
            return type(error).__name__, x + 1, lambda: y  # noqa: F821

    def names(x):
        return fn(x)[:2]

    agree(names, X)


def test_an_exception_from_none_still_hides_its_context_when_it_comes_back():
    def given(x):
        try:
            raise Problem from None
        except Problem as error:
            return x + 1, error

    def left(x):
        try:
            raise Problem from None
        except Problem:
            x.missing  # noqa: B018

    compiled = core.compile(given, backend="eager")
    assert chain(compiled(X)[1]) == chain(given(X)[1]) == [(Problem, True)]
    assert chain(raised(core.compile(left, backend="eager"), X)) == chain(raised(left, X))


def test_words_about_sizes_are_those_of_the_sizes_of_the_call():
    def fn(x):
        try:
            return x + torch.ones(3, 4)
        except RuntimeError as error:
            return str(error)

    compiled = core.compile(fn, backend="eager")
    for rows in (2, 4, 5, 6, 4):
        assert compiled(torch.ones(rows, 4)) == fn(torch.ones(rows, 4))


def test_words_about_places_are_those_of_the_sizes_of_the_call():
    told = []

    def fn(x):
        try:
            x[13]
        except IndexError as error:
            told.append(error)

    for compiled in (fn, core.compile(fn, backend="eager", dynamic=True)):
        for rows in (4, 5):
            compiled(torch.ones(rows))
    assert [str(error) for error in told[2:]] == [str(error) for error in told[:2]]


def test_what_a_frame_held_goes_with_it_once_its_exception_is_handled_behind_a_break():
    said = []

    def speaking():
        try:
            yield
        finally:
            said.append("over")

    def fn(x):
        try:
            pending = speaking()
            next(pending)
            None.missing  # noqa: B018
        except AttributeError as error:
            print(type(error).__name__)
        return x + 1

    gc.disable()  # no cycle is made, so nothing waits for the collector
    try:
        core.compile(fn, backend="eager")(X)
        assert said == ["over"]
    finally:
        gc.enable()


def test_an_error_that_the_caller_handles_keeps_its_traceback_when_the_capture_meets_one():
    def fn(x):
        try:
            return x + torch.ones(7)
        except RuntimeError:
            return x

    def with_transform(x):
        return torch.func.vmap(lambda row: row.view(7))(x)

    core.reset()
    for function, args in ((fn, (torch.ones(4),)), (with_transform, (torch.ones(1, 4),))):
        try:
            raise KeyError("outer")
        except KeyError as error:
            outer = error.__traceback__
            with contextlib.suppress(RuntimeError):
                core.compile(function, backend="eager")(*args)
            assert error.__traceback__ is outer and outer is not None
