"""Dates and times inside compiled functions: arithmetic of known ones is traced, clocks are asked on each call."""

from __future__ import annotations

import datetime

import torch
from compare import check

import core

X = torch.arange(3.0)


def test_the_clock_is_asked_on_each_call():
    def fn(x):
        return x + 1, datetime.datetime.now(), datetime.datetime.now(datetime.UTC)

    core.reset()
    fast = core.compile(fn, backend="eager")
    (_, *first), (_, *second) = fast(X), fast(X)
    assert all(earlier < later for earlier, later in zip(first, second))
    before = datetime.date.today()
    found = core.compile(lambda x: (x, datetime.date.today()), backend="eager")(X)[1]
    assert before <= found <= datetime.date.today()


def test_arithmetic_of_known_dates():
    def fn(x):
        start = datetime.datetime(2020, 1, 2, hour=3)
        later = start + datetime.timedelta(days=3)
        return x * later.day, (later - start).total_seconds(), f"{later:%Y}", start.isoformat(), start < later

    check(fn, X)


def test_a_date_that_is_only_handed_on_is_no_part_of_the_entry():
    core.reset()
    fast = core.compile(lambda x, day: (x + 1, day, [day]), backend="eager")
    for number in (1, 2, 3):
        day = datetime.date(2020, 1, number)
        assert fast(X, day)[1:] == (day, [day])
    assert core.stats()["graphs"] == 1
