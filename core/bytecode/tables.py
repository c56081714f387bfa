"""The two packed tables of a code object, both directions: protected ranges and source positions."""

from __future__ import annotations

from collections.abc import Iterable

from .opcodes import TABLE

Span = tuple[int | None, int | None, int | None, int | None]

_CONTINUE, _START = 0x40, 0x80
_MAX_UNITS = 8
_ONE_LINE, _NO_COLUMNS, _LONG, _NONE = 10, 13, 14, 15


def decode_exception_table(table: bytes) -> list[tuple[int, int, int, int, bool]]:
    """(start, end, target, depth, lasti) for each range, in byte offsets; `end` is the first byte outside."""
    entries: list[tuple[int, int, int, int, bool]] = []
    values: list[int] = []
    value = 0
    for byte in table:
        value = value << 6 | byte & 0x3F
        if not byte & _CONTINUE:
            values.append(value)
            value = 0
    for i in range(0, len(values), 4):
        start, length, target, depth = values[i : i + 4]
        entries.append((start * 2, (start + length) * 2, target * 2, depth >> 1, bool(depth & 1)))
    return entries


def _varint_big_endian(value: int, first: int, out: bytearray) -> None:
    shift = 0
    while value >> (shift + 6):
        shift += 6
    while shift:
        out.append(first | _CONTINUE | value >> shift & 0x3F)
        first = 0
        shift -= 6
    out.append(first | value & 0x3F)


def encode_exception_table(entries: Iterable[tuple[int, int, int, int, bool]]) -> bytes:
    """The inverse of `decode_exception_table`; entries must be sorted and must not overlap."""
    out = bytearray()
    for start, end, target, depth, lasti in entries:
        _varint_big_endian(start // 2, _START, out)
        _varint_big_endian((end - start) // 2, 0, out)
        _varint_big_endian(target // 2, 0, out)
        _varint_big_endian(depth << 1 | lasti, 0, out)
    return bytes(out)


def _varint(value: int, out: bytearray) -> None:
    while value >= 64:
        out.append(_CONTINUE | value & 0x3F)
        value >>= 6
    out.append(value)


def _signed_varint(value: int, out: bytearray) -> None:
    _varint(-value << 1 | 1 if value < 0 else value << 1, out)


def _location(span: Span, units: int, last_line: int, out: bytearray) -> int:
    """Append one entry for `units` (at most 8) code units; returns the line the next delta counts from."""
    line, end_line, column, end_column = span
    head = 0x80 | units - 1
    if line is None:
        out.append(head | _NONE << 3)
        return last_line
    delta = line - last_line
    if column is None or end_column is None:
        if end_line is None or end_line == line:
            out.append(head | _NO_COLUMNS << 3)
            _signed_varint(delta, out)
            return line
    elif end_line == line:
        width = end_column - column
        if delta == 0 and column < 80 and 0 <= width < 16:
            out.append(head | column >> 3 << 3)
            out.append((column & 7) << 4 | width)
            return line
        if 0 <= delta < 3 and column < 128 and end_column < 128:
            out.append(head | _ONE_LINE + delta << 3)
            out.append(column)
            out.append(end_column)
            return line
    out.append(head | _LONG << 3)
    _signed_varint(delta, out)
    _varint(0 if end_line is None else end_line - line, out)
    _varint(0 if column is None else column + 1, out)
    _varint(0 if end_column is None else end_column + 1, out)
    return line


def encode_line_table(spans: Iterable[tuple[Span, int]], first_line: int) -> bytes:
    """The `co_linetable` for (span, code units) of each instruction in turn.

    Entries are cut as CPython's own compiler of the running version cuts them, so that an unchanged function keeps its
    table byte for byte: 3.11 writes one entry an instruction, later versions one for a run of equal spans.
    """
    return _encode_runs(_merged(spans) if TABLE.merges_locations else spans, first_line)


def _merged(spans: Iterable[tuple[Span, int]]) -> list[tuple[Span, int]]:
    """One item for each run of equal spans."""
    runs: list[tuple[Span, int]] = []
    pending: Span | None = None
    waiting = 0
    for span, units in spans:
        if span == pending:
            waiting += units
            continue
        if pending is not None:
            runs.append((pending, waiting))
        pending, waiting = span, units
    if pending is not None:
        runs.append((pending, waiting))
    return runs


def _encode_runs(runs: Iterable[tuple[Span, int]], last_line: int) -> bytes:
    out = bytearray()
    add = out.append
    for span, units in runs:
        line, end_line, column, end_column = span
        while units > _MAX_UNITS:
            last_line = _location(span, _MAX_UNITS, last_line, out)
            units -= _MAX_UNITS
        # Most entries have the shortest form, so it is written here, without a call.
        if line == last_line and line == end_line and column is not None and end_column is not None:
            if column < 80 and 0 <= end_column - column < 16:
                add(0x80 | units - 1 | column >> 3 << 3)
                add((column & 7) << 4 | end_column - column)
                continue
        last_line = _location(span, units, last_line, out)
    return bytes(out)


def decode_line_table(table: bytes, first_line: int) -> list[Span]:
    """The span of each code unit, as `co_positions` gives it."""
    spans: list[Span] = []
    line = first_line
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = table[at]
            at += 1
            value |= (byte & 0x3F) << shift
            shift += 6
            if not byte & _CONTINUE:
                return value

    def signed() -> int:
        value = varint()
        return -(value >> 1) if value & 1 else value >> 1

    while at < len(table):
        head = table[at]
        at += 1
        kind, units = head >> 3 & 15, (head & 7) + 1
        span: Span = (None, None, None, None)
        if kind < _ONE_LINE:
            column = kind << 3 | table[at] >> 4 & 7
            span = (line, line, column, column + (table[at] & 15))
            at += 1
        elif kind < _NO_COLUMNS:
            line += kind - _ONE_LINE
            span = (line, line, table[at], table[at + 1])
            at += 2
        elif kind == _NO_COLUMNS:
            line += signed()
            span = (line, line, None, None)
        elif kind == _LONG:
            line += signed()
            end_line = line + varint()
            column, end_column = varint() - 1, varint() - 1
            span = (line, end_line, None if column < 0 else column, None if end_column < 0 else end_column)
        spans.extend([span] * units)
    return spans
