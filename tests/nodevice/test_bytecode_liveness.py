"""Which variables are live where, and what code returns. Plain functions: every supported Python runs them."""

from core.bytecode.decode import decode, returns_none
from core.bytecode.liveness import liveness
from core.bytecode.stack import stack_shapes


def mark():
    """Calls of this name are the places looked at."""


def at_marks(function):
    """(live locals, live cells) before each load of `mark`."""
    code = function.__code__
    live = liveness(code)
    places = [i for i in decode(code) if i.opname == "LOAD_GLOBAL" and i.argval == "mark"]
    return [(set(live.locals_at(i)), set(live.cells_at(i))) for i in places]


def test_a_local_lives_from_its_store_to_its_last_read():
    def f(a, b):
        mark()
        c = a
        mark()
        b = 2
        return b + c

    assert at_marks(f) == [({"a"}, set()), ({"c"}, set())]


def test_a_loop_keeps_what_the_next_round_reads():
    def f(items):
        total = last = 0
        for x in items:
            mark()
            total += x
            last = x
        return total, last

    assert at_marks(f) == [({"total", "x"}, set())]


def test_a_handler_keeps_what_it_reads():
    def f(a, b):
        try:
            mark()
            b = 1
        except ValueError:
            return a, b
        mark()
        return b

    assert at_marks(f) == [({"a", "b"}, set()), ({"b"}, set())]


def test_both_branches_count():
    def f(a, b, c):
        mark()
        if a:
            return b
        return c

    assert at_marks(f) == [({"a", "b", "c"}, set())]


def test_cells_live_while_their_closures_or_contents_are_used():
    def f(a, b):
        mark()
        get = lambda: a  # noqa: E731
        mark()
        b = get()
        mark()
        return b

    assert at_marks(f) == [(set(), {"a"}), ({"get"}, set()), ({"b"}, set())]


def test_a_deleted_local_is_live_until_it_is_deleted():
    def f(a):
        mark()
        del a
        mark()

    assert at_marks(f) == [({"a"}, set()), (set(), set())]


def test_code_that_reads_its_frame_keeps_every_local():
    def f(a, b):
        c = 1
        mark()
        return locals()

    assert at_marks(f)[0][0] >= {"a", "b", "c"}


def test_super_keeps_the_first_argument():
    class Child(dict):
        def get(self, key):
            mark()
            return super().get(key)

    assert at_marks(Child.get) == [({"self", "key"}, {"__class__"})]


def test_the_variable_of_a_comprehension_is_not_live_outside():
    def f(items):
        x = 1
        mark()
        return [x for x in items], x

    assert at_marks(f) == [({"items", "x"}, set())]


def test_shapes_know_depth_and_running_handlers():
    def f(items):
        for x in items:
            try:
                g(x)
            except ValueError:
                mark()

    decoded = decode(f.__code__)
    shapes = dict(zip((i.argval for i in decoded), stack_shapes(decoded)))
    assert (shapes["g"].depth, shapes["g"].handled) == (1, ())
    assert (shapes["mark"].depth, shapes["mark"].handled) == (2, (1,))


def test_code_that_returns_none_whatever_happens_is_known():
    def ends(items):
        if not items:
            return
        for item in items:
            try:
                g(item)
            except ValueError:
                return None

    def raises():
        raise ValueError

    def either(x):
        return None if x else 5

    def joined(x):
        return x or None

    def sometimes(x):
        if x:
            return x

    def generator():
        yield

    assert [returns_none(f.__code__) for f in (ends, raises)] == [True, True]
    assert not any(returns_none(f.__code__) for f in (either, joined, sometimes, generator))


def g(x):
    """Called by a function under test."""
