"""Dtypes of fakes are those that the kernels give, for normalizations of 16-bit floats with weights of either width."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import core
from core import torch_compat
from core.graph.kernel_layouts import as_kernels_do

aten = torch.ops.aten
SHORT = (torch.bfloat16, torch.float16)


def calls(dtype, width):
    x = torch.randn(4, 16, 8, 8).to(dtype)
    w, b, mean, var = (value.to(width) for value in (torch.ones(16), torch.zeros(16), torch.zeros(16), torch.ones(16)))
    row = torch.ones(8, dtype=width)
    return {
        "batch": (aten._native_batch_norm_legit.default, (x, w, b, mean, var, True, 0.1, 1e-5)),
        "batch, whole": (aten.native_batch_norm.default, (x, w, b, mean, var, True, 0.1, 1e-5)),
        "batch, no weights": (aten.native_batch_norm.default, (x, None, None, mean, var, True, 0.1, 1e-5)),
        "batch, no statistics": (aten._native_batch_norm_legit.no_stats, (x, w, b, True, 0.1, 1e-5)),
        "batch, functional": (
            aten._native_batch_norm_legit_functional.default,
            (x, w, b, mean, var, True, 0.1, 1e-5),
        ),
        "batch, in evaluation": (aten._native_batch_norm_legit_no_training.default, (x, w, b, mean, var, 0.1, 1e-5)),
        "batch, with update": (aten._batch_norm_with_update.default, (x, w, b, mean, var, 0.1, 1e-5)),
        "layer": (aten.native_layer_norm.default, (x, [8], row, row, 1e-5)),
        "layer, no weights": (aten.native_layer_norm.default, (x, [8], None, None, 1e-5)),
        "group": (aten.native_group_norm.default, (x, w, b, 4, 16, 64, 4, 1e-5)),
        "group, backward": (
            aten.native_group_norm_backward.default,
            (x, x, *aten.native_group_norm(x, w, b, 4, 16, 64, 4, 1e-5)[1:], w, 4, 16, 64, 4, [True, True, True]),
        ),
    }


@pytest.mark.parametrize("dtype", SHORT, ids=str)
@pytest.mark.parametrize("wide", [True, False], ids=["weights of 32 bits", "weights of 16 bits"])
@pytest.mark.parametrize("name", calls(torch.bfloat16, torch.float32))
def test_statistics_have_the_dtype_of_the_kernels(name, wide, dtype):
    op, args = calls(dtype, torch.float32 if wide else dtype)[name]
    want = [value.dtype for value in op(*args)]
    mode = torch_compat.fake_tensor_mode(None)
    with mode:
        fakes = tuple(mode.from_tensor(value) if isinstance(value, torch.Tensor) else value for value in args)
        got = as_kernels_do(mode, op, fakes, {}, op(*fakes))
    assert [value.dtype for value in got] == want


NETWORKS = {
    "layer": lambda: nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 4)),
    "group": lambda: nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.ReLU()),
    "batch": lambda: nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()),
    "batch, evaluated": lambda: nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()).eval(),
}


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", NETWORKS)
def test_normalizations_learn_under_autocast_as_in_eager(name, backend):
    torch.manual_seed(0)
    model = NETWORKS[name]()
    torch.manual_seed(0)
    twin = NETWORKS[name]()
    fast = core.compile(model, backend=backend)
    for _ in range(2):
        x = torch.randn(4, 8) if name == "layer" else torch.randn(4, 3, 8, 8)
        with torch.autocast("cpu", torch.bfloat16):
            got, want = fast(x), twin(x)
        assert got.dtype is want.dtype and torch.allclose(got, want, rtol=0.02, atol=0.02)
        got.float().square().mean().backward(), want.float().square().mean().backward()
    for a, b in zip(model.parameters(), twin.parameters()):
        assert torch.allclose(a.grad, b.grad, rtol=0.05, atol=0.01)
    for a, b in zip(model.buffers(), twin.buffers()):
        assert a.dtype is b.dtype and torch.allclose(a, b, rtol=0.02, atol=0.01)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("loss", [nn.functional.huber_loss, nn.functional.soft_margin_loss], ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtypes", [(torch.bfloat16, torch.float32), (torch.float32, torch.float64)], ids=str)
def test_losses_have_the_dtype_of_their_first_operand(loss, dtypes, backend):
    torch.manual_seed(0)
    given, target = (torch.randn(3, 4).to(dtype) for dtype in dtypes)
    want, got = loss(given, target), core.compile(loss, backend=backend, fullgraph=True)(given, target)
    assert got.dtype is want.dtype is dtypes[0] and torch.allclose(got, want, rtol=0.02)
