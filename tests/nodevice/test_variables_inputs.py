"""Containers from outside: what is read of them is guarded, what changes is written back, and a trace made of one set
of inputs does what Python does for every other set that its guards accept."""

from __future__ import annotations

import collections
import copy
import enum
import importlib.util
import os
import random
import sys
import types
from pathlib import Path

import pytest

from core.errors import Unsupported
from core.guards.checks import DictKeys, Equals, Is, IsNot, Length, MissingKey, Predicate, SameAs, TypeIs, typed
from core.guards.source import DictItemSource, FrameValues, LocalSource, SourceMissing


def _sibling(name):
    """A module beside this file: the import mode of the tests puts no folder on sys.path."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


programs = _sibling("tracker_programs")
agree, run_real, shape, Traced = programs.agree, programs.run_real, programs.shape, programs.Traced

A = LocalSource("a", 0)


def guards(source, **inputs):
    """Guards beside those on types and values of literals, after checking that the program does as Python does."""
    tx = agree(source, inputs)
    return {
        (where.name(), type(check).__name__)
        for where, check in tx.guards
        if not isinstance(check, (TypeIs, Equals, Is))
    }


def test_appending_to_a_list_guards_nothing_but_its_type():
    assert guards("a.append(5)\na.extend([6])\na += [7]", a=[1, 2]) == set()


def test_a_positive_index_guards_the_item_only():
    assert guards("b = a[1]", a=[1, 2]) == set()


@pytest.mark.parametrize(
    "source", ["b = a[-1]", "b = len(a)", "b = list(a)", "b = a == [1]", "b = 9 in a", "b = a[5:]", "b = bool(a)"]
)
def test_what_depends_on_the_length_guards_it(source):
    assert guards(source, a=[1, 2]) == {("L['a']", "Length")}


def test_leaving_a_loop_early_guards_no_length():
    assert guards("for x in a:\n    break", a=[1, 2]) == set()


def test_a_key_read_guards_that_key():
    assert guards("b = a['x']", a={"x": 1, "y": 2}) == {("L['a']['x']", "IsNot")}


def test_a_missing_key_is_guarded():
    assert guards("b = a.get('z', 5)\nc = 'q' in a", a={"x": 1}) == {("L['a']", "MissingKey")}


def test_walking_a_dict_guards_all_keys():
    assert guards("b = [k for k in a]", a={"x": 1, "y": [2]}) == {("L['a']", "DictKeys")}


def test_storing_a_key_guards_nothing_but_the_type():
    assert guards("a['new'] = 1\na['x'] = 2", a={"x": 1}) == set()


def test_counting_in_a_dict_guards_the_keys_it_counts():
    assert guards("a['n'] = a.get('n', 0) + 1", a={"n": 1}) == {("L['a']['n']", "IsNot")}


def test_a_cleared_dict_needs_no_guard():
    assert guards("a.clear()\na['z'] = 1\nn = len(a)\nk = list(a)", a={"x": 1}) == set()


def test_unread_items_are_not_guarded():
    tx = agree("b = [a]\nn = len(a)", {"a": [1, "x", {"k": 2}]})
    assert [type(check) for _, check in tx.guards] == [TypeIs, Length]


CHANGES = """
a.sort()
a.reverse()
a.insert(1, 9)
a.pop()
a.pop(0)
a.remove(2)
a.clear()
a[0] = 7
a[1:] = [8, 9]
a *= 2
del a[0]
a.append(a)
a[0], a[1] = a[1], a[0]
"""


@pytest.mark.parametrize("source", CHANGES.strip().splitlines())
def test_changes_of_a_list_are_written_back(source):
    agree(source, {"a": [3, 2, 1]})


DICT_CHANGES = """
a['x'] = 5
a['z'] = 5
del a['x']
del a['x']; a['x'] = 3
a.pop('y')
a.popitem()
a.clear()
a.update(z=1, x=2)
a.setdefault('x', 9); a.setdefault('w', 9)
a |= {'q': 1}
a.clear(); a['x'] = 1
a['self'] = a
a['l'].append(a)
"""


@pytest.mark.parametrize("cls", [dict, collections.OrderedDict])
@pytest.mark.parametrize("source", DICT_CHANGES.strip().splitlines())
def test_changes_of_a_dict_are_written_back_in_order(source, cls):
    agree(source, {"a": cls([("x", 1), ("y", 2), ("l", [])])})


@pytest.mark.parametrize("source", ["a.move_to_end('x')", "a.move_to_end('y', last=False)", "a.popitem(last=False)"])
def test_changes_of_the_order_are_written_back(source):
    agree(source, {"a": collections.OrderedDict(x=1, y=2, z=3)})


def test_a_defaultdict_keeps_its_factory_and_gains_its_values():
    agree("a['new'].append(1)\nb = a['x']\nf = a.default_factory is list", {"a": collections.defaultdict(list, x=[5])})
    agree("a.default_factory = None", {"a": collections.defaultdict(list)})


@pytest.mark.parametrize(
    "source", ["a.add(5)", "a.discard(1)", "a.clear()", "a ^= {1, 7}", "a.update('xy')", "a &= {2}"]
)
def test_changes_of_a_set_are_written_back(source):
    agree(source, {"a": {1, 2, 3}})


@pytest.mark.parametrize("source", ["a.append(5)", "a.popleft()", "a.rotate(1)", "a.clear()", "a.extendleft('xy')"])
def test_changes_of_a_deque_are_written_back(source):
    agree(source, {"a": collections.deque([1, 2, 3], 4)})


def test_one_list_under_two_names_is_one_object():
    shared = [1]
    tx = programs.World()
    first, second = tx.wrap(shared, A), tx.wrap(shared, LocalSource("b", 1))
    assert first is second


class Label:
    """Compares by content."""

    def __init__(self, text):
        self.text = text

    def __eq__(self, other):
        return self.text == other.text

    def __hash__(self):
        return hash(self.text)


def test_keys_are_found_by_the_equality_of_their_own():
    agree("v = table[k], table.get(other)", {"table": {Label("a"): 1}, "k": Label("a"), "other": Label("b")})


class Plain:
    """Hashed by identity."""


def test_identity_keys_are_guarded_by_their_place():
    first, second = Plain(), Plain()
    tx = programs.World(programs.Evaluator.of_function)
    table = tx.wrap({first: "one", second: "two"}, A)
    key = tx.wrap(first, LocalSource("b", 1))
    assert table.get_item(tx, key).as_constant() == "one"
    assert any(where == DictItemSource(A, first) for where, check in tx.guards if isinstance(check, IsNot))
    assert table.lookup(tx, tx.wrap(Plain(), None)) is None
    assert any(isinstance(check, DictKeys) for _, check in tx.guards)


def test_a_set_is_not_walked_in_an_order_that_nothing_guards():
    tx = programs.World()
    tracker = tx.wrap({"x", "y", "z"}, A)
    tracker.call_method(tx, "add", [tx.constant("w")], {})
    with pytest.raises(Unsupported, match="sorted"):
        tracker.unpack(tx)
    agree("b = sorted(a)\nc = 'x' in a\nd = len(a)\ne = min(a)\nf = sorted(a | {'q'})", {"a": {"x", "y", "z"}})


@pytest.mark.parametrize("value", [{"x"}, frozenset("x"), (1, 2), range(3), slice(1, 2), 5, "a", 1.5, None])
def test_values_are_guarded_by_type_and_content(value):
    tx = programs.World()
    tx.wrap(value, A)
    assert tx.guards and all(where.root() == A for where, _ in tx.guards)


def test_ranges_are_guarded_part_by_part():
    # range(0, 3, 2) == range(0, 4, 2), but their stops differ
    tx = agree("b = a.stop", {"a": range(0, 3, 2)})
    assert not accepts(tx.guards, [range(0, 4, 2)])


def test_mapping_proxies_of_plain_values_are_guarded():
    proxy = types.MappingProxyType({"x": 1})
    tx = programs.World()
    tracker = tx.wrap(proxy, A)
    assert tracker.get_item(tx, tx.constant("x")).as_constant() == 1
    assert accepts(tx.guards, [types.MappingProxyType({"x": 1})])
    assert not accepts(tx.guards, [types.MappingProxyType({"x": True})])
    held = tx.wrap(types.MappingProxyType({"x": [1]}), A).get_item(tx, tx.constant("x")).realize(tx)
    assert held.get_item(tx, tx.constant(0)).as_constant() == 1


def test_an_iterator_from_outside_gives_its_items_and_stays_where_it_is():
    iterator = iter([1, 2])
    tx = programs.World()
    tracker = importlib.import_module("core.variables.outside_iterator").from_value(tx, iterator, A)
    assert [tracker.next_item(tx).realize(tx).as_constant() for _ in range(2)] == [1, 2]
    assert tracker.next_item(tx) is None
    assert list(iterator) == [1, 2]
    found = {type(check).__name__ for _, check in tx.guards}
    assert found == {"TypeIs", "ItemsLeft", "Equals"}


# -- any other input that the guards accept --------------------------------------------------------------------------


def accepts(found, values):
    """True when every guard holds for these inputs."""
    frame = FrameValues(values, {}, {})
    for source, check in found:
        try:
            value = source.resolve(frame)
        except SourceMissing:
            return False
        if not _holds(check, value, frame):
            return False
    return True


def _holds(check, value, frame):
    if isinstance(check, TypeIs):
        return type(value) is check.type
    if isinstance(check, Equals):
        return (
            typed(value) == typed(check.value)
            if not isinstance(value, set)
            else typed_set(value) == typed_set(check.value)
        )
    if isinstance(check, Length):
        return len(value) == check.n
    if isinstance(check, DictKeys):
        return typed(tuple(value)) == typed(check.keys)
    if isinstance(check, MissingKey):
        return check.key not in value
    if isinstance(check, Is):
        return value is check.obj.get()
    if isinstance(check, SameAs):
        return value is check.other.resolve(frame)
    if isinstance(check, IsNot):
        return value is not check.obj.get()
    assert isinstance(check, Predicate)
    return check.fn(*(source.resolve(frame) for source in check.sources))


def typed_set(value):
    return {(type(item), item) for item in value}


STATEMENTS = """
a.append(V)
a.extend([V, V])
a.insert(I, V)
r.append(a.pop())
r.append(a.pop(I))
a.remove(V)
a.reverse()
a.sort(key=str)
a[I] = V
del a[I]
a[I:I] = [V]
a[I:] = b
a += b
r.append(a[I])
r.append(V in a)
r.append(a.index(V))
r.append(a.count(V))
r.append(len(a))
r.append(a == b)
r.append(a[I:I])
r.append(list(a))
r.append(a + b)
r.append(a * 2)
a.clear()
b.extend(a)
a, b = b, a
b.append(d)
d[V] = V
r.append(d[V])
r.append(d.get(V))
r.append(d.pop(V, None))
del d[V]
d.setdefault(V, V)
r.append(V in d)
r.append(list(d))
r.append(list(d.items()))
r.append(len(d))
d.update(e)
d |= {V: V}
r.append(d == e)
d.clear()
r.append(d.popitem())
e[V] = b
e.update(d)
r.append(d.keys() & e.keys())
r.append(sorted(map(str, d)))
r.append(d.copy())
s.add(V)
s.discard(V)
s.remove(V)
r.append(V in s)
r.append(s | {V})
r.append(s - {V})
r.append(s == {V})
r.append(len(s))
s.clear()
s |= {V, V}
s &= {V}
s ^= {V}
r.append(sorted(map(str, s)))
q.append(V)
q.appendleft(V)
r.append(q.pop())
r.append(q.popleft())
q.rotate(I)
r.append(q[I])
q.extend(b)
r.append(list(q))
r.append(V in q)
for x in a: r.append(x)
for x in d: r.append(d[x])
for x, y in zip(a, b): r.append((x, y))
for i, x in enumerate(a): r.append((i, x))
for x in a: d[str(x)] = 1
for x in d: d[x] = V
for x in b: a.append(x)
r.append(t[I])
r.append(t + (V,))
r.append(t == tuple(a))
r.append(t[I:])
r.append(max(map(str, t)))
r.append(a is b)
r.append(bool(a) and bool(d))
r.append(a < b)
""".strip().splitlines()

VALUES = ["0", "1", "2", "'x'", "'y'", "True", "1.0", "None", "(1, 2)", "()"]
INDICES = ["0", "1", "2", "-1", "-2", "7"]


def make_program(rng):
    lines = ["r = []"]
    for _ in range(rng.randint(2, 9)):
        line = rng.choice(STATEMENTS)
        while "V" in line:
            line = line.replace("V", rng.choice(VALUES), 1)
        while "I" in line:
            line = line.replace("I", rng.choice(INDICES), 1)
        lines.append(
            line if rng.random() < 0.6 else f"try:\n    {line}\nexcept (LookupError, ValueError):\n    r.append('!')"
        )
    return "\n".join(lines)


def make_inputs(rng):
    def value():
        return eval(rng.choice(VALUES))  # noqa: S307

    def items(most=4):
        return [value() for _ in range(rng.randint(0, most))]

    inputs = {
        "a": items(),
        "b": items(),
        "d": {value(): value() for _ in range(rng.randint(0, 3))},
        "e": {value(): value() for _ in range(rng.randint(0, 2))},
        "s": set(items(3)),
        "q": collections.deque(items(3), rng.choice([None, 3])),
        "t": tuple(items(3)),
    }
    if rng.random() < 0.3:
        inputs["a"].append([value()])
    return inputs


def vary(rng, inputs):
    """Inputs that differ a little, so that guards accept some of them."""
    other = copy.deepcopy(inputs)
    for name in rng.sample(sorted(other), rng.randint(1, 3)):
        other[name] = make_inputs(rng)[name] if rng.random() < 0.4 else other[name]
        if rng.random() < 0.5 and isinstance(other[name], list):
            other[name].append(5)
        elif rng.random() < 0.5 and isinstance(other[name], dict):
            other[name]["other"] = 7
    return other


PROGRAM_COUNT = int(os.environ.get("CORE_FUZZ_PROGRAMS", "300"))


def test_random_programs_do_the_same_for_every_input_that_the_guards_accept():
    rng = random.Random(int(os.environ.get("CORE_FUZZ_SEED", "20")))
    accepted = refused = unsupported = 0
    for _ in range(PROGRAM_COUNT):
        source, inputs = make_program(rng), make_inputs(rng)
        try:
            program = Traced(source, copy.deepcopy(inputs))
        except Unsupported:
            unsupported += 1
            continue
        for other in [inputs, *(vary(rng, inputs) for _ in range(6))]:
            if not accepts(program.tx.guards, list(other.values())):
                assert other is not inputs, f"the inputs fail their own guards\n{source}\n{inputs}"
                refused += 1
                continue
            copies, real_inputs = copy.deepcopy(other), copy.deepcopy(other)
            outcome, traced = program.replay(copies)
            accepted += 1
            real_outcome, real = run_real(source, real_inputs)
            text = f"{source}\ntraced with {inputs}\nrun with {other}"
            assert outcome == real_outcome, f"{text}\nreal {real_outcome}\ntraced {outcome}"
            for name in real:
                found, expected = shape(traced[name]), shape(real[name])
                assert found == expected, f"{text}\n{name}\nreal:   {expected}\ntraced: {found}"
            for name in inputs:
                found, expected = shape(copies[name]), shape(real_inputs[name])
                assert found == expected, f"{text}\ninput {name}\nreal:   {expected}\ntraced: {found}"
    assert accepted > PROGRAM_COUNT and refused > PROGRAM_COUNT
    assert unsupported < PROGRAM_COUNT / 5


class Shade(enum.Enum):
    DARK = 1


def test_enum_members_are_guarded_by_identity():
    tx = programs.World()
    tx.wrap(Shade.DARK, A)
    assert [type(check) for _, check in tx.guards] == [Is]
