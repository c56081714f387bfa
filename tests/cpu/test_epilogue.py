"""Mutation, aliasing and strides around a functional artifact are eager's, whatever the backend returns."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

_SPEC = importlib.util.spec_from_file_location("backend_harness", Path(__file__).with_name("backend_harness.py"))
harness = sys.modules.setdefault("backend_harness", importlib.util.module_from_spec(_SPEC))
if not hasattr(harness, "compiled"):
    _SPEC.loader.exec_module(harness)
compiled, leaf = harness.compiled, harness.leaf

from core.backends.generated import source_of  # noqa: E402
from core.backends.layout import dense_order, differs_in_name_only, layout_test, lies_as, relayout  # noqa: E402
from core.plugin import Artifact, Backend, Capabilities  # noqa: E402


class Contiguous(Backend):
    """Returns every result contiguous, as a compiler without strides would."""

    name = "contiguous"
    capabilities = Capabilities(graph_level="aten-functional", layouts="contiguous")

    def compile(self, graph, fake_inputs, ctx):
        def call(*inputs):
            results = graph.forward(*inputs)
            return tuple(r.contiguous() if isinstance(r, torch.Tensor) else r for r in results)

        return Artifact(call)


class Boxed(Backend):
    """Takes its inputs as a list, which it empties, and returns a list."""

    name = "boxed"
    capabilities = Capabilities(graph_level="aten-functional")

    def compile(self, graph, fake_inputs, ctx):
        def call(inputs):
            values = tuple(inputs)
            inputs.clear()
            return list(graph.forward(*values))

        return Artifact(call, boxed=True)


def mutating(x):
    x.add_(1)
    return x, x.t(), x * 2


def test_write_back_returns_the_input_object_and_views_of_it():
    x = torch.randn(4, 5)
    run = compiled(mutating, x)
    for _ in range(2):
        mine, theirs = x.clone(), x.clone()
        found, expected = run(mine), mutating(theirs)
        assert found[0] is mine
        assert found[1]._base is mine
        torch.testing.assert_close(found, expected)
        found[1].zero_()
        assert not mine.any()


def test_write_back_raises_the_version_of_the_input_once():
    x = torch.randn(4)
    run = compiled(lambda x: (x.add_(1).mul_(2) + 0,), x)
    run(x)
    before = x._version
    run(x)
    assert x._version == before + 1


def test_many_buffers_are_written_back_by_one_foreach_call():
    buffers = [torch.zeros(3) for _ in range(5)]

    def program(*buffers):
        for buffer in buffers:
            buffer.add_(1)
        return (buffers[0] + 0,)

    run = compiled(program, *buffers)
    run(*buffers)
    run(*buffers)
    assert all(torch.equal(buffer, torch.full((3,), 2.0)) for buffer in buffers)
    assert source_of(run.holder[0]).count("foreach_copy_") == 1
    assert ".copy_(" not in source_of(run.holder[0])


def test_leaf_updated_without_gradient_stays_a_leaf():
    weight, step = leaf(4), torch.ones(4)

    def program(weight, step):
        before = harness.torch.is_grad_enabled()
        assert before
        weight.builder.set_grad_enabled(False)
        weight.sub_(step)
        weight.builder.set_grad_enabled(True)
        return (step + 1,)

    run = compiled(program, weight, step)
    start = weight.detach().clone()
    for count in (1, 2):
        run(weight, step)
        torch.testing.assert_close(weight.detach(), start - count)
        assert weight.is_leaf and weight.requires_grad
        assert torch.is_grad_enabled()


def test_in_place_write_to_an_inner_tensor_carries_gradients():
    source = leaf(4)

    def program(x, y):
        x.mul_(y)
        return (x.sin(),)

    def gradients(call):
        x, y = source * 1, leaf(4, seed=1)
        out = call(x, y)[0]
        return torch.autograd.grad((out + x.cos()).sum(), [source, y])

    run = compiled(program, source * 1, leaf(4, seed=1))
    for _ in range(2):
        torch.testing.assert_close(gradients(run), gradients(program))


def test_outputs_that_share_memory_in_eager_share_it():
    x = torch.randn(4, 6)

    def program(x):
        hidden = x * 2
        return hidden, hidden.view(-1), hidden[1], hidden

    run = compiled(program, x)
    for _ in range(2):
        base, flat, row, again = run(x)
        assert again is base and flat._base is base and row._base is base
        flat.zero_()
        assert not base.any() and not row.any()


def test_two_equal_views_are_two_objects():
    x = torch.randn(4)
    run = compiled(lambda x: (x[1:], x[1:]), x)
    first, second = run(x)
    assert first is not second
    assert first.data_ptr() == second.data_ptr()


STRIDED = {
    "transposed": lambda x: (x * 2).t(),
    "channels last": lambda x: (x.view(1, 2, 2, 6) * 2).contiguous(memory_format=torch.channels_last),
    "expanded": lambda x: x.sum(1, keepdim=True).expand(4, 6),
    "with gaps": lambda x: (x * 2)[:, ::2],
    "size one": lambda x: (x * 2)[:, :1].t(),
}


@pytest.mark.parametrize("kind", STRIDED)
@pytest.mark.parametrize("training", [False, True])
def test_strides_are_eagers_when_the_backend_returns_others(kind, training):
    program = STRIDED[kind]
    x = leaf(4, 6) if training else torch.randn(4, 6)
    run = compiled(lambda x: (program(x),), x, backend=Contiguous())
    for _ in range(3):
        found, expected = run(x)[0], program(x)
        torch.testing.assert_close(found, expected)
        used = [dim for dim in range(expected.dim()) if expected.shape[dim] > 1]
        assert [found.stride(dim) for dim in used] == [expected.stride(dim) for dim in used]
        if training:
            torch.testing.assert_close(
                torch.autograd.grad(found.sin().sum(), x), torch.autograd.grad(expected.sin().sum(), x)
            )


def test_dynamic_layout_is_restored_at_sizes_not_seen_before():
    x = torch.randn(4, 6)
    run = compiled(lambda x: ((x * 2).t(),), x, backend=Contiguous(), dynamic={0: {0: True, 1: True}})
    for size in ((4, 6), (3, 8), (7, 2)):
        x = torch.randn(*size)
        found = run(x)[0]
        torch.testing.assert_close(found, (x * 2).t())
        assert found.stride() == (x * 2).t().stride()


def test_boxed_artifact_that_returns_a_list_is_called_with_a_list():
    x = torch.randn(4, 5)
    run = compiled(lambda x: (x + 1, x.relu()), x, backend=Boxed())
    for _ in range(2):
        found = run(x)
        assert type(found) is tuple
        torch.testing.assert_close(found, (x + 1, x.relu()))


def test_graph_without_gradients_of_inputs_that_require_them_makes_no_history():
    x = leaf(4)

    def program(x):
        x.builder.set_grad_enabled(False)
        result = x * 2
        x.builder.set_grad_enabled(True)
        return (result.t(),) if False else (result[1:],)

    run = compiled(program, x)
    for _ in range(2):
        out = run(x)[0]
        assert not out.requires_grad and out.grad_fn is None
        out.add_(x[1:])  # allowed: the result is no view that autograd knows of
        assert out.requires_grad


def test_region_captured_under_autocast_keeps_what_it_computed_in_single_precision():
    x, w = torch.randn(4, 5), torch.randn(5, 3)

    def program(x, w):
        token = x.builder.enter_autocast("cpu", torch.bfloat16, False)
        exact = x @ w
        x.builder.exit_autocast(token)
        return exact, x @ w

    with torch.autocast("cpu"):
        run = compiled(program, x, w)
        for _ in range(2):
            exact, cast = run(x, w)
            assert exact.dtype is torch.float32 and cast.dtype is torch.bfloat16
            with torch.autocast("cpu", enabled=False):
                assert torch.equal(exact, x @ w)
            assert torch.equal(cast, x @ w)


# -- layouts ----------------------------------------------------------------------------------------------------------


def test_layout_test_ignores_dimensions_of_size_one():
    fake = torch.empty_strided((3, 1, 2), (2, 7, 1))
    assert lies_as(torch.randn(3, 1, 2), fake)
    assert layout_test("t", torch.empty(1, 1)) == ""
    assert layout_test("t", torch.empty(0, 3)) == ""


def test_layout_of_overlapping_elements_is_left_alone():
    assert layout_test("t", torch.arange(6.0).as_strided((3, 2), (1, 1))) == ""


def test_dense_order_of_permuted_and_of_gapped_tensors():
    assert dense_order(torch.empty(2, 3, 4).permute(2, 0, 1)) == (1, 2, 0)
    assert dense_order(torch.empty(4, 6)[:, ::2]) is None


def test_relayout_names_the_stride_of_a_size_of_one_beside_a_symbolic_size():
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    mode = FakeTensorMode(shape_env=ShapeEnv())
    fake = mode.from_tensor(torch.randn(6, 1)).expand(-1, 4)[:, :1]
    right, wrong = torch.randn(5, 1).as_strided((5, 1), (1, 0)), torch.randn(5, 1)
    assert lies_as(wrong, fake) and differs_in_name_only(wrong, fake) and not differs_in_name_only(right, fake)
    repair = relayout([fake, fake], [0, 1])
    first, second = repair(right, wrong)
    assert first is right
    assert second.stride() == (1, 0) and second.data_ptr() == wrong.data_ptr() and torch.equal(second, wrong)


def test_relayout_copies_only_what_differs():
    fakes = [torch.empty(3, 4), torch.empty(4, 3).t()]
    repair = relayout(fakes, [0, 1])
    right, wrong = torch.randn(3, 4), torch.randn(3, 4)
    first, second = repair(right, wrong)
    assert first is right
    assert second is not wrong and second.stride() == (1, 3) and torch.equal(second, wrong)
