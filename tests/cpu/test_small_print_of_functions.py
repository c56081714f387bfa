"""Functions, partials, generators and frames in their less usual forms, compared with eager by text."""

import enum
import functools
import sys
import warnings

import pytest
import torch

import core

X = torch.ones(2)


def agrees(function):
    """Whether the function gives in one graph, beside an operation of tensors, what it gives in Python."""

    def program(x):
        return repr(function()), x + 1

    return core.compile(program, backend="eager", fullgraph=True)(X)[0] == repr(function())


class Color(enum.Enum):
    RED = 1


class Saved(functools.partial):
    """Adds nothing."""


def shown(*args, **kwargs):
    return args, sorted(kwargs.items())


def outside(a, b=2, *, c=3):
    return a, b, c


def error_of(call):
    try:
        return call()
    except (TypeError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"


def variables_by_name():
    a, b = 1, 2

    def inner(q):
        w = a
        return sorted(locals()), vars()["q"] + w, dir()

    class Body:
        z = 1
        y = locals()["z"]

    names = locals()
    count = len(names)
    again = locals()
    same = names is again
    return sorted(names), inner(3), Body.y, count, len(again), same, "{a}-{b}".format(**again)


def defaults_that_change():
    def made(a, b):
        return a, b

    made.__defaults__ = (5,)
    found = [made(1), error_of(lambda: setattr(made, "__defaults__", 5)), error_of(lambda: delattr(made, "nothing"))]
    del made.__defaults__
    found += [error_of(lambda: made(1)), error_of(lambda: delattr(outside, "nothing"))]
    kept = outside.__defaults__, outside.__kwdefaults__
    outside.__defaults__, outside.__kwdefaults__ = (7,), {"c": 9}
    found += [outside(1), outside.__defaults__]
    outside.__defaults__, outside.__kwdefaults__ = kept
    return [*found, outside(1)]


def states_of_a_generator():
    def steps():
        yield made.gi_running

    made = steps()
    found = [made.gi_running, made.gi_suspended, made.gi_yieldfrom, made.gi_code is steps.__code__]
    return [*found, next(made), made.gi_suspended, list(made), made.gi_suspended, made.__class__, hasattr(made, "no")]


def hashes_of_values():
    class Plain:
        pass

    class Pair(tuple):
        pass

    one, two = Plain(), Plain()
    equal = [hash(one) == hash(one), hash(one) == hash(two), hash(Pair((1, 2))) == hash((1, 2))]
    return equal, hash(frozenset([1, 2])), {Pair((1, 2)): 3}[1, 2]


def attributes_of_classes():
    class Number(int):
        pass

    refused = [error_of(lambda: setattr(Color, "RED", 2)), error_of(lambda: setattr(int, "more", 2))]
    return refused, "__add__" in int.__dict__, hex(Number(12)), Color(1)


def keywords_of_partials():
    made = functools.partial(shown, 3, b=4)
    made.keywords["z"] = 5
    saved = Saved(shown, 1, a=2)
    keywords = saved.keywords
    keywords["y"] = 6
    return made(), saved(7, c=1), type(saved) is Saved, isinstance(saved, functools.partial), saved.keywords is keywords


def what_is_handled():
    try:
        raise ValueError("handled")
    except ValueError:
        return sys.exc_info()[1], sys.gettrace(), sys.getprofile()


@pytest.mark.parametrize(
    "function",
    [
        variables_by_name,
        defaults_that_change,
        states_of_a_generator,
        hashes_of_values,
        attributes_of_classes,
        keywords_of_partials,
        what_is_handled,
    ],
)
def test_as_in_python(function):
    assert agrees(function)


def test_a_partial_comes_back_with_the_dict_that_others_hold():
    def program(x):
        made = functools.partial(shown, 3, b=4)
        keywords = made.keywords
        keywords["z"] = 5
        return made, keywords, Saved(shown, 1, a=2), x + 1

    made, keywords, saved, _ = core.compile(program, backend="eager", fullgraph=True)(X)
    assert made.keywords is keywords and made() == ((3,), [("b", 4), ("z", 5)])
    assert type(saved) is Saved and saved() == ((1,), [("a", 2)])


def test_keywords_of_a_partial_from_outside_are_written_to():
    held = functools.partial(shown, n=0)

    def program(x):
        held.keywords["n"] += 1
        return held(), x + 1

    fast = core.compile(program, backend="eager", fullgraph=True)
    assert [fast(X)[0][1] for _ in range(3)] == [[("n", 1)], [("n", 2)], [("n", 3)]]
    assert held.keywords == {"n": 3}


def test_filters_of_warnings_are_set_only_where_warnings_are_caught():
    def inside(x):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.filterwarnings("ignore", category=DeprecationWarning)
            return x + 1

    def loose(x):
        warnings.simplefilter("default")
        return x + 1

    def raising(x):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return x + 1

    assert torch.equal(core.compile(inside, backend="eager", fullgraph=True)(X), X + 1)
    for program in (loose, raising):
        with pytest.raises(core.Unsupported, match="warnings"):
            core.compile(program, backend="eager", fullgraph=True)(X)


def test_a_tracer_that_is_set_later_is_asked_for_again():
    fast = core.compile(lambda x: (sys.gettrace() is None, x + 1), backend="eager")
    assert fast(X)[0] is True
    before = sys.gettrace()
    sys.settrace(lambda *_: None)
    try:
        assert fast(X)[0] is False
    finally:
        sys.settrace(before)
