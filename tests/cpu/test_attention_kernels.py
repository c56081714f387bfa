"""Which kernels attention may use, switched and asked for inside compiled functions."""

from __future__ import annotations

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

import core

FLAGS = torch.backends.cuda
BACKENDS = ("eager", "aot_eager")


@pytest.fixture(autouse=True)
def as_before():
    core.reset()
    before = FLAGS.math_sdp_enabled(), FLAGS.flash_sdp_enabled()
    yield
    FLAGS.enable_math_sdp(before[0])
    FLAGS.enable_flash_sdp(before[1])


def graphs():
    return core.stats()["graphs"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_block_with_one_kernel_is_part_of_the_graph(backend):
    def fn(x):
        with sdpa_kernel([SDPBackend.MATH]):
            inside = FLAGS.flash_sdp_enabled()
            y = scaled_dot_product_attention(x, x, x)
        return y, inside, FLAGS.flash_sdp_enabled()

    x, before = torch.randn(2, 2, 4, 4), graphs()
    compiled = core.compile(fn, backend=backend, fullgraph=True)
    for _ in range(2):
        y, inside, after = compiled(x)
        assert torch.allclose(y, fn(x)[0]) and (inside, after) == (False, True)
        assert FLAGS.flash_sdp_enabled() is True
    assert graphs() - before == 1


def test_a_flag_left_switched_is_left_switched_by_each_call():
    def fn(x):
        FLAGS.enable_math_sdp(False)
        return x + 1

    compiled = core.compile(fn, backend="eager", fullgraph=True)
    for _ in range(2):
        FLAGS.enable_math_sdp(True)
        compiled(torch.ones(2))
        assert FLAGS.math_sdp_enabled() is False


def test_a_flag_that_changed_outside_is_seen():
    def fn(x):
        return x + 1 if FLAGS.flash_sdp_enabled() else x - 1

    compiled, before = core.compile(fn, backend="eager", fullgraph=True), graphs()
    assert compiled(torch.zeros(1)).item() == 1
    FLAGS.enable_flash_sdp(False)
    assert compiled(torch.zeros(1)).item() == -1
    assert graphs() - before == 2


def test_other_settings_of_torch_are_changed_on_each_call():
    def fn(x):
        torch._C._set_mkldnn_enabled(False)
        return x + 1

    compiled = core.compile(fn, backend="eager")
    try:
        for _ in range(2):
            torch._C._set_mkldnn_enabled(True)
            compiled(torch.ones(2))
            assert torch._C._get_mkldnn_enabled() is False
    finally:
        torch._C._set_mkldnn_enabled(True)
