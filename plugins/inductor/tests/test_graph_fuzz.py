"""Seeded random programs of views, folds and elementwise operations: values, shapes and strides equal eager's."""

from __future__ import annotations

import random

import pytest
import torch
from compiled_graphs import check

SMALL = [(2, 3, 4), (6, 4), (24,), (4,), (3, 1), (2, 3, 5), (6, 6)]
LARGE = [(24, 36, 48), (864, 48), (41472,), (48,), (36, 1), (24, 36, 60), (720, 72)]


def broadcasts(a, b):
    return all(p == q or p == 1 or q == 1 for p, q in zip(a.shape[::-1], b.shape[::-1]))


def step(r, x, pool):
    """One operation on x; what does not apply to its shape becomes sin."""
    kind, rank = r.randint(0, 16), x.dim()
    dim = r.randrange(rank) if rank else 0
    other = r.choice(pool)
    if kind == 0:
        return torch.tanh(x)
    if kind == 1 and broadcasts(x, other):
        return x * other if r.random() < 0.5 else x + other
    if kind == 6:
        return x.reshape(-1)
    if kind == 7 and x.numel() % 6 == 0:
        return x.reshape(6, -1)
    if kind == 13:
        return torch.where(x > 0, x, x * 0.1)
    if rank:
        if kind == 2:
            return x.sum(dim, keepdim=r.random() < 0.5)
        if kind == 3:
            return x.amax(dim, keepdim=True) - x
        if kind == 4:
            return torch.softmax(x, dim)
        if kind == 8 and x.shape[-1] > 2:
            return x[..., 1:]
        if kind == 9:
            return torch.cat([x, x.sigmoid()], dim)
        if kind == 10:
            return x.flip(dim)
        if kind == 14:
            return x.unsqueeze(dim)
        if kind == 16:
            return x.mean(dim, keepdim=True).expand_as(x) + x
    if rank > 1:
        if kind == 5:
            dims = list(range(rank))
            r.shuffle(dims)
            return x.permute(dims)
        if kind == 11:
            return torch.nn.functional.layer_norm(x, x.shape[-1:])
        if kind == 12 and rank == 2 and x.shape[0] < 900:
            return x @ x.t() / x.shape[1]
        if kind == 15:
            return x.transpose(0, -1).contiguous()
    return x.sin()


def program(seed, limit):
    """A function of three tensors, the same whenever it is called."""

    def f(a, b, c):
        r = random.Random(seed)
        pool = [a, b, c]
        for _ in range(r.randint(3, 14)):
            y = step(r, r.choice(pool[-6:]), pool)
            pool.append(y if y.numel() <= limit else y.flatten()[:600])
        return tuple(pool[-r.randint(1, 3) :])

    return f


@pytest.mark.parametrize("seed", range(40))
def test_small_programs(seed):
    torch.manual_seed(seed)
    args = [torch.randn(random.Random(seed + k * 1000).choice(SMALL)) for k in range(3)]
    check(program(seed, 200_000), *args, tolerance=2e-4)


@pytest.mark.parametrize("seed", range(100, 120))
def test_programs_large_enough_for_threads_tiles_and_runs(seed):
    torch.manual_seed(seed)
    args = [torch.randn(random.Random(seed + k * 1000).choice(LARGE)) for k in range(3)]
    # float64, so that what is compared is the program and not the order of sums.
    check(program(seed, 2_000_000), *[a.double() for a in args], tolerance=1e-7)
