"""Names of tests: `<file>::<Class>::<test>[parameters]`, the same wherever the classes are collected."""

from __future__ import annotations

from typing import Any

MARK = "__core_conformance__"
"""The class attribute that makes pytest collect a class of the suite, whatever its name."""


def is_suite_class(value: Any) -> bool:
    """Whether `value` is a class of tests of the suite, or one made from it."""
    return isinstance(value, type) and bool(getattr(value, MARK, False))


def test_id(cls: type, name: str) -> str:
    """The id of the test function `name` (parameters included) of the class `cls`."""
    return f"{cls.__module__.rpartition('.')[2]}::{cls.__name__}::{name.removeprefix('test_')}"


def item_id(item: Any) -> str | None:
    """The id of a pytest item, None for one that is not of the suite."""
    cls = getattr(item, "cls", None)
    return test_id(cls, item.name) if is_suite_class(cls) else None


test_id.__test__ = False  # type: ignore[attr-defined]  # not a test, whatever its name begins with
