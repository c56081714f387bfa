"""Side effects on Python objects: replayed once, in order, on the very objects that the program changes."""

from __future__ import annotations

import collections
import dataclasses

import pytest
import torch
from agreement import agree

import core

X = torch.arange(6.0).reshape(2, 3)


class Box:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


@pytest.mark.parametrize("broken", [False, True], ids=["whole", "broken"])
class TestContainers:
    """The same programs with and without a graph break between the changes and the result."""

    @staticmethod
    def look(broken, *values):
        if broken:
            print(len(values))

    def test_items_swapped_in_a_list(self, broken):
        def fn(items):
            items[0], items[1] = items[1], items[0]
            self.look(broken, items)
            return items[0]

        agree(fn, [X, 1, 2])

    def test_a_copy_taken_before_clear(self, broken):
        def fn(items):
            copied = items[:]
            items.clear()
            self.look(broken, items)
            return copied

        agree(fn, [X, 1, 2])

    def test_the_contents_of_two_lists_exchanged(self, broken):
        def fn(a, b):
            a[:], b[:] = b[:], a[:]
            self.look(broken, a)
            return X + len(a)

        agree(fn, [X, 1, 2], [3])

    def test_dict_items_deleted_set_again_and_moved(self, broken):
        def fn(table):
            value = table.pop("a")
            table["a"] = value
            table["c"].append(value)
            self.look(broken, table)
            table.pop("b")
            return list(table), value

        agree(fn, {"a": X, "b": X + 1, "c": [1]})

    def test_dicts_that_point_at_each_other(self, broken):
        def fn(one, other):
            one["e"] = other
            other["d"] = 1
            value = other.pop("b")
            one["x"] = value
            self.look(broken, one)
            copied = dict(one)
            one.clear()
            return copied

        agree(fn, {"a": X}, {"b": X + 1})

    def test_list_methods(self, broken):
        def fn(items):
            del items[0]
            items.insert(0, X)
            items.reverse()
            self.look(broken, items)
            items.extend([4, 5])
            items += [6]
            return items.pop(), items.index(3)

        agree(fn, [1, 2, 3])

    def test_sets_and_deques(self, broken):
        def fn(names, queue):
            names.add(3)
            names.discard(1)
            names |= {9}
            queue.append(3)
            self.look(broken, names)
            queue.appendleft(0)
            queue.rotate(1)
            return X + len(names), sorted(names), list(queue)

        agree(fn, {1, 2}, collections.deque([1, 2], maxlen=3))

    def test_ordered_and_default_dicts(self, broken):
        def fn(ordered, default):
            ordered.move_to_end("a")
            default["q"].append(X)
            self.look(broken, ordered)
            ordered["z"] = default["q"]
            return list(ordered), default["n"]

        agree(fn, collections.OrderedDict(a=1, b=2), collections.defaultdict(list))

    def test_attributes_exchanged_and_deleted(self, broken):
        def fn(box):
            box.a, box.b = box.b, box.a
            box.a.append(5)
            taken = box.gone
            del box.gone
            self.look(broken, box)
            box.new = taken
            return box.x + 1, box.a

        agree(fn, Box(a=[1], b=[2], gone=3, x=X))

    def test_tensors_written_in_place_and_replaced(self, broken):
        def fn(box):
            box.x.add_(1)
            box.x[0] = 7
            before = box.x
            self.look(broken, box)
            box.x.mul_(2)
            box.x = box.x * 2
            return before, box.x

        agree(fn, Box(x=X.clone()))


def test_an_object_that_contains_itself_comes_back_whole():
    def fn(items):
        made = [1]
        made.append(made)
        table = {"made": made}
        table["table"] = table
        items.append(made)
        items.append(table)
        items.append(items)
        return X + len(made)

    items = []
    core.compile(fn, backend="eager")(items)
    made, table, own = items
    assert made[1] is made
    assert table["table"] is table
    assert table["made"] is made
    assert own is items


def test_globals_classes_and_functions_are_written():
    namespace = {"__name__": "written_by_tests", "count": 0, "seen": []}
    exec(
        "class Kind:\n    total = 0\n"
        "def target(): pass\n"
        "target.calls = 0\n"
        "def fn(x):\n"
        "    global count, made\n"
        "    count += 1\n"
        "    made = x + count\n"
        "    seen.append(count)\n"
        "    Kind.total = Kind.total + count\n"
        "    target.calls += 1\n"
        "    return made * 2\n",
        namespace,
    )
    compiled = core.compile(namespace["fn"], backend="eager")
    for call in range(1, 5):
        assert torch.equal(compiled(X), (X + call) * 2)
        assert namespace["count"] == call
        assert torch.equal(namespace["made"], X + call)
        assert namespace["seen"] == list(range(1, call + 1))
        assert namespace["Kind"].total == sum(range(call + 1))
        assert namespace["target"].calls == call


def test_effects_before_a_raise_are_kept_and_those_after_do_not_happen():
    def fn(items):
        items.append(5)

        def inner():
            items.append(6)
            items[0] = X + 1
            raise KeyError("stop")

        try:
            inner()
        finally:
            items.append(7)
        items.append(8)

    agree(fn, [X, 2])


def test_effects_before_an_exception_caught_inside_are_replayed_in_order():
    def fn(items):
        items.append(5)
        try:
            items.append(6)
            raise KeyError(items[1])
        except KeyError as error:
            items.append(error.args[0])
        return X + 1

    assert agree(fn, [X, 2])["breaks"] == 0


def test_a_called_function_sees_the_effects_before_the_call():
    @core.disable
    def look(items):
        return len(items) + items[0].sum().item()

    def fn(items):
        items.append(1)
        items[0].add_(1)
        seen = look(items)
        items.append(seen)
        return items[0] * seen

    agree(fn, [X.clone()])


def test_changes_made_by_the_called_function_are_seen_after_it():
    @core.disable
    def change(items, table):
        items.append(3)
        table["new"] = items

    def fn(items, table):
        items.append(1)
        change(items, table)
        table["new"].append(4)
        return len(items), list(table), X + len(table["new"])

    agree(fn, [0], {"a": 1})


def test_an_iterator_stands_where_the_program_left_it():
    def fn(items):
        iterator = iter(items)
        first = next(iterator)
        items.append(4)
        print(next(iterator))
        return first, list(iterator), X + 1

    agree(fn, [1, 2, 3])


class Meter:
    def __init__(self):
        self._value = 1
        self.log = []

    @property
    def value(self):
        return self._value

    @value.setter
    def value(self, new):
        self.log.append(new)
        self._value = new


def test_a_property_setter_runs_once_for_each_assignment():
    def fn(meter):
        meter.value = meter.value + 3
        meter.value += 1
        return X * meter.value

    agree(fn, Meter())


class Recorder:
    def __init__(self):
        object.__setattr__(self, "table", {})

    def __setattr__(self, name, value):
        self.table[name] = value

    def __getattr__(self, name):
        try:
            return self.__dict__["table"][name]
        except KeyError:
            raise AttributeError(name) from None


def test_a_class_with_its_own_setattr_stores_where_it_says():
    def fn(recorder):
        recorder.a = 3
        recorder.a = recorder.a + 1
        return X + recorder.a

    agree(fn, Recorder())


class Named(dict):
    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        self.last = key

    def update(self, *args, **kwargs):
        raise AssertionError("replaying must not go through overrides")


class Stack(list):
    def append(self, item):
        super().append(("pushed", item))

    def extend(self, items):
        raise AssertionError("replaying must not go through overrides")


def test_containers_inside_subclasses_change_once_and_past_their_overrides():
    def fn(named, stack):
        named["b"] = X
        del named["a"]
        stack.append(X)
        stack.tag = 4
        return named["b"] + 1, named.last, len(stack)

    named, stack = Named(), Stack()
    named["a"] = 1
    core.compile(fn, backend="eager")(named, stack)
    assert list(named) == ["b"]
    assert named.last == "b"
    assert len(stack) == 1
    assert stack[0][0] == "pushed"
    assert stack.tag == 4


@dataclasses.dataclass
class Point:
    x: object
    y: int = 0


def test_new_objects_of_user_classes_are_made_with_their_end_state():
    def fn(point):
        point.y += 1
        other = Point(point.x, 5)
        other.extra = [other.y]
        point.x = other
        other.y = 9
        return other.x + point.y

    agree(fn, Point(X, 1))


class Slotted:
    __slots__ = ("a", "b")


def test_slots_are_written():
    def fn(slotted):
        slotted.a += 1
        slotted.b = slotted.a
        return X * slotted.b

    ours, theirs = Slotted(), Slotted()
    ours.a = theirs.a = 1
    assert torch.equal(core.compile(fn, backend="eager")(ours), fn(theirs))
    assert (ours.a, ours.b) == (theirs.a, theirs.b)


def test_two_arguments_that_are_one_list_take_another_entry_than_two_lists():
    def fn(a, b):
        a.append(1)
        return b[-1] if len(b) == 1 else X + len(b)

    compiled = core.compile(fn, backend="eager")
    one = [X]
    for _ in range(2):
        assert torch.equal(compiled([X], [X]), fn([X], [X]))
        assert same_list_result(compiled, one) == same_list_result(fn, [X])
        one = [X]


def same_list_result(call, items):
    result = call(items, items)
    return len(items), result.sum().item()


def test_two_arguments_that_share_memory_see_each_others_writes():
    def fn(a, b):
        a.add_(1)
        return b * 2

    compiled = core.compile(fn, backend="eager")
    for shared in (False, True, False, True):
        ours, theirs = X.clone(), X.clone()
        got = compiled(ours, ours.view(-1) if shared else X.view(-1))
        want = fn(theirs, theirs.view(-1) if shared else X.view(-1))
        assert torch.equal(got, want)
        assert torch.equal(ours, theirs)


def test_an_effect_happens_once_although_capture_starts_again():
    log = []

    def fn(x):
        log.append("before")
        y = x + 1
        print(y.shape)
        log.append("after")
        return y

    core.compile(fn, backend="eager")(X)
    assert log == ["before", "after"]


def test_a_list_kept_by_a_default_argument_grows():
    def fn(x, seen=[]):  # noqa: B006
        seen.append(len(seen))
        return x + len(seen)

    compiled = core.compile(fn, backend="eager")
    assert [compiled(X)[0, 0].item() for _ in range(3)] == [1.0, 2.0, 3.0]
    assert fn.__defaults__ == ([0, 1, 2],)
