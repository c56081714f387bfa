"""What the tests of guard programs share: a frame's values, and a program checked against them."""

import builtins

from core import _C


class Frame:
    """Values of a frame; `miss(program)` is the index of the failing instruction, -1 on a hit."""

    def __init__(self, *args, closure=None, **module):
        self.args = args
        self.globals = {"__builtins__": builtins, **module}
        self.builtins = vars(builtins)
        self.closure = closure

    def miss(self, program):
        return program.check(self.args, self.globals, self.builtins, self.closure)

    def hits(self, program, times=3):
        """A hit each time: the first evaluates in full, the later ones use what it learned."""
        return all(self.miss(program) == -1 for _ in range(times))


def program(*instructions):
    """A program with as many registers as it needs."""
    return _C.GuardProgram(list(instructions), 32)
