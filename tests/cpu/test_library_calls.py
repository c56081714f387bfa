"""Calls of the standard library inside compiled functions that are answered while tracing."""

from __future__ import annotations

import base64
import bisect
import functools
import heapq
import inspect
import json
import logging
import struct
import types
import typing

import torch
from compare import check, same

import core

X = torch.arange(6.0).reshape(2, 3)


class Ticket:
    def __init__(self, rank):
        self.rank = rank

    def __lt__(self, other):
        return self.rank < other.rank


def test_heaps_of_numbers_and_of_objects():
    def fn(x):
        heap = []
        for number in (5, 1, 4, 2, 3):
            heapq.heappush(heap, (number, x * number))
        first = heapq.heappop(heap)
        made = [9, 3, 7, 1, 8, 2]
        heapq.heapify(made)
        swapped = heapq.heapreplace(made, 5), heapq.heappushpop(made, 0), heapq.heappushpop(made, 6)
        tickets = [Ticket(rank) for rank in (3, 1, 2)]
        heapq.heapify(tickets)
        order = [heapq.heappop(tickets).rank for _ in range(3)]
        return (
            first,
            [entry[0] for entry in heap],
            made,
            swapped,
            order,
            heapq.nsmallest(2, made),
            heapq.nlargest(1, made),
        )

    check(fn, X)


def test_an_empty_heap_is_an_index_error():
    def fn(x):
        try:
            heapq.heappop([])
        except IndexError as error:
            return x, error.args

    check(fn, X, graphs=None)


def test_places_in_sorted_lists():
    def fn(x):
        found = [1, 3, 3, 5]
        bisect.insort(found, 4)
        bisect.insort_left(found, 3)
        words = ["a", "bb", "cccc"]
        places = bisect.bisect(found, 3), bisect.bisect_left(found, 3), bisect.bisect_right(words, 2, key=len)
        return x * bisect.bisect(found, 3, 1, 3), found, places

    check(fn, X)


def test_bytes_and_texts_of_known_data():
    def fn(x):
        packed = struct.pack("<if", 7, 0.5)
        settings = json.loads('{"scale": 2, "sizes": [1, 2.5, null, true]}')
        text = json.dumps({"b": [1, None], "a": "ü"}, sort_keys=True)
        return x * settings["scale"], struct.unpack("<if", packed), base64.b64encode(b"abc"), settings, text

    check(fn, X)


def test_a_text_that_is_no_json_raises_as_it_does():
    def fn(x):
        try:
            json.loads("{")
        except ValueError as error:
            return x + 1, type(error).__mro__[1] is ValueError

    core.reset()
    assert same(core.compile(fn, backend="eager")(X), fn(X))


def test_loggers_by_name_and_their_levels(caplog):
    logger = logging.getLogger("of.this.test")

    def fn(x):
        if logging.getLogger("of.this.test").isEnabledFor(logging.INFO):
            logger.info("rows: %d", x.shape[0])
            return x + 1
        return x

    core.reset()
    fast = core.compile(fn, backend="eager", fullgraph=True)
    for level, messages in ((logging.WARNING, 0), (logging.INFO, 1), (logging.WARNING, 0), (logging.DEBUG, 1)):
        with caplog.at_level(level, logger="of.this.test"):
            caplog.clear()
            assert same(fast(X), X + 1 if messages else X)
            assert len(caplog.records) == messages


def checked(fn):
    hints, signature = typing.get_type_hints(fn), inspect.signature(fn)

    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            if not isinstance(value, hints.get(name, object)):
                raise TypeError(f"{name} is no {hints[name].__name__}")
        return fn(*args, **kwargs)

    return wrapper


def test_a_decorator_that_checks_annotations_by_the_signature():
    @checked
    def scaled(x: torch.Tensor, by: int = 2) -> torch.Tensor:
        return x * by

    def fn(x):
        try:
            return scaled(x) + scaled(x, by=3) + scaled(x, "no")
        except TypeError as error:
            return scaled(x, 5), str(error)

    check(fn, X)


def counts_calls(x, calls=[]):  # noqa: B006 - it keeps what it is given on purpose
    calls.append(1)
    return x + len(calls)


def test_a_default_that_a_signature_holds_is_the_functions_own():
    known = inspect.signature(counts_calls)

    def fn(x):
        bound = known.bind(x)
        bound.apply_defaults()
        made = inspect.signature(counts_calls).bind(x)
        made.apply_defaults()
        return counts_calls(*bound.args) + counts_calls(*made.args)

    core.reset()
    fast = core.compile(fn, backend="eager")
    counts_calls.__defaults__[0].clear()
    want = [fn(X) for _ in range(3)]
    counts_calls.__defaults__[0].clear()
    assert same([fast(X) for _ in range(3)], want)
    assert core.stats()["breaks"] == 0


def test_a_mapping_proxy_shows_what_its_dict_holds():
    table = {"layer": torch.nn.Linear(3, 3), "sizes": [1]}
    proxy = types.MappingProxyType(table)

    def fn(x):
        table["calls"] = table.get("calls", 0) + 1
        return proxy["layer"](x) * len(proxy["sizes"]), proxy["calls"], list(proxy)

    core.reset()
    fast = core.compile(fn, backend="eager")
    for turn in range(3):
        table["calls"] = turn
        want = fn(X)
        table["calls"] = turn
        assert same(fast(X), want)
        table["sizes"].append(1)
    assert core.stats()["breaks"] == 0


def test_a_signature_that_the_function_returns_is_whole():
    def fn(x):
        signature = inspect.signature(counts_calls)
        return x + 1, signature, signature.parameters

    _, signature, parameters = core.compile(fn, backend="eager", fullgraph=True)(torch.ones(2))
    assert signature == inspect.signature(counts_calls) and str(signature) == str(inspect.signature(counts_calls))
    assert parameters == signature.parameters
