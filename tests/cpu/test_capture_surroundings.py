"""What a program reads of its surroundings: threads, profilers, warnings, paths."""

from __future__ import annotations

import pathlib
import threading
import warnings

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
