"""What eager refuses when it runs is refused of a compiled program too, by the same error."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import core


def test_a_way_of_gelu_that_there_is_not_is_an_error_as_in_eager():
    def program(x):
        return F.gelu(x * 2, approximate="nearly") + 1

    x = torch.randn(8)
    with pytest.raises(RuntimeError) as eager:
        program(x)
    with pytest.raises(RuntimeError) as compiled:
        core.compile(program, backend="inductor")(x)
    assert type(compiled.value) is type(eager.value)
    assert str(eager.value) in str(compiled.value)


@pytest.mark.parametrize("way", ["none", "tanh"])
def test_both_ways_of_gelu_are_kernels_of_the_backend(way):
    x = torch.randn(33, requires_grad=True)
    compiled = core.compile(lambda x: F.gelu(x, approximate=way), backend="inductor", fullgraph_backend=True)
    y = compiled(x)
    torch.testing.assert_close(y, F.gelu(x, approximate=way))
    (gradient,) = torch.autograd.grad(y.sum(), x)
    (expected,) = torch.autograd.grad(F.gelu(x, approximate=way).sum(), x)
    torch.testing.assert_close(gradient, expected)
