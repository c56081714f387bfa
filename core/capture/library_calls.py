"""Calls of the standard library that tracing answers: heaps, sorted lists, texts and bytes of known data, loggers."""

from __future__ import annotations

import base64
import binascii
import bisect
import functools
import heapq
import json
import logging
import struct
import zlib
from typing import Any

from ..errors import Unsupported
from ..guards.checks import Is
from ..variables.answers import guard_answer
from ..variables.base import VariableTracker
from .host_calls import folded, known
from .polyfills import compared, sorted_lists
from .special_calls import Handler, callable_object, function

VT = VariableTracker


def _written_in_python(twin: Any) -> Handler:
    def handler(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
        return tx.inline(twin, args, kwargs)  # type: ignore[no-any-return]

    return handler


for _module, _names in (
    (heapq, "heappush heappop heapify heappushpop heapreplace"),
    (bisect, "bisect_right bisect_left insort_right insort_left"),
):
    for _name in _names.split():
        callable_object(getattr(_module, _name))(_written_in_python(getattr(sorted_lists, _name)))

callable_object(functools.cmp_to_key)(_written_in_python(compared.cmp_to_key))
for _whole in (heapq.nsmallest, heapq.nlargest):
    function(_whole)(_written_in_python(getattr(sorted_lists, _whole.__name__)))
for _fn in (
    struct.pack,
    struct.unpack,
    struct.calcsize,
    zlib.crc32,
    zlib.adler32,
    binascii.hexlify,
    binascii.unhexlify,
):
    callable_object(_fn)(folded(_fn, (struct.error, TypeError, ValueError, OverflowError)))
for _text in (base64.b64encode, base64.b64decode, base64.urlsafe_b64encode, base64.urlsafe_b64decode):
    function(_text)(folded(_text, (TypeError, ValueError)))


@function(json.loads)
def load_json(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """What a known text says."""
    if kwargs or len(args) != 1:
        raise Unsupported("json.loads() with options is not traced", remedy="load outside the compiled function")
    return folded(json.loads, (TypeError, ValueError))(tx, args, {})


@function(json.dumps)
def dump_json(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """The text of known data."""
    values, keywords = known(tx, "json.dumps", args, kwargs)
    if not all(map(_is_data, (*values, *keywords.values()))):
        raise Unsupported("json.dumps() of objects is not traced", remedy="dump outside the compiled function")
    return folded(json.dumps, (TypeError, ValueError))(tx, args, kwargs)


def _is_data(value: Any) -> bool:
    if type(value) in (list, tuple):
        return all(map(_is_data, value))
    if type(value) is dict:
        return all(map(_is_data, (*value, *value.values())))
    return value is None or type(value) in (bool, int, float, str)


@function(logging.getLogger)
def get_logger(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """The logger of a name; there is one for good."""
    values, keywords = known(tx, "getLogger", args, kwargs)
    return tx.wrap(logging.getLogger(*values, **keywords), None, constant=True)  # type: ignore[no-any-return]


def _ask_logger(method: Any) -> None:
    @function(method)
    def ask(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
        """What a logger lets through; a guard asks again."""
        logger, *rest = args
        real = getattr(logger, "value", None)
        values, _ = known(tx, method.__name__, rest, {})
        if kwargs or type(real) not in (logging.Logger, logging.RootLogger):
            raise Unsupported(f"{method.__name__}() of this logger is not traced", remedy="ask outside")
        if logger.source is not None:
            tx.guard(logger.source, Is(real))
        answer = tx.answer(method, [real, *values], {})
        guard_answer(tx, getattr(real, method.__name__), values, answer)
        return tx.constant(answer)  # type: ignore[no-any-return]


for _method in (logging.Logger.isEnabledFor, logging.Logger.getEffectiveLevel):
    _ask_logger(_method)
