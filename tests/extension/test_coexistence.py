"""Living with others: sub-interpreters, a second import, other evaluators, call speed after removal."""

import ctypes
import importlib
import sys
import unittest

from replacing import copying, hooked

from core import _C

EVERY_INTERPRETER = True


def double(x):
    return 2 * x


def test_a_sub_interpreter_is_refused():
    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            interpreters = importlib.import_module(name)
            break
        except ImportError:
            continue
    else:
        raise unittest.SkipTest("no module for sub-interpreters")
    script = (
        f"import sys\nsys.path[:] = {sys.path!r}\n"
        "try:\n    from core import _C\n"
        "except ImportError as error:\n    assert 'interpreter' in str(error), str(error)\n"
        "else:\n    raise AssertionError('the import succeeded')\n"
    )
    for options in ({"isolated": True}, {"isolated": False}) if sys.version_info < (3, 13) else ({},):
        number = interpreters.create(**options)
        problem = interpreters.run_string(number, script)
        assert problem is None, problem
        interpreters.destroy(number)
    assert double(2) == 4


def test_a_second_import_shares_types_and_hook():
    former = sys.modules.pop("core._C")
    try:
        second = importlib.import_module("core._C")
    finally:
        sys.modules["core._C"] = former
    assert second is not former and second.Entry is _C.Entry and second.CompiledCallable is _C.CompiledCallable
    second.install_hook()
    assert _C.hook_installed()
    _C.uninstall_hook()
    assert not second.hook_installed()


def test_hook_users_are_counted():
    _C.install_hook()
    _C.install_hook()
    _C.uninstall_hook()
    assert _C.hook_installed()
    with hooked(copying()):
        assert double(2) == 4
    assert _C.hook_installed()
    _C.uninstall_hook()
    assert not _C.hook_installed()
    try:
        _C.uninstall_hook()
    except RuntimeError:
        pass
    else:
        raise AssertionError("removed more often than installed")


class Evaluator:
    """The interpreter's frame evaluator, read and set from outside as another extension would."""

    def __init__(self):
        api = ctypes.pythonapi
        api.PyInterpreterState_Get.restype = ctypes.c_void_p
        api._PyInterpreterState_GetEvalFrameFunc.argtypes = [ctypes.c_void_p]
        api._PyInterpreterState_GetEvalFrameFunc.restype = ctypes.c_void_p
        api._PyInterpreterState_SetEvalFrameFunc.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        self.api, self.interpreter = api, api.PyInterpreterState_Get()

    def get(self):
        return self.api._PyInterpreterState_GetEvalFrameFunc(self.interpreter)

    def set(self, address):
        self.api._PyInterpreterState_SetEvalFrameFunc(self.interpreter, address)


def test_the_evaluator_that_was_there_is_put_back():
    evaluator = Evaluator()
    bare = evaluator.get()
    call = _C.CompiledCallable(double, copying())
    with hooked(copying()):
        ours = evaluator.get()
        assert ours != bare and double(1) == 2 and call(1) == 2 and evaluator.get() == ours
    assert evaluator.get() == bare
    assert call(1) == 2 and evaluator.get() == bare


def test_an_evaluator_that_replaces_ours_is_left_alone_and_ours_comes_back_on_top():
    evaluator = Evaluator()
    bare = evaluator.get()
    first, second = copying(), copying()
    with hooked(first):
        ours = evaluator.get()
        double(1)
        evaluator.set(bare)  # another extension, which does not pass frames on
        double(1)
    assert evaluator.get() == bare and first.names.count("double") == 1
    with hooked(second):
        assert evaluator.get() == ours and double(1) == 2
    assert evaluator.get() == bare and second.names.count("double") == 1


def test_ours_put_back_by_another_after_its_last_user_left_takes_itself_away():
    evaluator = Evaluator()
    bare = evaluator.get()
    with hooked(copying()):
        ours = evaluator.get()
        evaluator.set(bare)
    evaluator.set(ours)  # the other extension restores what it had found
    assert double(1) == 2 and evaluator.get() == bare
    with hooked(copying()):
        assert evaluator.get() == ours
    assert evaluator.get() == bare


def test_the_thread_callback_is_returned_and_put_back():
    assert _C.set_frame_callback(None) is None
    assert _C.set_frame_callback(False) is None and _C.set_frame_callback(len) is None
    assert _C.set_frame_callback(False) is len and _C.set_frame_callback(None) is False
    for bad in (True, 1, "x"):
        try:
            _C.set_frame_callback(bad)
        except TypeError:
            pass
        else:
            raise AssertionError(f"{bad!r} was accepted")


def test_the_inlining_of_calls_returns_when_the_hook_goes():
    """With a hook each Python call recurses in C; without one it does not, which the C stack depth shows."""

    def depth(n):
        return 0 if n == 0 else 1 + depth(n - 1)

    with hooked(copying()):
        depth(10)
    sys.setrecursionlimit(60_000)
    assert depth(50_000) == 50_000
