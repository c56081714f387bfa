"""What Python's own classes and functions do in their less usual forms, compared with eager by text."""
# ruff: noqa: UP031

import collections
import enum
import itertools
import math
import random
import string
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


def causes_of_what_a_generator_lets_out():
    def stops():
        yield next(iter(()))

    try:
        next(stops())
    except RuntimeError as error:
        return type(error.__cause__), type(error.__context__), error.__suppress_context__


class Mode(str, enum.Enum):  # noqa: UP042
    FAST = "fast"
    SLOW = "slow"


class Worded(enum.StrEnum):
    june = enum.auto()


def members_by_name():
    class Made(enum.StrEnum):
        a = enum.auto()

    inside = Mode.FAST in Mode, Worded.june in Mode, error_of(lambda: 3 in Mode)
    return inside, Mode["FAST"], Mode["SLOW"].value, Worded["june"], Made["a"].value, error_of(lambda: Mode["none"])


def formats_of_the_class():
    class Formatted:
        def __format__(self, spec):
            return "<" + spec + ">"

    class Wrong:
        def __format__(self, spec):
            return 1.0

    return f"{Formatted()} {Formatted():x}", error_of(format, Wrong()), error_of(lambda: f"{Wrong()}")


def texts_with_addresses():
    one, two = Plain(), Plain()
    texts = ["%r, %s" % (one, 1), f"{one!r}: {two} {3}", "<" + repr(one) + ">", "%s" % one, "%s%%%s" % (one, 2)]
    equal = [repr(one) == repr(one), repr(one) == repr(two), str(id(one)) == str(id(two)), repr(one) == 5]
    return len(texts), equal, str(id(one)) == str(id(one))


def objects_that_pass_for_others():
    proxy = Proxy(Plain())
    return isinstance(proxy, Plain), isinstance(proxy, Proxy), isinstance(proxy, int), Plain().__weakref__


def error_of(call, *args, **kwargs):
    try:
        return call(*args, **kwargs)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


class Point:
    __match_args__ = ("x", "y")

    def __init__(self, x, y):
        self.x, self.y = x, y


class Nothing:
    __match_args__ = ()


class Failing:
    __match_args__ = ("x",)

    @property
    def x(self):
        raise ValueError("no x")


class Listed:
    __match_args__ = ["x"]  # noqa: RUF012


class Numbered:
    __match_args__ = (1,)


def classes_in_patterns():
    def kind(value):
        match value:
            case Point(1, y):
                return "first", y
            case Point(x=5):
                return "second"
            case Doubled(z) | str(z):
                return "itself", z
            case list([a, *_]):
                return a
        return None

    def one(value, cls):
        match value:
            case cls(_):
                return True

    def two(value):
        match value:
            case int(_, _):
                return True

    def repeated(value):
        match value:
            case Point(1, x=1):
                return True

    found = [kind(value) for value in (Point(1, 2), Point(5, 1), Doubled(3), "a", [4, 5], 2.0)]
    wrong = [error_of(one, cls(), cls) for cls in (Nothing, Failing, Listed, Numbered)]
    return found, wrong, error_of(one, 1, 5), error_of(two, 3), error_of(repeated, Point(1, 2))


def arguments_that_object_refuses():
    class Bare:
        pass

    class Both:
        def __new__(cls, *args, **kwargs):
            return super().__new__(cls, *args, **kwargs)

        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)

    class Own:
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)

    made = [error_of(call, 42) for call in (Bare, lambda x: Bare.__new__(Bare, x), lambda x: Bare().__init__(x))]
    made += [
        error_of(call, 42) for call in (Both, lambda x: Both.__new__(Both, x), Own, lambda x: object.__init__(Own(), x))
    ]
    return made, type(Both()) is Both, type(Own()) is Own


def classes_over_lists():
    class Named(list):
        def __new__(cls, items, name=None):
            made = super().__new__(cls, items)
            made.name = name
            return made

    class Plain(list):
        pass

    named, again = Named([1, 2], name=3), Plain([1])
    again.__init__([5, 6])
    return list(named), named.name, list(again), error_of(lambda: Plain(items=())), error_of(lambda: Plain(1, 2))


def protocols_in_part():
    class Entered:
        def __enter__(self):
            pass

    class Real:
        def __float__(self):
            return 41.5

    class At(string.Template):
        delimiter = "@"

    def entering(value):
        with value:
            pass

    rounded = [error_of(function, Real()) for function in (math.floor, math.ceil, math.trunc)]
    return error_of(entering, Entered()), rounded, error_of(format, object(), 4), At("a @b").substitute(b=3)


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
        classes_in_patterns,
        arguments_that_object_refuses,
        classes_over_lists,
        protocols_in_part,
        flags_by_number,
        texts_with_addresses,
        members_by_name,
        formats_of_the_class,
        objects_that_pass_for_others,
        lambda: list(Keeping.fromkeys("ab", value=0).items()),
        lambda: (type(Keeping().fromkeys("ab")), type(collections.OrderedDict().fromkeys("ab"))),
        causes_of_what_a_generator_lets_out,
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


def test_a_generator_of_random_numbers_with_methods_of_its_own():
    def generators():
        drawing, saving = random.Random(1), random.Random(2)
        draw, save = drawing.random, saving.getstate
        drawing.random, saving.getstate = lambda: draw() + 1, lambda: save()
        return drawing, saving

    def program(x, drawing, saving):
        first, other = drawing.random(), random.Random()
        other.setstate(saving.getstate())
        return x + first + other.random()

    assert torch.equal(core.compile(program, backend="eager")(X, *generators()), program(X, *generators()))
    fast = core.compile(lambda x, made: x + made.random(), backend="eager")
    made = random.Random(3)
    fast(X, made)
    made.random = lambda: 7.0
    assert torch.equal(fast(X, made), X + 7.0)
