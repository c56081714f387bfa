"""CompiledCallable, CompiledCode and BoundGraph: what the callback sees, what runs, what comes out."""

import copy
import functools
import inspect
import pickle
import threading
import weakref

from replacing import Callback, copied, copying, first_is

from core import _C

EVERY_INTERPRETER = True


def everything(a, b=2, /, c=3, *rest, d, e=5, **named):
    """Documented."""
    return a, b, c, rest, d, e, named


def raises(kind, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except kind as error:
        return str(error)
    raise AssertionError(f"{kind.__name__} was not raised")


def test_slots_are_positional_then_keyword_only_then_star_args_then_star_kwargs():
    callback = Callback(lambda code: False)
    call = _C.CompiledCallable(everything, callback)
    assert call(1, d=4) == everything(1, d=4)
    assert call(1, 9, 8, 7, d=4, z=0, e=6) == everything(1, 9, 8, 7, d=4, z=0, e=6)
    assert call(1, c=30, d=4, a=1) == everything(1, c=30, d=4, a=1)
    assert [args for _, _, args in callback.calls] == [
        (1, 2, 3, 4, 5, (), {}),
        (1, 9, 8, 4, 6, (7,), {"z": 0}),
        (1, 2, 30, 4, 5, (), {"a": 1}),
    ]
    assert callback.calls[0][0] is call


def test_the_callback_gets_globals_builtins_and_closure():
    seen = []
    free = 5

    def inner(x):
        return x + free

    def callback(*args):
        seen.append(args)
        return False

    call = _C.CompiledCallable(inner, callback, "mine")
    assert call(1) == 6 and call.user == "mine"
    owner, code, args, module, builtins, closure = seen[0]
    assert owner is call and code is inner.__code__ and args == (1,)
    assert module is globals() and builtins["len"] is len and closure is inner.__closure__
    _C.CompiledCallable(raises, callback)(TypeError, len)
    assert seen[1][5] is None


def test_wrong_arguments_raise_the_functions_own_error_and_never_ask_the_callback():
    callback = copying(closed=True)
    call = _C.CompiledCallable(everything, callback)
    for args, kwargs in [((), {}), ((1,), {}), ((1,), {"d": 1, "b": 2, "c": 3, "e": 4, "x": 5}), ((1, 2, 3), {"c": 4})]:
        try:
            want = everything(*args, **kwargs)
        except TypeError as error:
            assert raises(TypeError, call, *args, **kwargs) == str(error)
        else:
            assert call(*args, **kwargs) == want
    assert len(callback.calls) == 1

    def two(a, b):
        return a

    narrow = _C.CompiledCallable(two, callback)
    for args, kwargs in [((1,), {}), ((1, 2, 3), {}), ((1, 2), {"b": 1}), ((1, 2), {"c": 1}), ((), {"a": 1})]:
        try:
            two(*args, **kwargs)
        except TypeError as error:
            assert raises(TypeError, narrow, *args, **kwargs) == str(error)
    assert len(callback.calls) == 1 and narrow(b=1, a=7) == 7


def test_many_arguments_bind_beyond_the_inline_room():
    names = [f"p{i}" for i in range(60)]
    space = {}
    exec(f"def wide({', '.join(names)}=60, *, k=0): return ({', '.join(names)}, k)", space)
    callback = copying(closed=True)
    call = _C.CompiledCallable(space["wide"], callback)
    assert call(*range(59), k=1) == (*range(59), 60, 1)
    assert call(**{name: i for i, name in enumerate(names)}) == (*range(60), 0)
    assert callback.calls[0][2] == (*range(59), 60, 1) and call.hits == 1


def test_keyword_names_that_are_not_interned_bind():
    callback = copying(closed=True)

    def keyed(alpha, *, beta):
        return alpha, beta

    call = _C.CompiledCallable(keyed, callback)
    assert call(**{"".join(["al", "pha"]): 1, "".join(["be", "ta"]): 2}) == (1, 2)
    assert callback.calls[0][2] == (1, 2)


def test_an_entry_runs_for_the_call_that_made_it_and_then_by_its_guards():
    def f(x):
        return ("original", x)

    def for_int(x):
        return ("int", x)

    def for_str(x):
        return ("str", x)

    made = {int: for_int, str: for_str}
    asked = []

    def callback(owner, code, args, *rest):
        asked.append(args)
        kind = type(args[0])
        if kind not in made:
            return False
        return _C.Entry(first_is(kind), made[kind].__code__, True, user=kind)

    call = _C.CompiledCallable(f, callback)
    assert call(1) == ("int", 1) and call(2) == ("int", 2) and call.hits == 1
    assert call.last_entry.user is int
    assert call("a") == ("str", "a") and call("b") == ("str", "b") and call(3) == ("int", 3)
    assert call.hits == 3 and len(asked) == 2
    assert [entry.hits for entry in call.entries()] == [2, 1] and call.last_entry.user is int
    assert call(1.5) == ("original", 1.5) and call(1.5) == ("original", 1.5) and len(asked) == 4
    assert not _C.hook_installed()


def test_none_skips_for_good_false_skips_once_and_frozen_asks_no_more():
    def f(x):
        return x

    answers = [False, False, None]
    callback = Callback(lambda code: answers.pop(0))
    call = _C.CompiledCallable(f, callback)
    assert [call(i) for i in range(9)] == list(range(9)) and len(callback.calls) == 3 and call.skipped
    call.skipped = False
    answers.append(_C.Entry(first_is(int), copied(f.__code__), True))
    assert call(1) == 1 and call(2) == 2 and call.hits == 1
    call.frozen = True
    assert call("x") == "x" and call(3) == 3 and call.hits == 2 and len(callback.calls) == 4
    call.reset()
    assert not call.frozen and call.entries() == [] and call.last_entry is None


def test_a_raising_callback_fails_the_call_and_the_next_call_asks_again():
    def f(x):
        return x

    def fails(code):
        raise KeyError("no")

    callback = Callback(fails)
    call = _C.CompiledCallable(f, callback)
    for _ in range(3):
        raises(KeyError, call, 1)
    assert len(callback.calls) == 3
    callback.answer = lambda code: 7
    assert "must return an Entry, None or False, not int" in raises(TypeError, call, 1)
    callback.answer = lambda code: _C.Entry(None, copied(code), True)
    assert call(1) == 1 and not _C.hook_installed()


def test_code_with_other_slots_or_free_variables_is_refused():
    free = 1

    def f(x):
        return x

    def more(x, y):
        return x

    def renamed(y):
        return y

    def star(*x):
        return x

    def closing(x):
        return free

    def generating(x):
        yield x

    for other in (more, renamed, star):
        call = _C.CompiledCallable(f, Callback(lambda code, other=other: _C.Entry(None, other.__code__, True)))
        assert "other argument slots" in raises(TypeError, call, 1)
        assert call.entries() == []
    call = _C.CompiledCallable(f, Callback(lambda code: _C.Entry(None, closing.__code__, True)))
    assert "other free variables" in raises(TypeError, call, 1)
    assert "plain function" in raises(TypeError, _C.Entry, None, generating.__code__, True)
    assert "plain function" in raises(TypeError, _C.Entry, None, compile("1", "x", "exec"), True)
    assert "GuardProgram or None" in raises(TypeError, _C.Entry, 1, f.__code__, True)
    assert "code object" in raises(TypeError, _C.Entry, None, f, True)
    assert "Python function" in raises(TypeError, _C.CompiledCallable, len, copying())
    assert "callable" in raises(TypeError, _C.CompiledCallable, f, 3)


def test_defaults_are_read_again_when_they_change():
    def f(x, y=2, *, k=3):
        return x, y, k

    callback = copying(closed=True)
    call = _C.CompiledCallable(f, callback)
    assert call(1) == (1, 2, 3) and call(1) == (1, 2, 3)
    f.__defaults__ = (20,)
    assert call(1) == (1, 20, 3)
    f.__kwdefaults__ = {"k": 30}
    assert call(1) == (1, 20, 30)
    f.__kwdefaults__["k"] = 31
    assert call(1) == (1, 20, 31)
    f.__defaults__ = None
    assert raises(TypeError, call, 1) == raises(TypeError, f, 1)
    assert call(1, 2) == (1, 2, 31) and len(callback.calls) == 1


def test_new_code_of_the_function_drops_its_entries():
    def f(x):
        return ("first", x)

    def g(x, *rest):
        return ("second", x, rest)

    callback = copying(closed=True)
    call = _C.CompiledCallable(f, callback)
    assert call(1) == ("first", 1) and len(call.entries()) == 1
    f.__code__ = g.__code__
    assert call(1, 2) == ("second", 1, (2,)) and len(callback.calls) == 2 and len(call.entries()) == 1


def test_generators_and_coroutines_run_as_written():
    def generating(x):
        yield x

    async def waiting(x):
        return x

    async def both(x):
        yield x

    callback = copying()
    assert list(_C.CompiledCallable(generating, callback)(3)) == [3]
    coroutine = _C.CompiledCallable(waiting, callback)(3)
    assert inspect.iscoroutine(coroutine) and raises(StopIteration, coroutine.send, None) == "3"
    assert inspect.isasyncgen(_C.CompiledCallable(both, callback)(3))
    assert callback.calls == []


def test_a_call_from_inside_the_callback_runs_as_written():
    def f(x):
        return x + 1

    depth = []

    def callback(owner, code, args, *rest):
        depth.append(owner(10))
        return _C.Entry(None, copied(code), True)

    call = _C.CompiledCallable(f, callback)
    assert call(1) == 2 and depth == [11]


def test_another_thread_runs_as_written_while_one_compiles():
    def f(x):
        return threading.current_thread().name, x

    started, go_on = threading.Event(), threading.Event()

    def callback(owner, code, *rest):
        started.set()
        assert go_on.wait(30)
        return _C.Entry(None, copied(code), True)

    call = _C.CompiledCallable(f, callback)
    results = []
    compiling = threading.Thread(target=lambda: results.append(call(1)), name="compiling")
    compiling.start()
    assert started.wait(30)
    assert call(2) == (threading.current_thread().name, 2) and call.entries() == []
    go_on.set()
    compiling.join()
    assert results == [("compiling", 1)] and len(call.entries()) == 1


def test_it_binds_as_a_method_and_speaks_like_the_function():
    def method(self, x: int = 3) -> int:
        """Adds."""
        return self.base + x

    method.mark = "set"
    call = _C.CompiledCallable(method, copying(closed=True))

    class Owner:
        base = 10
        add = call

    assert Owner().add(1) == 11 and Owner().add() == 13 and Owner.add is call
    assert Owner().add.__self__.base == 10
    assert call.__get__(None, Owner) is call
    assert (call.__name__, call.__doc__, call.__module__) == ("method", "Adds.", method.__module__)
    assert call.__qualname__ == method.__qualname__ and call.__wrapped__ is method and call.mark == "set"
    assert call.__annotations__ == {"x": int, "return": int} and call.__defaults__ == (3,)
    assert inspect.signature(call) == inspect.signature(method)
    assert not hasattr(call, "missing") and "method" in repr(call)
    call.mark, call.__doc__, call.__name__ = "mine", "Other.", "renamed"
    assert (call.mark, call.__doc__, call.__name__) == ("mine", "Other.", "renamed")
    assert (method.mark, method.__doc__, method.__name__) == ("set", "Adds.", "method")

    @functools.wraps(call)
    def wrapper(*args):
        return call(*args)

    assert wrapper.__name__ == "renamed" and wrapper.mark == "mine"
    assert weakref.ref(call)() is call and len({call, call}) == 1


@functools.partial(_C.CompiledCallable, callback=copying(closed=True))
def importable(x):
    return x


def test_copies_are_the_object_itself_and_pickles_go_by_name():
    assert copy.copy(importable) is importable and copy.deepcopy([importable])[0] is importable
    assert pickle.loads(pickle.dumps(importable)) is importable
    local = _C.CompiledCallable(importable.fn, copying())
    raises((pickle.PicklingError, AttributeError), pickle.dumps, local)


def test_a_resume_function_takes_its_closure_first():
    cell_value = 40

    def resume(x, y):
        return x + y + cell_value

    code = resume.__code__
    callback = Callback(lambda seen: _C.Entry(first_is(int), copied(seen), True))
    call = _C.CompiledCode(code, globals(), callback, "user")
    assert call(resume.__closure__, 1, 1) == 42 and call(resume.__closure__, 1, 2) == 43
    assert callback.calls == [(call, "resume", (1, 1))] and call.hits == 1 and call.user == "user"
    assert call((type(resume.__closure__[0])(100),), 1, 2) == 103 and call.hits == 2
    callback.answer = lambda seen: None
    assert call(resume.__closure__, 1.5, 1) == 42.5 and call.skipped
    for bad in [(None, 1, 1), ((), 1, 1), ((1,), 1, 1), (resume.__closure__, 1), ()]:
        raises(TypeError, call, *bad)
    raises(TypeError, call, resume.__closure__, 1, y=2)
    raises(ValueError, _C.CompiledCode, everything.__code__, globals(), callback)
    call.reset()
    assert call.entries() == []


def test_a_resume_function_without_free_variables_takes_none():
    def resume(x):
        return len(x)

    call = _C.CompiledCode(resume.__code__, {"__builtins__": {"len": lambda x: "mine"}}, copying(closed=True))
    assert [call(None, "abc") for _ in range(3)] == ["mine"] * 3 and call(tuple(), "abc") == "mine"
    assert call.hits == 3


def test_a_bound_graph_appends_what_was_lifted_and_runs_uncaptured():
    def graph(*args):
        return args, _C.set_frame_callback(None)

    bound = _C.BoundGraph(graph, (8, 9))
    assert bound(1) == ((1, 8, 9), None) and bound() == ((8, 9), None)
    assert _C.BoundGraph(graph, ())(1, 2) == ((1, 2), None)
    assert _C.BoundGraph(graph, tuple(range(200)))(-1)[0] == tuple(range(-1, 200))
    assert bound.fn is graph and bound.lifted == (8, 9)
    former = _C.set_frame_callback(len)
    try:
        assert bound(1) == ((1, 8, 9), None)
        assert _C.set_frame_callback(len) is len
    finally:
        _C.set_frame_callback(former)
    raises(TypeError, bound, x=1)
    bound.clear()
    assert "cleared" in raises(RuntimeError, bound, 1) and bound.fn is None
