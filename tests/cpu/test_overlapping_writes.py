"""Writes to memory that the same call reads as another operand: eager's own result, whatever the kernel makes of it."""

from __future__ import annotations

import pytest
import torch

import core

MASK = torch.tensor([[True, False, True, True], [False, True, True, False]] * 2)
READ_TOO_LATE = {
    "scattered from itself": lambda x: x.masked_scatter_(MASK, x),
    "scattered from the rows before": lambda x: x[1:].masked_scatter_(MASK[1:], x[:-1]),
    "a product with itself added": lambda x: x.addmm_(x, x),
    "a product into its operand": lambda x: torch.mm(x, x, out=x),
    "sums into a row": lambda x: torch.sum(x, 1, out=x[0]),
    "columns moved by one": lambda x: x[:, :2].copy_(x[:, 1:3]),
}
IN_STEP = {
    "a column to another": lambda x: x[:, 0].copy_(x[:, 1]),
    "a row to another": lambda x: x[2].add_(x[1]),
    "filled with an element": lambda x: x.fill_(x[1, 1]),
    "its own square": lambda x: x.mul_(x),
    "running sums": lambda x: torch.cumsum(x, 0, out=x),
    "lists that cross": lambda x: torch._foreach_add_([x[0], x[1]], [x[1], x[0]])[0],
}


@pytest.mark.parametrize("name", [*READ_TOO_LATE, *IN_STEP])
def test_a_call_that_reads_what_it_writes_gives_what_eager_gives(name):
    core.reset()
    fn = {**READ_TOO_LATE, **IN_STEP}[name]
    x = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
    y = x.clone()
    fn(x)
    core.compile(fn, backend="aot_eager")(y)
    assert torch.equal(x, y)
    assert core.stats()["breaks"] == (name in READ_TOO_LATE)


def test_a_call_that_reads_too_late_is_named_under_fullgraph():
    x = torch.randn(4, 4)
    with pytest.raises(core.Unsupported, match="reads as another operand"):
        core.compile(READ_TOO_LATE["scattered from itself"], backend="eager", fullgraph=True)(x)


def test_a_mask_that_is_written_to_in_another_order_is_an_error_as_in_eager():
    def fn(x):
        return x[1:].masked_fill_(x[:-1], False)

    errors = []
    for each in (fn, core.compile(fn, backend="aot_eager")):
        with pytest.raises(RuntimeError) as caught:
            each(torch.tensor([True, False, True, True]))
        errors.append(str(caught.value).splitlines()[0])
    assert errors[0] == errors[1]
