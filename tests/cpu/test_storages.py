"""The memory of tensors: how large it is; shapes changed in place under gradients."""

from __future__ import annotations

import pytest
import torch

import core


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setenv("CORE_STRICT", "1")
    core.reset()


def test_the_size_of_a_storage_is_known_and_guarded():
    def fn(x):
        y = x + 1
        storage = x.untyped_storage()
        return y, storage.size() // x.element_size(), len(storage), y.untyped_storage().nbytes(), storage.device

    fast = core.compile(fn, backend="eager", fullgraph=True)
    whole = torch.randn(100)
    for x in (torch.ones(4), whole[:4], torch.ones(4), whole[:4]):
        assert fast(x)[1:] == fn(x)[1:]
    assert (core.stats()["graphs"], core.stats()["breaks"]) == (2, 0)


def test_a_storage_is_given_back_and_what_is_in_it_breaks_the_graph():
    x = torch.ones(3)
    given = core.compile(lambda x: x.untyped_storage(), backend="eager", fullgraph=True)(x)
    assert given.data_ptr() == x.data_ptr()
    assert core.compile(lambda x: x.untyped_storage().data_ptr(), backend="eager")(x) == x.data_ptr()
    same = core.compile(lambda x: x.untyped_storage() is x.view(-1).untyped_storage(), backend="eager")
    assert same(x) == (x.untyped_storage() is x.view(-1).untyped_storage())
    assert core.stats()["breaks"] >= 2


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize(
    "change", [lambda y: y.unsqueeze_(1), lambda y: y.t_(), lambda y: y.transpose_(0, 1), lambda y: y.squeeze_()]
)
def test_the_shape_of_an_intermediate_may_change_in_place_under_gradients(backend, change):
    def fn(x):
        y = x * 1.5
        change(y)
        return torch.cat([y, y * 2], dim=-1).sin(), y

    fast = core.compile(fn, backend=backend, fullgraph=True)
    ours, theirs = (torch.arange(6.0).reshape(3, 2).requires_grad_() for _ in range(2))
    results, expected = fast(ours), fn(theirs)
    for left, right in zip(results, expected, strict=True):
        torch.testing.assert_close(left, right)
    sum(item.square().sum() for item in results).backward()
    sum(item.square().sum() for item in expected).backward()
    torch.testing.assert_close(ours.grad, theirs.grad)
    assert core.stats()["graphs"] == 1
