"""Small functions to stop and resume: each returns something that depends on everything it did."""

from contextlib import contextmanager, suppress

LOG = []


def say(value):
    """Record that control came by; the record is compared too."""
    LOG.append(value)
    return value


class Tracked:
    """A context manager that records how it was left."""

    def __init__(self, name, swallow=False):
        self.name = name
        self.swallow = swallow

    def __enter__(self):
        say(("enter", self.name))
        return self.name

    def __exit__(self, kind, value, traceback):
        say(("exit", self.name, kind and kind.__name__, str(value)))
        return self.swallow


@contextmanager
def managed(name):
    say(("in", name))
    try:
        yield name
    finally:
        say(("out", name))


def straight(a=2, b=3):
    c = a * b + 1
    d = say(c) - a
    return (a, b, c, d)


def loop(items=(1, 2, 3, 4)):
    total = 0
    for x in items:
        if x == 3:
            continue
        total += say(x)
    else:
        total *= 10
    return total


def nested_loops(n=3):
    out = []
    for i in range(n):
        for j in "ab":
            if i == 1 and j == "b":
                break
            out.append((i, say(j)))
    return out


def while_loop(n=5):
    seen = []
    while n > 0 and len(seen) < 4:
        n -= 1
        if n == 2:
            continue
        seen.append(say(n))
    return seen, n


def keyword_calls(a=1):
    def take(*args, **kwargs):
        return args, sorted(kwargs.items())

    first = take(a, say(2), k=say(3), j=a)
    second = take(*[say(4), 5], **{"z": say(6)})
    return first, second, take(), take(q=1)


def method_calls(text="a,b,c"):
    parts = text.split(",")
    parts.append(say("d"))
    return "-".join(p.upper() for p in parts), text.replace("a", say("x")).count("x")


def with_block(name="w"):
    got = None
    with Tracked(name) as inner:
        got = say(inner * 2)
        more = got + "!"
    return got, more


def with_two(name="w"):
    with Tracked(name + "1") as one, managed(name + "2") as two:
        value = say(one + two)
    return value


def with_raising():
    with Tracked("swallow", swallow=True):
        say("before")
        raise ValueError("inside")
    return say("after")


def with_propagating():
    try:
        with Tracked("outer"):
            with Tracked("inner"):
                say(1)
                {}["missing"]
    except KeyError as error:
        return say(("caught", error.args))
    return "not reached"


def return_inside_with():
    for i in range(3):
        with Tracked(i):
            if i == 1:
                return say(i * 10)
    return None


def try_except(value="x"):
    result = []
    try:
        result.append(say(1))
        int(value)
        result.append("no")
    except (ValueError, TypeError) as error:
        result.append(type(error).__name__)
        result.append(say(str(error)))
    else:
        result.append("else")
    finally:
        result.append(say("finally"))
    return result


def try_no_error(value="7"):
    try:
        number = int(value)
    except ValueError:
        number = say(-1)
    else:
        number += say(1)
    finally:
        say("done")
    return number


def bare_reraise():
    try:
        try:
            raise KeyError(say("first"))
        except KeyError:
            say("handling")
            note = say("still")
            raise
    except KeyError as error:
        return note, error.args, error.__context__


def chained():
    try:
        try:
            raise KeyError("cause")
        except KeyError as error:
            say("in handler")
            raise ValueError(say("effect")) from error
    except ValueError as error:
        return type(error.__cause__).__name__, type(error.__context__).__name__, say(error.args)


def implicit_context():
    try:
        try:
            say(1 / 0)
        except ZeroDivisionError:
            say("in handler")
            say(1)
            {}[say("k")]
    except KeyError as error:
        context = error.__context__
        say(2)
        return type(context).__name__, context.args


def handler_in_handler():
    out = []
    try:
        raise ValueError("one")
    except ValueError as first:
        out.append(say(str(first)))
        try:
            raise KeyError("two")
        except KeyError as second:
            out.append(say(second.args))
            out.append(type(second.__context__).__name__)
        out.append(say("between"))
        try:
            raise
        except ValueError as again:
            out.append(again is first)
    out.append(say("end"))
    return out


def return_in_handler():
    for i in range(2):
        try:
            raise ValueError(i)
        except ValueError as error:
            say(i)
            if i:
                return say(error.args)
    return None


def return_through_finally():
    try:
        say("body")
        return say("value")
    finally:
        say("cleanup")


def raise_through_finally():
    try:
        try:
            raise ValueError(say("lost"))
        finally:
            say("cleanup")
            say("more")
    except ValueError as error:
        return say(str(error))


def finally_in_loop():
    out = []
    for i in range(4):
        try:
            if i == 1:
                continue
            if i == 3:
                break
            out.append(say(i))
        finally:
            out.append(("f", say(i)))
    return out


def exception_group():
    caught = []
    try:
        raise ExceptionGroup("g", [ValueError(1), TypeError(2), KeyError(3)])
    except* ValueError as group:
        caught.append(("v", len(group.exceptions)))
        say("v")
    except* (TypeError, KeyError) as group:
        caught.append(("tk", len(group.exceptions)))
        say("tk")
    return caught


def uncaught():
    with suppress(KeyError):
        say("one")
        raise KeyError("quiet")
    say("two")
    values = [1, 2]
    return values[say(5)]


def cells(n=3):
    total = 0

    def add(k):
        nonlocal total
        total += k
        return total

    first = add(n)
    second = add(say(10))
    total += 100
    return first, second, total, add(1)


def argument_cell(n=3, *rest, flag=True, **named):
    def get():
        return n, rest, flag, named

    before = get()
    n += say(1)
    rest = rest + (5,)
    return before, get()


def make_free():
    hidden = [1]
    other = "o"

    def free(a=1):
        nonlocal other
        hidden.append(say(a))
        other += "x"

        def inner():
            return hidden, other, a

        return inner(), say(len(hidden))

    return free


def comprehensions(items=(1, 2, 3), k=2):
    squares = [say(x) * x for x in items if x != k]
    table = {x: [y for y in range(x)] for x in squares}
    return squares, table, {say(x) % 2 for x in items}, sum(x for x in items)


def comprehension_shadows(items=(1, 2)):
    x = "outer"
    doubled = [say(x) * 2 for x in items]
    return x, doubled


def comprehension_shadows_cell(items=(1, 2)):
    x = "outer"

    def get():
        return x

    doubled = [say(x) * 2 for x in items]
    say(get())
    return x, doubled, get()


def comprehension_captures(items=(1, 2)):
    x = "outer"
    getters = [(lambda: x, say(x)) for x in items]  # noqa: B023
    say(x)
    return x, [(get(), value) for get, value in getters]


def comprehension_captures_cell(items=(1, 2)):
    x = "outer"

    def get():
        return x

    getters = [(lambda: x, say(x)) for x in items]  # noqa: B023
    nested = [[(say(x), y) for x in "ab"] for y in items]
    return x, get(), [(one(), value) for one, value in getters], nested


def comprehension_raises():
    x = "outer"
    try:
        values = [1 // say(x) for x in (1, 0, 2)]
    except ZeroDivisionError:
        say(x)
        values = None
    return x, values


def unset_local(flag=False):
    if flag:
        maybe = 1
    say("checked")
    try:
        return maybe
    except UnboundLocalError as error:
        return say(str(error)[:30])


def deleted_local():
    a = say(1)
    b = a + 1
    del a
    say(b)
    try:
        say(a)  # noqa: F821
    except UnboundLocalError:
        return b, "gone"


def sees_locals(a=1):
    b = a + 1
    say(b)
    c = 3
    return "a" in locals(), locals()["b"], "c" in locals(), c


def evaluates(a=1):
    b = a + 1
    say(b)
    return eval("a + b")


def matches(value=("p", 1, {"k": 2, "z": 3})):
    match value:
        case [first, int(number), {"k": key, **rest}] if say(key) == 2:
            out = (first, number, key, rest)
        case _:
            out = None
    return say(out)


def unpacking(pair=(1, (2, 3, 4))):
    a, (b, *rest) = pair
    a, b = say(b), a
    [c, d] = rest
    return a, b, c, d, rest


def formatted(a=1.5, b="t"):
    return f"{say(a):>6.2f}|{b!r}|{a}{say(b)!s:<4}"


def conditions(a=0, b="b", c=None):
    one = a or say(b) or c
    two = a and b
    three = b if c is None else a
    four = not a
    five = 1 < say(2) < 3
    six = 5 in [1, say(5)] and c is not None
    assert b, "never"
    return one, two, three, four, five, six


def slices(items=(0, 1, 2, 3, 4)):
    out = list(items)
    out[1 : say(3)] = "xy"
    out[-1] += say(10)
    del out[0]
    return out, items[say(1) : -1], items[::2]


def deep_stack(a=1):
    return [a, (say(a + 1), {a: [say(a + 2), -a], "k": (a, say(a + 3))}), say(a) + say(a) * say(a)]


def builds_class(base=object):
    marker = say("m")

    class Local(base):
        value = marker

        def get(self):
            return self.value, marker, __class__.__name__

    return Local().get(), say(Local.__name__)


class Base:
    def __init__(self, seed):
        self.seed = seed

    def step(self, k):
        return ("base", self.seed, k)


class Derived(Base):
    def __init__(self, seed=7):
        say("init")
        super().__init__(seed)
        self.more = say(1)

    def step(self, k=2):
        k += say(1)
        got = super().step(k)
        proxy = super()
        say("mid")
        return got, proxy.step(say(k))

    def celled(self, k=2):
        say(k)
        again = lambda: self.seed  # noqa: E731
        return super().step(again()), say(again())


def method(k=4):
    return Derived.step(Derived(), k)


SUBJECTS = [
    value
    for name, value in list(globals().items())
    if callable(value) and getattr(value, "__module__", None) == __name__ and not isinstance(value, type)
    if name not in ("say", "managed", "make_free")
]
SUBJECTS.append(make_free)


def calls():
    """(name, code owner, call) of each subject: `owner` is the function whose code is stopped."""
    for function in SUBJECTS:
        if function is make_free:
            yield "make_free.free", lambda: make_free(), lambda f: f()
        else:
            yield function.__name__, (lambda function=function: function), lambda f: f()
    for name in ("__init__", "step", "celled"):
        yield (
            f"Derived.{name}",
            (lambda name=name: Derived.__dict__[name]),
            (lambda f: (lambda self: (f(self), sorted(self.__dict__)))(Derived())),
        )
