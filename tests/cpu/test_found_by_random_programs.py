"""Kinds of differences that random programs found, each in its smallest form."""

from __future__ import annotations

import collections
import copy
import gc

import pytest
import torch
from agreement import agree, outcome
from compare import same

import core

LOG: list = []
STACK: list = []
TABLE: dict = {}


@core.disable
def plain():
    """Breaks the graph."""


class Counted(dict):
    def __missing__(self, key):
        LOG.append(key)
        return len(key)


class Kept(Counted):
    def __missing__(self, key):
        self[key] = value = super().__missing__(key)
        return value


class Wrapped(dict):
    def __getitem__(self, key):
        return super().__getitem__(key) + 1

    def __missing__(self, key):
        return 10


class Defaults(collections.defaultdict):
    pass


class Totals(collections.Counter):
    def __missing__(self, key):
        return 5


def follows(fn, calls, state=(), **options):
    """Call the function and its compiled twin in turn; results, exceptions, the log and state must agree each time.

    state: containers that calls change; each side has its own contents.
    """
    gc.collect()  # what a test before has left behind writes to the log when it goes
    compiled = core.compile(fn, backend="eager", **options)
    held = {"ours": [[] if isinstance(s, list) else {} for s in (LOG, *state)]}
    held["theirs"] = [type(s)() for s in held["ours"]]
    for args in calls:
        seen = {}
        for side, subject in (("theirs", fn), ("ours", compiled)):
            for place, contents in zip((LOG, *state), held[side]):
                _fill(place, contents)
            kind, value, text = outcome(subject, copy.deepcopy(args))
            held[side] = [place.copy() for place in (LOG, *state)]
            seen[side] = (kind, (type(value), str(value)) if kind == "raised" else value, text, *held[side])
        assert same(seen["ours"], seen["theirs"]), args
    for place in (LOG, *state):
        place.clear()
    return core.stats()


def _fill(place, contents):
    place.clear()
    place.extend(contents) if isinstance(place, list) else place.update(contents)


@pytest.mark.parametrize("make", [Counted, Kept, Wrapped, Totals])
def test_subclasses_of_dict_are_asked_for_missing_keys(make):
    def fn(x, key):
        made = make()
        found = [key in made, made.get(key), made[key], key in made]
        try:
            found.append(dict.__getitem__(made, key))
        except KeyError as error:
            found.append(str(error))
        return x + 1, found, made

    stats = follows(fn, [(torch.ones(2), "abc"), (torch.ones(2), "abc"), (torch.ones(2), "z")])
    assert (stats["graphs"], stats["breaks"]) == (2, 0)


@pytest.mark.parametrize("make", [Counted, Kept, Wrapped, Totals])
def test_missing_keys_of_a_dict_from_outside(make):
    def fn(x, table, key):
        return x * 2, table[key], list(table)

    stats = agree(fn, torch.ones(2), make(), "ab")
    assert (stats["graphs"], stats["breaks"]) == (1, 0)
    stats = agree(fn, torch.ones(2), make(ab=3), "ab")
    assert (stats["graphs"], stats["breaks"]) == (1, 0)


def test_subclasses_of_defaultdict_make_missing_items():
    def fn(x, table, key):
        return x * 2, table[key], list(table)

    assert agree(fn, torch.ones(2), Defaults(int), "ab")["graphs"] == 1


def test_a_missing_key_without_a_special_method_raises_as_before():
    def fn(x, key):
        try:
            return x, Defaults(None)[key], dict()[key]
        except KeyError as error:
            return x + 1, str(error)

    agree(fn, torch.ones(2), "k")


def test_the_text_of_an_exception_from_a_frame_before_is_guarded():
    def fn(x, index):
        for _ in range(2):
            try:
                STACK.pop(index)
            except IndexError as error:
                LOG.append(str(error))
                raise

    LOG.clear()
    texts = []
    compiled = core.compile(fn, backend="eager")
    for contents in ([], [1], [], [1]):
        STACK[:] = contents
        with pytest.raises(IndexError) as raised:
            compiled(torch.ones(2), 3)
        texts.append((str(raised.value), LOG[-1]))
    assert texts == [("pop from empty list",) * 2, ("pop index out of range",) * 2] * 2
    STACK.clear()
    LOG.clear()


def test_numbers_decided_upon_before_a_break_are_guarded():
    def fn(x, number):
        text = f"{number:>4}"
        known = len(text.strip())
        plain()
        return text, known, x + 1

    stats = follows(fn, [(torch.ones(2), number) for number in (3, 3, 0, 4, 0, 3)])
    assert (stats["breaks"], stats["recompiles"]) == (3, 2)  # 3, 0 and 4; behind the break nobody looks at the text


def test_sizes_decided_upon_before_a_break_are_guarded():
    def fn(x):
        large = x.shape[0] > 3
        plain()
        return x + 1 if large else x - 1

    follows(fn, [(torch.ones(size),) for size in (2, 3, 4, 5, 2, 3)])


def test_a_number_that_decides_for_no_graph_is_guarded():
    def fn(x, number):
        return x * 2 if number > 4 else x

    stats = follows(fn, [(torch.ones(2), number) for number in (1, 2, 3, 10, 11, 2)])
    assert (stats["graphs"], stats["breaks"], stats["frames"]) == (2, 0, 3)  # 1; up to 4; above 4


def test_bits_that_two_negative_numbers_share():
    def fn(x, a, b):
        return x + 1, min(-1, a & a), (a & b) < -1, a & 5, min(-2, a & -5)

    numbers = [(1, 2), (3, 5), (-3, 4), (-3, -4), (4, -7), (-8, -1)]
    stats = follows(fn, [(torch.ones(2), *pair) for pair in numbers])
    assert stats["breaks"] == 0


DIVISIONS = [
    lambda a, b: 7 // b,
    lambda a, b: a % b,
    lambda a, b: a / b,
    lambda a, b: divmod(a, b),
    lambda a, b: divmod(a / 2, b),
    lambda a, b: 2.0 % b,
    lambda a, b: a << b,
    lambda a, b: a >> b,
    lambda a, b: a**b,
    lambda a, b: a // (b > 0),
    lambda a, b: (a > 0) / b,
    lambda a, b: ~a + b,
]


@pytest.mark.parametrize("divide", DIVISIONS)
def test_operators_on_changing_numbers_raise_where_they_stand(divide):
    def fn(x, a, b):
        LOG.append(a)
        try:
            result = divide(a, b)
        except (ZeroDivisionError, ValueError) as error:
            LOG.append(str(error))
            return x - 1
        LOG.append(b)
        return x + 1, result

    numbers = [(1, 2), (3, 5), (4, 0), (-3, -4), (0, 3), (5, 0), (7, 2)]
    stats = follows(fn, [(torch.ones(2), *pair) for pair in numbers], dynamic=True)
    assert stats["breaks"] == 0


def test_a_division_by_zero_that_is_not_handled_names_its_line():
    def fn(x, a, b):
        LOG.append(a)
        a // b
        LOG.append(b)
        return x

    compiled = core.compile(fn, backend="eager", dynamic=True)
    compiled(torch.ones(2), 1, 2)
    with pytest.raises(ZeroDivisionError) as raised:
        compiled(torch.ones(2), 3, 0)
    assert LOG == [1, 2, 3]
    LOG.clear()
    lines = [entry.lineno for entry in raised.traceback if entry.frame.code.raw.co_filename == __file__]
    assert lines[-1] + 1 == fn.__code__.co_firstlineno + 2


def waits(number):
    try:
        yield number
    finally:
        LOG.append(number)


class Final:
    def __del__(self):
        LOG.append("gone")


def test_a_generator_that_a_loop_leaves_by_an_exception_ends_then():
    def fn(x):
        for number in waits(3):
            plain()
            x = x + number
            x.missing  # noqa: B018

    follows(fn, [(torch.ones(2),)] * 3)


def test_a_generator_that_a_loop_leaves_ends_before_the_handler():
    def fn(x):
        try:
            for _ in waits(3):
                plain()
                x.missing  # noqa: B018
        except AttributeError:
            LOG.append("handled")
        LOG.append("end")
        return x + 1

    assert follows(fn, [(torch.ones(2),)] * 3)["graphs"] == 1


def test_a_generator_in_a_variable_lives_until_the_frame_ends():
    def fn(x):
        held = waits(3)
        next(held)
        LOG.append("a")
        plain()
        LOG.append("b")
        return x + 1

    assert follows(fn, [(torch.ones(2),)] * 3)["graphs"] == 1


def test_generators_of_nested_loops_end_where_each_loop_does():
    def fn(x):
        for a in waits(2):
            for b in waits(a):
                plain()
                x = x + 1
                if b > 1:
                    break
            LOG.append("between")
        return x

    assert follows(fn, [(torch.ones(2),)] * 3)["graphs"] == 1


def test_a_generator_that_loses_its_name_ends_then():
    def fn(x):
        held = waits(3)
        next(held)
        plain()
        x = x + 1
        held = None
        LOG.append("then")
        del held
        return x

    follows(fn, [(torch.ones(2),)] * 3)


def test_objects_with_a_finaliser_go_when_they_would():
    def fn(x, again):
        held = Final()
        x = x + 1
        plain()
        LOG.append("a")
        if again:
            held = Final()
            LOG.append("b")
        plain()
        LOG.append(held is None)
        return x * 2

    assert follows(fn, [(torch.ones(2), again) for again in (False, False, True, True)])["graphs"] >= 2


def test_what_a_program_raises_keeps_no_object_of_it():
    def fn(x, make):
        held = make()
        plain()
        x.missing  # noqa: B018
        return held

    follows(fn, [(torch.ones(2), Final)] * 2)


def test_deleting_a_variable_that_is_not_set_says_what_python_says():
    def fn(x):
        if x is None:
            gone = 1
        try:
            del gone
        except UnboundLocalError as error:
            return x + 1, str(error)

    assert agree(fn, torch.ones(2))["graphs"] == 1


def lost(view):
    """Whether autograd has lost the history of a view."""
    try:
        view.grad_fn  # noqa: B018
    except RuntimeError:
        return True
    return False


def test_views_of_several_whose_base_is_written_to_are_returned():
    def fn(x):
        first, *rest = x
        with torch.no_grad():
            x += 0.5
        return first, rest, x

    compiled = core.compile(fn, backend="eager")
    for _ in range(2):
        ours = compiled(torch.ones(3, 2, requires_grad=True))
        theirs = fn(torch.ones(3, 2, requires_grad=True))
        for got, want in zip((ours[0], *ours[1]), (theirs[0], *theirs[1])):
            assert torch.equal(got.detach(), want.detach()) and lost(got) and lost(want)
        assert same(ours[2], theirs[2])
    assert (core.stats()["graphs"], core.stats()["breaks"]) == (1, 0)


def test_views_that_have_lost_their_history_come_in_and_raise_what_eager_raises():
    def fn(x, parts):
        kept = list(parts)
        try:
            return kept[0] * 2
        except RuntimeError as error:
            return str(error), x + 1

    base = torch.ones(3, 2, requires_grad=True)
    parts = base.unbind()
    with torch.no_grad():
        base.mul_(2)
    compiled = core.compile(fn, backend="eager")
    for _ in range(2):
        assert same(compiled(torch.ones(2), parts), fn(torch.ones(2), parts))


@pytest.mark.parametrize(
    "write",
    [
        lambda y: torch.mul(y.t(), 2, out=y),
        lambda y: y.mul_(y.t()),
        lambda y: y[1:].add_(y[:-1]),
        lambda y: y[:2].copy_(y[1:3]),
    ],
)
def test_writes_to_memory_that_is_read_in_another_order_raise_in_their_place(write):
    def fn(y):
        LOG.append(1)
        try:
            write(y)
        except RuntimeError as error:
            LOG.append(str(error))
            return y + 1
        LOG.append(2)
        return y + 2

    stats = follows(fn, [(torch.ones(4, 4),) for _ in range(3)])
    assert (stats["graphs"], stats["breaks"]) == (1, 0)


def test_writes_to_other_parts_of_memory_are_one_graph():
    def fn(y):
        y[:2].add_(y[2:])
        y.mul_(y)
        return y + 1

    stats = agree(fn, torch.ones(4, 4))
    assert (stats["graphs"], stats["breaks"]) == (1, 0)


def test_a_view_of_a_leaf_beside_it_is_written_to_as_in_eager():
    def fn(x, y):
        with torch.no_grad():
            torch.mul(x + y.numel(), 2, out=x)
        x[0] = 3

    compiled = core.compile(fn, backend="eager")
    for _ in range(2):
        words = []
        for subject in (fn, compiled):
            x = torch.ones(3, requires_grad=True)
            with pytest.raises(RuntimeError) as raised:
                subject(x, x[None])
            words.append((str(raised.value), x.detach().tolist()))
        assert words[0] == words[1]


class Grown:
    def __init__(self):
        self.weight = 0

    def grow(self, x, scale):
        self.weight += 1
        return x * self.weight * scale


@pytest.mark.parametrize("trained", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_number_that_grows_reaches_the_backend_with_what_it_is_made_of(backend, trained):
    def run(fn, grown):
        found = []
        for _ in range(4):
            x, scale = torch.arange(3.0, requires_grad=trained), torch.full((3,), 2.0, requires_grad=trained)
            y = fn(grown, x, scale)
            if trained:
                y.sum().backward()
                found += [x.grad, scale.grad]
            found += [y.detach(), grown.weight]
        return found

    core.reset()
    ours = run(core.compile(Grown.grow, backend=backend, fullgraph=True), Grown())
    assert same(ours, run(Grown.grow, Grown()))
    assert core.stats()["graphs"] == 2


def leaves_no_grad_behind_a_break(x):
    with torch.no_grad():
        y = x * 2
        print(end="")
        y = y + x
    return x * y, y


def leaves_it_and_returns_views(x):
    with torch.no_grad():
        print(end="")
        before = x * 2
    z = x * 3
    return x.view(-1), z, z[1:], before, before[1:]


def leaves_it_having_written(x):
    total = x * 2
    with torch.no_grad():
        print(end="")
        total.mul_(2)
    return total * x, total


@pytest.mark.parametrize("fn", [leaves_no_grad_behind_a_break, leaves_it_and_returns_views, leaves_it_having_written])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_gradients_that_the_graph_itself_turns_on(fn, backend):
    def run(subject):
        found = []
        for _ in range(2):
            x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
            made = subject(x)
            carrying = [t for t in made if t.requires_grad]
            sum((i + 1) * t.sum() for i, t in enumerate(carrying)).backward()
            found.append([x.grad, torch.is_grad_enabled(), *((t.requires_grad, t.detach()) for t in made)])
        return found

    core.reset()
    assert same(run(core.compile(fn, backend=backend)), run(fn))
    assert core.stats()["breaks"] == 1


def test_sizes_of_what_an_input_is_a_view_of_are_left_to_aot_autograd(monkeypatch):
    def fn(x, y):
        x -= y
        x[:, 1] = 1.5
        x -= y
        return x.shape[0] - 4

    def call(subject, size):
        x = torch.cat([torch.ones(size, 4), torch.zeros(size, 4)])[:size]
        y = torch.full((size, 4), 2.0, requires_grad=True)
        found = subject(x, y)
        x.sum().backward()
        return found, x.detach(), y.grad

    def run(strict):
        core.reset()
        monkeypatch.setenv("CORE_STRICT", strict)
        compiled = core.compile(fn, backend="aot_eager", dynamic=True)
        for size in (3, 5, 4):
            assert same(call(compiled, size), call(fn, size))

    run("0")
    assert core.stats()["breaks"] == 0
    with pytest.raises(core.errors.RecorderRefused, match="is a view of"):
        run("1")
