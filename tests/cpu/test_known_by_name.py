"""Sizes asked for by keyword, texts of functions, deprecated functions, the larger of two numbers of the data."""

from __future__ import annotations

import warnings

import torch
from typing_extensions import deprecated

import core


def outside():
    """A function that lives as long as the module."""


@deprecated("use another", category=FutureWarning)
def doubled(x):
    return x * 2


def captured(fn, *calls, backend="eager"):
    core.reset()
    fast = core.compile(fn, backend=backend, fullgraph=True)
    results = [fast(*call) for call in calls]
    assert core.stats()["breaks"] == 0
    return results


def test_a_dimension_that_differs_from_call_to_call_is_known_where_sizes_are_asked():
    x = torch.empty(4, 9, 8)
    assert captured(lambda x, dim: x.size(dim=dim), (x, 1), (x, -2), (x, 0)) == [9, 9, 4]
    assert captured(lambda x, dim: x.stride(dim=dim), (x, 0), (x, -2), (x, 1)) == [72, 8, 8]


def test_the_text_of_a_function_from_outside_is_its_own():
    (result,) = captured(lambda x: (x + 1, str(outside)), (torch.ones(1),))
    assert result[1] == str(outside)


def test_a_function_made_anew_for_each_call_is_no_reason_to_recompile():
    def call(x):
        def inner():
            pass

        return fast(x, inner)

    core.reset()
    fast = core.compile(lambda x, inner: (x + 1, inner.__name__), backend="eager")
    assert all(call(torch.ones(1))[1] == "inner" for _ in range(12))
    assert core.stats()["recompiles"] == 0


def test_a_deprecated_function_is_traced_and_warns():
    core.reset()
    fast = core.compile(lambda x: doubled(x) + 1, backend="eager", fullgraph=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert torch.equal(fast(torch.ones(2)), torch.full((2,), 3.0))
    assert [item.category for item in caught if "use another" in str(item.message)] == [FutureWarning]
    assert core.stats()["graphs"] == 1


def test_the_larger_of_a_number_of_the_data_and_another_is_a_number_of_the_data():
    def fn(x):
        return torch.ones(max(x.item(), 4)).sum() + min(x.item(), 5)

    calls = [(torch.tensor(3),), (torch.tensor(9),)]
    for backend in ("eager", "inductor"):
        assert captured(fn, *calls, backend=backend) == [fn(*call) for call in calls]
        assert core.stats()["graphs"] == 1


def test_whether_classes_are_asked_is_told_inside_and_outside_of_a_region_that_forbids_it():
    def fn(x):
        before = torch._C._is_torch_function_enabled()
        with torch._C.DisableTorchFunctionSubclass():
            with torch._C.DisableTorchFunctionSubclass():
                x = x + 1
            inside = torch._C._is_torch_function_enabled()
        return before, inside, torch._C._is_torch_function_enabled(), x

    core.reset()
    fast = core.compile(fn, backend="eager", fullgraph=True)
    for _ in range(2):
        assert fast(torch.ones(2))[:3] == fn(torch.ones(2))[:3] == (True, False, True)
        with torch._C.DisableTorchFunctionSubclass():
            assert fast(torch.ones(2))[:3] == fn(torch.ones(2))[:3] == (False, False, False)
