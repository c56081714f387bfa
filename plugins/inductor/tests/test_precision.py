"""What is computed in float32 is as near to the real numbers as eager's, but for roundings.

Where a mean of large numbers is taken away from them, one rounding of the mean decides: there the worst of some
thousand errors is no sharper a measure than by a factor of two.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import core

ROUNDINGS = 4
"""How many units in the last place of the largest result twice eager's worst error may be exceeded by."""

CASES = {
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(0),
    "logsumexp": lambda x: x.logsumexp(-1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "rms_norm": lambda x: F.rms_norm(x, x.shape[-1:]),
    "group_norm": lambda x: F.group_norm(x[None], 4),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "var": lambda x: x.var(-1),
    "var of a column": lambda x: x.var(0),
    "std of all": lambda x: x.std(),
    "mean": lambda x: x.mean(-1),
    "sum": lambda x: x.sum(),
    "sum of columns": lambda x: x.sum(0),
    "sum of squares": lambda x: (x * x).sum(-1),
    "norm": lambda x: x.norm(dim=-1),
    "cumsum": lambda x: x.cumsum(-1),
    "cumsum of columns": lambda x: x.cumsum(0),
    "cumprod": lambda x: (1 + x.sin() * 1e-3).cumprod(-1),
    "logcumsumexp": lambda x: x.logcumsumexp(-1),
    "gelu": lambda x: F.gelu(x),
    "softplus": lambda x: F.softplus(x),
    "expm1 and log1p": lambda x: torch.expm1(x * 1e-4) + torch.log1p(x.abs() * 1e-4),
    "cosine_similarity": lambda x: F.cosine_similarity(x, x.flip(0), -1),
    "cross_entropy": lambda x: F.cross_entropy(x, torch.zeros(len(x), dtype=torch.int64)),
}
NUMBERS = {
    "around zero": lambda shape: torch.randn(shape),
    "far from zero": lambda shape: torch.randn(shape) + 1000,
    "of many sizes": lambda shape: torch.randn(shape) * torch.logspace(-4, 2, shape[-1]),
}


def errors(made, exact):
    """The worst difference from the exact results."""
    assert made.isfinite().all() and exact.isfinite().all()
    return (made.double() - exact).abs().max().item()


@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize("case", CASES)
def test_float32_is_as_near_to_real_numbers_as_eager(case, numbers):
    torch.manual_seed(0)
    fn = CASES[case]
    compiled = core.compile(fn, backend="inductor", fullgraph=True)
    for shape in ((8, 4099), (2048, 12)):
        x = NUMBERS[numbers](shape)
        exact = fn(x.double())
        slack = ROUNDINGS * torch.finfo(torch.float32).eps * exact.abs().max().item()
        assert errors(compiled(x), exact) <= 2 * errors(fn(x), exact) + slack


@pytest.mark.parametrize("case", ["softmax", "layer_norm", "var", "logsumexp", "cumsum", "batch_norm", "gelu"])
def test_gradients_in_float32_are_as_near_to_real_numbers_as_eager(case):
    fn = CASES[case]

    def gradient(subject, x):
        x = x.clone().requires_grad_()
        made = subject(x)
        weights = torch.linspace(-1, 1, made.numel(), dtype=torch.float64).reshape(made.shape)
        return torch.autograd.grad(made, x, weights.to(made.dtype))[0]

    torch.manual_seed(0)
    compiled = core.compile(fn, backend="inductor", fullgraph=True)
    for shape in ((8, 4099), (2048, 12)):
        x = torch.randn(shape)
        exact = gradient(fn, x.double())
        slack = ROUNDINGS * torch.finfo(torch.float32).eps * exact.abs().max().item()
        assert errors(gradient(compiled, x), exact) <= 2 * errors(gradient(fn, x), exact) + slack
