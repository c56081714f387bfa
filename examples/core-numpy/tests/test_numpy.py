import pytest
import torch

import core


def f(x, y):
    z = torch.relu(x @ y) + 0.5
    return (z / z.sum(-1, keepdim=True)).t(), z > x.mean()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_and_strides_are_those_of_eager(dtype):
    compiled = core.compile(f, backend="numpy", fullgraph=True)
    for size in (2, 3, 7):
        x, y = torch.randn(size, 4, dtype=dtype), torch.randn(4, 5, dtype=dtype)
        for got, want in zip(compiled(x, y), f(x, y), strict=True):
            torch.testing.assert_close(got, want)
            assert got.stride() == want.stride()


def test_what_numpy_has_not_goes_to_the_fallback_and_is_told():
    def g(x):
        return torch.erf(x + 1) * 2

    x = torch.randn(6)
    torch.testing.assert_close(core.compile(g, backend="numpy")(x), g(x))
    with pytest.raises(core.errors.BackendError, match="erf"):
        core.compile(g, backend="numpy", fullgraph_backend=True)(x)


def test_integers_wrap_and_nan_stays():
    def g(i, x):
        return i + 1, torch.relu(x), i / 2

    i, x = torch.tensor([2**31 - 1, -5], dtype=torch.int32), torch.tensor([float("nan"), -1.0])
    for got, want in zip(core.compile(g, backend="numpy")(i, x), g(i, x), strict=True):
        torch.testing.assert_close(got, want, equal_nan=True, rtol=0, atol=0)


def test_an_unknown_choice_is_refused():
    with pytest.raises(core.InvalidOption, match="float32"):
        core.compile(f, backend="numpy", options={"accumulate": "bf16"})(torch.ones(2, 4), torch.ones(4, 5))
