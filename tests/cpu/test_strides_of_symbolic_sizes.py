"""Results with symbolic sizes have eager's strides: parts of a buffer, repeated elements, with gradients."""

from __future__ import annotations

import pytest
import torch

import core
from core.backends.layout import gapped_strides

PROGRAMS = {
    "every second column": lambda x: (x * 2)[:, ::2],
    "every third element": lambda x: (x * 2).flatten()[::3],
    "repeated number": lambda x: (x * 2).sum().expand(x.shape[0]),
    "repeated row": lambda x: (x * 2).sum(0).expand(x.shape[0], 3)[::2],
    "a column": lambda x: (x * 2)[:, 1],
    "transposed part": lambda x: (x * 2)[:, 1:].t(),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_strides_and_gradients_are_eagers(name, backend):
    program, compiled = PROGRAMS[name], core.compile(PROGRAMS[name], backend=backend, dynamic=True, fullgraph=True)
    core.reset()
    for rows in (4, 7, 5):
        left = torch.arange(rows * 3.0).reshape(rows, 3).requires_grad_()
        right = left.detach().clone().requires_grad_()
        want, got = program(left), compiled(right)
        assert got.stride() == want.stride() and torch.equal(got, want)
        weights = torch.arange(float(want.numel())).reshape(want.shape)
        (want * weights).sum().backward(), (got * weights).sum().backward()
        assert torch.equal(right.grad, left.grad)
        assert compiled(right.detach()).stride() == want.stride()
    assert core.stats()["graphs"] == 2  # with and without gradients, for every size


class Layout:
    """What stands for a fake: sizes, of which some are symbols, and strides."""

    def __init__(self, shape, strides):
        self.shape, self.strides = shape, strides

    def stride(self):
        return self.strides


SYMBOL = object()


@pytest.mark.parametrize(
    ("shape", "strides", "known"),
    [
        ((SYMBOL, 3), (6, 2), True),
        ((SYMBOL, 3), (0, 2), True),
        ((SYMBOL,), (0,), True),
        ((SYMBOL, 3), (4, 2), False),  # elements in one place
        ((3, SYMBOL), (6, 2), False),  # where the outer dimension begins depends on the symbol
        ((SYMBOL, 3), (SYMBOL, 2), False),
    ],
)
def test_strides_that_hold_for_every_size(shape, strides, known):
    assert gapped_strides(Layout(shape, strides)) == (strides if known else None)
