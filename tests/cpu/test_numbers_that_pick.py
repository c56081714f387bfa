"""Ints that differ between calls, or between the turns of a loop, as indices of tensors."""

from __future__ import annotations

import re

import pytest
import torch

import core

KEYS = {
    "first": lambda v, i: v[i] + 1,
    "second": lambda v, i: v[:, i],
    "last": lambda v, i: (v[..., i] * 2, v[i, ...]),
    "new and part": lambda v, i: v[None, i:, i],
    "several": lambda v, i: (v[i, i], v[i, 2], v[i, None, 1:]),
    "written": lambda v, i: (v[i].clone().add_(1), v[i] * v[:, i]),
}


@pytest.mark.parametrize("name", KEYS)
def test_a_number_that_picks_from_a_tensor_may_differ_from_call_to_call(name):
    fn = KEYS[name]
    compiled = core.compile(fn, backend="aot_eager")
    for index in (2, 3, -2, -1):
        for grad in (False, True):
            v = torch.arange(16.0).reshape(4, 4).requires_grad_(grad)
            want, got = fn(v, index), compiled(v, index)
            for ours, theirs in zip(
                got if isinstance(got, tuple) else [got], want if isinstance(want, tuple) else [want]
            ):
                assert torch.equal(ours, theirs)
                assert (ours.stride(), ours.storage_offset()) == (theirs.stride(), theirs.storage_offset())
                assert ours.requires_grad == theirs.requires_grad
    assert core.stats()["frames"] <= 6  # known, above and below zero; with gradients and without
    for index in (4, -5):
        with pytest.raises(IndexError) as eager:
            fn(v, index)
        with pytest.raises(IndexError, match=re.escape(str(eager.value))):
            compiled(v, index)


def test_a_loop_with_a_break_that_picks_from_a_tensor_compiles_for_any_turn():
    def fn(v):
        found = []
        for i in range(12):
            found.append(v[i] + i)
            print(end="")
        return found

    v = torch.arange(12.0)
    assert torch.equal(torch.stack(core.compile(fn, backend="eager")(v)), 2 * v)
    assert core.stats()["recompiles"] <= 2


@pytest.mark.parametrize(
    "value", [2.5, torch.ones(1, 1), torch.arange(4), torch.ones(3)], ids=["number", "one", "row", "bad"]
)
def test_a_number_that_differs_may_say_where_to_store(value):
    def fn(v, i):
        out = v * 2
        out[i] = value
        out[:, i] = v[0, i]
        return out

    compiled = core.compile(fn, backend="aot_eager")
    for index in (2, 3, -2, -1, 5):
        for grad in (False, True):
            v = torch.arange(16.0).reshape(4, 4).requires_grad_(grad)
            try:
                want = fn(v, index)
            except (IndexError, RuntimeError) as error:
                with pytest.raises(type(error), match=re.escape(str(error))):
                    compiled(v, index)
                continue
            got = compiled(v, index)
            assert torch.equal(got, want)
            if grad:
                gradients = [torch.autograd.grad(result.square().sum(), v)[0] for result in (got, want)]
                assert torch.equal(*gradients)
            assert core.stats()["frames"] <= 6  # known, above and below zero; with gradients and without
