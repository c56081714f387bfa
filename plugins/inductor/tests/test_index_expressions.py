"""Index algebra: canonical forms, and agreement with brute force."""

from __future__ import annotations

import itertools
import random

import pytest
from core_inductor.ir import expr
from core_inductor.ir.expr import delinearize, linear, loop_var, row_major, size_var, substitute


def variables(sizes):
    return tuple(loop_var(f"i{k}", s) for k, s in enumerate(sizes))


def test_splitting_a_dimension_is_affine():
    v = variables((2, 5, 4, 8))
    assert delinearize(linear(v, row_major((2, 5, 4, 8))), (2, 5, 32)) == (
        v[0],
        v[1],
        expr.add(expr.mul(v[2], 8), v[3]),
    )


def test_merging_and_splitting_again_is_the_identity():
    v = variables((2, 5, 4, 8))
    merged = delinearize(linear(variables((10, 32)), row_major((10, 32))), (2, 5, 4, 8))
    back = delinearize(linear(v, row_major((2, 5, 4, 8))), (10, 32))
    atoms = [next(iter(w.terms))[0] for w in variables((10, 32))]
    assert tuple(substitute(m, dict(zip(atoms, back))) for m in merged) == v


def test_symbolic_sizes_simplify_alike():
    s = size_var("s0", 7)
    w = variables((expr.mul(s, s), 32))
    index = delinearize(linear(w, row_major((expr.mul(s, s), 32))), (s, s, 32))
    assert linear(index, row_major((s, s, 32))) == linear(w, (32, 1))


def test_constants_stay_plain_ints():
    i = loop_var("i0", 4)
    assert expr.sub(i, i) == 0 and isinstance(expr.mul(i, 0), int)
    assert expr.floordiv(i, 4) == 0 and expr.mod(i, 4) == i
    assert expr.floordiv(expr.add(expr.mul(i, 6), 5), 6) == i


def test_reversed_and_merged_dimensions_are_one_reversed_walk():
    i = loop_var("i0", 103680)
    position = expr.sub(103679, i)
    index = delinearize(position, (24, 36, 120))
    assert linear(index, row_major((24, 36, 120))) == position
    for at in (0, 1, 119, 120, 4319, 4320, 103679):
        values = {next(iter(i.terms))[0]: at}
        assert linear([substitute(e, values) for e in index], row_major((24, 36, 120))) == 103679 - at


@pytest.mark.parametrize("seed", range(40))
def test_random_reshape_chains_agree_with_brute_force(seed):
    rng = random.Random(seed)
    factors = [rng.choice((1, 2, 3, 4)) for _ in range(5)]

    def shape():
        sizes, rest = [], list(factors)
        rng.shuffle(rest)
        while rest:
            take = rng.randint(1, len(rest))
            size = 1
            for f in rest[:take]:
                size *= f
            sizes.append(size)
            rest = rest[take:]
        return tuple(sizes)

    shapes = [shape() for _ in range(4)]
    order = list(range(len(shapes[-1])))
    rng.shuffle(order)
    reversed_ = [rng.random() < 0.5 for _ in shapes]

    def walk(index, split):
        """Permute, then reshape through all shapes, some read backwards; `split` makes a multi-index of a position."""
        sizes = tuple(shapes[-1][k] for k in order)
        index = tuple(index[k] for k in order)
        for other, backwards in zip(shapes[:-1], reversed_):
            position = linear(index, row_major(sizes))
            if backwards:
                position = expr.sub(total(other) - 1, position)
            index, sizes = split(position, other), other
        return linear(index, row_major(sizes))

    v = tuple(0 if s == 1 else loop_var(f"i{k}", s) for k, s in enumerate(shapes[-1]))
    symbolic = walk(v, delinearize)
    for point in itertools.product(*(range(s) for s in shapes[-1])):
        values = {next(iter(w.terms))[0]: p for w, p in zip(v, point) if not isinstance(w, int)}
        assert substitute(symbolic, values) == walk(point, by_division)


def total(sizes):
    result = 1
    for s in sizes:
        result *= s
    return result


def by_division(position, sizes):
    index = []
    for s in reversed(sizes):
        index.append(position % s)
        position //= s
    return tuple(reversed(index))
