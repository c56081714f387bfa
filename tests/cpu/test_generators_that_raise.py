"""Exceptions in generators: thrown in, passed on by `yield from`, and StopIteration, which has rules of its own."""

from __future__ import annotations

import traceback

import pytest
import torch

import core

X = torch.arange(3.0)


def shown(value):
    """What can be seen of a value; of an exception what Python prints of it."""
    return "".join(traceback.format_exception(value)) if isinstance(value, BaseException) else repr(value)


def caught(action, *kinds):
    try:
        return action()
    except kinds as error:
        return error


class Counting:
    """An iterator with all the methods of a generator."""

    def __init__(self):
        self.log = []
        self.count = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.count += 1
        if self.count > 3:
            raise StopIteration(self.count)
        return self.count

    def send(self, value):
        self.log.append(("send", value))
        return next(self)

    def throw(self, error):
        self.log.append(("throw", type(error).__name__))
        return 77

    def close(self):
        self.log.append("close")


def innermost(log):
    try:
        log.append((yield 1))
        yield 2
    except ValueError:
        log.append("caught")
        yield 3
        return 9
    except KeyError:
        return 10
    finally:
        log.append("finally")


def delegating(log):
    log.append((yield from innermost(log)))
    yield 100


def handling(log):
    try:
        yield from delegating(log)
    except LookupError as error:
        log.append(error)
        yield -1


def thrown_into(generator):
    def fn(x):
        log = []
        going = generator(log)
        log += [next(going), going.throw(ValueError("a")), next(going, None), next(going, None)]
        going = generator(log)
        log += [next(going), going.send(5), caught(lambda: going.throw(KeyError("a")), StopIteration)]
        going.close()
        going = generator(log)
        log += [next(going), caught(lambda: going.throw(IndexError("a")), IndexError)]
        going.close()
        going = generator(log)
        log.append(next(going))
        going.close()
        going = generator(log)
        log += [next(going), caught(lambda: going.throw(GeneratorExit), GeneratorExit)]
        return log, x + 1

    return fn


def delegating_to_a_list(x):
    def items():
        yield from [1, 2, 3]

    going, other = items(), items()
    next(going)
    next(other)
    thrown = caught(lambda: going.throw(ValueError("z")), ValueError)
    sent = caught(lambda: other.send(4), AttributeError)
    return [thrown, str(sent)], x + 1


def delegating_to_an_object(x):
    log = []
    inner = Counting()

    def items():
        log.append((yield from inner))

    going = items()
    log += [next(going), going.send(4), going.throw(ValueError("q")), next(going), next(going, "end")]
    inner.count = 0
    going = items()
    next(going)
    going.close()
    return [log, inner.log], x + 1


def raising_stop_iteration(x):
    def at_once():
        if x.shape[0] == 3:
            raise StopIteration(3)
        yield x

    def behind_a_yield():
        yield x
        next(iter([]))

    def in_a_handler():
        try:
            yield x
        except ValueError:
            raise StopIteration(4)  # noqa: B904

    def passing_on():
        yield from in_a_handler()

    found = [caught(lambda: list(each()), RuntimeError) for each in (at_once, behind_a_yield)]  # noqa: B023
    for each in (in_a_handler, passing_on):
        going = each()
        next(going)
        found.append(caught(lambda: going.throw(ValueError("a")), RuntimeError))  # noqa: B023
    going = at_once()
    found.append(caught(lambda: going.throw(StopIteration), RuntimeError))
    found.append(caught(lambda: going.throw(StopIteration(5)), StopIteration))
    return found, x + 1


def ended_by_what_c_calls(x):
    def first(items):
        return next(iter(items))

    found = [list(map(first, [[1], [2], [], [4]])), list(filter(first, [[1], [], [3]]))]
    going = map(first, [[1], [], [3]])
    found += [next(going), next(going, None), next(going, None)]
    return found, x + 1


PROGRAMS = [
    thrown_into(innermost),
    thrown_into(delegating),
    thrown_into(handling),
    delegating_to_a_list,
    delegating_to_an_object,
    raising_stop_iteration,
    ended_by_what_c_calls,
]
NAMES = ["innermost", "delegating", "handling", *(fn.__name__ for fn in PROGRAMS[3:])]


@pytest.mark.parametrize("fn", PROGRAMS, ids=NAMES)
def test_generators_that_raise_do_in_one_graph_what_they_do_in_eager(fn):
    core.reset()
    theirs, value = fn(X)
    compiled = core.compile(fn, backend="eager", fullgraph=True)
    for _ in range(2):
        ours, result = compiled(X)
        assert [shown(item) for item in ours] == [shown(item) for item in theirs]
        assert torch.equal(result, value)
    assert (core.stats()["graphs"], core.stats()["breaks"]) == (1, 0)
