"""Views are index maps: no kernel of their own, right values, and outputs that own their storage where eager's do."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from compiled_graphs import check, compiled
from torch import randn

import core


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def test_views_cost_no_kernel():
    def f(x):
        return x.view(4, 6, 5)[:, 1:4].reshape(-1, 5).unsqueeze(1).expand(12, 3, 5).squeeze(0)

    check(lambda x: f(x) * 2, randn(24, 5), kernels=1)
    check(lambda x: x.view(4, 6, 5).transpose(0, 1)[1:], randn(24, 5), kernels=0)


def test_every_view_operation_reads_the_right_elements():
    def f(x):
        return (
            x[:, 0] + x[:, -1],
            x[1:4:2] * 2,
            x.flip(1) * 2,
            torch.roll(x, (1, 2), (0, 1)) * 2,
            x.repeat(2, 3) + 1,
            x.diagonal() * 2,
            x.unfold(1, 3, 2) + 1,
            x.t() + 1,
            sum(x.unbind(1)),
            x.view(2, 3, 8).permute(2, 0, 1).reshape(8, 6) + x.t(),
        )

    check(f, randn(6, 8))


def test_pieces_of_a_split_are_read_in_place():
    def f(x):
        a, b = x.chunk(2, -1)
        return a * torch.sigmoid(b)

    check(f, randn(5, 8), kernels=1)
    check(lambda x: [t * 2 for t in x.split([3, 5], 1)], randn(5, 8))


def test_attention_heads_are_split_and_merged_without_copies_of_their_own():
    def f(x):
        return F.gelu(x.view(2, 10, 4, 8).transpose(1, 2)).transpose(1, 2).reshape(2, 10, 32)

    check(f, randn(2, 10, 32), kernels=1)
    check(lambda x: x.view(2, 10, 4, 8).transpose(1, 2).contiguous(), randn(2, 10, 32), kernels=1)


@pytest.mark.parametrize("shape", [(64, 48), (1, 70), (70, 1), (17, 33), (129, 65), (16, 64)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int32], ids=str)
def test_transposed_operands(shape, dtype):
    x = (randn(shape) * 10).to(dtype)
    check(lambda x, y: x.t() + y, x, (randn(shape[::-1]) * 10).to(dtype), kernels=1)


def test_two_transposed_operands_of_three_dimensions():
    check(
        lambda x, y, z: x.permute(2, 0, 1) * y.permute(2, 0, 1) + z,
        randn(3, 20, 40),
        randn(3, 20, 40),
        randn(40, 3, 20),
    )


def test_concatenations_are_read_where_they_are_used():
    check(lambda x, y: torch.cat([x, y * 2], 1) + 1, randn(5, 8), randn(5, 3), kernels=1)
    check(lambda x, y: torch.cat([x, y * 2, x], 0) + 1, randn(5, 8), randn(3, 8), kernels=1)
    check(lambda x, y: torch.cat([x, y.int()]), randn(5), randn(3), kernels=1)


def test_rotary_embedding_is_one_kernel():
    def f(x, c, s):
        return x * c + torch.cat([-x[..., 8:], x[..., :8]], -1) * s

    check(f, randn(2, 4, 5, 16), randn(5, 16), randn(5, 16), kernels=1)


def test_padding_and_scatters_of_slices():
    check(lambda x: F.pad(x, (1, 2, -1, 3), value=2.5) * 2, randn(5, 8), kernels=1)
    check(lambda x, y: torch.slice_scatter(x, y, 1, 2, 5) * 2, randn(5, 8), randn(5, 3), kernels=1)
    check(lambda x, y: torch.select_scatter(x, y, 0, -2) + 1, randn(5, 8), randn(8), kernels=1)


def test_outputs_alias_exactly_what_eager_aliases():
    x = randn(8, 8)
    view, copy, same, new = compiled(lambda x: (x.t(), x.clone(), x, x + 1), x).call(x)
    assert view.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    assert same.data_ptr() == x.data_ptr()
    assert copy.data_ptr() != x.data_ptr() and torch.equal(copy, x)
    assert new.data_ptr() != x.data_ptr()


def test_a_clone_of_an_output_owns_its_storage():
    a, b = compiled(lambda x: ((y := x + 1), y.clone()), randn(8)).call(randn(8))
    assert a.data_ptr() != b.data_ptr() and torch.equal(a, b)


def test_inputs_with_a_storage_offset():
    base = randn(10, 8)
    check(lambda x: (x * 2, x.t(), torch.mm(x, x.t())), base[2:6], kernels=1, externs=1)


def test_expanded_and_overlapping_inputs():
    check(lambda x: (x * 2, x.sum(0)), randn(1, 6).expand(4, 6))
    check(lambda x: x.as_strided((3, 4), (2, 1)) + 1, randn(12), kernels=1)


def test_views_that_negate_lazily_are_read_with_their_sign():
    x = torch.randn(5, dtype=torch.complex64)
    check(lambda x: (x.conj().imag + 1, x.conj().imag * 2, torch.view_as_real(x.conj().resolve_conj()) + 1), x)


def test_flipping_a_single_number_gives_it():
    check(lambda x: x.flip(0) + x.flip(-1), torch.tensor(0.75))


def test_an_output_tells_eagers_stride_of_a_dimension_of_size_one():
    def f(x):
        y = x + 1
        return y[:, :1].expand(-1, 4)[:, :1] * 2, y.sum(1, keepdim=True).expand(-1, 4)[:, :1], y.mean(0, keepdim=True)

    check(f, randn(6, 8))
    _, single, _ = compiled(f, x := randn(6, 8)).call(x)
    assert single.stride() == (1, 0)
    fast = core.compile(f, backend="inductor", dynamic=True)
    for rows in (3, 5):
        x = randn(rows, 8)
        assert [t.stride() for t in fast(x)] == [t.stride() for t in f(x)]
