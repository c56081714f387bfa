"""Trees: the nested arguments and results of a torch call.

Containers are list, tuple, namedtuple, torch.Size, torch.return_types, dict and slice; everything else is a leaf.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any


def map_tree(fn: Callable[[Any], Any], tree: Any) -> Any:
    """`tree` with fn(leaf) in place of each leaf. A torch.Size becomes a tuple, as its leaves may cease to be ints."""
    if isinstance(tree, tuple):
        return rebuild(tree, [map_tree(fn, item) for item in tree])
    if isinstance(tree, list):
        return [map_tree(fn, item) for item in tree]
    if isinstance(tree, dict):
        mapped = {key: map_tree(fn, item) for key, item in tree.items()}
        return mapped if type(tree) is dict else rebuild_dict(tree, mapped)
    if isinstance(tree, slice):
        return slice(map_tree(fn, tree.start), map_tree(fn, tree.stop), map_tree(fn, tree.step))
    return fn(tree)


def rebuild(original: tuple[Any, ...], items: list[Any]) -> Any:
    """A tuple of the kind of `original` around `items`."""
    kind = type(original)
    if kind is tuple:
        return tuple(items)
    if hasattr(original, "_fields"):
        return kind(*items)
    if hasattr(kind, "n_sequence_fields"):  # a torch.return_types class: made from one sequence
        return kind(items)
    return tuple(items)


def rebuild_dict(original: dict[Any, Any], items: dict[Any, Any]) -> dict[Any, Any]:
    """A dict subclass instance around `items`, where its class can be made that way; else a plain dict."""
    try:
        return type(original)(items)
    except TypeError:
        return items


def leaves(tree: Any) -> Iterator[Any]:
    """The leaves of `tree`, in order."""
    if isinstance(tree, (tuple, list)):
        for item in tree:
            yield from leaves(item)
    elif isinstance(tree, dict):
        for item in tree.values():
            yield from leaves(item)
    elif isinstance(tree, slice):
        yield from (tree.start, tree.stop, tree.step)
    else:
        yield tree


def without_partial(
    fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Any, Sequence[Any], Mapping[str, Any]]:
    """The function, arguments and keywords of a call, those that partials hold put to them."""
    while isinstance(fn, functools.partial):
        args, kwargs, fn = (*fn.args, *args), {**fn.keywords, **kwargs}, fn.func
    return fn, args, kwargs
