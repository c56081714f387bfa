"""Bools that eager reads out of tensors, and texts with addresses: handed on in one graph; decisions break it.

PYTEST_DONT_REWRITE: the assertions inside the compiled functions are looked at as Python compiles them.
"""

from __future__ import annotations

import pytest
import torch
from compare import check

import core

X = torch.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_bools_read_from_tensors_are_results(backend):
    def fn(x):
        found = (x > 4).any().item(), bool((x > 9).any()), not (x > 4).all(), not bool(x.sum())
        return found, torch.allclose(x, x + 1e-9), torch.equal(x, x + 1), torch.is_nonzero(x.sum()), x + 1

    check(fn, X, backend=backend)


def test_a_bool_is_read_where_the_program_reads_it():
    def fn(x):
        mask = x > 2
        before = mask.any().item()
        mask.zero_()
        return before, mask.any().item(), mask

    check(fn, X)


def test_bools_in_containers_attributes_and_formats_of_no_value():
    def fn(x):
        flags = [bool(x.any()), {"all": x.all().item()}]
        return flags, type(flags[0]), isinstance(flags[0], int), x * 2

    check(fn, X)


def test_exceptions_by_such_bools_are_one_graph():
    def fn(x, y):
        assert torch.allclose(x, y), "differ"
        if x.isnan().any().item():
            raise ValueError("nan")
        return x + y

    fast = core.compile(fn, backend="eager", fullgraph=True)
    assert torch.equal(fast(X, X.clone()), X + X)
    with pytest.raises(AssertionError, match="differ"):
        fast(X, X + 1)


def test_a_decision_by_such_a_bool_breaks_the_graph_once():
    def fn(x):
        flag = bool((x > 4).any())
        y = x + 1
        return y * 2 if flag else y * 3

    check(fn, X, graphs=2, breaks=1)


def test_what_needs_the_bool_breaks_the_graph():
    def fn(x):
        flag = (x > 4).any().item()
        return flag is True, flag == True, f"{flag}", {flag: 1}, flag + 1, x + 1  # noqa: E712

    check(fn, X, graphs=None, breaks=1)


def test_tensors_of_several_elements_have_no_truth():
    def fn(x):
        try:
            return bool(x)
        except RuntimeError as error:
            return str(error)

    check(fn, X, graphs=None, breaks=1)


def test_no_gradient_goes_through_a_truth():
    def fn(x):
        return bool(x.sum()), x * 2

    flag, y = core.compile(fn, backend="eager", fullgraph=True)(X.clone().requires_grad_())
    assert flag is True and y.requires_grad


class Plain:
    pass


OUTSIDE = Plain()


def test_the_text_of_a_plain_object_is_that_of_the_object_that_comes_back():
    def fn(x):
        made = Plain()
        return made, str(made), repr(made), str(OUTSIDE), bool(str(made)), x + 1

    fast = core.compile(fn, backend="eager", fullgraph=True)
    for _ in range(2):
        made, text, longer, outside, filled, _ = fast(X)
        assert text == str(made) and longer == repr(made) and outside == str(OUTSIDE) and filled


def test_what_looks_into_such_a_text_breaks_the_graph():
    def fn(x):
        text = str(OUTSIDE)
        return text == "", text[:1], len(text) > 3, x + 1

    check(fn, X, graphs=None, breaks=1)


def test_whether_a_list_holds_a_number_or_tensor_is_handed_on():
    def fn(x):
        x.add_(1)
        held = [x[0, 0], x[0, 1], 3]
        return 1 in held, 1 not in held, 9 in (x[1, 2], 9.5), x.sum() in [x[0, 0] * 21], True in [x[0, 0]]

    check(fn, X)


def test_what_a_list_surely_holds_needs_no_tensor():
    def fn(x):
        y = x.sum()
        return y in [y, 1], 2 in [2, y], y * 1

    check(fn, X)
