"""The iteration space of a group of nodes: loop dimensions, which of them are reduced, and each member's place in it.

Enters: nodes one by one. Leaves: for each member a map from its own loop variables to the group's. Two nodes are
aligned when, at every point of the space, the element that the reader asks for is the one that the producer computes
there.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..ir import expr
from ..ir.expr import Atom, Index, LoopVar
from ..ir.nodes import Loops, Node, Op, Reduce, loop_vars

Map = dict[Atom, Index]


def atom_of(variable: Index) -> Atom:
    """The atom of an expression that is a single variable."""
    assert isinstance(variable, expr.Expr)
    ((monomial, _),) = variable.terms.items()
    return monomial[0]


def loop_atoms(e: Index) -> set[LoopVar]:
    """The loop variables of an expression, its size symbols left out."""
    return {a for a in expr.atoms_of(e) if isinstance(a, LoopVar)}


def lone_atom(e: Index) -> Atom | None:
    """The atom when `e` is exactly one variable, else None."""
    if isinstance(e, expr.Expr) and len(e.terms) == 1:
        ((monomial, coefficient),) = e.terms.items()
        if coefficient == 1 and len(monomial) == 1:
            return monomial[0]
    return None


@dataclass
class Refinement:
    """A common refinement of two factorisations of one range: sizes, and each old dimension over the new variables."""

    variables: list[Index]
    left: list[Index]
    right: list[Index]
    unchanged: bool


_fresh = itertools.count()


def fresh_variable(size: Index) -> Index:
    """A loop variable that no other group uses."""
    return expr.loop_var(f"k{next(_fresh)}", size)


def refine(left: Sequence[Index], right: Sequence[Index]) -> Refinement | None:
    """Split `left` (loop variables) and `right` (sizes) into common dimensions, None when they don't divide each
    other."""
    sizes = [atom_of(v).size for v in left]  # type: ignore[attr-defined]
    if sizes == list(right):
        return Refinement(list(left), list(left), list(left), True)
    variables: list[Index] = []
    pieces_left: list[list[Index]] = [[] for _ in sizes]
    pieces_right: list[list[Index]] = [[] for _ in right]
    i, j = len(sizes) - 1, len(right) - 1
    rest_left: Index = sizes[i] if sizes else 1
    rest_right: Index = right[j] if right else 1
    while i >= 0 and j >= 0:
        if rest_left == rest_right:
            step = rest_left
        elif _divides(rest_right, rest_left):
            step = rest_right
        elif _divides(rest_left, rest_right):
            step = rest_left
        else:
            return None
        whole = step == sizes[i] and not pieces_left[i]
        variable = left[i] if whole else fresh_variable(step)
        variables.insert(0, variable)
        pieces_left[i].insert(0, variable)
        pieces_right[j].insert(0, variable)
        rest_left, rest_right = _quotient(rest_left, step), _quotient(rest_right, step)
        if rest_left == 1:
            i -= 1
            rest_left = sizes[i] if i >= 0 else 1
        if rest_right == 1:
            j -= 1
            rest_right = right[j] if j >= 0 else 1
    if i >= 0 or j >= 0:
        return None
    return Refinement(variables, [_joined(p) for p in pieces_left], [_joined(p) for p in pieces_right], False)


def _divides(divisor: Index, value: Index) -> bool:
    if isinstance(divisor, int) and isinstance(value, int):
        return divisor > 1 and value % divisor == 0
    return divisor != 1 and divisor != 0 and expr.exact_quotient(value, divisor) is not None


def _quotient(value: Index, divisor: Index) -> Index:
    if value == divisor:
        return 1
    result = expr.exact_quotient(value, divisor)
    assert result is not None
    return result


def _joined(variables: Sequence[Index]) -> Index:
    sizes = [atom_of(v).size for v in variables]  # type: ignore[attr-defined]
    return expr.total(expr.mul(v, s) for v, s in zip(variables, expr.row_major(sizes)))


@dataclass
class Space:
    """Loop variables of a group in order, and the atoms of the reduced ones. `reducing` is False until a Reduce
    joins."""

    variables: list[Index] = field(default_factory=list)
    reduced: frozenset[Atom] = frozenset()
    reducing: bool = False

    @property
    def rows(self) -> list[Index]:
        """The variables that are not reduced."""
        return [v for v in self.variables if atom_of(v) not in self.reduced]

    @property
    def cols(self) -> list[Index]:
        """The reduced variables."""
        return [v for v in self.variables if atom_of(v) in self.reduced]

    def extent(self, variables: Sequence[Index]) -> Index:
        """The number of points that some of the variables run through."""
        return expr.product(atom_of(v).size for v in variables)  # type: ignore[attr-defined]


@dataclass
class Placement:
    """A space after a node joined: the new space, the old variables over the new ones, the node's own map."""

    space: Space
    moved: Map | None
    own: Map

    @property
    def full(self) -> bool:
        """True when the node is evaluated at every point of a reducing space, not once a row."""
        reduced = self.space.reduced
        return any(not reduced.isdisjoint(expr.atoms_of(e)) for e in self.own.values())


def own_variables(node: Loops) -> list[Index]:
    """The node's loop variables without those of size-1 dimensions."""
    return [v for v in node.variables if not isinstance(v, int)]


def place_first(node: Loops) -> Placement:
    """The space of a single node: its own loops in order."""
    own = own_variables(node)
    variables = [fresh_variable(atom_of(v).size) for v in own]  # type: ignore[attr-defined]
    mapping = {atom_of(v): k for v, k in zip(own, variables)}
    reduced: frozenset[Atom] = frozenset()
    if isinstance(node, Reduce):
        outer = sum(1 for s in node.sizes if s != 1)
        reduced = frozenset(atom_of(v) for v in variables[outer:])
    space = Space(variables, reduced, isinstance(node, Reduce))
    return Placement(space, None, mapping)


def place_natural(space: Space, node: Loops) -> Placement | None:
    """The node's loops laid over the group's in order."""
    own = own_variables(node)
    sizes = [atom_of(v).size for v in own]  # type: ignore[attr-defined]
    count = expr.product(sizes)
    if isinstance(node, Reduce):
        outer = sum(1 for s in node.sizes if s != 1)
        if not space.reducing:
            return _natural_reduce(space, own, sizes, outer)
        rows, cols = refine(space.rows, sizes[:outer]), refine(space.cols, sizes[outer:])
        if rows is None or cols is None:
            return None
        return _merged(space, rows, cols, own)
    if space.reducing and count == space.extent(space.rows):
        rows = refine(space.rows, sizes)
        if rows is None:
            return None
        return _merged(space, rows, None, own)
    if count != space.extent(space.variables):
        return None
    found = refine(space.variables, sizes)
    if found is None:
        return None
    return _placed(space, found, own, space.reduced, space.reducing)


def _natural_reduce(space: Space, own: list[Index], sizes: list[Index], outer: int) -> Placement | None:
    if expr.product(sizes) == space.extent(space.variables):
        found = refine(space.variables, sizes)
        if found is None:
            return None
        placed = _placed(space, found, own, frozenset(), True)
        inner: set[Atom] = set()
        for v in own[outer:]:
            inner |= loop_atoms(placed.own[atom_of(v)])
        placed.space.reduced = frozenset(inner)
        return placed
    if expr.product(sizes[:outer]) == space.extent(space.variables):
        # The group so far lives on the rows of the new reduction.
        rows = refine(space.variables, sizes[:outer])
        if rows is None:
            return None
        cols = [fresh_variable(s) for s in sizes[outer:]]
        moved = None if rows.unchanged else {atom_of(v): e for v, e in zip(space.variables, rows.left)}
        mapping = {atom_of(v): e for v, e in zip(own, [*rows.right, *cols])}
        joined = Space([*rows.variables, *cols], frozenset(atom_of(c) for c in cols), True)
        return Placement(joined, moved, mapping)
    return None


def _placed(
    space: Space, found: Refinement, own: Sequence[Index], reduced: frozenset[Atom], reducing: bool
) -> Placement:
    moved = None
    if not found.unchanged:
        moved = {atom_of(v): e for v, e in zip(space.variables, found.left)}
        reduced = _moved_atoms(reduced, moved)
    mapping = {atom_of(v): e for v, e in zip(own, found.right)}
    return Placement(Space(found.variables, reduced, reducing), moved, mapping)


def _moved_atoms(atoms: frozenset[Atom], moved: Mapping[Atom, Index]) -> frozenset[Atom]:
    result: set[Atom] = set()
    for a in atoms:
        result |= loop_atoms(moved.get(a, a.as_expr))
    return frozenset(result)


def _merged(space: Space, rows: Refinement, cols: Refinement | None, own: list[Index]) -> Placement:
    """New rows and columns put back into the order of the old variables."""
    replaced: dict[Atom, Index] = {atom_of(v): e for v, e in zip(space.rows, rows.left)}
    right = list(rows.right)
    if cols is not None:
        replaced.update({atom_of(v): e for v, e in zip(space.cols, cols.left)})
        right += cols.right
    variables: list[Index] = []
    pool = [*rows.variables, *(cols.variables if cols is not None else space.cols)]
    for v in space.variables:
        inside = expr.atoms_of(replaced.get(atom_of(v), v))
        variables.extend(p for p in pool if atom_of(p) in inside)
    mapping = {atom_of(v): e for v, e in zip(own, right)}
    reduced = _moved_atoms(space.reduced, replaced)
    unchanged = rows.unchanged and (cols is None or cols.unchanged)
    return Placement(Space(variables, reduced, True), None if unchanged else replaced, mapping)


def place_by_load(space: Space, node: Loops, op: Op, producer_map: Map) -> Placement | None:
    """The node's loops laid over the group's so that one load of a member is aligned, dimension by dimension."""
    producer, index = op.attr
    mapping: Map = {}
    for i, at, size in zip(index, _outer_index(producer, producer_map), producer.sizes):
        atom = lone_atom(i)
        if atom is not None and (not isinstance(atom, LoopVar) or atom.size != size):
            return None
        if atom is None:
            if i != at:
                return None
            continue
        if mapping.setdefault(atom, at) != at:
            return None
    if isinstance(node, Reduce) and space.reducing and not _folds_the_columns(space, node, mapping):
        return None
    rest = [v for v in own_variables(node) if atom_of(v) not in mapping]
    covered: set[Atom] = set()
    for e in mapping.values():
        covered |= loop_atoms(e)
    free = [v for v in space.variables if atom_of(v) not in covered]
    reduced = space.reduced
    if isinstance(node, Reduce) and not space.reducing:
        if rest or free:
            return None
        return _reduce_by_map(space, node, mapping)
    if not rest:
        if free and not (space.reducing and {atom_of(v) for v in free} == set(reduced)):
            return None
        return Placement(space, None, mapping)
    if not space.reducing or [atom_of(v) for v in free] != [atom_of(v) for v in space.cols]:
        return None
    found = refine(free, [atom_of(v).size for v in rest])  # type: ignore[attr-defined]
    if found is None:
        return None
    mapping.update({atom_of(v): e for v, e in zip(rest, found.right)})
    if found.unchanged:
        return Placement(space, None, mapping)
    moved = {atom_of(v): e for v, e in zip(free, found.left)}
    variables: list[Index] = []
    for v in space.variables:
        inside = expr.atoms_of(moved.get(atom_of(v), v))
        variables.extend(p for p in [*found.variables, *space.rows] if atom_of(p) in inside)
    return Placement(Space(variables, _moved_atoms(reduced, moved), True), moved, mapping)


def _folds_the_columns(space: Space, node: Reduce, mapping: Map) -> bool:
    """True when the mapped outer variables are rows of the space and the mapped reduced ones are its columns."""
    for v in own_variables(node):
        at = mapping.get(atom_of(v))
        if at is not None:
            folded = atom_of(v).name.startswith("r")  # type: ignore[attr-defined]
            touched = loop_atoms(at)
            if not (touched <= space.reduced if folded else touched.isdisjoint(space.reduced)):
                return False
    return True


def _reduce_by_map(space: Space, node: Reduce, mapping: Map) -> Placement | None:
    inner: set[Atom] = set()
    outer: set[Atom] = set()
    for v in own_variables(node):
        name = atom_of(v).name  # type: ignore[attr-defined]
        (inner if name.startswith("r") else outer).update(loop_atoms(mapping[atom_of(v)]))
    if inner & outer:
        return None
    return Placement(Space(space.variables, frozenset(inner), True), None, mapping)


def _outer_index(node: Node, mapping: Map) -> list[Index]:
    """The index of the element that a member holds at a point, over the group's variables."""
    return [expr.substitute(v, mapping) for v in loop_vars(node.sizes)]


def aligned(op: Op, reader_map: Map, producer: Node, producer_map: Map) -> bool:
    """True when the load asks for exactly the element that the producer holds at the same point."""
    index = [expr.substitute(i, reader_map) for i in op.attr[1]]
    held = _outer_index(producer, producer_map)
    if index == held:
        return True
    strides = expr.row_major(producer.sizes)
    return expr.linear(index, strides) == expr.linear(held, strides)


def moved_map(mapping: Map, moved: Map) -> Map:
    """A member's map after the group's variables were split."""
    return {a: expr.substitute(e, moved) for a, e in mapping.items()}
