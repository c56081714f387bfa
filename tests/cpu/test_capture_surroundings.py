"""What a program reads of its surroundings: threads, profilers, warnings, paths."""

from __future__ import annotations

import argparse
import functools
import pathlib
import sys
import textwrap
import threading
import warnings
import weakref

import pytest
import torch

import core

X = torch.zeros(2)


@pytest.fixture(autouse=True)
def fresh():
    core.reset()


def compiled(fn, **options):
    return core.compile(fn, backend="eager", fullgraph=True, **options)


def test_attributes_of_a_thread_local_are_those_of_the_calling_thread():
    local = threading.local()
    local.step = 1
    call = compiled(lambda x: x + local.step)
    found = [call(X).tolist()]

    def other():
        local.step = 5
        found.append(call(X).tolist())

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    found.append(call(X).tolist())
    assert found == [[1.0, 1.0], [5.0, 5.0], [1.0, 1.0]]


def test_whether_a_profiler_runs_is_asked_on_each_call():
    def fn(x):
        return x + 1 if torch.autograd._profiler_enabled() else x - 1

    call = compiled(fn)
    before = core.stats()["graphs"]
    assert call(X).tolist() == [-1.0, -1.0]
    with torch.autograd.profiler.profile():
        assert call(X).tolist() == call(X).tolist() == [1.0, 1.0]
    assert call(X).tolist() == [-1.0, -1.0]
    assert core.stats()["graphs"] - before == 2


def test_a_block_that_catches_no_warning_is_part_of_the_graph():
    def fn(x):
        with warnings.catch_warnings(record=True) as caught:
            y = x + 1
        return y, caught

    y, caught = compiled(fn)(X)
    assert y.tolist() == [1.0, 1.0] and caught == []


def test_a_warning_that_is_caught_is_caught_by_python():
    def fn(x):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warnings.warn("careful", stacklevel=2)
            y = x + 1
        return y, [str(item.message) for item in caught]

    assert core.compile(fn, backend="eager")(X)[1] == ["careful"]


def test_paths_of_text_and_of_path_objects():
    class Folder:
        def __fspath__(self):
            return "folder"

    def fn(x):
        import os

        return x + 1, os.fspath("."), os.fspath(Folder())

    assert compiled(fn)(X)[1:] == (".", "folder")
    assert pathlib.PurePath(Folder()).name == "folder"


class Columns:
    @classmethod
    @property
    def width(cls):
        return 3


def test_a_property_of_a_class_is_computed_for_the_class():
    def fn(x):
        return x + Columns.width

    try:
        expected = fn(X)
    except TypeError:
        pytest.skip("this Python's classmethod does not ask what it wraps")
    assert torch.equal(compiled(fn)(X), expected)


def test_functions_run_as_written_under_torch_jit_trace():
    call = core.compile(lambda x: x + 1, backend="eager", dynamic=True)
    before = core.stats()["graphs"]
    traced = torch.jit.trace(call, torch.zeros(3), check_trace=False)
    assert traced(torch.ones(3)).tolist() == [2.0] * 3
    assert core.stats()["graphs"] == before


class NoGradOfTheUsers:
    def __enter__(self):
        self.before = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)

    def __exit__(self, *raised):
        torch._C._set_grad_enabled(self.before)


def test_grad_mode_set_by_a_manager_of_the_users_is_part_of_the_graph():
    def fn(x):
        with NoGradOfTheUsers():
            y = x.sin()
        return y, x.cos()

    before = core.stats()["graphs"]
    call = compiled(fn)
    for _ in range(2):
        y, z = call(torch.ones(2, requires_grad=True))
        assert (y.requires_grad, z.requires_grad, torch.is_grad_enabled()) == (False, True, True)
    assert core.stats()["graphs"] - before == 1


def test_grad_mode_left_off_is_off_after_each_call():
    def fn(x):
        torch._C._set_grad_enabled(False)
        return x + 1

    call = compiled(fn)
    try:
        for _ in range(2):
            torch.set_grad_enabled(True)
            call(X)
            assert torch.is_grad_enabled() is False
    finally:
        torch.set_grad_enabled(True)


def test_attributes_that_are_set_on_a_thread_local_are_those_of_the_calling_thread():
    local = threading.local()
    local.count = 1

    def fn(x):
        local.last = x
        local.count += 1
        return x + local.count

    call = compiled(fn)
    x = torch.ones(2)
    assert call(x).tolist() == [3.0, 3.0]
    assert local.last is x and local.count == 2
    with pytest.raises(AttributeError):
        thread = []

        def other():
            try:
                call(x)
            except AttributeError as error:
                thread.append(error)

        running = threading.Thread(target=other)
        running.start()
        running.join()
        raise thread[0]
    assert call(x).tolist() == [4.0, 4.0]


def test_a_class_that_extends_thread_local_keeps_what_is_set():
    class Counter(threading.local):
        def __init__(self):
            self.count = 2

        def step(self):
            self.count += 1
            return self.count

    counter = Counter()

    def fn(x):
        return x * counter.step() + hasattr(counter, "other")

    call = compiled(fn)
    assert call(X + 1).tolist() == [3.0, 3.0]
    assert counter.count == 3
    counter.other = None
    assert call(X + 1).tolist() == [5.0, 5.0]
    del counter.other
    assert call(X + 1).tolist() == [5.0, 5.0]


def test_an_attribute_of_a_thread_local_can_be_deleted():
    local = threading.local()
    local.once = 3

    def fn(x):
        found = local.once
        del local.once
        return x + found + hasattr(local, "once")

    assert compiled(fn)(X).tolist() == [3.0, 3.0]
    assert not hasattr(local, "once")


def test_a_block_for_warnings_that_was_not_entered_is_returned():
    call = compiled(lambda x: (x + 1, warnings.catch_warnings(record=True)))
    first, second = call(X)[1], call(X)[1]
    assert type(first) is warnings.catch_warnings and first is not second
    with first as caught:
        warnings.warn("seen", stacklevel=1)
    assert len(caught) == 1


def test_a_module_of_the_standard_library_is_imported_on_the_way():
    def fn(x):
        import this_is_not_a_module_of_anybody  # noqa: F401

        return x

    def other(x):
        from xml.dom import pulldom

        return x + len(pulldom.CHARACTERS)

    sys.modules.pop("xml.dom.pulldom", None)
    assert compiled(other)(X).tolist() == [10.0, 10.0]
    with pytest.raises(core.Unsupported):
        compiled(fn)(X)


def test_functions_of_torch_are_keys():
    table = {torch.stack: 1, torch.ops.aten.sum: 2, torch.nn.functional.relu: 4, torch.Tensor.add: 8}

    def fn(x, function):
        return x + table[function] + (function in {torch.stack}) + (torch.sum in table)

    call = compiled(fn)
    for function in table:
        assert call(X, function).tolist() == fn(X, function).tolist()


def test_the_descriptor_of_a_tensors_attribute_is_read_by_hand():
    def fn(descriptor, x):
        return descriptor.__get__(x), torch.Tensor.ndim.__get__(x), x + 1

    call = compiled(fn)
    assert call(torch.Tensor.shape, torch.ones(2, 3))[:2] == (torch.Size((2, 3)), 2)
    assert call(torch.Tensor.dtype, torch.ones(2, 3))[:2] == (torch.float32, 2)


def test_the_address_of_a_tensor_that_a_module_holds_is_known():
    class Chooses(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = torch.ones(2), torch.full((2,), 2.0)

        def forward(self, x, wanted):
            return x + self.one if wanted == id(self.one) else x + self.two

    module = Chooses()
    call = compiled(module)
    assert call(X, id(module.one)).tolist() == [1.0, 1.0]
    assert call(X, id(module.two)).tolist() == [2.0, 2.0]
    module.one = torch.full((2,), 5.0)
    assert call(X, id(module.one)).tolist() == [5.0, 5.0]


def test_a_submodule_that_is_not_loaded_yet_is_left_to_python(tmp_path, monkeypatch):
    package = tmp_path / "package_of_this_test"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "part.py").write_text("VALUE = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    import package_of_this_test  # noqa: F401

    def fn(x):
        y = x + 1
        from package_of_this_test import part

        return y * part.VALUE

    call = core.compile(fn, backend="eager")
    assert call(X).tolist() == call(X).tolist() == [3.0, 3.0]


HELD = pathlib.Path("runs") / "first.pt"


def test_paths_are_made_joined_taken_apart_and_compared_in_one_graph():
    def fn(x):
        path = pathlib.Path("/data") / f"epoch_{x.shape[0]}" / "model.pt"
        parts = path.name, path.stem, path.suffix, path.parent.name, path.parts, str(path), path.is_absolute()
        same = path == pathlib.Path("/data/epoch_2/model.pt"), {path: 1}[path], pathlib.Path("a") < pathlib.Path("b")
        return x + len(HELD.name), parts, same, path.with_suffix(".bin"), HELD.parent

    for _ in range(2):
        got, want = compiled(fn)(X), fn(X)
        assert torch.equal(got[0], want[0]) and got[1:] == want[1:]


@functools.singledispatch
def doubled(value):
    raise TypeError(value)


@doubled.register
def _(value: int):
    return value * 2


@doubled.register
def _(value: torch.Tensor):
    return value + value


def test_a_function_of_several_classes_made_outside_is_chosen_from_while_tracing():
    call = compiled(lambda x: doubled(x) + doubled(3))
    assert call(X).tolist() == [6.0, 6.0]

    @doubled.register
    def _(value: int):
        return value * 10

    try:
        assert call(X).tolist() == [30.0, 30.0]  # another entry
    finally:
        doubled.register(int, lambda value: value * 2)
    with pytest.raises(TypeError):
        core.compile(lambda x: x + doubled("text"), backend="eager")(X)


def test_namespaces_of_a_command_line_and_texts_are_plain_python():
    given = argparse.Namespace(rate=0.5, layers=2)

    def fn(x):
        same = given == argparse.Namespace(rate=0.5, layers=2)
        return x + given.layers * ("rate" in given), same, textwrap.dedent("  a")

    got = compiled(fn)(X)
    assert got[0].tolist() == [2.0, 2.0] and got[1:] == (True, "a")


def test_other_weak_dictionaries_are_read_by_python():
    class Key:
        pass

    key = Key()
    held = weakref.WeakKeyDictionary({key: 2.0})
    call = core.compile(lambda x: x + held[key], backend="eager")
    assert call(X).tolist() == [2.0, 2.0]
    held[key] = 3.0
    assert call(X).tolist() == [3.0, 3.0]
