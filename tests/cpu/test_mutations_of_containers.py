"""Containers and iterators changed between calls: contents, order, length, kind, identity."""

from __future__ import annotations

import array
import collections
import itertools
import types

import numpy as np
import pytest
import torch
from mutations import check_mutation, wishes

X = torch.arange(6.0).reshape(2, 3) - 2


def args():
    return (X.clone(),)


def items_of_a_list_changed(later):
    held = [1.0, 2.0]
    return (
        (lambda x: x * held[0] + held[-1] + len(held)),
        args,
        lambda: held.__setitem__(0, 4.0),
        lambda: held.append(5.0),
        held.reverse,
        held.clear,
    )


def items_of_a_list_become_tensors(later):
    held = [1.0, 2.0]
    return (
        (lambda x: x * held[0] + held[1]),
        args,
        lambda: held.__setitem__(0, torch.tensor(4.0)),
        lambda: held.__setitem__(1, X),
        lambda: held.__setitem__(1, X + 1),
        lambda: held.__setitem__(0, X.double()),
    )


def tensors_in_a_list_are_one(later):
    held = [X.clone(), X + 1]

    def program(x):
        held[0].add_(1)
        return held[1] * x, held[0] is held[1]

    return program, args, lambda: held.__setitem__(1, held[0]), lambda: held.__setitem__(1, held[0].view(-1).view(2, 3))


def list_sliced(later):
    held = [1.0, 2.0, 3.0]
    return (lambda x: x * sum(held[1:])), args, lambda: held.append(9.0), lambda: held.__setitem__(2, 0.0)


def list_searched(later):
    held = [1.0, 2.0, 3.0]
    return (
        (lambda x: x * held.index(2.0) + held.count(2.0) + (3.0 in held)),
        args,
        lambda: held.insert(0, 9.0),
        lambda: held.append(2.0),
        lambda: held.remove(3.0),
    )


def list_of_a_subclass_with_own_length(later):
    class Own(list):
        pass

    held = Own([1.0, 2.0])
    return (
        (lambda x: x * len(held) + held[0]),
        args,
        lambda: setattr(Own, "__len__", lambda self: 9),
        lambda: setattr(Own, "__getitem__", lambda self, index: 7.0),
    )


def dict_values_changed(later):
    held = {"a": 1.0, "b": 2.0}
    return (
        (lambda x: x * held["a"] + held.get("c", 0.0) + len(held)),
        args,
        lambda: held.update(a=3.0),
        lambda: held.update(c=3.0),
        lambda: held.pop("b"),
        lambda: held.update(a=X),
    )


def order_of_a_dict_changed(later):
    held = {"a": 1.0, "bb": 2.0}

    def program(x):
        for name, value in held.items():
            x = x * value + len(name)
        return x, list(held), next(iter(held.values()))

    return program, args, lambda: held.update(a=held.pop("a"))


def keys_of_other_kinds(later):
    held = {1: 1.0, (1, 2): 2.0, None: 3.0, torch.float32: 4.0}

    def program(x):
        return x * held[1] + held[(1, 2)] + held[None] + held.get(x.dtype, 0.0) + held.get(True, 0.0)

    return (
        program,
        args,
        lambda: held.__setitem__(True, 9.0),
        lambda: held.pop(torch.float32),
        lambda: held.__setitem__((1, 2), 5.0),
    )


def dict_with_missing(later):
    class Own(dict):
        def __missing__(self, key):
            return 4.0

    held = Own(a=1.0)
    return (
        (lambda x: x * held["b"] + held["a"]),
        args,
        lambda: held.update(b=2.0),
        lambda: setattr(Own, "__missing__", lambda self, key: 8.0),
        lambda: held.pop("b"),
    )


def default_dict_grows(later):
    held = collections.defaultdict(list)

    def program(x):
        held["seen"].append(1)
        return x * len(held["seen"]) + len(held)

    return program, args, held.clear, lambda: setattr(held, "default_factory", lambda: [1, 1, 1])


def counter_changed(later):
    held = collections.Counter("aab")
    return (
        (lambda x: x * held["a"] + held["missing"] + len(held.most_common(1)[0][0])),
        args,
        lambda: held.update("aa"),
        lambda: held.update(["longer"] * 9),
    )


def ordered_dict_reordered(later):
    held = collections.OrderedDict(a=1.0, bb=2.0)

    def program(x):
        for name, value in held.items():
            x = x * value + len(name)
        return x

    return program, args, lambda: held.move_to_end("a"), lambda: held.popitem(last=False)


def chain_map_changed(later):
    low, high = {"a": 1.0}, {}
    held = collections.ChainMap(high, low)
    return (
        (lambda x: x * held["a"] + len(held)),
        args,
        lambda: high.update(a=5.0),
        lambda: low.update(b=5.0),
        lambda: held.maps.reverse(),
    )


def mapping_proxy_changed(later):
    behind = {"a": 1.0}
    held = types.MappingProxyType(behind)
    return (lambda x: x * held["a"] + len(held)), args, lambda: behind.update(a=4.0), lambda: behind.update(b=4.0)


def set_changed(later):
    held = {1, 2}
    return (
        (lambda x: x * len(held) + (3 in held) + sum(held)),
        args,
        lambda: held.add(3),
        lambda: held.discard(1),
        held.clear,
    )


def set_of_objects_changed(later):
    class A:
        pass

    one, two = A(), A()
    held = {one}
    return (lambda x: x * (2 if two in held else 3)), args, lambda: held.add(two), lambda: held.discard(two)


def frozen_set_given_as_an_argument(later):
    held = [frozenset({1})]
    return (
        (lambda x, s: x * len(s) + (2 in s)),
        lambda: (X.clone(), held[0]),
        lambda: held.__setitem__(0, frozenset({2})),
        lambda: held.__setitem__(0, {2}),
    )


def deque_changed(later):
    held = collections.deque([1.0, 2.0], maxlen=3)
    return (
        (lambda x: x * held[0] + held[-1] + len(held) + (held.maxlen or 0)),
        args,
        lambda: held.rotate(1),
        lambda: held.append(3.0),
        lambda: held.append(4.0),
        held.popleft,
    )


def deque_of_past_tensors(later):
    held = collections.deque(maxlen=2)

    def program(x):
        held.append(x * 2)
        return sum(held) + len(held)

    return program, args, held.clear


def iterator_consumed_between_calls(later):
    held = iter([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])
    return (lambda x: x * next(held)), args, lambda: next(held), lambda: next(held)


def generator_consumed_between_calls(later):
    def numbers():
        k = 1.0
        while True:
            yield k
            k *= 2

    held = numbers()
    return (lambda x: x * next(held)), args, lambda: next(held)


def counter_of_itertools_shared(later):
    held = itertools.count(1)
    return (lambda x: x * next(held)), args, lambda: next(held)


def cycle_shared(later):
    held = itertools.cycle([1.0, 2.0, 5.0])
    return (lambda x: x * next(held)), args, lambda: next(held)


def zip_and_map_consumed(later):
    pairs, squares = zip([1.0, 2.0, 3.0, 4.0, 9.0], [5.0] * 5), map(lambda k: k * k, itertools.count(1))

    def program(x):
        a, b = next(pairs, (0.0, 0.0))
        return x * a + b + next(squares)

    return program, args, lambda: next(pairs), lambda: next(squares)


def iterator_given_as_an_argument(later):
    start = [1.0]
    return (lambda x, it: x * sum(it)), lambda: (X.clone(), iter([start[0], 2.0])), lambda: start.__setitem__(0, 5.0)


def tuples_of_another_length(later):
    held = [(1.0, 2.0)]
    return (
        (lambda x, t: x * t[0] + len(t)),
        lambda: (X.clone(), held[0]),
        lambda: held.__setitem__(0, (1.0,)),
        lambda: held.__setitem__(0, (X, 1.0)),
        lambda: held.__setitem__(0, [1.0, 2.0]),
    )


def nested_containers_changed(later):
    held = {"layers": [{"k": (1.0, [2.0])}]}
    return (
        (lambda x: x * held["layers"][0]["k"][1][0]),
        args,
        lambda: held["layers"][0]["k"][1].__setitem__(0, 5.0),
        lambda: held["layers"][0].update(k=(1.0, [7.0])),
        lambda: held["layers"].insert(0, {"k": (0, [9.0])}),
        lambda: held.update(layers=[{"k": (0, [3.0])}]),
    )


def two_names_of_one_list(later):
    held = [1.0]
    pair = [held, held]

    def program(x):
        pair[0].append(1.0)
        return x * len(pair[1])

    return program, args, lambda: pair.__setitem__(1, [1.0])


def list_that_contains_itself(later):
    held = [1.0]
    held.append(held)
    return (lambda x: x * held[1][1][0]), args, lambda: held.__setitem__(0, 4.0)


def bytes_and_arrays_changed(later):
    raw, numbers = bytearray(b"ab"), array.array("d", [1.0, 2.0])
    return (
        (lambda x: x * raw[0] + len(raw) + numbers[0]),
        args,
        lambda: raw.__setitem__(0, 5),
        lambda: raw.append(1),
        lambda: numbers.__setitem__(0, 7.0),
    )


def numpy_array_changed(later):
    held = np.array([1.0, 2.0, 3.0], dtype=np.float32)
    return (
        (lambda x: x * torch.from_numpy(held)),
        args,
        lambda: held.__setitem__(0, 9.0),
    )


def numpy_array_replaced(later):
    held = [np.array([1.0, 2.0, 3.0], dtype=np.float32)]
    return (
        (lambda x, a: x * torch.as_tensor(a)),
        lambda: (X.clone(), held[0]),
        lambda: held.__setitem__(0, np.array([5.0, 2.0, 3.0], dtype=np.float32)),
        lambda: held.__setitem__(0, np.array([5.0, 2.0, 3.0])),
        lambda: held.__setitem__(0, np.array([[5.0], [2.0]], dtype=np.float32)),
        lambda: held.__setitem__(0, held[0].T.repeat(3, 0)[:2]),
    )


def numpy_scalar_replaced(later):
    held = [np.float32(2.0)]
    return (
        (lambda x, k: x * k),
        lambda: (X.clone(), held[0]),
        lambda: held.__setitem__(0, np.float32(3.0)),
        lambda: held.__setitem__(0, np.float64(3.0)),
        lambda: held.__setitem__(0, np.int64(3)),
        lambda: held.__setitem__(0, np.bool_(True)),
    )


def dict_views_held(later):
    held = {"a": 1.0}
    values, keys = held.values(), held.keys()
    return (lambda x: x * sum(values) + len(keys)), args, lambda: held.update(b=2.0), lambda: held.update(a=7.0)


def string_replaced(later):
    held = ["relu"]
    return (
        (lambda x, name: getattr(torch, name)(x)),
        lambda: (X.clone(), held[0]),
        lambda: held.__setitem__(0, "abs"),
        lambda: held.__setitem__(0, type("S", (str,), {})("neg")),
    )


def user_dict_changed(later):
    held = collections.UserDict(a=1.0)
    return (
        (lambda x: x * held["a"] + len(held)),
        args,
        lambda: held.update(a=3.0),
        lambda: held.data.update(b=3.0),
        lambda: setattr(held, "data", {"a": 8.0}),
    )


def sorted_by_a_key_that_changes(later):
    order = {"a": 1, "b": 2}
    held = ["a", "b"]

    def program(x):
        first = sorted(held, key=order.get)[0]
        return x * order[first] + (5 if first == "a" else 7)

    return program, args, lambda: order.update(a=3)


COUNTING = (
    "default_dict_grows",
    "deque_of_past_tensors",
    "iterator_consumed_between_calls",
    "two_names_of_one_list",
)
BREAKING = (
    "bytes_and_arrays_changed",
    "cycle_shared",
    "dict_views_held",
    "generator_consumed_between_calls",
    "set_of_objects_changed",
)
MUTATIONS = [
    value
    for value in list(globals().values())
    if isinstance(value, types.FunctionType) and value.__code__.co_varnames[:1] == ("later",)
]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_what_a_program_reads_of_containers_is_followed(mutation):
    name = mutation.__name__
    check_mutation(wishes(settles=name not in COUNTING, captured=name not in BREAKING)(mutation))
