"""What lives how long: references stay flat over many calls, and nothing outlives its owner."""

import gc
import sys
import weakref

from replacing import Callback, copied, copying, first_is, grown, hooked, only

from core import _C

EVERY_INTERPRETER = True

CALLS = 1_000_000


def resident_kib():
    with open("/proc/self/statm") as pages:
        return int(pages.read().split()[1]) * 4


class Flat:
    """Asserts that the body leaves reference counts, allocated blocks and memory where they were."""

    def __init__(self, *things):
        self.things = things

    def measure(self):
        gc.collect()
        return [sys.getrefcount(thing) for thing in self.things], sys.getallocatedblocks(), resident_kib()

    def __enter__(self):
        self.before = self.measure()

    def __exit__(self, kind, *rest):
        if kind is None:
            counts, blocks, kib = self.measure()
            assert counts == self.before[0], (counts, self.before[0])
            assert blocks - self.before[1] < 100, blocks - self.before[1]
            assert kib - self.before[2] < 2048, kib - self.before[2]


def one(x):
    return x


def keyed(x, *rest, k=3, **named):
    return x


def raising(x):
    raise KeyError


def swallow(call, n, *args):
    for _ in range(n):
        try:
            call(*args)
        except KeyError:
            pass


def repeat(call, n, *args):
    for _ in range(n):
        call(*args)


def test_warm_calls_of_a_closed_and_an_open_entry_are_flat():
    thing = object()
    for closed in (True, False):
        call = _C.CompiledCallable(one, copying(closed=closed))
        wide = _C.CompiledCallable(keyed, copying(closed=closed))
        repeat(call, 10, thing)
        wide(thing, thing, k=thing, z=thing)
        with Flat(thing, call, one, one.__code__, call.last_entry, call.last_entry.code, call.callback):
            repeat(call, CALLS, thing)
        with Flat(thing, wide, keyed):
            for _ in range(CALLS // 5):
                wide(thing, thing, k=thing, z=thing)
                wide(thing)
        assert call.hits == CALLS + 9


def test_misses_and_plain_calls_are_flat():
    thing = object()
    callback = Callback(lambda code: False)
    call = _C.CompiledCallable(one, callback)
    call(thing)
    callback.answer = lambda code: _C.Entry(first_is(int), copied(code), True)
    call(1)
    call.frozen = True
    with Flat(thing, call, one, call.callback):
        repeat(call, CALLS, thing)
    assert call.hits == 0
    call.frozen = False
    callback.answer = lambda code: False

    def forgetful(*args):
        return False

    asks = _C.CompiledCallable(one, forgetful)
    asks(thing)
    with Flat(thing, asks, forgetful):
        repeat(asks, CALLS // 4, thing)


def test_raising_entries_and_raising_callbacks_are_flat():
    thing = object()
    for closed in (True, False):
        call = _C.CompiledCallable(raising, copying(closed=closed))
        swallow(call, 10, thing)
        with Flat(thing, call, raising, call.last_entry):
            swallow(call, CALLS // 2, thing)

    def fails(*args):
        raise KeyError

    call = _C.CompiledCallable(one, fails)
    swallow(call, 10, thing)
    with Flat(thing, call, fails):
        swallow(call, CALLS // 4, thing)


def test_hooked_frames_are_flat_on_hit_on_raise_and_on_a_failing_callback():
    thing = object()

    def calls_one():
        one(thing)

    def fails(owner, code, *rest):
        if code is one.__code__:
            raise KeyError
        return False

    callback = copying(copy=grown)
    with hooked(callback):
        repeat(calls_one, 10)
        swallow(raising, 10, thing)
        callback.calls.clear()
        with Flat(thing, one, one.__code__):
            repeat(calls_one, CALLS // 2)
            swallow(raising, CALLS // 2, thing)
    for function in (repeat, swallow, calls_one):
        _C.skip_code(function.__code__)
    with hooked(fails):
        swallow(one, 10, thing)
        with Flat(thing, one, one.__code__):
            swallow(one, CALLS // 4, thing)
    for function in (repeat, swallow, calls_one, one, raising):
        _C.reset_code(function.__code__)


def test_resume_functions_and_bound_graphs_are_flat():
    thing = object()

    def resume(x):
        return thing, x

    code, closure = resume.__code__, resume.__closure__
    call = _C.CompiledCode(code, globals(), copying(closed=True))
    bound = _C.BoundGraph(lambda *args: None, (thing,) * 100)
    call(closure, 1)
    with Flat(thing, call, closure, closure[0], code, bound):
        for _ in range(CALLS // 4):
            call(closure, thing)
            bound(thing)
    before = sys.getrefcount(closure)
    call(closure, thing)
    assert sys.getrefcount(closure) == before


def test_making_and_dropping_callables_is_flat():
    def cycle():
        def f(x):
            return f, x

        f.call = _C.CompiledCallable(f, copying(closed=True))
        f.call(1)

    def line():
        _C.CompiledCallable(one, copying())(1)

    repeat(cycle, 50)
    repeat(line, 50)
    with Flat(one, one.__code__):
        repeat(cycle, 3000)
        repeat(line, 3000)


def test_death_of_code_frees_the_entries_of_its_frames():
    class Payload:
        pass

    payloads = [Payload()]
    dies = weakref.ref(payloads[0])

    def callback(owner, code, *rest):
        return _C.Entry(None, copied(code), False, payloads.pop()) if code.co_name == "short_lived" else False

    def short_lived(x):
        return x

    with hooked(callback):
        short_lived(1)
    entry = weakref.ref(_C.frame_entries(short_lived.__code__)[0])
    assert entry().user is dies()
    # A function's code is a constant of the one that makes it: give this one code of its own.
    short_lived.__code__ = copied(short_lived.__code__)
    assert entry() is not None
    with hooked(callback):
        payloads.append(Payload())
        short_lived(1)
    second = weakref.ref(_C.frame_entries(short_lived.__code__)[0])
    assert second() is not None
    del short_lived
    assert second() is None and entry() is not None


def test_reset_from_inside_a_guard_is_safe():
    def f(x):
        return x

    class Resets:
        def __init__(self, action):
            self.action = action

        def __bool__(self):
            self.action()
            return True

    def program(action):
        return _C.GuardProgram([("local", 0, 0), ("python", (0,), lambda value: Resets(action))], 1)

    callback = only(f.__code__, lambda: _C.Entry(program(lambda: _C.reset_code(f.__code__)), copied(f.__code__), False))
    with hooked(callback):
        assert [f(i) for i in range(20)] == list(range(20))

    call = _C.CompiledCallable(f, Callback(lambda code: _C.Entry(program(lambda: call.reset()), copied(code), True)))
    assert [call(i) for i in range(20)] == list(range(20))

    def invalidating(code):
        return _C.Entry(program(lambda: [entry.invalidate() for entry in call.entries()]), copied(code), True)

    call = _C.CompiledCallable(f, Callback(invalidating))
    assert [call(i) for i in range(20)] == list(range(20)) and call.hits == 0


def test_an_entry_dies_with_its_weakly_held_owner():
    class Model:
        pass

    class Payload:
        pass

    def f(x):
        return x

    model, payload, keep = Model(), Payload(), Payload()
    dies, kept = weakref.ref(payload), weakref.ref(keep)
    entry = _C.Entry(None, copied(f.__code__), True, payload, keep, weak_owners=(model, Model))
    call = _C.CompiledCallable(f, Callback(lambda code: entry))
    assert call(1) == 1 and call(1) == 1 and call.hits == 1
    del payload, keep
    assert dies() is not None and kept() is not None and entry.valid
    del model
    assert dies() is None and kept() is None and not entry.valid
    assert entry.code is entry.program is entry.user is entry.keepalive is None and "invalid" in repr(entry)
    assert call.entries() == []
    try:
        call(1)
    except TypeError as error:
        assert "no longer valid" in str(error)
    else:
        raise AssertionError("an invalid entry was accepted")
    try:
        entry.valid = True
    except ValueError:
        pass
    else:
        raise AssertionError("an invalid entry came back")
    try:
        _C.Entry(None, copied(f.__code__), True, weak_owners=(1,))
    except TypeError:
        pass
    else:
        raise AssertionError("an int was weakly referenced")


def test_an_entry_dies_with_an_object_that_its_guards_hold_weakly():
    class Model:
        pass

    def f(x):
        return x

    model = Model()
    program = _C.GuardProgram([("local", 0, 0), ("is", 0, model, True)], 1)
    entry = _C.Entry(program, copied(f.__code__), True, user=[1])
    call = _C.CompiledCallable(f, Callback(lambda code: entry))
    assert call(model) is model and call(model) is model and call.hits == 1
    call.callback.calls.clear()
    del program, model
    assert not entry.valid and entry.code is None and entry.user is None and call.entries() == []
    mine = []
    program = _C.GuardProgram([("local", 0, 0), ("is", 0, other := Model(), True)], 1)
    program.on_invalid = lambda: mine.append(1)
    entry = _C.Entry(program, copied(f.__code__), True)
    del other
    assert mine == [1] and entry.valid


def test_an_entry_that_dies_first_leaves_its_owners_alone():
    class Model:
        pass

    model = Model()
    entry = _C.Entry(None, copied(one.__code__), True, weak_owners=(model,))
    ref = weakref.getweakrefs(model)[0]
    del entry
    assert ref() is model
    del model
    assert ref() is None


def test_an_entry_may_be_invalidated_while_it_runs():
    def f(x):
        call.entries()[0].invalidate()
        gc.collect()
        return x, graph(x)

    graph = _C.BoundGraph(lambda *args: args, (8,))
    call = _C.CompiledCallable(f, copying(closed=True))
    assert call(7) == (7, (7, 8)) and call.entries() == []


def test_cycles_through_replacement_code_are_collected():
    class Payload:
        pass

    def build(closed, constant_of):
        payload = Payload()

        def f(x):
            return ("graph" or len)(x)  # the constant is put in below

        call = _C.CompiledCallable(f, Callback(lambda code: entry()))
        constant = constant_of((payload, call))
        consts = tuple(constant if value == "graph" else value for value in f.__code__.co_consts)
        made = []

        def entry():
            return _C.Entry(None, f.__code__.replace(co_consts=consts), closed)

        made.append(entry)
        return call, weakref.ref(payload), weakref.ref(constant)

    def bound(cycle):
        return _C.BoundGraph(lambda *args: args, cycle)

    def resume(cycle):
        return _C.CompiledCode(one.__code__, globals(), lambda *args, held=cycle: False, cycle)

    for closed in (True, False):
        for constant_of, args in ((bound, (1,)), (resume, (None,))):
            call, payload, constant = build(closed, constant_of)
            for _ in range(2):
                try:
                    call(*args)
                except TypeError:
                    pass
            gc.collect()
            assert payload() is not None and constant() is not None
            code = call.entries()[0].code
            del call
            gc.collect()
            assert payload() is not None, "someone else owns the code, so what it needs must stay"
            del code
            gc.collect()
            assert payload() is None and constant() is None


def test_a_callable_in_a_cycle_with_its_callback_is_collected():
    class Holder:
        def __call__(self, *args):
            return _C.Entry(None, copied(args[1]), True, self)

    holder = Holder()
    holder.call = _C.CompiledCallable(one, holder, holder)
    holder.call.extra = holder
    holder.call(1)
    dies = weakref.ref(holder)
    del holder
    gc.collect()
    assert dies() is None
