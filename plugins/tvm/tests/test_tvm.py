"""The backend tvm: results, what TVM's simplifier must not see, memory, sizes, errors, options."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import threading

import pytest
import torch
from torch import nn

import core

pytest.importorskip("core_tvm")
needs_tvm = pytest.mark.skipif(importlib.util.find_spec("tvm") is None, reason="TVM is not installed")


def compiled(fn, **options):
    core.reset()
    return core.compile(fn, backend="tvm", fullgraph=True, **options)


def alone(fn, **options):
    """Compiled with nobody behind the backend."""
    return compiled(fn, fallback=(), **options)


def close(got, want, tolerance=1e-5):
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance, equal_nan=True)


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 16)
        self.parts = nn.Linear(16, 48)
        self.norm = nn.LayerNorm(16)
        self.feed = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, ids):
        x = self.words(ids)
        q, k, v = self.parts(x).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = self.norm(x + mixed.transpose(1, 2).flatten(2))
        return x + self.feed(x)


@needs_tvm
def test_a_model_runs_as_one_program_of_fused_kernels():
    torch.manual_seed(0)
    model = Mixer().eval()
    run = alone(model)
    with torch.no_grad():
        for _ in range(3):
            ids = torch.randint(0, 50, (2, 7))
            close(run(ids), model(ids))
    stats = core.stats()
    assert stats["graphs"] == 1 and stats["extern_calls"] == 0 and 5 < stats["kernels"] < 25


@needs_tvm
def test_convolutions_with_weights_changed_between_calls():
    layers = (nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1))
    model = nn.Sequential(*layers).eval()
    run = alone(model)
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(2, 3, 8, 8)
            close(run(x), model(x))
            model[0].weight.add_(0.5)
            close(run(x), model(x))
    assert core.stats()["graphs"] == 1


@needs_tvm
def test_nan_infinities_and_signs_of_zero_survive_tvm_s_simplifier():
    def fn(x, y):
        e = torch.exp(x)
        return (
            x - x,
            x * 0,
            0 - x,
            x + 0.0,
            (x + y) - y,
            e - torch.exp(x),
            x == x,
            x != x,
            ~(x < y),
            torch.relu(x),
            x.clamp(-1, 1),
            x.masked_fill(x <= 0, 1.0),
            0 / x,
            torch.maximum(x, y) * -1,
        )

    x = torch.tensor([1.0, float("nan"), -2.0, float("inf"), -float("inf"), -0.0, 0.0, 1e-40])
    run = alone(fn)
    for other in (x.flip(0), torch.zeros(8), x.clone()):
        for got, want in zip(run(x, other), fn(x, other)):
            torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
            if got.is_floating_point():
                assert torch.equal(got.signbit()[want == 0], want.signbit()[want == 0])


@needs_tvm
def test_the_place_of_an_extreme_is_that_of_the_nan_that_eager_takes():
    nan, low = float("nan"), -float("inf")
    x = torch.tensor([[[nan, 1, 2, nan], [nan, nan, 3, 1], [low, low, 1, 2], [low, low, nan, 0]]])

    def fn(x):
        return *nn.functional.max_pool2d(x, 2, return_indices=True), x.max(1), x.argmin()

    for got, want in zip(alone(fn)(x), fn(x)):
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


@needs_tvm
def test_products_and_sums_are_rounded_one_by_one():
    run = alone(lambda x, y: x * y - (y * x).clone())
    x, y = torch.rand(1000), torch.rand(1000)
    assert not run(x, y).any()


@needs_tvm
def test_float64_and_whole_numbers_are_exact():
    def fn(x, i, small):
        return x.exp() * 1.1, i * 3 + 2**40, i // 7, i % -5, small * 3 + 100, small.sum()

    run = alone(fn)
    x, i = torch.randn(4, dtype=torch.float64), torch.tensor([1, -5, 2**45, -(2**62)])
    small = torch.tensor([100, -128, 7], dtype=torch.int8)
    got, want = run(x, i, small), fn(x, i, small)
    assert torch.allclose(got[0], want[0], rtol=1e-15)
    for one, other in zip(got[1:], want[1:]):
        assert one.dtype is other.dtype and torch.equal(one, other)


@needs_tvm
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_floats_are_computed_wide_and_rounded_after_each_operator(dtype):
    run = alone(lambda x: ((x @ x).softmax(-1), (x * 3 + x).float(), x.float().to(dtype).float(), x.argmax(0)))
    x = torch.randn(8, 8, dtype=dtype)
    for got, want in zip(run(x), ((x @ x).softmax(-1), (x * 3 + x).float(), x.float(), x.argmax(0))):
        assert got.dtype is want.dtype
        close(got, want, 2e-2 if want.dtype is dtype else 0)


@needs_tvm
def test_division_by_a_tensor_of_whole_numbers_is_left_to_the_fallback():
    run = compiled(lambda x, y: x // y)
    with pytest.raises(RuntimeError, match="(?i)division by zero|zerodivision"):
        run(torch.tensor([7]), torch.tensor([0]))
    assert core.stats()["kernels"] == 0


@needs_tvm
def test_an_index_outside_raises_as_eager_does_and_the_next_call_is_right():
    run = alone(lambda table, places: (nn.functional.embedding(places, table), table[places - 1]))
    table = torch.randn(5, 3)
    for wrong in (5, -1):
        with pytest.raises(IndexError, match="out of range"):
            run(table, torch.tensor([wrong]))
    close(run(table, torch.tensor([0])), (table[:1], table[-1:]))


@needs_tvm
def test_memory_that_lies_in_order_is_read_in_place_and_other_memory_is_copied(monkeypatch):
    import core_tvm.calls

    copies = []
    monkeypatch.setattr(
        core_tvm.calls, "fitted", lambda x: copies.append(x) or x.clone(memory_format=torch.contiguous_format)
    )
    run = alone(lambda x: (x + 1, x > 0), dynamic=False)
    x = torch.randn(16)
    close(run(x)[0], x + 1)
    assert not copies
    shifted = torch.randn(17)[1:]
    assert shifted.data_ptr() % 64
    got = run(shifted)
    close(got[0], shifted + 1)
    assert len(copies) == 1 and torch.equal(got[1], shifted > 0)


@needs_tvm
def test_input_mutation_gradients_and_results_of_earlier_calls():
    def fn(x, y):
        x.mul_(2)
        return x + y

    run = compiled(fn)
    mine, y = torch.randn(3), torch.randn(3)
    other = mine.clone()
    first = run(mine, y)
    kept = first.clone()
    close(first, fn(other, y))
    close(mine, other)
    run(torch.zeros(3), torch.zeros(3))
    assert torch.equal(first, kept)
    model = nn.Linear(3, 3)
    for options in ({}, {"training": True}):
        model.zero_grad()
        compiled(model, options=options)(torch.ones(2, 3)).sum().backward()
        close(model.weight.grad, torch.full((3, 3), 2.0))


@needs_tvm
def test_gradients_of_attention_with_a_row_that_is_masked_as_a_whole():
    mask = torch.zeros(1, 1, 5, 6).index_fill(2, torch.tensor([1]), -float("inf"))

    def attention(q, k, v):
        return nn.functional.scaled_dot_product_attention(q, k, v, mask)

    values = [torch.randn(1, 2, rows, 8, requires_grad=True) for rows in (5, 6, 6)]
    got = compiled(attention, options={"training": True})(*values)
    want = attention(*values)
    close(got, want)
    for mine, other in zip(*(torch.autograd.grad(result.square().sum(), values) for result in (got, want))):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)


@needs_tvm
def test_one_program_serves_every_size():
    def fn(x):
        joined = torch.cat([x, x * 2]).reshape(-1, x.shape[0] * 2)
        return joined.softmax(-1), x.sum(0) * x.shape[0], x.shape[0] * 3

    run = alone(fn, dynamic=True)
    for rows in (3, 5, 17, 41):  # with 40, a multiple of the columns, one factor of the views is another
        x = torch.randn(rows, 4)
        close(run(x), fn(x))
    assert core.stats()["graphs"] == 1


@needs_tvm
def test_tensors_without_elements_and_of_no_dimensions():
    def fn(x, n):
        return torch.cat([x, x * 2]), x.sum(0), x.mean(), x.prod(), n * 2, (x > 0).all()

    for shape in ((0, 3), (3, 0), (2, 3)):
        run = alone(fn, dynamic=False)
        x, n = torch.ones(shape), torch.tensor(2.0)
        close(run(x, n), fn(x, n))


@needs_tvm
def test_threads_have_machines_of_their_own():
    run = alone(lambda x: (x @ x).relu().sum(0))
    inputs = [torch.randn(16, 16) for _ in range(4)]
    wanted = [(x @ x).relu().sum(0) for x in inputs]
    run(inputs[0])
    wrong = []

    def work(x, want):
        for _ in range(50):
            if not torch.allclose(run(x), want, rtol=1e-4, atol=1e-4):
                wrong.append(x)

    threads = [threading.Thread(target=work, args=pair) for pair in zip(inputs, wanted)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@needs_tvm
def test_options_choose_fusion_schedules_and_processor():
    x = torch.randn(8, 8)
    counts = {}
    for level in (0, 2):
        run = alone(lambda x: torch.tanh(x) + 1, options={"opt_level": level})
        close(run(x), torch.tanh(x) + 1)
        counts[level] = core.stats()["kernels"]
    assert counts == {0: 2, 2: 1}
    close(alone(lambda x: x @ x, options={"schedule": False, "mcpu": "x86-64-v2"})(x), x @ x)


@needs_tvm
def test_a_failure_of_tvm_s_compiler_has_its_words_and_a_remedy(monkeypatch):
    import core_tvm.pipeline

    def broken(module):
        raise ValueError("no such loop")

    monkeypatch.setattr(core_tvm.pipeline, "scheduled", broken)
    with pytest.raises(core.CoreError, match="(?s)no such loop.*option `schedule`"):
        alone(lambda x: x + 1)(torch.ones(3))
    with pytest.raises(core.CoreError, match="opt_levels"):
        alone(lambda x: x + 1, options={"opt_levels": 1})


def test_looking_at_the_backend_imports_no_tvm():
    program = """
import sys
from core_tvm.plugin import core_backend
backend = core_backend()
backend.probe("cpu"), backend.options()
import core_tvm.runtime
assert "tvm" not in sys.modules and "torch" not in sys.modules
core_tvm.runtime.version = lambda: ""
probe = backend.probe("cpu")
assert not probe.ok and "apache-tvm is not installed" in probe.reason and "core-tvm[cpu]" in probe.remedy
core_tvm.runtime.version = lambda: "0.19.0"
assert "0.19.0 is installed" in backend.probe("cpu").reason
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
