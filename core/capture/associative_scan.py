"""torch's associative scan, traced as the tree of slices and joins that computes it.

Enters: a combining function of the program and trackers of tensors. Leaves: trackers of the scanned tensors. An
elementwise function is traced on whole runs of elements at once; another one is mapped over the runs, as torch does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .. import torch_compat
from ..errors import Unsupported
from ..variables.base import VariableTracker
from ..variables.container import as_index
from ..variables.transform import TransformVariable
from .control_flow import Body, fresh_inputs
from .special_calls import function

VT = VariableTracker

NAMES = ("combine_fn", "xs", "dim", "reverse", "combine_mode")


@function(torch_compat.associative_scan)
def associative_scan(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    given = dict(zip(NAMES, args)) | kwargs
    if not {"combine_fn", "xs", "dim"} <= given.keys() <= set(NAMES):
        raise refused("called with these arguments")
    leaves: list[VT] = []
    structure = flatten(tx, given["xs"].realize(tx), leaves)
    if not leaves:
        raise refused("of nothing")
    dim = as_index(tx, given["dim"])
    generic = "combine_mode" in given and given["combine_mode"].as_constant() == "generic"
    if not generic and any(leaf.fake.device.type == "cpu" for leaf in leaves):  # type: ignore[attr-defined]
        raise refused("of tensors on the CPU in pointwise mode", 'pass combine_mode="generic"')
    backwards = "reverse" in given and tx.truth(given["reverse"])
    scan = Scan(tx, given["combine_fn"].realize(tx), structure)
    ordered = [scan.oriented(leaf, dim, backwards) for leaf in leaves]
    found = [scan.restored(leaf, dim, backwards) for leaf in scan.run(ordered)]
    return rebuild(tx, structure, iter(found))


def refused(what: str, remedy: str = "write the scan as a loop") -> Unsupported:
    return Unsupported(f"an associative scan {what} is not traced", remedy=remedy)


def flatten(tx: Any, tree: VT, leaves: list[VT]) -> Any:
    """Append the tensors of a tree to `leaves`; its shape as nested (class, keys, parts), None for a tensor."""
    tree = tree.realize(tx)
    if tree.kind == "tensor":
        leaves.append(tree)
        return None
    if tree.kind == "dict" and tree.python_type() is dict:
        keys = tree.unpack(tx)
        return dict, keys, [flatten(tx, tree.get_item(tx, key), leaves) for key in keys]
    if tree.kind in ("list", "tuple"):
        return tree.python_type(), None, [flatten(tx, item, leaves) for item in tree.unpack(tx)]
    raise refused(f"of {tree.describe()}")


def rebuild(tx: Any, structure: Any, leaves: Any) -> VT:
    """The tree of this structure over the next leaves."""
    if structure is None:
        return next(leaves)
    cls, keys, parts = structure
    items = [rebuild(tx, part, leaves) for part in parts]
    if cls is dict:
        return tx.new_dict(list(zip(keys, items)))
    return tx.new_list(items) if cls is list else tx.new_tuple(items, cls)


class Scan:
    """A scan over dimension 0: pairs are combined, the half as many results scanned, the rest filled in from them."""

    def __init__(self, tx: Any, combine: VT, structure: Any) -> None:
        self.tx = tx
        self.combine_fn = combine
        self.structure = structure
        self.on_runs: VT | None = None  # what combines two runs of elements

    def oriented(self, leaf: VT, dim: int, backwards: bool) -> VT:
        moved = self._method("movedim", leaf, dim, 0)
        return self._method("flip", moved, [0]) if backwards else moved

    def restored(self, leaf: VT, dim: int, backwards: bool) -> VT:
        turned = self._method("flip", leaf, [0]) if backwards else leaf
        return self._method("movedim", turned, 0, dim)

    def run(self, leaves: Sequence[VT]) -> list[VT]:
        count = as_index(self.tx, self._method("size", leaves[0], 0))
        if count < 2:
            return list(leaves)
        pairs = self._combine(self._part(leaves, 0, count - 1, 2), self._part(leaves, 1, count, 2))
        odd = self.run(pairs)
        first = self._part(leaves, 0, 1, 1)
        if count == 2:
            return [self._join([a, b]) for a, b in zip(first, odd)]
        rest = self._combine(self._part(odd, 0, (count - 1) // 2, 1), self._part(leaves, 2, count, 2))
        even = [self._join([a, b]) for a, b in zip(first, rest)]
        return [self._interleave(a, b, count) for a, b in zip(even, odd)]

    def _interleave(self, even: VT, odd: VT, count: int) -> VT:
        half = count // 2
        (start,) = self._part([even], 0, half, 1)
        stacked = self.tx.graph_call(torch.stack, [self.tx.new_list([start, odd]), self.tx.constant(1)], {})
        woven = self._method("flatten", stacked, 0, 1)
        return woven if count % 2 == 0 else self._join([woven, *self._part([even], half, count, 1)])

    def _combine(self, left: Sequence[VT], right: Sequence[VT]) -> list[VT]:
        """combine_fn on two runs of elements."""
        tx = self.tx
        if self.on_runs is None:
            mapped = TransformVariable("vmap", torch.func.vmap, self.combine_fn, {})
            self.on_runs = self.combine_fn if self._is_elementwise(left, right) else mapped
        mark = len(tx.builder.recorded_calls)
        trees = [rebuild(tx, self.structure, iter(side)) for side in (left, right)]
        results: list[VT] = []
        shape = flatten(tx, tx.call_function(self.on_runs, trees), results)
        if not same_structure(tx, shape, self.structure):
            raise refused("whose function changes the structure")
        for result, operand in zip(results, left):
            if result.fake.shape != operand.fake.shape or result.fake.dtype != operand.fake.dtype:  # type: ignore[attr-defined]
                raise refused("whose function changes shape or dtype")
        if self.on_runs is self.combine_fn and not all_elementwise(tx.builder.recorded_calls[mark:], left):
            raise refused("whose function is elementwise for some lengths only")
        return results

    def _is_elementwise(self, left: Sequence[VT], right: Sequence[VT]) -> bool:
        """Whether the function does to each element of two runs what it does to one alone; traced for the answer."""
        tx = self.tx
        fakes = [leaf.fake for leaf in (*left, *right)]  # type: ignore[attr-defined]

        def run(own: list[VT]) -> VT:
            leaves = iter(own)
            return tx.call_function(self.combine_fn, [rebuild(tx, self.structure, leaves) for _ in range(2)])

        try:
            body = Body(
                tx, "associative_scan", run, lambda region: fresh_inputs(tx, region, fakes, [False] * len(fakes))
            )
        except Unsupported:
            return False  # it may be traceable on one element
        return all_elementwise(body.calls, left)

    def _part(self, leaves: Sequence[VT], start: int, stop: int, step: int) -> list[VT]:
        tx = self.tx
        key = tx.new_slice(tx.constant(start), tx.constant(stop), tx.constant(step))
        return [leaf.get_item(tx, key) for leaf in leaves]

    def _join(self, parts: Sequence[VT]) -> VT:
        return self.tx.graph_call(torch.cat, [self.tx.new_list(parts)], {})

    def _method(self, name: str, leaf: VT, *args: Any) -> VT:
        return leaf.call_method(self.tx, name, [self.tx.constant(arg) for arg in args], {})


def same_structure(tx: Any, left: Any, right: Any) -> bool:
    """True for trees of the same classes and keys."""
    if left is None or right is None:
        return left is right
    if left[0] is not right[0] or len(left[2]) != len(right[2]):
        return False
    keys = zip(left[1] or (), right[1] or ())
    return all(tx.compare_equal(a, b) for a, b in keys) and all(
        same_structure(tx, a, b) for a, b in zip(left[2], right[2])
    )


def all_elementwise(calls: Sequence[Any], run: Sequence[VT]) -> bool:
    """True when all these operations on a run of elements are elementwise."""
    shape = run[0].fake.shape  # type: ignore[attr-defined]
    return all(is_elementwise(call, shape, shape[1:]) for call in calls)


def is_elementwise(call: Any, run: Any, element: Any) -> bool:
    """True when an operation on a run of elements does to each what it does to one alone."""
    if torch.Tag.pointwise not in call.op.tags:
        return False
    for operand in (*call.args, *call.kwargs.values()):
        if isinstance(operand, torch.Tensor) and operand.shape != run and operand.ndim > len(element):
            return False
    return True
