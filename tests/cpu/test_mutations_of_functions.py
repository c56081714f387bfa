"""Functions changed between calls, and calls of other forms: defaults, cells, partials, wrappers, keywords."""

from __future__ import annotations

import functools
import inspect
import types

import pytest
import torch
from mutations import check_mutation, wishes

X = torch.arange(6.0).reshape(2, 3) - 2


def args():
    return (X.clone(),)


def cell_of_a_closure_rebound(later):
    k = 1

    def helper(x):
        return x * k

    def change():
        nonlocal k
        k = 4

    return (lambda x: helper(x)), args, change, lambda: setattr(helper.__closure__[0], "cell_contents", 9)


def cell_emptied(later):
    k = 1

    def program(x):
        try:
            return x * k
        except NameError:
            return x - 1

    def change():
        nonlocal k
        del k

    return program, args, change


def cell_of_a_nested_closure_rebound(later):
    def outer():
        k = [1]
        m = 2

        def middle():
            def inner(x):
                return x * k[0] * m

            return inner

        def rebind():
            nonlocal m
            m = 7

        return middle, rebind

    middle, rebind = outer()
    return (lambda x: middle()(x)), args, rebind


def function_rebound_in_a_cell(later):
    def helper(x):
        return x + 1

    def change():
        nonlocal helper

        def helper(x):
            return x * 5

    return (lambda x: helper(x)), args, change


def defaults_changed(later):
    def helper(x, k=1, *, m=2):
        return x * k + m

    return (
        (lambda x: helper(x)),
        args,
        lambda: setattr(helper, "__defaults__", (5,)),
        lambda: setattr(helper, "__kwdefaults__", {"m": 6}),
        lambda: helper.__kwdefaults__.update(m=7),
        lambda: setattr(helper, "__defaults__", (X, 1)),
    )


def own_defaults_changed(later):
    def program(x, k=1, *, m=2):
        return x * k + m

    return (
        program,
        args,
        lambda: setattr(program, "__defaults__", (5,)),
        lambda: program.__kwdefaults__.update(m=7),
        lambda: setattr(program, "__defaults__", None),
    )


def default_list_changed_in_place(later):
    def program(x, k=[1.0]):  # noqa: B006
        return x * k[0] + len(k)

    return program, args, lambda: program.__defaults__[0].append(2), lambda: program.__defaults__[0].insert(0, 9)


def default_tensor_replaced(later):
    def helper(x, k=torch.ones(3)):  # noqa: B008
        return x * k

    return (lambda x: helper(x)), args, lambda: setattr(helper, "__defaults__", (torch.full((2, 1), 3.0),))


def code_replaced(later):
    def helper(x):
        return x + 1

    return (
        (lambda x: helper(x)),
        args,
        lambda: setattr(helper, "__code__", (lambda x: x * 5).__code__),
        lambda: setattr(helper, "__code__", (lambda x: x).__code__),
    )


def attribute_of_a_function_changed(later):
    def helper(x):
        return x * helper.k

    helper.k = 1
    return (
        (lambda x: helper(x)),
        args,
        lambda: setattr(helper, "k", 3),
        lambda: setattr(helper, "__dict__", {"k": 5}),
        lambda: delattr(helper, "k"),
    )


def wrapped_function_replaced(later):
    def inner(x):
        return x + 1

    @functools.wraps(inner)
    def outer(x):
        return outer.__wrapped__(x) * 2

    return (lambda x: outer(x)), args, lambda: setattr(outer, "__wrapped__", lambda x: x - 9)


def arguments_of_a_partial_changed(later):
    def helper(x, k, m=1):
        return x * k + m

    held = [functools.partial(helper, k=2)]
    return (
        (lambda x: held[0](x)),
        args,
        lambda: held[0].keywords.update(k=5),
        lambda: held[0].keywords.update(m=5),
        lambda: held.__setitem__(0, functools.partial(helper, m=3, k=1)),
    )


def partial_of_a_partial_changed(later):
    factor = [2.0]
    inner = functools.partial(lambda k, x: x * k[0], factor)
    outer = functools.partial(inner)
    return (lambda x: outer(x)), args, lambda: factor.__setitem__(0, 5.0)


def partial_method_changed(later):
    class A:
        def scale(self, x, k):
            return x * k

        double = functools.partialmethod(scale, k=2)

    thing = A()
    return (
        (lambda x: thing.double(x)),
        args,
        lambda: A.__dict__["double"].keywords.update(k=5),
        lambda: setattr(A, "double", functools.partialmethod(A.scale, k=7)),
    )


def cached_function_cleared(later):
    factor = [2.0]

    @functools.lru_cache
    def look(n):
        return factor[0] * n

    def change():
        factor[0] = 5.0
        look.cache_clear()

    return (lambda x: x * look(3)), args, change


def cached_property_deleted(later):
    class A:
        base = 2.0

        @functools.cached_property
        def k(self):
            return self.base * 2

    thing = A()

    def change():
        thing.base = 5.0
        del thing.k

    return (lambda x: x * thing.k), args, change, lambda: setattr(thing, "k", 1.0)


def single_dispatch_registered(later):
    @functools.singledispatch
    def scale(k):
        return 2

    return (
        (lambda x: x * scale(1)),
        args,
        lambda: scale.register(int, lambda k: 7),
        lambda: scale.register(bool, lambda k: 9),
    )


def bound_method_replaced(later):
    class A:
        def __init__(self, k):
            self.k = k

        def method(self, x):
            return x * self.k

    held = [A(1).method]
    return (
        (lambda x: held[0](x)),
        args,
        lambda: held.__setitem__(0, A(5).method),
        lambda: setattr(held[0].__self__, "k", 8),
        lambda: setattr(A, "method", lambda self, x: x),
        lambda: held.__setitem__(0, A(5).method),
    )


def method_given_as_an_argument(later):
    class A:
        def __init__(self, k):
            self.k = k

        def method(self, x):
            return x * self.k

    things = [A(1), A(2)]
    return (
        (lambda x, call: call(x)),
        lambda: (X.clone(), things[0].method),
        things.reverse,
        lambda: things.append(setattr(things[0], "k", 6)),
    )


def callable_given_as_an_argument(later):
    calls = [torch.relu, torch.abs, lambda x: x * 3, functools.partial(torch.add, other=2), torch.Tensor.neg, max]

    def turn():
        calls.append(calls.pop(0))

    def program(x, call):
        return call(x) if call is not max else call(x, x + 1) if x.dim() == 0 else x

    return program, lambda: (X.clone(), calls[0]), turn, turn, turn, turn, turn


def lambda_made_anew_each_call(later):
    factor = [1.0]

    def fresh():
        k = factor[0]
        return lambda x: x * k

    return (lambda x, call: call(x)), lambda: (X.clone(), fresh()), lambda: factor.__setitem__(0, 3.0)


def signature_read(later):
    def helper(a, b=1):
        pass

    def program(x):
        return x * len(inspect.signature(helper).parameters)

    def change():
        helper.__code__ = (lambda a, b, c=3: None).__code__

    return program, args, change


def star_arguments_of_another_number(later):
    more = []

    def program(x, *rest, **named):
        for value in rest:
            x = x + value
        for name, value in named.items():
            x = x * value + len(name)
        return x

    return (
        program,
        lambda: (X.clone(), *more),
        lambda: more.append(2.0),
        lambda: more.append(X),
        lambda: more.__setitem__(0, X + 1),
    )


def called_with(*calls):
    """A mutation of a program that is called through another one, with other arguments each time."""

    def make(program):
        def mutation(later):
            left = list(calls)
            current = [left.pop(0)]

            def turn():
                current[0] = left.pop(0)

            def through(positional, named):
                return program(*positional, **named)

            return through, lambda: (*current[0](),), *[turn] * len(left)

        mutation.__name__ = program.__name__
        return mutation

    return make


@called_with(
    lambda: ((X, X + 1), {}),
    lambda: ((X,), {"b": X + 1}),
    lambda: ((), {"a": X, "b": X + 1}),
    lambda: ((), {"b": X, "a": X + 1}),
    lambda: ((X,), {"b": 2}),
    lambda: ((X,), {"b": None}),
    lambda: ((X,), {}),
    lambda: ((X, X), {}),
)
def names_and_positions_of_arguments(a, b=3.0):
    return a * 5 if b is None else a - b


@called_with(
    lambda: ((X,), {"k": 1, "m": 2}),
    lambda: ((X,), {"m": 2, "k": 1}),
    lambda: ((X,), {"m": 1, "k": 2}),
    lambda: ((X,), {"m": 1}),
    lambda: ((X,), {"m": X, "other": 4.0}),
    lambda: ((X,), {"m": 1.0, "other": X}),
)
def order_of_keywords(x, **named):
    for name, value in named.items():
        x = x * 2 + value + len(name)
    return x, list(named)


@called_with(
    lambda: ((X,), {"flag": True}),
    lambda: ((X,), {"flag": 1}),
    lambda: ((X,), {"flag": 1.0}),
    lambda: ((X,), {"flag": "1"}),
    lambda: ((X,), {"flag": (1,)}),
    lambda: ((X,), {"flag": [1]}),
    lambda: ((X,), {"flag": None}),
    lambda: ((X,), {"flag": 0.0}),
    lambda: ((X,), {"flag": -0.0}),
    lambda: ((X,), {"flag": float("nan")}),
    lambda: ((X,), {"flag": 1j}),
    lambda: ((X,), {"flag": torch.float32}),
    lambda: ((X,), {"flag": b"1"}),
    lambda: ((X,), {"flag": slice(0, 1)}),
    lambda: ((X,), {"flag": range(2)}),
    lambda: ((X,), {"flag": {1}}),
    lambda: ((X,), {"flag": frozenset({1})}),
    lambda: ((X,), {"flag": {}}),
    lambda: ((X,), {"flag": Ellipsis}),
    lambda: ((X,), {"flag": int}),
    lambda: ((X,), {"flag": torch.Size([1])}),
    lambda: ((X,), {"flag": torch.device("cpu")}),
)
def kinds_of_an_argument(x, *, flag):
    text = f"{type(flag).__name__} {flag!r}"
    return x * len(text) + (1 if flag else 2), text


def a_lambda_in_a_table_replaced(later):
    table = {"act": lambda x: x + 1}
    return (
        (lambda x: table["act"](x)),
        args,
        lambda: table.update(act=torch.relu),
        lambda: table.update(act=lambda x: x * 9),
    )


def recursion_limit_of_a_program_changed(later):
    depth = [2]

    def program(x, n=0):
        return x if n >= depth[0] else program(x * 2, n + 1)

    return program, args, lambda: depth.__setitem__(0, 4)


def decorator_that_counts(later):
    counts = {"calls": 0}

    def counted(fn):
        @functools.wraps(fn)
        def wrapper(*positional, **named):
            counts["calls"] += 1
            return fn(*positional, **named) + counts["calls"]

        return wrapper

    helper = counted(lambda x: x * 2)
    return (lambda x: helper(x)), args, lambda: counts.update(calls=100)


def generator_function_replaced(later):
    def numbers():
        yield 1.0
        yield 2.0

    table = types.SimpleNamespace(numbers=numbers)

    def program(x):
        for k in table.numbers():
            x = x + k
        return x

    def change():
        def numbers():
            yield 5.0

        table.numbers = numbers

    return program, args, change


COUNTING = ("decorator_that_counts",)
MUTATIONS = [
    value
    for value in list(globals().values())
    if isinstance(value, types.FunctionType) and value.__code__.co_varnames[:1] == ("later",)
]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_what_a_program_reads_of_functions_is_followed(mutation):
    name = mutation.__name__
    check_mutation(wishes(settles=name not in COUNTING, captured=name != "kinds_of_an_argument")(mutation))
