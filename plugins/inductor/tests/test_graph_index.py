"""Gathers: values, and the errors of positions out of range."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from compiled_graphs import check, compiled
from torch import randn


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def test_embeddings_summed_and_normalised_are_one_kernel():
    def f(words, places, i, p, w, b):
        return F.layer_norm(F.embedding(i, words) + F.embedding(p, places), (16,), w, b)

    i = torch.randint(0, 50, (4, 6))
    check(f, randn(50, 16), randn(9, 16), i, torch.arange(6)[None], randn(16), randn(16), kernels=1)


def test_advanced_indices_gather_and_index_select():
    i, j = torch.randint(-5, 5, (4,)), torch.randint(0, 5, (3, 1)).expand(3, 4)
    check(lambda w, i, j: (w[i, j], w[:, i], w[i, :, j]), randn(5, 6, 7), i, j)
    check(lambda x, i: x.gather(1, i) + 1, randn(5, 8), torch.randint(0, 8, (5, 3)), kernels=1)
    check(lambda x, i: x.index_select(1, i) * 2, randn(5, 8), torch.randint(0, 8, (3,)), kernels=1)


def test_indices_that_are_computed():
    check(lambda w, i: w[(i * 2) % 7] + 1, randn(7, 5), torch.randint(0, 50, (4, 6)), kernels=1)


@pytest.mark.parametrize(
    ("f", "error"),
    [
        (lambda w, i: F.embedding(i, w), IndexError),
        (lambda w, i: w.index_select(0, i.view(-1)), IndexError),
        (lambda w, i: w[i], IndexError),
        (lambda w, i: w.gather(0, i.expand(2, 3)), RuntimeError),
        (lambda w, i: w.t()[:3].contiguous().scatter(1, i.view(3, 1), 1.0), RuntimeError),
    ],
    ids=["embedding", "index_select", "index", "gather", "scatter"],
)
@pytest.mark.parametrize("position", [7, -8, 10**12])
def test_positions_out_of_range_raise_eagers_class(f, error, position):
    w, good = randn(7, 5), torch.tensor([[0, 1, 2]])
    built = compiled(f, w, good)
    assert built.counts == (1, 0)
    bad = torch.tensor([[0, position, 2]])
    with pytest.raises(error):
        f(w, bad)
    with pytest.raises(error):
        built.call(w, bad)
    torch.testing.assert_close(built.call(w, good)[0], f(w, good))


def test_one_element_of_each_row_is_replaced_in_a_kernel():
    x, i, y = randn(4, 6, 5), torch.randint(0, 5, (4, 6, 1)), randn(4, 6, 3)
    check(lambda i: torch.zeros(4, 6, 5, dtype=torch.int64).scatter(-1, i, 1), i, kernels=1)
    check(lambda x, i: (x * 2).scatter(2, i, 0.5) + 1, x, i, kernels=1)
    check(lambda x, i, y: x.half().scatter(2, i, y.half()), x, i, y, kernels=1)
    check(lambda x, i: x.to(torch.int32).scatter(2, i, 2.7), x, i, kernels=1)
    check(lambda x, i: x.scatter(1, i, 0.5), x, i, kernels=0, externs=1)
    check(lambda x, i: x.scatter(2, i[:2], 0.5), x, i, kernels=0, externs=1)
