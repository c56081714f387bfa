"""Literals that the traced code hands on without a look at them: one entry serves all their values."""

from __future__ import annotations

import dataclasses
import enum
import itertools
import operator

import pytest
import torch

import core

X = torch.arange(6.0).reshape(2, 3)


class Phase(enum.Enum):
    WARM = 1
    COLD = 2
    DONE = 3


@dataclasses.dataclass
class Note:
    value: object
    count: int = 0


VALUES = {
    "str": ["a", "b", "c"],
    "bytes": [b"a", b"b", b"c"],
    "int": [3, 700, -1],
    "float": [0.5, 2.5, float("nan")],
    "bool": [True, False, True],
    "complex": [1j, 2j, 3j],
    "enum": list(Phase),
    "dtype": [torch.float32, torch.int8, torch.bool],
}


def run(produce, use, values, turns=4):
    """Eager and compiled, `turns` calls: what is kept and returned agrees; the totals of core.stats()."""
    kept = []
    for compiled in (False, True):
        given = itertools.cycle(values)
        host = core.disable(lambda x: produce(next(given), x))  # noqa: B023  used before the next turn
        out = []

        def fn(x):
            y = x + 1
            return use(out, y, host(y)), y * 2  # noqa: B023  likewise

        core.reset()
        fast = core.compile(fn, backend="eager") if compiled else fn
        kept.append([[str(fast(X)[0]) for _ in range(turns)], [str(item) for item in out]])
    assert kept[0] == kept[1]
    return core.stats()


def append(out, y, value):
    out.append(value)


def give_back(out, y, value):
    return {"value": value, "pair": (value, 1)}


def set_attribute(out, y, value):
    note = Note(value)
    note.count = 2
    out.append(note)


def pass_by_keyword(out, y, value):
    def inner(first, *, other=None, **more):
        return [first, other, more]

    return inner(value, other=value, third=value)


def keep_in_a_cell(out, y, value):
    out.extend(map(lambda n: (n, value), range(2)))


def ask_for_its_type(out, y, value):
    if value is not None and isinstance(value, (str, bytes, int, float, complex, Phase, torch.dtype)):
        out.append(type(value) is int)


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize(
    "use",
    [append, give_back, set_attribute, pass_by_keyword, keep_in_a_cell, ask_for_its_type],
    ids=lambda f: f.__name__,
)
def test_a_value_that_is_only_handed_on_is_guarded_by_type(use, values):
    stats = run(lambda value, x: value, use, values)
    assert (stats["breaks"], stats["graphs"], stats["recompiles"]) == (1, 2, 0)


@pytest.mark.parametrize(
    "use",
    [
        lambda out, y, v: out.append(f"value {v}, {v!r:>9}"),
        lambda out, y, v: out.append("value " + str(v) + "."),
        lambda out, y, v: out.append("%s, %s" % ("value", v)),  # noqa: UP031
        lambda out, y, v: out.append("%s" % v),  # noqa: UP031
        lambda out, y, v: out.append("{} {:>5}".format("value", v)),  # noqa: UP032
        lambda out, y, v: repr(v),
    ],
    ids=["f_string", "sum", "percent", "percent_of_one", "format", "repr"],
)
@pytest.mark.parametrize("values", [VALUES["str"], VALUES["int"], VALUES["float"]], ids=["str", "int", "float"])
def test_a_text_made_of_a_value_is_made_when_the_code_runs(use, values):
    stats = run(lambda value, x: value, use, values)
    assert (stats["breaks"], stats["graphs"], stats["recompiles"]) == (1, 2, 0)


@pytest.mark.parametrize(
    "use",
    [
        lambda out, y, v: out.append(v == "b"),
        lambda out, y, v: out.append({"a": 1, "b": 2, "c": 3}[v]),
        lambda out, y, v: out.append(len(f"{v}{v}")),
        lambda out, y, v: out.append(f"{v}".upper()),
        lambda out, y, v: out.append(v is "a" if False else v[0]),  # noqa: F632
    ],
    ids=["comparison", "key", "length_of_a_text", "method_of_a_text", "item"],
)
def test_a_value_that_is_read_is_part_of_the_entry(use):
    stats = run(lambda value, x: value, use, VALUES["str"])
    assert (stats["breaks"], stats["recompiles"]) == (1, 2)


def test_a_format_that_does_not_fit_raises_where_eager_does():
    def use(out, y, value):
        try:
            out.append(f"{value:.2f}")
        except ValueError as error:
            out.append(str(error))
        try:
            out.append(f"{value:c}")
        except (ValueError, OverflowError) as error:
            out.append(str(error))

    run(lambda value, x: value, use, VALUES["str"])
    run(lambda value, x: value, use, [65, 1 << 40, 66])


def test_a_number_that_is_used_after_it_was_handed_on_becomes_symbolic():
    def use(out, y, value):
        out.append(value)
        return y * value

    stats = run(lambda value, x: value, use, [2, 3, 4, 5])
    assert (stats["breaks"], stats["recompiles"]) == (1, 1)


def test_a_number_that_the_data_gave_is_kept_and_logged_on_each_turn_of_a_loop():
    lines = []
    log = core.disable(lines.append)

    def train(weight, batches):
        total = 0.0
        for step, batch in enumerate(batches):
            loss = (batch @ weight).sum().item()
            log(f"step {step}: loss {loss:.3f}")
            total = loss
        return total

    batches = [torch.full((2, 3), float(i)) for i in range(6)]
    core.reset()
    fast = core.compile(train, backend="eager")
    assert fast(torch.ones(3), batches) == train(torch.ones(3), batches)
    assert lines[:6] == lines[6:]
    stats = core.stats()
    assert (stats["breaks"], stats["recompiles"]) == (3, 1)  # the last turn sees the loop's end


@pytest.mark.parametrize("attribute", ["mode", "epsilon"])
def test_a_value_is_taken_before_what_holds_it_changes(attribute):
    class Holder:
        def __init__(self):
            self.mode, self.epsilon = "slow", 0.25

    def fn(x, holder):
        before = getattr(holder, attribute)
        setattr(holder, attribute, None)
        return x + 1, before

    core.reset()
    fast = core.compile(fn, backend="eager")
    for value in ("first", "second"):
        holder = Holder()
        setattr(holder, attribute, value)
        assert fast(X, holder)[1] == value
        assert getattr(holder, attribute) is None
    assert core.stats()["recompiles"] == 0


def test_two_values_are_compared_by_their_values():
    fast = core.compile(lambda x, a, b: (x + 1, operator.eq(a, b)), backend="eager")
    core.reset()
    assert [fast(X, *pair)[1] for pair in (("a", "a"), ("a", "b"), ("b", "b"))] == [True, False, True]
