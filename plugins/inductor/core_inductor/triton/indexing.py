"""Index expressions as Triton source. All of them are int64."""

from __future__ import annotations

from collections.abc import Mapping

from ..ir import expr
from ..ir.expr import Atom, Extremum, Index, Indirect, LoopVar, Quotient, Remainder, SizeVar, terms_of


def index_text(e: Index, names: Mapping[Atom, str], slots: tuple[str, ...] = ()) -> str:
    """`e` as an expression; loop variables by `names`, Indirect atoms by `slots`, sizes by their own name."""
    if isinstance(e, int):
        return str(e)
    parts = []
    for monomial, coefficient in e.terms.items():
        factors = [_atom_text(atom, names, slots) for atom in monomial]
        if coefficient != 1 or not factors:
            factors.insert(0, str(coefficient))
        parts.append(" * ".join(factors))
    return parts[0] if len(parts) == 1 else "(" + " + ".join(parts) + ")"


def _atom_text(atom: Atom, names: Mapping[Atom, str], slots: tuple[str, ...]) -> str:
    if isinstance(atom, LoopVar):
        return names[atom]
    if isinstance(atom, SizeVar):
        return atom.name
    if isinstance(atom, Indirect):
        return slots[atom.slot]
    if isinstance(atom, Extremum):
        name = "tl.maximum" if atom.largest else "tl.minimum"
        return f"{name}({index_text(atom.left, names, slots)}, {index_text(atom.right, names, slots)})"
    assert isinstance(atom, (Quotient, Remainder))
    left, right = index_text(atom.numerator, names, slots), index_text(atom.divisor, names, slots)
    if _never_negative(atom.numerator):
        return f"({left} {'//' if isinstance(atom, Quotient) else '%'} {right})"
    # Triton's integer division rounds towards zero, index maps round down.
    name = "floor_quotient" if isinstance(atom, Quotient) else "floor_remainder"
    return f"{name}({left}, {right})"


def _never_negative(e: Index) -> bool:
    positive = all(coefficient >= 0 for coefficient in terms_of(e).values())
    return positive or expr.nonnegative(expr.lower(e))


def size_names(*expressions: Index) -> list[str]:
    """Names of the size symbols in the expressions, sorted."""
    found: set[Atom] = set()
    for e in expressions:
        expr.atoms_of(e, found)
    return sorted({atom.name for atom in found if isinstance(atom, SizeVar)})
