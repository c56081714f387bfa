"""Operations on lists of tensors are the same operation on each, in a kernel a tensor, with eager's values."""

from __future__ import annotations

import pytest
import torch
from compiled_graphs import check, compiled

ONES, TWOS, THREES = ([torch.rand(5) + 0.5, torch.rand(2, 3) + 0.5] for _ in range(3))
CASES = {
    "numbers": lambda a, b, c: torch._foreach_sub(torch._foreach_add(a, 0.5), [2.0, 3.0]),
    "lists": lambda a, b, c: torch._foreach_div(torch._foreach_add(a, b, alpha=0.3), c),
    "one tensor": lambda a, b, c: torch._foreach_mul(torch._foreach_add(a, b[0][0], alpha=2), c[0][0]),
    "bounds": lambda a, b, c: torch._foreach_maximum(torch._foreach_clamp_max(a, 0.8), [0.6, 0.7]),
    "bounds of lists": lambda a, b, c: torch._foreach_minimum(torch._foreach_clamp_min(a, b), c),
    "powers": lambda a, b, c: torch._foreach_pow(torch._foreach_pow(a, 2.0), b),
    "functions": lambda a, b, c: torch._foreach_neg(torch._foreach_sqrt(torch._foreach_reciprocal(a))),
    "nearer": lambda a, b, c: torch._foreach_lerp(torch._foreach_lerp(a, b, 0.1), c, b),
    "products": lambda a, b, c: torch._foreach_addcmul(torch._foreach_addcmul(a, b, c, 0.1), b, c, [0.2, 0.3]),
    "quotients": lambda a, b, c: torch._foreach_addcdiv(torch._foreach_addcdiv(a, b, c, -0.1), b, c, [0.2, 0.3]),
}


def on_lists(case):
    return lambda *tensors: CASES[case](list(tensors[:2]), list(tensors[2:4]), list(tensors[4:]))


@pytest.mark.parametrize("case", CASES)
def test_an_operation_on_lists_is_a_kernel_for_each_tensor(case):
    check(on_lists(case), *ONES, *TWOS, *THREES, kernels=2, externs=0)


def test_what_is_no_operation_on_each_tensor_is_called_as_it_is():
    built = compiled(lambda x, y: torch._foreach_norm([x, y]), *ONES)
    assert built.counts == (0, 1)
    many = [torch.rand(40, 40), torch.rand(40, 40)]
    check(lambda x, y: torch._foreach_erfc([x, y]), *many, kernels=0, externs=1)
