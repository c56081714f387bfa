"""Accumulators: the variables, updates and results of one fold, as text.

A sum in float32 is folded in short runs (the vectorised inner loop) whose results are added up in double: the error
does not
grow with the length. Extremes remember separately whether a NaN went by, so that the loop stays a plain maximum.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.dtypes import FLOATING
from .ops import C_TYPES, UNSIGNED, literal

RUN = 512
"""Elements that are summed in single precision before the run is added to the double total."""

LOWEST = {"uint8": 0, "int8": -(2**7), "int16": -(2**15), "int32": -(2**31), "int64": -(2**63)}
HIGHEST = {"uint8": 2**8 - 1, "int8": 2**7 - 1, "int16": 2**15 - 1, "int32": 2**31 - 1, "int64": 2**63 - 1}


@dataclass
class Variable:
    """A variable of an accumulator: C type, name, first value, and how two of them merge."""

    ctype: str
    name: str
    first: str
    clause: str


class Accumulator:
    """One fold. `name` prefixes its variables; `at` is an index text ("[j]") when each is an array."""

    def __init__(self, kind: str, dtype: str, name: str, *, cascade: bool, at: str = "") -> None:
        self.kind = kind
        self.dtype = dtype
        self.name = name
        self.at = at
        self.cascade = cascade and kind == "sum" and dtype == "float32"

    def variables(self) -> list[Variable]:
        """What the inner loop updates."""
        n = self.name
        if self.kind == "sum":
            return [Variable(UNSIGNED.get(self.dtype, C_TYPES[self.dtype]), n, "0", "+")]
        if self.kind == "prod":
            return [Variable(UNSIGNED.get(self.dtype, C_TYPES[self.dtype]), n, "1", "*")]
        if self.kind in ("any", "all"):
            return [Variable("int", n, "0" if self.kind == "any" else "1", "|" if self.kind == "any" else "&")]
        largest = self.kind in ("amax", "argmax")
        best = Variable(C_TYPES[self.dtype], n, self._extreme(largest), "max" if largest else "min")
        if self.kind in ("argmax", "argmin"):
            return [best, Variable("long", f"{n}_at", "0x7fffffffffffffffL", "")]
        if self.dtype in FLOATING:
            return [best, Variable("int", f"{n}_nan", "0", "|")]
        return [best]

    def _extreme(self, largest: bool) -> str:
        if self.dtype in FLOATING:
            return literal(float("-inf" if largest else "inf"), self.dtype)
        return literal((LOWEST if largest else HIGHEST)[self.dtype], self.dtype)

    @property
    def vectorises(self) -> bool:
        """Whether the inner loop may be a simd loop with a reduction clause."""
        return self.kind not in ("argmax", "argmin")

    def clauses(self) -> list[str]:
        """The reduction clauses of the inner loop's pragma."""
        return [f"reduction({v.clause}:{v.name})" for v in self.variables() if v.clause]

    def update(self, value: str, position: str = "") -> list[str]:
        """Statements that fold one value in."""
        n = f"{self.name}{self.at}"
        if self.kind in ("sum", "prod"):
            wide = UNSIGNED.get(self.dtype)
            operand = f"({wide}){value}" if wide else value
            return [f"{n} {'+' if self.kind == 'sum' else '*'}= {operand};"]
        if self.kind in ("any", "all"):
            return [f"{n} {'|' if self.kind == 'any' else '&'}= ({value} != 0);"]
        sign = ">" if self.kind in ("amax", "argmax") else "<"
        if self.kind in ("argmax", "argmin"):
            return [self._better(value, position, n, f"{self.name}_at{self.at}", sign)]
        lines = [f"{n} = {value} {sign} {n} ? {value} : {n};"]
        if self.dtype in FLOATING:
            lines.append(f"{self.name}_nan{self.at} |= ({value} != {value});")
        return lines

    def _better(self, value: str, position: str, best: str, at: str, sign: str) -> str:
        """Take over a better value, a first NaN, or an equal value at a smaller position."""
        better, equal = f"{value} {sign} {best}", f"{value} == {best}"
        if self.dtype in FLOATING:
            better = f"({better} || ({value} != {value} && {best} == {best}))"
            equal = f"({equal} || ({value} != {value} && {best} != {best}))"
        return f"if ({better} || ({equal} && {position} < {at})) {{ {best} = {value}; {at} = {position}; }}"

    # --- totals over runs, chunks and threads ------------------------------------------------------------------------

    def totals(self) -> list[Variable]:
        """The variables that runs are merged into."""
        if self.cascade:
            return [Variable("double", f"{self.name}_total", "0", "+")]
        return [Variable(v.ctype, f"{v.name}_total", v.first, v.clause) for v in self.variables()]

    def merge(self, at_total: str, at: str) -> list[str]:
        """Statements that fold the run at index `at` into the total at index `at_total`."""
        totals = [f"{v.name}{at_total}" for v in self.totals()]
        return self._merged(totals, [f"{v.name}{at}" for v in self.variables()])

    def of_lanes(self) -> Accumulator:
        """The same fold with one partial result a lane."""
        return Accumulator(self.kind, self.dtype, f"{self.name}_lanes", cascade=False, at="[lane]")

    def merge_lane(self, lanes: Accumulator) -> list[str]:
        """Statements that fold the partial result of a lane in."""
        return self._merged([v.name for v in self.variables()], [f"{v.name}[lane]" for v in lanes.variables()])

    def merge_totals(self, part: str) -> list[str]:
        """Statements that fold another total, named by the suffix `part`, into the total."""
        totals = [v.name for v in self.totals()]
        return self._merged(totals, [f"{name}{part}" for name in totals])

    def _merged(self, totals: list[str], names: list[str]) -> list[str]:
        if self.kind in ("argmax", "argmin"):
            sign = ">" if self.kind == "argmax" else "<"
            return [self._better(names[0], names[1], totals[0], totals[1], sign)]
        if self.kind in ("sum", "prod"):
            return [f"{totals[0]} {'+' if self.kind == 'sum' else '*'}= {names[0]};"]
        if self.kind in ("any", "all"):
            return [f"{totals[0]} {'|' if self.kind == 'any' else '&'}= {names[0]};"]
        sign = ">" if self.kind == "amax" else "<"
        lines = [f"{totals[0]} = {names[0]} {sign} {totals[0]} ? {names[0]} : {totals[0]};"]
        if len(names) > 1:
            lines.append(f"{totals[1]} |= {names[1]};")
        return lines

    def result(self, *, total: bool, at: str = "") -> str:
        """The folded value as an expression of the fold's result type."""
        names = [f"{v.name}{at}" for v in (self.totals() if total else self.variables())]
        if self.kind in ("argmax", "argmin"):
            return names[1]
        if self.kind in ("sum", "prod"):
            return f"({C_TYPES[self.dtype]}){names[0]}"
        if self.kind in ("any", "all"):
            return f"{names[0]} != 0"
        if self.dtype in FLOATING:
            f = "f" if self.dtype == "float32" else ""
            return f'{names[1]} ? __builtin_nan{f}("") : {names[0]}'
        return f"({C_TYPES[self.dtype]}){names[0]}"
