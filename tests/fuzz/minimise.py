"""Makes a failing program small: statements and expressions go for as long as the difference stays of its kind."""

from __future__ import annotations

import ast
import copy
import time
from collections.abc import Callable, Iterator

BODIES = ("body", "orelse", "finalbody", "handlers", "cases")


def minimised(text: str, fails: Callable[[str], bool], seconds: float = 60) -> str:
    """The smallest text found in that time for which `fails` holds."""
    tree = ast.parse(text)
    end = time.monotonic() + seconds
    for changes in (_without_statements, _flatter, _simpler, _without_statements):
        progress = True
        while progress and time.monotonic() < end:
            tree, progress = _pass(tree, changes, fails, end)
    return ast.unparse(tree) + "\n"


def _pass(
    tree: ast.Module, changes: Callable[[ast.Module], Iterator[Callable[[], Callable[[], None]]]],
    fails: Callable[[str], bool], end: float,
) -> tuple[ast.Module, bool]:  # fmt: skip
    """Try each change once; the tree with those that kept the failure."""
    progress = False
    for change in list(changes(tree)):
        if time.monotonic() > end:
            break
        undo = change()
        if undo is None:
            continue
        try:
            text = ast.unparse(ast.fix_missing_locations(copy.deepcopy(tree)))
            kept = fails(text)
        except Exception:  # noqa: BLE001  a candidate may be nonsense in any way
            kept = False
        if kept:
            progress = True
        else:
            undo()
    return tree, progress


def _lists(tree: ast.AST) -> Iterator[tuple[ast.AST, str, list[ast.AST]]]:
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody", "handlers", "cases", "decorator_list", "defaults"):
            items = getattr(node, name, None)
            if isinstance(items, list) and items:
                yield node, name, items


def _without_statements(tree: ast.Module):  # noqa: ANN202
    """Drop runs of statements, long runs first."""
    found = [(node, name, items) for node, name, items in _lists(tree)]
    for _, _, items in found:
        size = len(items)
        lengths = []
        while size >= 1:
            lengths.append(size)
            size //= 2
        for length in lengths:
            for start in range(len(items) - length, -1, -length):
                chosen = items[start : start + length]
                yield lambda items=items, chosen=chosen: _drop(items, chosen)


def _drop(items: list[ast.AST], chosen: list[ast.AST]) -> Callable[[], None] | None:
    places = [at for at, item in enumerate(items) if any(item is other for other in chosen)]
    if not places:
        return None
    before = list(items)
    items[:] = [item for item in items if all(item is not other for other in chosen)]
    if not items and chosen and isinstance(chosen[0], ast.stmt):
        items[:] = [ast.Pass()]
        if len(before) == 1 and isinstance(before[0], ast.Pass):
            items[:] = before
            return None

    def undo() -> None:
        items[:] = before

    return undo


def _flatter(tree: ast.Module):  # noqa: ANN202
    """Put the body of a compound statement in its place."""
    for _, _name, items in [found for found in _lists(tree) if found[1] in ("body", "orelse", "finalbody")]:
        for item in list(items):
            for inner in BODIES:
                body = getattr(item, inner, None)
                if (
                    isinstance(body, list)
                    and body
                    and isinstance(body[0], ast.stmt)
                    and not isinstance(item, ast.ClassDef)
                ):
                    yield lambda items=items, item=item, body=body: _replace_statement(items, item, body)
            if isinstance(item, ast.If) and item.orelse:
                yield lambda item=item: _set(item, "orelse", [])


def _replace_statement(items: list[ast.AST], item: ast.AST, body: list[ast.AST]) -> Callable[[], None] | None:
    if not any(other is item for other in items):
        return None
    before = list(items)
    at = next(at for at, other in enumerate(items) if other is item)
    items[at : at + 1] = body

    def undo() -> None:
        items[:] = before

    return undo


def _simpler(tree: ast.Module):  # noqa: ANN202
    """Put a part of an expression, or a constant, in its place."""
    for node in list(ast.walk(tree)):
        for name, value in ast.iter_fields(node):
            values = value if isinstance(value, list) else [value]
            for child in values:
                if not isinstance(child, ast.expr) or isinstance(child, (ast.Name, ast.Constant)):
                    continue
                for part in (ast.Constant(None), ast.Constant(1), ast.Name("x", ast.Load()), *_parts(child)):
                    if isinstance(value, list):
                        yield lambda value=value, child=child, part=part: _put(value, child, part)
                    else:
                        yield lambda node=node, name=name, child=child, part=part: _swap(node, name, child, part)
            if isinstance(value, list) and value and isinstance(value[0], (ast.expr, ast.keyword)):
                for child in list(value):
                    yield lambda value=value, child=child: _drop(value, [child])


def _parts(node: ast.AST) -> Iterator[ast.expr]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            yield child


def _put(items: list[ast.AST], child: ast.AST, part: ast.AST) -> Callable[[], None] | None:
    for at, item in enumerate(items):
        if item is child:
            items[at] = part
            return lambda: items.__setitem__(at, child)
    return None


def _swap(node: ast.AST, name: str, child: ast.AST, part: ast.AST) -> Callable[[], None] | None:
    return _set(node, name, part) if getattr(node, name) is child else None


def _set(node: ast.AST, name: str, value: object) -> Callable[[], None]:
    before = getattr(node, name)
    setattr(node, name, value)
    return lambda: setattr(node, name, before)
