"""What Python's own classes and functions do in their less usual forms, compared with eager by text."""
# ruff: noqa: UP031

import collections
import enum
import itertools
import typing

import pytest
import torch

import core

X = torch.ones(2)
FORMS = {
    text: eval(text, {**vars(typing)})
    for text in ("int | str", "Union[int, str]", "Optional[int]", "int | Mapping", "List", "List[int]")
}


def outcome(function):
    """The text of what a function gives or raises."""
    try:
        return repr(function())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def agrees(function):
    """Whether the function gives in one graph, beside an operation of tensors, what it gives in Python."""

    def program(x):
        return outcome(function), x + 1

    return core.compile(program, backend="eager", fullgraph=True)(X)[0] == outcome(function)


class Keeping(collections.OrderedDict):
    made = 0

    def __init__(self, *args):
        type(self).made += 1
        super().__init__(*args)


class Doubled(int):
    def __new__(cls, value=0):
        return super().__new__(cls, 2 * value)


def calls_of_what_is_no_function():
    texts = []
    for value in ([1], {}, (x for x in "a"), {2}, slice(3)):
        try:
            value("a")
        except TypeError as error:
            texts.append(str(error))
    return texts


def typing_forms_in_isinstance():
    written = "int | str", "Union[int, str]", "Optional[int]", "int | Mapping", "List"
    forms = [FORMS[text] for text in written]
    found = [(isinstance(value, form), issubclass(type(value), form)) for form in forms for value in (1, {}, None, [])]
    for form in (list[int], FORMS["List[int]"], 5):
        try:
            isinstance([], form)
        except TypeError as error:
            found.append(str(error))
    return found


def pairs_of_an_iterator_that_asks_for_pairs():
    class Source:
        count = 0

        def __iter__(self):
            return self

        def __next__(self):
            self.count += 1
            return next(pairs) if self.count in asks else [self.count]

    found = []
    for asks in ({1}, {2}, {3}, {1, 2}, {2, 3}):  # noqa: B007
        pairs = itertools.pairwise(Source())
        found.append([next(pairs), next(pairs)])
    return found


def members_of_lists():
    class Counted(enum.Enum):
        def __new__(cls):
            made = object.__new__(cls)
            made._value_ = [len(cls.__members__) + 1]
            return made

        red = ()
        green = ()

    class Plain(enum.Enum):
        red = [1]
        green = [2]
        again = [1]

    names = [(member.name, member.value) for cls in (Counted, Plain) for member in cls]
    return names, Counted([2]) is Counted.green, Plain.again is Plain.red


class Plain:
    pass


class Proxy:
    def __init__(self, target):
        self._target = target

    def __getattribute__(self, name):
        target = object.__getattribute__(self, "_target")
        return target if name == "_target" else getattr(target, name)


def texts_with_addresses():
    one, two = Plain(), Plain()
    texts = ["%r, %s" % (one, 1), f"{one!r}: {two} {3}", "<" + repr(one) + ">", "%s" % one, "%s%%%s" % (one, 2)]
    equal = [repr(one) == repr(one), repr(one) == repr(two), str(id(one)) == str(id(two)), repr(one) == 5]
    return len(texts), equal, str(id(one)) == str(id(one))


def objects_that_pass_for_others():
    proxy = Proxy(Plain())
    return isinstance(proxy, Plain), isinstance(proxy, Proxy), isinstance(proxy, int), Plain().__weakref__


def flags_by_number():
    class Kept(enum.Flag, boundary=enum.CONFORM):
        one = 1
        two = 2
        eight = 8

    class Number(enum.IntFlag):
        one = 1
        two = 2

    return Kept(7) is Kept.one | Kept.two, Kept(~9) is Kept.two, Number(3) is Number.one | Number.two, str(Number(3))


@pytest.mark.parametrize(
    "function",
    [
        calls_of_what_is_no_function,
        typing_forms_in_isinstance,
        pairs_of_an_iterator_that_asks_for_pairs,
        members_of_lists,
        flags_by_number,
        texts_with_addresses,
        objects_that_pass_for_others,
        lambda: list(Keeping.fromkeys("ab", value=0).items()),
        lambda: Doubled.from_bytes(b"\x02"),
    ],
)
def test_as_in_python(function):
    assert agrees(function)


def test_a_class_over_a_dict_is_made_in_each_call_of_fromkeys():
    fast = core.compile(lambda x: (Keeping.fromkeys("ab", 1), x + 1), backend="eager", fullgraph=True)
    fast(X)
    before = Keeping.made
    first, second = fast(X)[0], fast(X)[0]
    assert Keeping.made == before + 2
    assert first is not second and type(first) is Keeping and first == {"a": 1, "b": 1}


def test_texts_with_addresses_are_made_when_the_object_is_there():
    held = Plain()

    def program(x):
        return "%r has %s and %s" % (held, "b", 5), f"{held!r} is {held}", "<" + repr(held) + ">", "%s" % held, x + 1

    assert core.compile(program, backend="eager", fullgraph=True)(X)[:4] == program(X)[:4]
