"""Symbolic sizes: one program, captured at one size, right at others."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from compiled_graphs import check
from torch import randn

import core


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def dynamic(f, args, *others, **expected):
    return check(f, *args, dynamic=True, functional=False, others=others, tolerance=1e-5, **expected)


def test_chains_and_rows():
    dynamic(lambda x, b: F.gelu(x + b) * 2, (randn(5, 7), randn(7)), (randn(9, 11), randn(11)), kernels=1)
    dynamic(lambda x: F.softmax(x, -1), (randn(5, 7),), (randn(9, 1100),), (randn(300, 40),), kernels=1)


def test_layer_norm_over_symbolic_rows():
    sizes = (randn(5, 7, 64), randn(64), randn(64)), (randn(3, 20, 64), randn(64), randn(64))
    dynamic(lambda x, w, b: F.layer_norm(x, (64,), w, b) + 1, *sizes, kernels=1)


def test_folds_over_symbolic_dimensions():
    dynamic(
        lambda x: (x.sum(), x.sum(0), x.mean(1), x.amax((0, 1))),
        (randn(5, 7, 32),),
        (randn(3, 20, 37),),
        (randn(70, 2, 1000),),
    )


def test_reshapes_of_symbolic_dimensions():
    def heads(x):
        return F.gelu(x.view(x.shape[0], x.shape[1], 4, 8).transpose(1, 2)).reshape(x.shape[0], 4, -1)

    dynamic(heads, (randn(5, 7, 32),), (randn(3, 20, 32),), kernels=1)
    dynamic(lambda x: x.view(x.shape[0] * x.shape[1], 8) * x.shape[0], (randn(5, 7, 8),), (randn(3, 20, 8),), kernels=1)


def test_concatenation_slices_and_padding():
    dynamic(lambda x, y: torch.cat([x, y], 1) * 2, (randn(5, 7), randn(5, 3)), (randn(3, 20), randn(3, 6)), kernels=1)
    dynamic(lambda x: x[:, 1:] + x[:, :-1], (randn(5, 7),), (randn(3, 20),), kernels=1)
    dynamic(lambda x: F.pad(x, (1, 2)) + 1, (randn(5, 7),), (randn(9, 4),), kernels=1)


def test_sizes_as_numbers_and_ranges():
    dynamic(lambda x: (x * 2, x.shape[0], x.shape[0] * 3), (randn(5, 7),), (randn(9, 3),), kernels=1)
    dynamic(
        lambda x: x.new_zeros(x.shape[0] + 1) + torch.arange(x.shape[0] + 1), (randn(5, 7),), (randn(9, 3),), kernels=1
    )
    dynamic(
        lambda x: torch.ones(x.shape[0], x.shape[0]).tril() * x.shape[0] / 2, (randn(5, 7),), (randn(9, 3),), kernels=1
    )


def test_extern_calls_with_symbolic_sizes():
    weights = randn(64, 32), randn(64)
    dynamic(
        lambda x, w, b: F.relu(F.linear(x, w, b)),
        (randn(5, 7, 32), *weights),
        (randn(3, 20, 32), *weights),
        kernels=1,
        externs=1,
    )

    def attention(q):
        return F.scaled_dot_product_attention(q, q, q).transpose(1, 2).reshape(q.shape[0], q.shape[2], -1)

    dynamic(attention, (randn(2, 4, 10, 8),), (randn(3, 4, 12, 8),))


def test_a_computed_size_that_is_one_is_broadcast():
    def program(x):
        half = x.chunk(2, -1)[0]
        return half.sqrt().diagonal(1) / (half + 9), half.squeeze().narrow(0, 0, 1) * half

    core.reset()
    compiled = core.compile(program, backend="inductor", dynamic=True, fullgraph=True)
    for columns in (4, 6, 10):
        x = torch.rand(1, columns)
        for got, want in zip(compiled(x), program(x)):
            torch.testing.assert_close(got, want)
    assert core.stats()["graphs"] == 1


def test_pieces_of_one_element_lose_their_dimension():
    def program(x):
        piece = x.tensor_split(2, 0)[1].squeeze()
        piece *= 2
        return piece

    compiled = core.compile(program, backend="inductor", dynamic=True, fullgraph=True)
    for rows in (0, 1, 2, 3, 8):
        mine, theirs = torch.arange(rows).double(), torch.arange(rows).double()
        got, want = compiled(mine), program(theirs)
        assert torch.equal(got, want) and torch.equal(mine, theirs)


def test_a_computed_number_is_recognised_in_the_sizes_that_it_is_part_of():
    weight = torch.randn(1, 1, 4)

    def program(x):
        padding = math.ceil((weight.shape[-1] + x.shape[-1] % 2) / 2) - 1
        return F.conv1d(x, weight, padding=padding, stride=2)

    compiled = core.compile(program, backend="inductor", dynamic=True, fullgraph=True)
    for length in (175, 249, 176, 250):
        x = torch.randn(1, 1, length)
        torch.testing.assert_close(compiled(x), program(x))


def test_a_computed_number_is_solved_for_in_what_was_computed_with_it():
    """The backward takes `2 * abs(count) + 3` alone, and sizes of which the number itself is part."""

    def program(x, count):
        scale = abs(count) * 2 + 3
        return (x.sin() / scale).cos()

    compiled = core.compile(program, backend="inductor", dynamic=True, fullgraph=True)
    for count, rows in ((5, 3), (-7, 4), (9, 5), (-4, 3)):
        mine, theirs = (torch.linspace(0, 1, rows, requires_grad=True) for _ in range(2))
        got, want = compiled(mine, count), program(theirs, count)
        got.sum().backward()
        want.sum().backward()
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(mine.grad, theirs.grad)
