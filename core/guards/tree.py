"""From a GuardSet to a GuardProgram: shared paths are loaded once, in the order of a walk over the tree of sources.

The order within the program: instructions that run no user code before those that may; among the former, guards without
a path (global state) first, then depth first, where each object's own checks stand before those of what it leads to:
cheap and likely to fail first. Guards that compare several values (shapes, overlap) come after everything they read.
"""

from __future__ import annotations

from collections.abc import Iterable

from .. import _C
from .checks import MissingGlobal
from .guard import Guard, GuardSet
from .source import GlobalSource, Instruction, Source


def build_program(guards: GuardSet | Iterable[Guard]) -> tuple[_C.GuardProgram, list[Guard]]:
    """The program of some guards, and for each of its instructions the guard that asked for it first."""
    instructions, owners, registers = flatten(guards)
    return _C.GuardProgram(instructions, registers), owners


def flatten(guards: GuardSet | Iterable[Guard]) -> tuple[list[Instruction], list[Guard], int]:
    """Instructions, the guard behind each, and the number of registers."""
    walk = _Walk(list(guards))
    walk.run()
    return walk.instructions, walk.owners, len(walk.registers)


class _Walk:
    """One flattening. `registers` maps each source that is loaded to its register."""

    def __init__(self, guards: list[Guard]) -> None:
        self.guards = guards
        self.instructions: list[Instruction] = []
        self.owners: list[Guard] = []
        self.registers: dict[Source, int] = {}
        self.checks: dict[Source, list[Guard]] = {}
        self.children: dict[Source, dict[Source, None]] = {}
        self.roots: dict[Source, None] = {}
        self.sourceless: list[Guard] = []
        self.joint: list[Guard] = []
        self.careful: list[Guard] = []
        self.first_asked: dict[Source, Guard] = {}

    def run(self) -> None:
        for guard in self.guards:
            self._sort_in(guard)
        for guard in self.sourceless:
            self._check(guard)
        for root in self.roots:
            self._visit(root)
        for guard in sorted(self.joint, key=lambda guard: guard.check.cost):
            self._check(guard)
        for guard in self.careful:
            self._check(guard)

    def _sort_in(self, guard: Guard) -> None:
        sources = guard.sources()
        if guard.check.runs_user_code or any(_path_runs_user_code(source) for source in sources):
            self.careful.append(guard)
        elif isinstance(guard.check, MissingGlobal) or not sources:
            self.sourceless.append(guard)
        else:
            for source in sources:
                self._plant(source, guard)
            if guard.source is None or guard.check.inputs():
                self.joint.append(guard)
            else:
                self.checks.setdefault(guard.source, []).append(guard)

    def _plant(self, source: Source, guard: Guard) -> None:
        while source not in self.first_asked:
            self.first_asked[source] = guard
            if source.base is None:
                self.roots[source] = None
                return
            self.children.setdefault(source.base, {})[source] = None
            source = source.base

    def _visit(self, root: Source) -> None:
        stack = [root]
        while stack:
            source = stack.pop()
            self._load(source, self.first_asked[source])
            for guard in sorted(self.checks.get(source, ()), key=lambda guard: guard.check.cost):
                self._check(guard)
            stack.extend(reversed(self.children.get(source, {})))

    def _load(self, source: Source, guard: Guard) -> int:
        known = self.registers.get(source)
        if known is not None:
            return known
        path = [source]
        while path[-1].base is not None and path[-1].base not in self.registers:
            path.append(path[-1].base)
        for step in reversed(path):
            base = 0 if step.base is None else self.registers[step.base]
            self.registers[step] = len(self.registers)
            self._emit(step.access(self.registers[step], base), guard)
        return self.registers[source]

    def _check(self, guard: Guard) -> None:
        check, source = guard.check, guard.source
        if isinstance(check, MissingGlobal):
            if not isinstance(source, GlobalSource):
                raise TypeError(f"MissingGlobal needs a GlobalSource, not {source!r}")
            new = check.named(source.global_name)
        else:
            src = 0 if source is None else self._load(source, guard)
            new = check.instructions(src, lambda wanted: self._load(wanted, guard))
        for instruction in new:
            self._emit(instruction, guard)

    def _emit(self, instruction: Instruction, guard: Guard) -> None:
        self.instructions.append(instruction)
        self.owners.append(guard)


def _path_runs_user_code(source: Source) -> bool:
    step: Source | None = source
    while step is not None:
        if step.runs_user_code:
            return True
        step = step.base
    return False
