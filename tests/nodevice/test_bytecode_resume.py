"""What build_resume promises beyond running on. Plain functions: every supported Python runs them."""

import os
import subprocess
import sys
import types
from pathlib import Path

from core.bytecode.decode import decode
from core.bytecode.liveness import liveness
from core.bytecode.opcodes import TABLE
from core.bytecode.resume import build_resume, entry_length, is_resume_code
from core.errors import Unsupported


def after_call_of(function, name):
    """The instruction behind the call whose callable is the global `name`."""
    decoded = decode(function.__code__)
    at = next(k for k, i in enumerate(decoded) if i.opname == "LOAD_GLOBAL" and i.argval == name)
    at = next(k for k in range(at, len(decoded)) if decoded.instructions[k].opname == "CALL")
    return decoded.instructions[at + 1]


def stop():
    """Marks a place."""


def raises(kind, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


def test_a_resume_function_takes_stack_values_then_locals():
    def f(a, b):
        return [a, stop(), b]

    target = after_call_of(f, "stop")
    resume = build_resume(f.__code__, target, depth=2, arguments=("b",))
    run = types.FunctionType(resume.code, globals())
    assert run("first", "second", "third") == ["first", "second", "third"]
    assert resume.stack == (0, 1) and resume.locals == ("b",) and resume.freevars == () and resume.handled == ()
    assert resume.code.co_name == "f" and is_resume_code(resume.code) and not is_resume_code(f.__code__)
    assert resume.code.co_qualname.startswith(f.__code__.co_qualname)
    assert resume.code.co_argcount == resume.code.co_posonlyargcount == 3


def test_nulls_are_put_back_where_they_were():
    def f(a):
        return max(a, stop())

    target = after_call_of(f, "stop")
    null = 0 if TABLE.null_before_callable else 1
    resume = build_resume(f.__code__, target, depth=4, nulls=(null,))
    assert types.FunctionType(resume.code, globals())(max, 3, 5) == 5


def test_cells_come_with_the_closure_cellvars_first():
    free = 7

    def f(a):
        def get():
            return a

        stop()
        return get(), a, free

    target = after_call_of(f, "stop")
    live = liveness(f.__code__)
    resume = build_resume(f.__code__, target, depth=1, arguments=live.locals_at(target))
    assert resume.freevars == ("a", "free") and resume.locals == ("get",)
    cells = (types.CellType(5), types.CellType(6))
    assert types.FunctionType(resume.code, globals(), "f", None, cells)(None, lambda: 4) == (4, 5, 6)


def test_lines_and_columns_are_the_originals():
    def f(a):
        stop()
        return a.missing

    target = after_call_of(f, "stop")
    resume = build_resume(f.__code__, target, depth=1, arguments=("a",))
    error = raises(AttributeError, types.FunctionType(resume.code, globals()), None, 1)
    while error.__traceback__.tb_next:
        error.__traceback__ = error.__traceback__.tb_next
    assert error.__traceback__.tb_lineno == f.__code__.co_firstlineno + 2
    load = next(i for i in decode(f.__code__) if i.argval == "missing")
    assert load.position in {i.position for i in decode(resume.code) if i.argval == "missing"}
    assert resume.code.co_firstlineno == f.__code__.co_firstlineno


def test_stack_values_are_not_kept_alive_by_the_arguments():
    """In a process of its own: under another evaluator of frames, which a test before may leave, callers keep them."""
    program = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); "
        "import test_bytecode_resume; test_bytecode_resume.stack_values_are_dropped(); print('fine')"
    )
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, env=paths)
    assert done.returncode == 0 and done.stdout.strip() == "fine", done.stderr[-2000:]


def stack_values_are_dropped():
    import weakref

    class Thing:
        pass

    def f():
        return watch(Thing(), stop())

    def watch(thing, _):
        reference = weakref.ref(thing)
        del thing
        return reference

    def g(a):
        a.pop(), stop()
        return ask()

    target = after_call_of(g, "stop")
    resume = build_resume(g.__code__, target, depth=2)
    held = [Thing()]
    reference = weakref.ref(held[0])
    namespace = {"ask": lambda: reference() is None}
    run = types.FunctionType(resume.code, namespace)
    call = types.FunctionType(compile("run(held.pop(), None)", "x", "eval"), {"run": run, "held": held})
    assert call() is True
    assert f is not None and watch is not None


def ask():
    """Replaced in the namespace of the resumed function."""


def test_what_cannot_be_reached_is_left_out():
    def f(a):
        for _ in range(100):
            a.first()
        stop()
        return a

    target = after_call_of(f, "stop")
    resume = build_resume(f.__code__, target, depth=1, arguments=("a",))
    assert not [i for i in decode(resume.code) if i.argval == "first"]
    assert len(resume.code.co_code) < len(f.__code__.co_code)


def test_generators_and_coroutines_are_refused_with_the_reason():
    def generator():
        stop()
        yield 1

    async def coroutine():
        stop()

    for function in (generator, coroutine):
        error = raises(Unsupported, build_resume, function.__code__, after_call_of(function, "stop"), depth=1)
        assert function.__name__ in str(error) and error.remedy
    body = compile("stop()", "x", "exec")
    raises(Unsupported, build_resume, body, decode(body).instructions[1], depth=0)


def test_descriptions_that_do_not_fit_the_code_are_refused():
    def f(a, b=2):
        get = lambda: b  # noqa: E731
        stop()
        return a, get

    target = after_call_of(f, "stop")
    good = ("a", "get")
    raises(ValueError, build_resume, f.__code__, target, depth=2, arguments=good)
    raises(ValueError, build_resume, f.__code__, target, depth=1, nulls=(1,), arguments=good)
    raises(ValueError, build_resume, f.__code__, target, depth=1, arguments=("nowhere", *good))
    raises(ValueError, build_resume, f.__code__, target, depth=1, arguments=("a", "a", "get"))
    raises(ValueError, build_resume, f.__code__, target, depth=1, arguments=("b", *good))
    first = decode(f.__code__).instructions[0]
    raises(ValueError, build_resume, f.__code__, first, depth=0, arguments=good)
    other = decode((lambda: 1).__code__).instructions[-1]
    raises(ValueError, build_resume, f.__code__, other, depth=1, arguments=good)


def test_a_local_that_is_not_passed_raises_where_it_is_read():
    def f(a, b):
        stop()
        return a + 0, a, b

    target = after_call_of(f, "stop")
    run = types.FunctionType(build_resume(f.__code__, target, depth=1).code, globals())
    assert "'a'" in str(raises(UnboundLocalError, run, None))
    run = types.FunctionType(build_resume(f.__code__, target, depth=1, arguments=("a",)).code, globals())
    assert "'b'" in str(raises(UnboundLocalError, run, None, 1))


def test_a_pair_of_loads_is_checked_where_one_has_no_value():
    def f(a, b, c):
        stop()
        try:
            return [a, b, c, a, b]
        except UnboundLocalError as error:
            return str(error)

    target = after_call_of(f, "stop")
    for given, missing in (("a", "b"), ("b", "a")):
        resume = build_resume(f.__code__, target, depth=1, arguments=(given, "c"))
        run = types.FunctionType(resume.code, globals())
        assert repr(missing) in run(None, 1, 2)


def test_a_handler_place_takes_the_exception_and_nothing_else():
    def f():
        try:
            raise KeyError("k")
        except KeyError:
            stop()
            raise

    target = after_call_of(f, "stop")
    resume = build_resume(f.__code__, target, depth=2)
    assert resume.handled == (0,)
    run = types.FunctionType(resume.code, globals())
    error = ValueError("mine")
    assert raises(ValueError, run, error, None) is error and error.__context__ is None
    raises(TypeError, run, None, None)


def test_resuming_a_resume_function_adds_no_prologue_and_no_suffix():
    def f(a):
        stop()
        stop()
        return a

    code = f.__code__
    sizes, names = [], set()
    for _ in range(5):
        target = decode(code).instructions[entry_length(code)]
        while target.opname != "POP_TOP":
            target = decode(code).next_of(target)
        code = build_resume(code, target, depth=1, arguments=("a",)).code
        sizes.append(len(code.co_code))
        names.add(code.co_qualname.count("<resume"))
        if not [i for i in decode(code) if i.argval == "stop"]:
            break
    assert names == {1} and sizes == sorted(sizes, reverse=True)


def test_super_in_a_class_that_rebinds_the_name_is_called_as_written():
    namespace = {"stop": stop, "super": lambda *args: ("mine", args)}
    exec(
        "class C:\n    def m(self):\n        __class__\n        stop()\n        return super()\n",
        namespace,
    )
    function = namespace["C"].__dict__["m"]
    target = after_call_of(function, "stop")
    resume = build_resume(function.__code__, target, depth=1, arguments=("self",))
    run = types.FunctionType(resume.code, namespace, "m", None, function.__closure__)
    assert run(None, namespace["C"]()) == ("mine", ())
    del namespace["super"]
    assert type(run(None, namespace["C"]())) is super


def test_calling_a_resume_function_often_keeps_no_references():
    def f(a):
        try:
            raise KeyError(a)
        except KeyError:
            stop()
        return [x for x in a]

    target = after_call_of(f, "stop")
    resume = build_resume(f.__code__, target, depth=2, arguments=("a",))
    run = types.FunctionType(resume.code, globals())
    error, value, items = ValueError("mine"), object(), (1, 2)
    before = [sys.getrefcount(each) for each in (error, value, items)]
    for _ in range(1000):
        run(error, value, items)
    assert [sys.getrefcount(each) for each in (error, value, items)] == before
    assert sys.exception() is None and error.__traceback__ is None
