"""Normalisations, losses and their backwards: accuracy and the number of kernels."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from compiled_graphs import check
from torch import randn


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def with_gradients(f):
    """A function of detached inputs that returns its result and the gradients of all floating inputs."""

    def joint(*args):
        leaves = [a.detach().requires_grad_() if a.is_floating_point() else a for a in args]
        with torch.enable_grad():
            out = f(*leaves)
            wanted = [a for a in leaves if a.is_floating_point()]
            grads = torch.autograd.grad((out * out).sum(), wanted)
        return (out.detach(), *grads)

    return joint


def check_backward(f, *args, **expected):
    return check(with_gradients(f), *args, functional=False, tolerance=1e-4, **expected)


def test_layer_norm_is_one_kernel():
    check(lambda x, w, b: F.layer_norm(x, (96,), w, b), randn(64, 96), randn(96), randn(96), kernels=1)


def test_layer_norm_with_what_surrounds_it_is_one_kernel():
    check(
        lambda x, r, w, b: F.gelu(F.layer_norm(x + r, (96,), w, b)),
        randn(8, 9, 96),
        randn(8, 9, 96),
        randn(96),
        randn(96),
        kernels=1,
    )


def test_layer_norm_over_two_dimensions_and_without_parameters():
    check(lambda x: F.layer_norm(x, (9, 96)), randn(8, 9, 96), kernels=1)


def test_layer_norm_of_large_offsets():
    check(lambda x: F.layer_norm(x, (768,)), randn(16, 768) + 300)


def test_layer_norm_returns_its_statistics():
    check(lambda x, w: torch.native_layer_norm(x, (96,), w, None, 1e-5), randn(4, 5, 96), randn(96), kernels=1)


def test_rms_norm_written_out_is_one_kernel():
    check(
        lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w, randn(6, 70, 90), randn(90), kernels=1
    )


def test_group_norm_and_batch_norm_in_evaluation():
    check(lambda x, w, b: F.silu(F.group_norm(x, 4, w, b)), randn(6, 8, 9, 10), randn(8), randn(8), kernels=1)
    check(
        lambda x, w, b, m, v: F.relu(F.batch_norm(x, m, v, w, b)),
        randn(6, 8, 9, 10),
        randn(8),
        randn(8),
        randn(8),
        randn(8).abs(),
        kernels=1,
    )


def test_batch_norm_in_training_by_its_functional_form():
    def f(x, w, b, m, v):
        return torch.ops.aten._native_batch_norm_legit_functional(x, w, b, m, v, True, 0.1, 1e-5)

    check(f, randn(6, 8, 9, 10), randn(8), randn(8), randn(8), randn(8).abs(), externs=0, kernels=1)


def test_masked_softmax_with_scale_is_one_kernel():
    check(
        lambda x, m: F.softmax((x * 0.125).masked_fill(m, float("-inf")), -1),
        randn(2, 4, 10, 12),
        randn(10, 12) > 1,
        kernels=1,
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_sixteen_bit_norms(dtype):
    x, w = randn(33, 400).to(dtype), randn(400).to(dtype)
    check(lambda x, w: F.layer_norm(x, (400,), w), x, w, tolerance=3e-2, kernels=1)
    check(lambda x: F.log_softmax(x, -1), x, tolerance=3e-2, kernels=1)


def test_layer_norm_backward_is_two_kernels():
    check_backward(
        lambda x, w, b: F.layer_norm(x, (40,), w, b), randn(4, 33, 40), randn(40), randn(40), kernels=2, externs=0
    )


def test_softmax_backward_is_one_kernel():
    check_backward(lambda x: F.softmax(x, -1) * F.log_softmax(x, -1), randn(33, 40), kernels=1, externs=0)


def test_rms_norm_backward():
    check_backward(
        lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w,
        randn(6, 70, 90),
        randn(90),
        kernels=2,
        externs=0,
    )


def test_activation_backwards():
    def f(x):
        return (
            F.silu(x) + F.tanh(x) + torch.sigmoid(x) + F.leaky_relu(x) + F.softplus(x) + F.hardswish(x) + F.gelu(x)
            + F.hardtanh(x) + F.gelu(x, approximate="tanh") + F.relu(x)
        )  # fmt: skip

    check_backward(f, randn(33, 40) * 3, kernels=1, externs=0)


def test_linear_and_convolution_backwards():
    check_backward(lambda x, w, b: F.relu(F.linear(x, w, b)), randn(4, 33, 40), randn(50, 40), randn(50))
    check_backward(lambda x, w: F.relu(F.conv2d(x, w)), randn(2, 3, 16, 16), randn(8, 3, 3, 3))


def test_cross_entropy_backward():
    check_backward(lambda x, t: F.cross_entropy(x, t), randn(33, 40), torch.randint(0, 40, (33,)))


def test_embedding_attention_and_slices_backward():
    check_backward(lambda w, i: F.embedding(i, w), randn(50, 16), torch.randint(0, 50, (4, 6)))
    check_backward(lambda q: F.scaled_dot_product_attention(q, q, q), randn(2, 4, 10, 8))
    check_backward(lambda x: x[:, 1:5] * torch.cat([x[:, :2], x[:, 4:6]], 1), randn(6, 8))
