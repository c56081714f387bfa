"""CompiledCode.later(): replacement code names the function that goes on, and whoever ran it makes the call."""

import weakref

from replacing import copied, hooked, only

from core import _C

EVERY_INTERPRETER = True


def chain():
    """A CompiledCode that takes (n, seen) and asks for itself n times, one call after the other."""
    namespace = {}

    def step(n, seen):
        seen.append(n)
        return "done" if n == 0 else later(None, n - 1, seen)  # noqa: F821  a name in `namespace`

    code = step.__code__
    resume = _C.CompiledCode(code, namespace, lambda *args: _C.Entry(None, copied(code), False))
    namespace["later"] = resume.later
    return resume


def raised(call, *args):
    try:
        call(*args)
    except Exception as error:
        return type(error), str(error)
    raise AssertionError("nothing was raised")


def test_a_chain_far_beyond_the_recursion_limit():
    seen = []
    assert chain()(None, 20000, seen) == "done"
    assert len(seen) == 20001


def test_a_compiled_callable_finishes_the_chain():
    seen = []
    resume = chain()

    def start(n):
        return n

    def replaced(n):
        return go(None, n, seen_list)  # noqa: F821

    namespace = {"go": resume.later, "seen_list": seen}
    fn = type(start)(start.__code__, namespace)
    call = _C.CompiledCallable(fn, lambda *args: _C.Entry(None, replaced.__code__, False))
    assert call(5) == "done"
    assert call(2) == "done"
    assert seen == [5, 4, 3, 2, 1, 0, 2, 1, 0]


def test_a_frame_of_the_hook_finishes_the_chain():
    seen = []
    namespace = {"go": chain().later, "seen_list": seen}

    def start(n):
        return n

    def replaced(n):
        return go(None, n, seen_list)  # noqa: F821

    fn = type(start)(start.__code__, namespace)
    with hooked(only(start.__code__, lambda: _C.Entry(None, replaced.__code__, False))):
        assert fn(3) == "done"
    assert seen == [3, 2, 1, 0]
    assert not _C.hook_installed()


def test_exceptions_leave_the_chain_and_the_thread_as_it_was():
    def fails(x):
        raise KeyError(x)

    code = fails.__code__
    resume = _C.CompiledCode(code, {}, lambda *args: _C.Entry(None, copied(code), False))

    def start(x):
        return go(None, x)  # noqa: F821

    call = _C.CompiledCallable(
        type(start)(start.__code__, {"go": resume.later}), lambda *args: _C.Entry(None, copied(start.__code__), False)
    )
    assert raised(call, 7) == (KeyError, "7")
    assert not _C.hook_installed()
    assert _C.set_frame_callback(None) is None


def test_locals_of_the_caller_are_gone_when_the_rest_runs():
    class Value:
        pass

    alive = []

    resume = _C.CompiledCode(_plain.__code__, {"alive": alive}, lambda *args: False)

    def first(kind):
        value = kind()
        return go(None, make_ref(value))  # noqa: F821

    namespace = {"go": resume.later, "make_ref": weakref.ref}
    call = _C.CompiledCallable(
        type(first)(first.__code__, namespace), lambda *args: _C.Entry(None, copied(first.__code__), False)
    )
    assert call(Value) == "done"
    assert alive == [False]


def _plain(ref):
    alive.append(ref() is not None)  # noqa: F821
    return "done"


def test_wrong_arguments_are_told_when_the_call_is_made():
    resume = chain()

    def start():
        return go(None)  # noqa: F821

    call = _C.CompiledCallable(
        type(start)(start.__code__, {"go": resume.later}), lambda *args: _C.Entry(None, copied(start.__code__), False)
    )
    kind, text = raised(call)
    assert kind is TypeError
    assert "positional arguments" in text
