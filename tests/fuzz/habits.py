"""What people write with the language: statements of several lines in fixed forms, with random parts.

A program of this grammar is one of programs.py, with these statements among its own and DEFINITIONS in its module.
Seeds of the other grammars mean what they meant before.
"""

from __future__ import annotations

from expressions import Scope
from habit_forms import DEFINITIONS, FORMS
from kinds import BOOL, FLOAT, INT, N4, STR, V4, Kind, list_of
from programs import Program, Writer
from statements import Lines, indented

KINDS: dict[str, Kind] = {"int": INT, "float": FLOAT, "bool": BOOL, "str": STR, "n4": N4, "v4": V4}
KINDS |= {"ints": list_of(INT), "n4s": list_of(N4), "strs": list_of(STR)}
SHARE = 0.3
"""Of the statements."""


class HabitWriter(Writer):
    """Writes one program."""

    def statement(self, scope: Scope, budget: int) -> Lines:
        if self.chance(SHARE):
            return self.habit(scope)
        return super().statement(scope, budget)

    def habit(self, scope: Scope) -> Lines:
        """One of FORMS: ~a~ is a new name, @kind@ an expression, a line of @lines@ further statements."""
        text, kinds = self.pick(FORMS)
        names: dict[str, str] = {}
        parts = text.strip("\n").split("~")
        for at in range(1, len(parts), 2):
            letter = parts[at]
            parts[at] = names.setdefault(letter, self.name())
        lines: Lines = []
        read_only = scope.child()
        read_only.in_function = False  # a part may stand in a comprehension, where no name is bound
        for line in "".join(parts).split("\n"):
            stripped = line.lstrip()
            if stripped == "@lines@":
                inner = scope.child()
                inner.in_loop = False
                block = self.block(inner, 1)
                for _ in range((len(line) - len(stripped)) // 4):
                    block = indented(block)
                lines += block
            else:
                lines += self.filled(read_only, line).split("\n")
        scope.names.update({names[letter]: KINDS[kind] for letter, kind in kinds.items()})
        return lines

    def filled(self, scope: Scope, form: str, receiver: str = "") -> str:
        """As in programs.py, and with lists. An @ that is none of a placeholder's stays."""
        parts = form.split("@")
        if receiver or not all(part in KINDS for part in parts[1::2]):
            return super().filled(scope, form, receiver) if receiver else form
        parts[1::2] = [self.expr(scope, KINDS[part], 1) for part in parts[1::2]]
        return "".join(parts)


def make_habit_program(seed: int) -> Program:
    """The program of a seed."""
    made = HabitWriter(seed).program()
    head, mark, rest = made.text.partition("class Problem(Exception):")
    return Program(seed, head + DEFINITIONS + "\n\n" + mark + rest, made.breaking)


if __name__ == "__main__":
    import sys

    print(make_habit_program(int(sys.argv[1])).text)
