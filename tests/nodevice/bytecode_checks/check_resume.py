"""Stop every subject before every instruction, at several passes, once or twice; print what differs as JSON."""

import json
import random
import sys
import traceback
import types

from stopping import points, resume, stopping
from subjects import LOG, calls

from core.bytecode.resume import is_resume_code


def outcome(call, function):
    """(result or exception, log, lines of the function's own frame in the traceback)."""
    LOG.clear()
    name = function.__code__.co_name
    try:
        result = ("value", repr(call(function)))
        lines = []
    except Exception as error:
        own = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.name == name]
        lines = own[-1:]
        result = ("error", type(error).__name__, str(error), type(error.__context__).__name__)
    outside = sys.exception()
    return result, list(LOG), lines, None if outside is None else repr(outside)


class Stops:
    """Decides at which pass to stop, and what to do with what is handed over."""

    def __init__(self, function, passes, depth, chooser):
        self.function, self.left, self.depth, self.chooser = function, passes, depth, chooser
        self.resumed = 0

    def ask(self):
        self.left -= 1
        return self.left == 0

    def receive(self, code, index, variables, cells):
        function, arguments = resume(code, index, variables, cells, self.function.__globals__)
        assert is_resume_code(function.__code__)
        self.resumed += 1
        if self.depth > 1:
            choices = points(function.__code__)
            inner = Stops(function, 1, self.depth - 1, self.chooser)
            function = stopping(function, self.chooser.choice(choices), inner.ask, inner.receive)
        return function(*arguments)


def check(name, owner, call, passes, depth, seed):
    """Number of stops that happened, and the differences."""
    chooser = random.Random(seed)
    expected = outcome(call, owner())
    code = owner().__code__
    stops, wrong = 0, []
    for index in points(code):
        function = owner()
        state = Stops(function, passes, depth, chooser)
        stopped = stopping(function, index, state.ask, state.receive)
        try:
            got = outcome(call, stopped)
        except BaseException as error:
            got = ("crashed", repr(error))
        stops += state.resumed
        if got != expected:
            wrong.append(f"{name} at {index}, pass {passes}, depth {depth}: {got} instead of {expected}")
    return stops, wrong


def main(only=None):
    stops, wrong, subjects = 0, [], 0
    for name, owner, call in calls():
        if only and name != only:
            continue
        subjects += 1
        for passes, depth in ((1, 1), (2, 1), (3, 1), (1, 2), (2, 3)):
            count, differences = check(name, owner, call, passes, depth, passes * 7 + depth)
            stops += count
            wrong += differences
    assert isinstance(main, types.FunctionType)
    print(json.dumps({"subjects": subjects, "stops": stops, "wrong": wrong}))


if __name__ == "__main__":
    main(*sys.argv[1:])
