"""Index expressions: integer polynomials over loop variables, size symbols and floor quotients / remainders.

Enters: plain ints, loop variables with their ranges, size symbols. Leaves: values that are an `int` whenever they are
constant and an `Expr` otherwise, kept in one canonical form so that equal maps compare equal. Quotients and remainders
are simplified by the ranges of the variables in them, which is what turns reshapes back into plain affine indexing.
Everything here is an integer; loop variables, sizes, quotients and remainders are never negative, differences may be.
No sympy: symbolic sizes are converted once at the edge (symbols.py). This file must not know what a tensor is.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence

_order = itertools.count()


class Atom:
    """An indivisible factor of a monomial. Atoms are interned: equality is identity."""

    __slots__ = ("order", "as_expr")

    def __init__(self) -> None:
        self.order = next(_order)
        self.as_expr = Expr({(self,): 1})

    def __repr__(self) -> str:
        return str(self.as_expr)


class Expr:
    """A polynomial: monomial (a sorted tuple of atoms) -> nonzero integer coefficient. Never constant, never
    changed."""

    __slots__ = ("terms", "_hash")

    def __init__(self, terms: dict[tuple[Atom, ...], int]) -> None:
        self.terms = terms
        self._hash: int | None = None

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Expr) and self.terms == other.terms)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self.terms.items()))
        return self._hash

    def __repr__(self) -> str:
        return text(self)


Index = int | Expr


class LoopVar(Atom):
    """A loop variable running over range(size). `name` is unique within the size."""

    __slots__ = ("name", "size")

    def __init__(self, name: str, size: Index) -> None:
        self.name = name
        self.size = size
        super().__init__()


class SizeVar(Atom):
    """A size that is known only when the program is called. `hint` is its value in the example, for heuristics."""

    __slots__ = ("name", "hint")

    def __init__(self, name: str, hint: int) -> None:
        self.name = name
        self.hint = hint
        super().__init__()


class Quotient(Atom):
    """floor(numerator / divisor), divisor positive."""

    __slots__ = ("numerator", "divisor")

    def __init__(self, numerator: Index, divisor: Index) -> None:
        self.numerator = numerator
        self.divisor = divisor
        super().__init__()


class Remainder(Atom):
    """numerator - divisor * floor(numerator / divisor), divisor positive."""

    __slots__ = ("numerator", "divisor")

    def __init__(self, numerator: Index, divisor: Index) -> None:
        self.numerator = numerator
        self.divisor = divisor
        super().__init__()


class Extremum(Atom):
    """The larger (`largest`) or smaller of two values; arises from symbolic sizes only."""

    __slots__ = ("largest", "left", "right")

    def __init__(self, largest: bool, left: Index, right: Index) -> None:
        self.largest = largest
        self.left = left
        self.right = right
        super().__init__()


class Indirect(Atom):
    """The run-time value of an operand: slot `slot` of the load or store that holds the expression, in range(size)."""

    __slots__ = ("slot", "size")

    def __init__(self, slot: int, size: Index) -> None:
        self.slot = slot
        self.size = size
        super().__init__()


_interned: dict[tuple, Atom] = {}


def _intern(key: tuple) -> Atom:
    atom = _interned.get(key)
    if atom is None:
        # setdefault: two threads compiling at once must agree on one object.
        atom = _interned.setdefault(key, key[0](*key[1:]))
    return atom


def loop_var(name: str, size: Index) -> Expr:
    """The variable `name` of range(size)."""
    return _intern((LoopVar, name, size)).as_expr


def size_var(name: str, hint: int) -> Expr:
    """The size symbol `name`."""
    return _intern((SizeVar, name, hint)).as_expr


def indirect(slot: int, size: Index) -> Expr:
    """The value of operand slot `slot`, known to lie in range(size)."""
    return _intern((Indirect, slot, size)).as_expr


def _make(terms: dict[tuple[Atom, ...], int]) -> Index:
    if not terms:
        return 0
    if len(terms) == 1 and () in terms:
        return terms[()]
    return Expr(terms)


def terms_of(e: Index) -> dict[tuple[Atom, ...], int]:
    """The monomials of `e`; the constant's key is ()."""
    if isinstance(e, int):
        return {(): e} if e else {}
    return e.terms


def add(a: Index, b: Index) -> Index:
    """a + b."""
    if isinstance(a, int):
        if isinstance(b, int):
            return a + b
        a, b = b, a
    if isinstance(b, int):
        if b == 0:
            return a
        terms = dict(a.terms)
        value = terms.get((), 0) + b
        if value:
            terms[()] = value
        else:
            terms.pop((), None)
        return _make(terms)
    terms = dict(a.terms)
    for monomial, coefficient in b.terms.items():
        value = terms.get(monomial, 0) + coefficient
        if value:
            terms[monomial] = value
        else:
            del terms[monomial]
    return _make(terms)


def _order_of(atom: Atom) -> int:
    return atom.order


def mul(a: Index, b: Index) -> Index:
    """a * b."""
    if isinstance(a, int):
        if isinstance(b, int):
            return a * b
        a, b = b, a
    if isinstance(b, int):
        if b == 0:
            return 0
        if b == 1:
            return a
        return Expr({monomial: coefficient * b for monomial, coefficient in a.terms.items()})
    terms: dict[tuple[Atom, ...], int] = {}
    for left, left_coefficient in a.terms.items():
        for right, right_coefficient in b.terms.items():
            monomial = tuple(sorted(left + right, key=_order_of)) if left and right else left or right
            value = terms.get(monomial, 0) + left_coefficient * right_coefficient
            if value:
                terms[monomial] = value
            else:
                terms.pop(monomial, None)
    return _make(terms)


def sub(a: Index, b: Index) -> Index:
    """a - b."""
    return add(a, mul(b, -1))


def product(values: Iterable[Index]) -> Index:
    """The product of all values, 1 for none."""
    result: Index = 1
    for value in values:
        result = mul(result, value)
    return result


def total(values: Iterable[Index]) -> Index:
    """The sum of all values, 0 for none."""
    result: Index = 0
    for value in values:
        result = add(result, value)
    return result


# --- ranges -----------------------------------------------------------------------------------------------------------


def _atom_max(atom: Atom) -> Index:
    """A bound that `atom` never exceeds, in size symbols only."""
    if isinstance(atom, (LoopVar, Indirect)):
        return sub(atom.size, 1)
    if isinstance(atom, Remainder):
        return sub(upper(atom.divisor), 1)
    if isinstance(atom, Quotient):
        return floordiv(upper(atom.numerator), atom.divisor)
    return atom.as_expr


def upper(e: Index) -> Index:
    """A bound that `e` never exceeds, in size symbols only."""
    if isinstance(e, int):
        return e
    result: Index = 0
    for monomial, coefficient in e.terms.items():
        if coefficient > 0 or all(isinstance(atom, SizeVar) for atom in monomial):
            result = add(result, mul(product(_atom_max(atom) for atom in monomial), coefficient))
    return result


def lower(e: Index) -> Index:
    """A bound that `e` never falls below, in size symbols only."""
    return mul(upper(mul(e, -1)), -1)


def nonnegative(e: Index) -> bool:
    """True when `e`, free of loop variables, is >= 0 for all size symbols >= 1. False means unknown."""
    if isinstance(e, int):
        return e >= 0
    constant = 0
    for monomial, coefficient in e.terms.items():
        if monomial and coefficient < 0:
            return False
        constant += coefficient
    return constant >= 0


def surely_nonnegative(e: Index) -> bool:
    """True when `e` is proven >= 0 over the ranges of its variables."""
    return all(coefficient >= 0 for coefficient in terms_of(e).values()) or nonnegative(lower(e))


def below(e: Index, bound: Index) -> bool:
    """True when 0 <= e < bound is proven."""
    if isinstance(e, int) and isinstance(bound, int):
        return 0 <= e < bound
    if not nonnegative(sub(sub(bound, 1), upper(e))):
        return False
    return surely_nonnegative(e)


def hint(e: Index) -> int:
    """The value of `e` in the example; loop variables count as their largest value."""
    if isinstance(e, int):
        return e
    result = 0
    for monomial, coefficient in e.terms.items():
        for atom in monomial:
            coefficient *= _atom_hint(atom)
        result += coefficient
    return result


def _atom_hint(atom: Atom) -> int:
    if isinstance(atom, SizeVar):
        return atom.hint
    if isinstance(atom, (LoopVar, Indirect)):
        return hint(atom.size) - 1
    if isinstance(atom, Quotient):
        return hint(atom.numerator) // max(hint(atom.divisor), 1)
    if isinstance(atom, Remainder):
        return hint(atom.numerator) % max(hint(atom.divisor), 1)
    assert isinstance(atom, Extremum)
    values = hint(atom.left), hint(atom.right)
    return max(values) if atom.largest else min(values)


# --- quotients and remainders -----------------------------------------------------------------------------------------


def _divide_monomial(monomial: tuple[Atom, ...], divisor: tuple[Atom, ...]) -> tuple[Atom, ...] | None:
    rest = list(monomial)
    for atom in divisor:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def _split(e: Index, divisor: Index) -> tuple[Index, Index]:
    """(q, r) with e == q * divisor + r, r never negative, q as large as can be seen.

    Quotients must not be taken of negative numbers: everything that bounds them relies on it. So what would leave a
    rest that may be negative (the constant of a reversed dimension) is not split off.
    """
    for constant in (True, False):
        quotient, rest = _split_terms(e, divisor, constant)
        if quotient == 0 or surely_nonnegative(rest):
            return quotient, rest
    return 0, e


def _split_terms(e: Index, divisor: Index, constant: bool) -> tuple[Index, Index]:
    divisor_terms = terms_of(divisor)
    if len(divisor_terms) != 1:
        exact = exact_quotient(e, divisor)
        return (exact, 0) if exact is not None else (0, e)
    ((divisor_monomial, divisor_coefficient),) = divisor_terms.items()
    quotient: dict[tuple[Atom, ...], int] = {}
    rest: dict[tuple[Atom, ...], int] = {}
    for monomial, coefficient in terms_of(e).items():
        left = _divide_monomial(monomial, divisor_monomial)
        if left is not None and coefficient % divisor_coefficient == 0 and (monomial or constant):
            quotient[left] = coefficient // divisor_coefficient
        elif left is not None and not monomial and constant:
            quotient[()] = coefficient // divisor_coefficient
            rest[()] = coefficient % divisor_coefficient
        else:
            rest[monomial] = coefficient
    if quotient.get((), 1) == 0:
        del quotient[()]
    return _make(quotient), _make(rest)


def exact_quotient(e: Index, divisor: Index) -> Index | None:
    """e / divisor when the divisor divides `e` as a polynomial, else None."""
    if isinstance(divisor, int):
        if divisor == 0 or any(coefficient % divisor for coefficient in terms_of(e).values()):
            return None
        return _make({monomial: coefficient // divisor for monomial, coefficient in terms_of(e).items()})
    if e == 0:
        return 0
    lead, lead_coefficient = max(divisor.terms.items(), key=lambda term: _degree_key(term[0]))
    quotient: Index = 0
    rest = e
    for _ in range(len(terms_of(e)) + 4):
        if rest == 0:
            return quotient
        monomial, coefficient = max(terms_of(rest).items(), key=lambda term: _degree_key(term[0]))
        left = _divide_monomial(monomial, lead)
        if left is None or coefficient % lead_coefficient:
            return None
        factor = _make({left: coefficient // lead_coefficient})
        quotient = add(quotient, factor)
        rest = sub(rest, mul(factor, divisor))
    return None


def _degree_key(monomial: tuple[Atom, ...]) -> tuple:
    return (len(monomial), tuple(-atom.order for atom in monomial))


def floordiv(e: Index, divisor: Index) -> Index:
    """floor(e / divisor) for a positive divisor."""
    if isinstance(divisor, int):
        if isinstance(e, int):
            return e // divisor
        if divisor == 1:
            return e
    quotient, rest = _split(e, divisor)
    if rest == 0 or below(rest, divisor):
        return quotient
    if isinstance(divisor, int) and isinstance(rest, Expr):
        common = divisor
        for monomial, coefficient in rest.terms.items():
            if monomial:
                common = math.gcd(common, coefficient)
        if common > 1:
            # floor((g*r + c) / (g*n)) == floor((r + floor(c / g)) / n)
            rest = Expr({m: c // common for m, c in rest.terms.items() if c // common})
            return add(quotient, floordiv(rest, divisor // common))
    atom = _single_atom(rest)
    if isinstance(atom, Quotient):
        return add(quotient, floordiv(atom.numerator, mul(atom.divisor, divisor)))
    return add(quotient, _intern((Quotient, rest, divisor)).as_expr)


def mod(e: Index, divisor: Index) -> Index:
    """e modulo a positive divisor, in range(divisor)."""
    if isinstance(divisor, int):
        if isinstance(e, int):
            return e % divisor
        if divisor == 1:
            return 0
    _, rest = _split(e, divisor)
    if rest == 0 or below(rest, divisor):
        return rest
    atom = _single_atom(rest)
    if isinstance(atom, Remainder) and exact_quotient(atom.divisor, divisor) is not None:
        return mod(atom.numerator, divisor)
    return _intern((Remainder, rest, divisor)).as_expr


def _single_atom(e: Index) -> Atom | None:
    if isinstance(e, Expr) and len(e.terms) == 1:
        ((monomial, coefficient),) = e.terms.items()
        if coefficient == 1 and len(monomial) == 1:
            return monomial[0]
    return None


def extremum(largest: bool, left: Index, right: Index) -> Index:
    """max(left, right) when `largest`, else min(left, right)."""
    difference = sub(left, right)
    if nonnegative(difference):
        return left if largest else right
    if nonnegative(mul(difference, -1)):
        return right if largest else left
    return _intern((Extremum, largest, left, right)).as_expr


def combine(e: Index) -> Index:
    """Undo splits: n*floor(x/n)*c + (x mod n)*c becomes x*c."""
    if isinstance(e, int):
        return e
    for monomial, coefficient in e.terms.items():
        for position, atom in enumerate(monomial):
            if not isinstance(atom, Remainder):
                continue
            others = Expr({monomial[:position] + monomial[position + 1 :]: coefficient})
            rest: Index = others if () not in others.terms else coefficient
            whole = mul(mul(rest, atom.divisor), floordiv(atom.numerator, atom.divisor))
            present = e.terms
            if whole != 0 and all(present.get(m) == c for m, c in terms_of(whole).items()):
                e = sub(sub(e, Expr({monomial: coefficient})), whole)
                return combine(add(e, mul(rest, atom.numerator)))
            merged = _merge_remainder(e, monomial, coefficient, atom, rest)
            if merged is not None:
                return combine(merged)
    return e


def _merge_remainder(
    e: Expr, monomial: tuple[Atom, ...], coefficient: int, atom: Remainder, rest: Index
) -> Index | None:
    """(x mod a)*c + (floor(x/a) mod b)*c*a becomes (x mod a*b)*c."""
    for other, other_coefficient in e.terms.items():
        for candidate in other:
            if not isinstance(candidate, Remainder) or candidate is atom:
                continue
            if floordiv(atom.numerator, atom.divisor) != candidate.numerator:
                continue
            wanted = mul(mul(rest, atom.divisor), candidate.as_expr)
            if wanted == Expr({other: other_coefficient}):
                joined = mod(atom.numerator, mul(atom.divisor, candidate.divisor))
                without = sub(sub(e, wanted), Expr({monomial: coefficient}))
                return add(without, mul(rest, joined))
    return None


# --- whole maps -------------------------------------------------------------------------------------------------------


def substitute(e: Index, values: Mapping[Atom, Index]) -> Index:
    """`e` with atoms replaced, simplified again."""
    if isinstance(e, int):
        return e
    result: Index = 0
    for monomial, coefficient in e.terms.items():
        factor: Index = coefficient
        for atom in monomial:
            factor = mul(factor, _substitute_atom(atom, values))
        result = add(result, factor)
    return result


def _substitute_atom(atom: Atom, values: Mapping[Atom, Index]) -> Index:
    value = values.get(atom)
    if value is not None:
        return value
    if isinstance(atom, Quotient):
        return floordiv(substitute(atom.numerator, values), substitute(atom.divisor, values))
    if isinstance(atom, Remainder):
        return mod(substitute(atom.numerator, values), substitute(atom.divisor, values))
    if isinstance(atom, Extremum):
        return extremum(atom.largest, substitute(atom.left, values), substitute(atom.right, values))
    return atom.as_expr


def linear(index: Sequence[Index], strides: Sequence[Index]) -> Index:
    """The memory position of a multi-index: sum of index * stride, with splits undone."""
    return combine(total(mul(i, s) for i, s in zip(index, strides)))


def delinearize(position: Index, sizes: Sequence[Index]) -> tuple[Index, ...]:
    """The multi-index, in row-major order, of a position in range(product(sizes)); of no position where one is 0."""
    result: list[Index] = []
    for size in reversed(sizes):
        if size in (0, 1):
            result.append(0)
            continue
        result.append(mod(position, size))
        position = floordiv(position, size)
    return tuple(reversed(result))


def row_major(sizes: Sequence[Index]) -> tuple[Index, ...]:
    """Contiguous strides of a shape; a dimension of size 0 counts as 1."""
    strides: list[Index] = []
    running: Index = 1
    for size in reversed(sizes):
        strides.append(running)
        running = mul(running, size if size != 0 else 1)
    return tuple(reversed(strides))


def atoms_of(e: Index, into: set[Atom] | None = None) -> set[Atom]:
    """Every atom of `e`, those inside quotients and remainders included."""
    found: set[Atom] = set() if into is None else into
    if isinstance(e, Expr):
        for monomial in e.terms:
            for atom in monomial:
                if atom in found:
                    continue
                found.add(atom)
                if isinstance(atom, (Quotient, Remainder)):
                    atoms_of(atom.numerator, found)
                    atoms_of(atom.divisor, found)
                elif isinstance(atom, Extremum):
                    atoms_of(atom.left, found)
                    atoms_of(atom.right, found)
    return found


def affine(e: Index, variables: Sequence[Atom]) -> tuple[list[Index], Index] | None:
    """(coefficient of each variable, rest) when `e` is affine in the variables, else None."""
    coefficients: list[Index] = [0] * len(variables)
    rest: Index = 0
    if isinstance(e, int):
        return coefficients, e
    position = {variable: k for k, variable in enumerate(variables)}
    for monomial, coefficient in e.terms.items():
        inside = [atom for atom in monomial if atom in position]
        outside = tuple(atom for atom in monomial if atom not in position)
        if len(inside) > 1 or any(not position.keys().isdisjoint(atoms_of(atom.as_expr)) for atom in outside):
            return None
        factor = _make({outside: coefficient})
        if inside:
            k = position[inside[0]]
            coefficients[k] = add(coefficients[k], factor)
        else:
            rest = add(rest, factor)
    return coefficients, rest


# --- text -------------------------------------------------------------------------------------------------------------


def text(e: Index, names: Mapping[Atom, str] | None = None, *, divide: str = "//", wide: str = "") -> str:
    """`e` as source text. `divide` is the integer division operator; `wide` is appended to literals."""
    if isinstance(e, int):
        return f"{e}{wide}"
    parts: list[str] = []
    for monomial, coefficient in e.terms.items():
        factors = [_atom_text(atom, names, divide, wide) for atom in monomial]
        magnitude = abs(coefficient)
        if magnitude != 1 or not factors:
            factors.insert(0, f"{magnitude}{wide}")
        sign = "-" if coefficient < 0 else "+"
        parts.append(f" {sign} " + " * ".join(factors))
    joined = "".join(parts)
    return joined[3:] if joined.startswith(" + ") else "-" + joined[3:]


def _atom_text(atom: Atom, names: Mapping[Atom, str] | None, divide: str, wide: str) -> str:
    if names is not None and atom in names:
        return names[atom]
    if isinstance(atom, (LoopVar, SizeVar)):
        return atom.name
    if isinstance(atom, Indirect):
        return f"indirect{atom.slot}"
    if isinstance(atom, Extremum):
        left, right = (
            text(atom.left, names, divide=divide, wide=wide),
            text(atom.right, names, divide=divide, wide=wide),
        )
        if divide == "//":
            return f"{'max' if atom.largest else 'min'}({left}, {right})"
        return f"(({left}) {'>' if atom.largest else '<'} ({right}) ? ({left}) : ({right}))"
    assert isinstance(atom, (Quotient, Remainder))
    left, right = (
        text(atom.numerator, names, divide=divide, wide=wide),
        text(atom.divisor, names, divide=divide, wide=wide),
    )
    if divide == "/" and not surely_nonnegative(atom.numerator):
        return (
            f"{'floor_quotient' if isinstance(atom, Quotient) else 'floor_remainder'}((long)({left}), (long)({right}))"
        )
    return f"(({left}) {divide if isinstance(atom, Quotient) else '%'} ({right}))"
