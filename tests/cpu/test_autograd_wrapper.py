"""The autograd function around a compiled region behaves as the region's own operations do in eager."""

from __future__ import annotations

import importlib.util
import sys
import threading
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

_SPEC = importlib.util.spec_from_file_location("backend_harness", Path(__file__).with_name("backend_harness.py"))
harness = sys.modules.setdefault("backend_harness", importlib.util.module_from_spec(_SPEC))
if not hasattr(harness, "compiled"):
    _SPEC.loader.exec_module(harness)
compiled, leaf, Events = harness.compiled, harness.leaf, harness.Events

from core.errors import NotTwiceDifferentiable  # noqa: E402
from core.events import ArtifactBuilt  # noqa: E402


def two_results(x, w):
    hidden = F.gelu(x @ w)
    return hidden.sum(0), (hidden * 2).softmax(-1)


def test_gradients_equal_eagers_on_first_and_later_calls():
    x, w = leaf(4, 5), leaf(5, 3, seed=1)
    run = compiled(two_results, x, w)
    for _ in range(3):
        found = torch.autograd.grad([r.cos().sum() for r in run(x, w)], [x, w])
        expected = torch.autograd.grad([r.cos().sum() for r in two_results(x, w)], [x, w])
        torch.testing.assert_close(found, expected)


def test_the_backward_is_compiled_at_the_first_gradient_and_only_once():
    x, w = leaf(4, 5), leaf(5, 3, seed=1)
    with Events() as events:
        run = compiled(two_results, x, w)
        results = [run(x, w) for _ in range(2)]
        assert [event.mode for event in events.of(ArtifactBuilt)] == ["forward"]
        for first, second in results:
            (first.sum() + second.pow(2).sum()).backward()
        assert [event.mode for event in events.of(ArtifactBuilt)] == ["forward", "backward"]


def test_an_output_that_gets_no_gradient_counts_as_zeros():
    x, w = leaf(4, 5), leaf(5, 3, seed=1)
    run = compiled(two_results, x, w)
    for pick in (0, 1):
        found = torch.autograd.grad(run(x, w)[pick].pow(2).sum(), [x, w])
        expected = torch.autograd.grad(two_results(x, w)[pick].pow(2).sum(), [x, w])
        torch.testing.assert_close(found, expected)


def test_an_input_that_no_gradient_reaches_gets_none():
    def program(x, w, v):
        return torch.tanh(x), w * v, w * 2

    x, w, v = leaf(4, 5), leaf(4, 5, seed=1), leaf(4, 5, seed=2)
    run = compiled(program, x, w, v)
    for picked, reached in (((0,), "x"), ((1,), "wv"), ((2,), "w"), ((0, 2), "xw"), ((0, 1, 2), "xwv")):
        leaves = {"x": x, "w": w, "v": v}
        for item in leaves.values():
            item.grad = None
        sum(result.sum() for at, result in enumerate(run(x, w, v)) if at in picked).backward()
        assert {name for name, item in leaves.items() if item.grad is not None} == set(reached)
        found = {name: leaves[name].grad for name in reached}
        wanted = [result.sum() for at, result in enumerate(program(x, w, v)) if at in picked]
        expected = torch.autograd.grad(sum(wanted), [leaves[name] for name in reached])
        torch.testing.assert_close(list(found.values()), list(expected))


INCOMING = {
    "expanded": lambda size: torch.tensor(0.5).expand(size),
    "transposed": lambda size: torch.randn(size[::-1]).t(),
    "sliced": lambda size: torch.randn(size[0], 2 * size[1])[:, ::2],
    "double": lambda size: torch.randn(size, dtype=torch.float64),
    "negated lazily": lambda size: torch.complex(torch.randn(size), torch.randn(size)).conj().imag,
    "sparse": lambda size: torch.eye(*size).to_sparse(),
    "parameter": lambda size: torch.nn.Parameter(torch.randn(size)),
}


@pytest.mark.parametrize("kind", INCOMING)
def test_incoming_gradients_of_other_form_are_normalised(kind):
    x, w = leaf(4, 5), leaf(5, 3, seed=1)

    def program(x, w):
        return (torch.tanh(x @ w),)

    run = compiled(program, x, w)
    run(x, w)[0].sum().backward()
    torch.manual_seed(0)
    incoming = INCOMING[kind]((4, 3))
    found = torch.autograd.grad(run(x, w)[0], [x, w], incoming)
    dense = incoming.to_dense() if incoming.is_sparse else incoming
    expected = torch.autograd.grad(program(x, w)[0], [x, w], dense.float())
    torch.testing.assert_close(found, expected)


def test_conjugated_incoming_gradient_of_a_complex_output():
    x = torch.randn(3, dtype=torch.complex64, requires_grad=True)

    def program(x):
        return (x * x.sin(),)

    run = compiled(program, x)
    incoming = torch.randn(3, dtype=torch.complex64).conj()
    torch.testing.assert_close(
        torch.autograd.grad(run(x)[0], x, incoming), torch.autograd.grad(program(x)[0], x, incoming)
    )


def test_outputs_that_need_no_gradient_are_marked_so():
    x = leaf(4, 5)

    def program(x):
        return x.exp(), x.argmax(-1), (x > 0), x.detach() * 2

    run = compiled(program, x)
    for _ in range(2):
        assert [value.requires_grad for value in run(x)] == [True, False, False, False]


def test_two_threads_may_run_backward_at_the_same_time():
    x, w = leaf(4, 5), leaf(5, 3, seed=1)
    run = compiled(two_results, x, w)
    expected = torch.autograd.grad(two_results(x, w)[1].pow(2).sum(), [x, w])
    found = [None] * 4

    def work(at):
        found[at] = torch.autograd.grad(run(x, w)[1].pow(2).sum(), [x, w])

    threads = [threading.Thread(target=work, args=(at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for gradients in found:
        torch.testing.assert_close(gradients, expected)


def test_backward_under_autocast_runs_in_the_recorded_precision():
    x, w = leaf(4, 5), leaf(5, 3, seed=1)
    run = compiled(two_results, x, w)
    expected = torch.autograd.grad(two_results(x, w)[1].pow(2).sum(), [x, w])
    total = run(x, w)[1].pow(2).sum()
    with torch.autocast("cpu"):
        found = torch.autograd.grad(total, [x, w])
    torch.testing.assert_close(found, expected)


def test_region_captured_under_autocast_computes_as_eager_does_there():
    x, w = leaf(4, 5), leaf(5, 3, seed=1)
    with torch.autocast("cpu"):
        run = compiled(two_results, x, w)
        found, expected = run(x, w), two_results(x, w)
    for left, right in zip(found, expected):
        assert left.dtype is right.dtype
        torch.testing.assert_close(left, right)
    torch.testing.assert_close(
        torch.autograd.grad(found[1].float().pow(2).sum(), [x, w]),
        torch.autograd.grad(expected[1].float().pow(2).sum(), [x, w]),
        rtol=2e-2,
        atol=2e-2,
    )


def test_user_writes_to_an_output_that_eager_does_not_keep():
    x = leaf(4, 5)

    def program(x):
        return (torch.relu(x * 2 + 1) + 1,)

    run = compiled(program, x)
    for _ in range(2):
        out = run(x)[0]
        out.mul_(3)
        mine = torch.autograd.grad(out.sum(), x)
        reference = program(x)[0]
        reference.mul_(3)
        torch.testing.assert_close(mine, torch.autograd.grad(reference.sum(), x))


def test_user_writes_to_an_input_that_eager_does_not_keep():
    def program(x):
        return (torch.relu(x),)

    def gradient(call):
        source = leaf(4, 5)
        x = source * 1
        out = call(x)[0]
        x.add_(10)
        return torch.autograd.grad(out.sum(), source)

    run = compiled(program, leaf(4, 5) * 1)
    for _ in range(2):
        torch.testing.assert_close(gradient(run), gradient(program))


def test_writing_to_an_output_that_eager_keeps_is_an_error_as_in_eager():
    x = leaf(4, 5)
    run = compiled(lambda x: (x.exp(),), x)
    out = run(x)[0]
    out.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_hooks_on_inputs_and_outputs_run_once():
    seen = []
    x = leaf(4, 5)
    x.register_hook(lambda g: seen.append("input"))
    run = compiled(lambda x: (x.exp() * 2,), x)
    for _ in range(2):
        seen.clear()
        out = run(x)[0]
        out.register_hook(lambda g: seen.append("output"))
        out.sum().backward()
        assert seen == ["output", "input"]


def test_retained_graph_gives_the_gradient_twice_and_a_freed_one_is_an_error():
    x = leaf(4, 5)
    run = compiled(lambda x: (x.exp() * x,), x)
    total = run(x)[0].sum()
    first = torch.autograd.grad(total, x, retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(total, x), first)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(total, x)


# -- second order -----------------------------------------------------------------------------------------------------


def penalty(call, inputs, wanted):
    """Gradients of a gradient penalty: those of the first order and those of the second."""
    total = sum(result.pow(2).sum() for result in call(*inputs))
    first = torch.autograd.grad(total, wanted, create_graph=True)
    second = torch.autograd.grad(sum(gradient.pow(2).sum() for gradient in first), wanted)
    return first, second


def test_double_backward_equals_eagers():
    x, w = leaf(4, 5), leaf(5, 3, seed=1)
    run = compiled(two_results, x, w)
    for _ in range(2):
        torch.testing.assert_close(penalty(run, (x, w), (x, w)), penalty(two_results, (x, w), (x, w)))


def test_double_backward_reaches_the_history_of_an_inner_input():
    source, w = leaf(4, 5), leaf(5, 3, seed=1)

    def whole(call):
        inner = source.sin()
        return penalty(call, (inner, w), (source, w))

    run = compiled(two_results, source.sin(), w)
    torch.testing.assert_close(whole(run), whole(two_results))


def test_double_backward_of_a_module_with_batch_norm():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.BatchNorm1d(4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    x = leaf(6, 5)
    wanted = (x, *net.parameters())
    state = {name: value.clone() for name, value in net.state_dict().items()}
    run = compiled(lambda x: (net(x),), x)
    net.load_state_dict(state)
    found = penalty(run, (x,), wanted)
    after = (net[1].running_mean.clone(), net[1].running_var.clone())
    net.load_state_dict(state)
    expected = penalty(lambda x: (net(x),), (x,), wanted)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(after, (net[1].running_mean, net[1].running_var))


def test_double_backward_finds_parameters_that_were_not_saved():
    bias = torch.nn.Parameter(torch.zeros(5))
    scale = torch.nn.Parameter(torch.ones(5))

    def program(x):
        return ((torch.sin(x + bias) * scale).sum(),)

    x = leaf(4, 5)
    run = compiled(program, x)
    for _ in range(2):
        found, expected = (penalty(call, (x,), (x, bias, scale)) for call in (run, program))
        torch.testing.assert_close(found, expected)
    before = run(x)[0]
    with torch.no_grad():
        bias.add_(1)
    with pytest.raises((NotTwiceDifferentiable, RuntimeError), match="modified"):
        torch.autograd.grad(before, x, create_graph=True)


def test_double_backward_is_refused_where_the_graph_overwrites_what_it_read():
    source, y = leaf(4), leaf(4, seed=1)

    def program(x, y):
        x.mul_(y)
        return (x.sin(),)

    run = compiled(program, source * 1, y)
    out = run(source * 1, y)[0]
    with pytest.raises(NotTwiceDifferentiable, match="overwrites input 0"):
        torch.autograd.grad(out.sum(), source, create_graph=True)


def test_sizes_among_the_outputs_of_a_training_graph_are_numbers():
    x = leaf(6, 4)

    def program(x):
        rows = x.value.fake.shape[0] if hasattr(x, "value") else x.shape[0]
        return (x.tanh() * rows,)

    run = compiled(program, x, dynamic={0: {0: True}})
    for rows in (6, 3):
        x = leaf(rows, 4)
        torch.testing.assert_close(torch.autograd.grad(run(x)[0].sum(), x), torch.autograd.grad(program(x)[0].sum(), x))


def test_double_backward_through_random_numbers_is_refused_by_name():
    x = leaf(4, 5)
    run = compiled(lambda x: (F.dropout(x, 0.5) * x,), x)
    with pytest.raises(NotTwiceDifferentiable, match="random numbers"):
        torch.autograd.grad(run(x)[0].sum(), x, create_graph=True)


def test_double_backward_after_an_unsaved_input_was_changed_is_refused():
    def program(x, bias):
        return (torch.relu(x + bias),)

    x, bias = leaf(4, 5), torch.zeros(5)
    run = compiled(program, x, bias)
    out = run(x, bias)[0]
    bias.add_(1)
    with pytest.raises(NotTwiceDifferentiable, match="modified in place"):
        torch.autograd.grad(out.sum(), x, create_graph=True)


def test_double_backward_after_an_unsaved_input_died_is_refused():
    def program(x, bias):
        return (torch.relu(x + bias),)

    x = leaf(4, 5)
    run = compiled(program, x, torch.zeros(5))
    out = run(x, torch.zeros(5))[0]
    with pytest.raises(NotTwiceDifferentiable, match="no longer exists"):
        torch.autograd.grad(out.sum(), x, create_graph=True)


def test_vectorised_jacobian_equals_eagers():
    x, w = leaf(4, 5), leaf(5, 3, seed=1)
    run = compiled(two_results, x, w)
    found = torch.autograd.functional.jacobian(lambda x: run(x, w)[1], x, vectorize=True)
    expected = torch.autograd.functional.jacobian(lambda x: two_results(x, w)[1], x)
    torch.testing.assert_close(found, expected)


def test_hessian_equals_eagers():
    x = leaf(5)

    def program(x):
        return ((x.sin() * x).sum(),)

    run = compiled(program, x)
    torch.testing.assert_close(
        torch.autograd.functional.hessian(lambda x: run(x)[0], x),
        torch.autograd.functional.hessian(lambda x: program(x)[0], x),
    )


def test_gradcheck_passes_in_double_precision():
    x, w = leaf(3, 4, dtype=torch.float64), leaf(4, 2, seed=1, dtype=torch.float64)
    run = compiled(two_results, x, w)
    assert torch.autograd.gradcheck(lambda *values: run(*values), (x, w))
    assert torch.autograd.gradgradcheck(lambda *values: run(*values), (x, w))


def test_saved_tensor_hooks_see_what_the_region_saves():
    x = leaf(4, 5)
    run = compiled(lambda x: (x.exp().sin(),), x)
    run(x)[0].sum().backward()
    packed = []

    def pack(tensor):
        packed.append(tensor.shape)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = run(x)[0]
    assert packed
    torch.testing.assert_close(torch.autograd.grad(out.sum(), x)[0], x.exp().cos() * x.exp())
