"""Loops cut where a mask changes: concatenation and padding without a test in the inner loop.

Enters: a kernel and its innermost variable. Leaves: ranges of the variable on each of which every `index_below` of that
variable has one value, and the kernel's operations with those masks folded away.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..ir import expr
from ..ir.expr import Index
from ..sched.kernel import Kernel, Value, size_of
from ..sched.space import atom_of
from .evaluate import Body
from .ops import C_TYPES
from .text import Source

MAX_SEGMENTS = 12


def segments_of(kernel: Kernel, variable: Index) -> Iterator[tuple[str, str, dict[int, bool]]]:
    """(begin, end, decided masks) of each range; end "" means the loop's own end."""
    cuts = _cuts(kernel, variable)
    size = size_of(variable)
    points = sorted({c for c in cuts.values() if isinstance(size, int) and 0 < c < size})
    if not cuts or not isinstance(size, int) or len(points) >= MAX_SEGMENTS:
        yield "0", "", {}
        return
    begin = 0
    for end in [*points, size]:
        yield str(begin), str(end), {k: begin < cut for k, cut in cuts.items()}
        begin = end


def _cuts(kernel: Kernel, variable: Index) -> dict[int, int]:
    """For each mask `step * variable + constant < bound`: the first value of the variable for which it is false."""
    found: dict[int, int] = {}
    for k, value in enumerate(kernel.values):
        if value.name != "index_below":
            continue
        distance = expr.sub(value.attr[1], value.attr[0])
        split = expr.affine(distance, [atom_of(variable)])
        if split is None or not isinstance(split[1], int):
            continue
        (step,) = split[0]
        if isinstance(step, int) and step < 0:
            found[k] = -(split[1] // step)  # the distance is split[1] + step * variable, and is to be above 0
    return found


class Resolution:
    """The values of a kernel with decided masks folded: each value's replacement, and changed operations."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.constant: dict[int, bool] = {}
        self.alias: dict[int, int] = {}
        self.changed: dict[int, Value] = {}

    def target(self, k: int) -> int:
        """The value that stands for value k."""
        return self.alias.get(k, k)

    def value(self, k: int) -> Value:
        """The operation of value k."""
        return self.changed.get(k, self.kernel.values[k])

    def order(self, roots: Sequence[int], names: Mapping[int, str]) -> list[int]:
        """Positions to print for the roots."""
        found: set[int] = set()
        pending = list(roots)
        while pending:
            k = self.target(pending.pop())
            if k in found or k in names or k in self.constant:
                continue
            found.add(k)
            pending.extend(self.value(k).args)
        return sorted(found)

    def named(self, k: int, names: Mapping[int, str]) -> Mapping[int, str]:
        """Names with value k's own included."""
        return {**names, k: names[self.target(k)]}

    def print_into(self, body: Body, source: Source, roots: Sequence[int], names: dict[int, str]) -> None:
        """Declare what the roots need."""
        for k, known in self.constant.items():
            names[k] = "true" if known else "false"
        for k in self.order(roots, names):
            value = self.value(k)
            for a in value.args:
                if a not in names:
                    names[a] = names[self.target(a)]
            text = body.expression(value, names)
            if value.name == "const":
                names[k] = text if not text.startswith("-") else f"({text})"
                continue
            source.line(f"const {C_TYPES[value.dtype]} v{k} = {text};")
            names[k] = f"v{k}"


def resolve(kernel: Kernel, decided: Mapping[int, bool]) -> Resolution:
    """Fold decided masks through logic, selections and masked loads."""
    result = Resolution(kernel)
    if not decided:
        return result
    result.constant.update(decided)
    for k, value in enumerate(kernel.values):
        _fold(result, k, value)
    return result


def _fold(result: Resolution, k: int, value: Value) -> None:
    args = tuple(result.target(a) for a in value.args)
    constant = result.constant
    if value.name == "logical_not" and args[0] in constant:
        constant[k] = not constant[args[0]]
    elif value.name in ("bitwise_and", "bitwise_or") and value.dtype == "bool":
        absorbing = value.name == "bitwise_or"
        known = [a for a in args if a in constant]
        if any(constant[a] is absorbing for a in known):
            constant[k] = absorbing
        elif len(known) == 2:
            constant[k] = not absorbing
        elif known:
            result.alias[k] = args[0] if args[1] in constant else args[1]
    elif value.name == "where" and args[0] in constant:
        result.alias[k] = args[1] if constant[args[0]] else args[2]
    elif value.name == "masked_load" and args[0] in constant:
        if constant[args[0]]:
            result.changed[k] = Value("load", args[2:], value.dtype, value.attr, value.level, value.stage)
        else:
            result.alias[k] = args[1]
    elif args != value.args:
        result.changed[k] = Value(value.name, args, value.dtype, value.attr, value.level, value.stage)
