"""What the bytecode of a tensor class tells of it: what it writes to from outside, and what it reads."""

from __future__ import annotations

import collections
import logging

import pytest

from core.variables.dispatch_effects import code_facts

COUNTS: collections.Counter = collections.Counter()
SEEN: dict = {}
LISTED: list = []
FACTOR = 2
LOG = logging.getLogger(__name__)


class State:
    count = 0


STATE = State()


def counts(cls, func):
    COUNTS[func] += 1


def stores(cls, func):
    SEEN[func] = 1


def stores_by_another_name(cls, func):
    table = SEEN
    table[func] = 1


def stores_on_the_class(cls, func):
    cls.seen[func] = 1


def sets_an_attribute(cls, func):
    STATE.count = 1


def sets_one_of_the_class(cls, func):
    cls.count = 1


def appends(cls, func):
    LISTED.append(func)


def prints(cls, func):
    print(func)


def logs(cls, func):
    LOG.info("called")


def assigns(cls, func):
    global FACTOR
    FACTOR = 3


def calls_another(cls, func):
    return appends(cls, func)


def only_computes(cls, func):
    made = {}
    made[func] = SEEN.get(func)
    numbers = [1]
    numbers[0] = made
    numbers.append(FACTOR)
    return numbers


def made_class(body):
    class Made:
        seen: dict = {}

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            return body(cls, func)

    return Made


@pytest.mark.parametrize(
    ("body", "effect"),
    [
        *[(counts, "writes to COUNTS"), (stores, "writes to SEEN"), (stores_by_another_name, "writes to SEEN")],
        *[(stores_on_the_class, "writes to cls.seen"), (sets_an_attribute, "writes to STATE")],
        *[(sets_one_of_the_class, "writes to cls"), (appends, "calls LISTED.append()"), (prints, "calls print()")],
        *[(logs, "calls LOG.info()"), (assigns, "assigns the global FACTOR")],
        (calls_another, "calls LISTED.append()"),
    ],
)
def test_an_effect_of_a_dispatch_is_found_and_named(body, effect):
    assert code_facts(made_class(body)).effect == f"__torch_dispatch__ {effect}"


def test_code_that_only_computes_has_no_effect_and_its_reads_are_known():
    facts = code_facts(made_class(only_computes))
    assert facts.effect is None
    assert sorted((read.kind, read.name) for read in facts.reads.values()) == [
        ("cell", "body"),
        ("item", "FACTOR"),
        ("item", "SEEN"),
    ]
