"""Storage: dead buffers are reused, live ones and the caller's never."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from compiled_graphs import check, compiled
from core_inductor.compile import compile_fx
from core_inductor.lower.fallback import GraphNotFunctional
from torch import randn
from torch.fx.experimental.proxy_tensor import make_fx


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def test_a_kernel_writes_over_its_dying_operand():
    built = check(
        lambda x, w, b: F.gelu(torch.mm(x, w) + b), randn(64, 32), randn(32, 48), randn(48), kernels=1, externs=1
    )
    assert built.program.kernels[0].reuse == (0,)


def test_arguments_are_never_written():
    x, y = randn(64, 64), randn(64, 64)
    built = compiled(lambda x, y: (F.softmax(x + y, -1), (x * 2).sum(0), torch.mm(x, y).relu()), x, y)
    kept = x.clone(), y.clone()
    built.call(x, y)
    assert torch.equal(x, kept[0]) and torch.equal(y, kept[1])


def test_outputs_stay_intact_while_later_steps_run():
    def f(x, w):
        a = torch.mm(x, w)
        b = a.relu()
        c = torch.mm(b, w)
        return a, b, c, torch.mm(c.sigmoid(), w) + a

    check(f, randn(48, 48), randn(48, 48) / 7)


def test_large_products_are_written_into_dead_buffers():
    def f(x, w):
        for _ in range(4):
            x = torch.mm(x, w).sigmoid()
        return x

    built = check(f, randn(600, 600), randn(600, 600) / 25, tolerance=1e-4)
    assert "out=" in built.program.python_source
    first, second = built.call(randn(600, 600), randn(600, 600)), built.call(randn(600, 600), randn(600, 600))
    assert first[0].data_ptr() != second[0].data_ptr()


def test_equal_layers_share_their_kernels():
    def f(x, w, b):
        for _ in range(4):
            x = F.layer_norm(F.gelu(torch.mm(x, w)) + x, (48,), b, b)
        return x

    built = check(f, randn(64, 48), randn(48, 48), randn(48), tolerance=1e-4)
    assert built.program.kernel_calls == 4
    assert len({k.name for k in built.program.kernels}) == 1


def test_a_whole_mlp_block():
    def f(x, w1, b1, w2, b2, g, b):
        h = F.layer_norm(x, (64,), g, b)
        return x + F.linear(F.gelu(F.linear(h, w1, b1)), w2, b2)

    args = randn(4, 9, 64), randn(128, 64), randn(128), randn(64, 128), randn(64), randn(64), randn(64)
    check(f, *args, kernels=3, externs=2, tolerance=1e-4)


def test_random_operations_run_in_order_on_the_real_generator():
    def f(x):
        return F.dropout(x, 0.5) + torch.rand(8) - torch.randn(8)

    x = randn(8)
    built = compiled(f, x)
    torch.manual_seed(3)
    expected = f(x), torch.rand(1)
    torch.manual_seed(3)
    got = built.call(x)[0], torch.rand(1)
    assert torch.equal(expected[0], got[0]) and torch.equal(expected[1], got[1])


def test_constants_of_the_module_are_used_as_they_are():
    table = torch.arange(5.0)
    module = make_fx(lambda x: x + table)(randn(5))
    program = compile_fx(module)
    assert len(program.constants) == 1 and program.storable  # their bytes are stored with it


def test_a_graph_that_writes_to_its_arguments_is_refused():
    def f(x):
        return x.add_(1)

    module = make_fx(f, tracing_mode="fake")(randn(4))
    with pytest.raises(GraphNotFunctional, match="add_"):
        compile_fx(module)


def test_printing_is_deterministic():
    def f(x, w):
        return F.softmax(torch.mm(x, w), -1) + x.sum(1, keepdim=True)

    one = compiled(f, randn(8, 8), randn(8, 8)).program
    two = compiled(f, randn(8, 8), randn(8, 8)).program
    assert one.cpp_source == two.cpp_source and one.python_source == two.python_source and one.kernels == two.kernels


def test_the_storage_of_a_sparse_tensor_is_not_given_to_a_kernel():
    def f(x):
        return x.to_sparse().to_dense() * 2 + 1

    check(f, randn(5, 7), kernels=1, externs=2)


def test_a_kernel_on_the_storage_of_a_dead_buffer_shares_the_loops_of_one_on_new_memory():
    def f(x):
        first = x * 2 + 1
        product = first @ first
        return product, product * 2 + 1

    check(f, randn(8, 8), kernels=2, externs=1)
    program = compiled(f, randn(8, 8)).program
    assert [spec.name for spec in program.kernels] == ["k0", "k1"] and program.kernels[1].reuse != (None,)
    assert program.cpp_source.count("for (long") == 1 and "return k0(given" in program.cpp_source
    assert compiled(lambda x: (y := x + 1, y * 2), randn(4)).program.cpp_source.count("given") == 0
