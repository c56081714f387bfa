"""Sizes and numbers that differ between calls: the second makes them symbolic, the third costs nothing."""

from __future__ import annotations

import inspect
import math

import pytest
import torch
from compare import same

import core
from core import torch_compat


def sizes(fn, make, values, **options):
    """Frames captured after each call; every result must be eager's."""
    compiled = core.compile(fn, backend="eager", **options)
    counts = []
    for value in values:
        args = make(value)
        got, want = compiled(*args), fn(*args)
        assert same(got, want), (value, got, want)
        counts.append(core.stats()["frames"])
    assert core.stats()["breaks"] == core.stats()["skipped"] == 0
    return counts


def batch(n):
    return (torch.arange(3.0 * n).reshape(n, 3),)


def test_the_second_size_is_symbolic_and_the_third_hits():
    def fn(x):
        return (x * 2).sum(0) / x.shape[0]

    assert sizes(fn, batch, [2, 3, 4, 5, 2, 100]) == [1, 2, 2, 2, 2, 2]


def test_dynamic_true_needs_one_entry():
    def fn(x):
        return torch.cat([x, x + 1]).relu(), x.shape

    assert sizes(fn, batch, [2, 3, 7], dynamic=True) == [1, 1, 1]


def test_dynamic_false_makes_an_entry_for_each_size():
    def fn(x):
        return x * 2

    assert sizes(fn, batch, [2, 3, 4, 2], dynamic=False) == [1, 2, 3, 3]


def test_size_one_takes_one_entry_more_at_most():
    def fn(x):
        return x * 2 + 1

    assert sizes(fn, batch, [4, 1, 5, 1, 6], dynamic=True) == [1, 2, 2, 2, 2]


def test_broadcasting_against_size_one_asks_and_gets_an_entry_of_its_own():
    def fn(x, w):
        return x * w

    def make(n):
        return torch.ones(n, 3), torch.full((1 if n % 2 else n, 3), 2.0)

    assert sizes(fn, make, [4, 3, 6, 5, 2], dynamic=True)[-1] <= 3


@pytest.mark.parametrize("dynamic", [None, True, False])
def test_empty_tensors_are_told_from_others(dynamic):
    def fn(x):
        if x.shape[0] == 0:
            return x.new_zeros(3) - 1
        return x.mean(0)

    frames = sizes(fn, batch, [4, 0, 5, 0, 6, 7, 0, 4], dynamic=dynamic)
    assert dynamic is False or frames[-1] <= 3


def test_numel_zero_decided_without_being_asked_is_guarded():
    def fn(x):
        return x + 1 if x.numel() else x.sum() - 1

    sizes(fn, lambda n: (torch.ones(n, n + 1),), [3, 4, 0, 5, 0])


def test_branches_on_a_size_are_guarded():
    def fn(x):
        if x.shape[0] > 4:
            return x[:4]
        return x * x.shape[0]

    assert sizes(fn, batch, [2, 3, 6, 4, 8, 9]) == [1, 2, 3, 3, 3, 3]


def test_symbolic_sizes_in_python_arithmetic_ranges_and_slices():
    def fn(x):
        n = x.shape[0]
        half = n // 2
        head, tail = x[:half], x[half:]
        return head.sum() + tail.sum() * (n - half), torch.arange(n).float(), x.reshape(-1, n), -n % 5, n**2, n / 2

    assert sizes(fn, batch, [4, 6, 8, 10, 5])[-1] <= 3


def test_a_loop_over_a_symbolic_size_specialises():
    def fn(x):
        out = 0.0
        for i in range(x.shape[0]):
            out = out + x[i].sum() * i
        return out

    assert sizes(fn, batch, [2, 3, 4, 2, 3, 4])[-1] == 3


def test_two_sizes_that_were_equal_may_differ_later():
    def fn(a, b):
        return a.sum() + b.sum() * (2 if a.shape[0] == b.shape[0] else 3)

    def make(pair):
        return torch.ones(pair[0], 2), torch.ones(pair[1], 2)

    sizes(fn, make, [(2, 2), (3, 3), (4, 5), (6, 6), (6, 7)])


def test_an_int_argument_is_symbolic_from_its_second_value():
    def fn(x, k):
        return x * k + k, k + 1, [k]

    assert sizes(fn, lambda k: (*batch(2), k), [1, 2, 3, -4, 0, 10**6]) == [1, 2, 2, 2, 2, 2]


def test_a_float_argument_is_symbolic_from_its_second_value():
    def fn(x, s):
        y = x * s + s / 2
        return (y + 1 if s > 0 else y), s * 2, [s]

    assert sizes(fn, lambda s: (*batch(2), s), [1.5, 2.5, 3.5, -1.0, -2.0, 4.0]) == [1, 2, 2, 3, 3, 3]


def test_nan_infinity_and_an_int_in_place_of_a_float():
    def fn(x, s):
        return x * s, s > 0, type(s).__name__

    compiled = core.compile(fn, backend="eager")
    for s in (1.5, 2.5, math.nan, math.inf, 3, -math.inf, True, 2.0):
        got, want = compiled(*batch(2), s), fn(*batch(2), s)
        assert torch.equal(got[0].nan_to_num(7.0), want[0].nan_to_num(7.0))
        assert got[1:] == want[1:]


def test_bools_are_constants():
    def fn(x, flag):
        return x + 1 if flag else x - 1

    assert sizes(fn, lambda f: (*batch(2), f), [True, False, True, False]) == [1, 2, 2, 2]


def test_item_values_after_a_break_do_not_compile_for_each_value():
    def fn(x):
        total = 0.0
        for _ in range(5):
            x = x * 1.5
            total += x.sum().item()
        return total, x * total

    compiled = core.compile(fn, backend="eager")
    for n in range(4):
        (x,) = batch(n + 2)
        got, want = compiled(x), fn(x)
        assert got[0] == pytest.approx(want[0])
        assert torch.allclose(got[1], want[1])
    frames = core.stats()["frames"]
    compiled(torch.full((9, 3), 0.3))
    assert core.stats()["frames"] == frames


def test_a_counter_on_an_object_is_symbolic_after_it_changed():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.step = 0

        def forward(self, x):
            self.step += 1
            return x + self.step

    model = Model()
    compiled = core.compile(model, backend="eager")
    for call in range(1, 8):
        assert torch.equal(compiled(torch.zeros(2)), torch.full((2,), float(call)))
    assert model.step == 7
    assert core.stats()["frames"] == 2


def test_another_rank_dtype_layout_or_gradient_is_another_entry():
    def fn(x):
        return x * 2

    compiled = core.compile(fn, backend="eager")
    inputs = [
        torch.ones(2, 3),
        torch.ones(2, 3, 1),
        torch.ones(2, 3, dtype=torch.float64),
        torch.ones(3, 2).t(),
        torch.ones(2, 3, requires_grad=True),
    ]
    for count, x in enumerate(inputs, 1):
        assert same(compiled(x), fn(x))
        assert core.stats()["frames"] == count
    for x in inputs:
        compiled(x)
    assert core.stats()["frames"] == len(inputs)


def test_symbolic_strides_and_offsets_of_views():
    base = torch.arange(200.0)

    def make(n):
        return (base[n : n + 2 * n].view(2, n).t(),)

    def fn(x):
        return x + x.shape[0], x.is_contiguous(), x.stride()

    assert sizes(fn, make, [3, 4, 5, 6])[2:] == [2, 2]


def test_parameters_keep_static_sizes():
    def fn(layer, x):
        return layer(x)

    compiled = core.compile(fn, backend="eager", dynamic=True)
    layer = torch.nn.Linear(3, 4)
    for n in (2, 5, 3):
        (x,) = batch(n)
        assert same(compiled(layer, x), layer(x))
    assert core.stats()["frames"] == 1


def test_lists_of_another_length_are_another_entry():
    def fn(parts):
        return torch.cat(parts).sum(), len(parts)

    assert sizes(fn, lambda k: ([torch.ones(2)] * k,), [1, 2, 3, 2, 1]) == [1, 2, 3, 3, 3]


def test_outputs_with_symbolic_sizes_keep_their_shapes():
    def fn(x):
        n, m = x.shape
        return x.new_zeros(n + m, 2 * n), x.expand(2, n, m), x.unsqueeze(1).repeat(1, n, 1).shape

    sizes(fn, lambda n: (torch.ones(n, n + 1),), [2, 3, 4, 7, 1])


def test_strides_that_do_not_follow_from_the_sizes_are_told_apart():
    wide = torch.arange(400.0).reshape(4, 100)

    def fn(x):
        return x * 2, x.stride(), x.is_contiguous()

    views = [
        wide[:, :3],
        wide[:, :5],
        wide[:, :7],
        wide[:, :7].contiguous(),
        wide.t()[:7].t(),
        wide[:, ::10],
        wide[:, :9],
    ]
    sizes(fn, lambda i: (views[i],), [*range(len(views)), *range(len(views))], dynamic=True)
    sizes(fn, lambda i: (views[i],), [*range(len(views)), *range(len(views))])


def test_a_fake_view_takes_symbols_by_the_python_rule_too(monkeypatch):
    """What a torch gets whose C++ rule does not take them."""
    monkeypatch.setattr(torch_compat.newer, "VIEWS_TAKE_SYMBOLS", False)
    torch_compat._fake_mode_class.cache_clear()
    try:
        plain = torch_compat._fake_mode_class().__mro__[1].__torch_dispatch__
        assert torch_compat._fake_mode_class().__torch_dispatch__ is not inspect.unwrap(plain)
        fast = core.compile(lambda x: (x.view(-1, 2) * 2).tanh().view(x.shape), backend="aot_eager", dynamic=True)
        for rows in (4, 6, 10):
            x = torch.randn(rows, 4, requires_grad=True)
            result = fast(x)
            (gradient,) = torch.autograd.grad(result.sum(), x)
            assert torch.equal(result, (x * 2).tanh())
            torch.testing.assert_close(gradient, 2 * (1 - (x * 2).tanh() ** 2))
        assert core.stats()["graphs"] == 1
    finally:
        monkeypatch.undo()
        torch_compat._fake_mode_class.cache_clear()
