"""Forward and backward of one recorded run equal eager's: values, gradients, buffers and generator state."""

from __future__ import annotations

import graph_replay as replay
import pytest
import torch
import torch.nn.functional as F

from core.errors import RecorderRefused, Unsupported
from core.graph.finish import functional_graph
from core.graph.joint import joint_graph


def leaf(*shape, dtype=torch.float32):
    return torch.randn(*shape, dtype=dtype).requires_grad_()


def plain(*shape, dtype=torch.float32):
    return torch.randn(*shape, dtype=dtype)


def copies(inputs):
    return [item.detach().clone().requires_grad_(item.requires_grad) for item in inputs]


def check(program, *inputs):
    """Trace `program`, run the graph, compare with eager; returns the graph."""
    own, reference = copies(inputs), copies(inputs)
    start = torch.get_rng_state()
    captured = replay.capture(program, own)
    graph = joint_graph(captured) if captured.needs_grad else functional_graph(captured)
    assert torch.equal(torch.get_rng_state(), start), "capture moved the generator"
    for item, original in zip(own, inputs):
        assert torch.equal(item, original) and item.grad is None, "capture changed an input"
    expected = program(*reference)
    expected = expected if isinstance(expected, tuple) else (expected,)
    after = torch.get_rng_state()
    torch.set_rng_state(start)
    arguments = replay.actual_inputs(captured, own)
    found = replay.run_joint(graph, arguments) if captured.needs_grad else replay.run_functional(graph, arguments)
    assert torch.equal(torch.get_rng_state(), after), "the graph draws other numbers than eager"
    for left, right in zip(expected, found):
        torch.testing.assert_close(right.detach(), left.detach())
        assert left.requires_grad == right.requires_grad
        assert left.dtype == right.dtype
    for left, right in zip(reference, own):
        torch.testing.assert_close(right.detach(), left.detach())
    for left, right in zip(gradients(expected, reference), gradients(found, own)):
        assert (left is None) == (right is None)
        if left is not None:
            torch.testing.assert_close(right, left)
    return graph


def gradients(outputs, inputs):
    terms = [(output * 1.3).abs().cos().sum() for output in outputs if output.requires_grad]
    leaves = [item for item in inputs if item.requires_grad]
    return torch.autograd.grad(sum(terms), leaves, allow_unused=True) if terms and leaves else []


class Double(torch.autograd.Function):
    """Its gradient is not that of its forward: a wrong path would show."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * x * 5


def in_place_on_slice(x, w):
    y = x * w
    y[0].mul_(2)
    y[:, 1] = 3.0
    return y, y[1]


def no_grad_update(x, w):
    with_history = x * w
    return with_history, with_history.detach().mul_(2)


def inner_gradient(x, w):
    inner = (x * w).sin().sum()
    (grad,) = torch.autograd.grad(inner, (w,), create_graph=True)
    return grad * x


def whole(function):
    """A program that is one call of the graph: for functions that look into tensors without torch's override."""

    def program(*inputs):
        if isinstance(inputs[0], torch.Tensor):
            return function(*inputs)
        return replay.call(inputs[0].builder, function, inputs, {})

    return program


PROGRAMS = {
    "linear_gelu_norm": (lambda x, w, b: F.layer_norm(F.gelu(F.linear(x, w, b)), (5,)), (3, 4), (5, 4), (5,)),
    "in_place_on_slice": (in_place_on_slice, (3, 4), (3, 4)),
    "detached_alias_written": (no_grad_update, (3, 4), (3, 4)),
    "softmax_cross_entropy": (lambda x: F.cross_entropy(x, torch.tensor([1, 0, 2])), (3, 4)),
    "attention": (lambda q, k: F.scaled_dot_product_attention(q, k, k, is_causal=True), (1, 2, 3, 4), (1, 2, 3, 4)),
    "attention_with_mask": (
        lambda q, m: F.scaled_dot_product_attention(q, q, q, attn_mask=m),
        (1, 2, 3, 4),
        (3, 3),
    ),
    "attention_dropout": (lambda q: F.scaled_dot_product_attention(q, q, q, dropout_p=0.5), (1, 2, 3, 4)),
    "dropout": (lambda x: F.dropout(x * 2, 0.5, True) + torch.rand_like(x), (30, 4)),
    "dropout_in_place": (lambda x: F.dropout(x * 2, 0.3, True, inplace=True), (30, 4)),
    "convolution_pool": (lambda x, w: F.max_pool2d(F.conv2d(x, w), 2), (2, 3, 8, 8), (4, 3, 3, 3)),
    "group_norm": (lambda x: F.group_norm(x, 2), (2, 4, 5)),
    "complex_views": (lambda x: torch.view_as_real(torch.view_as_complex(x).conj() * (1 + 2j)), (3, 2)),
    "fft": (lambda x: torch.fft.irfft(torch.fft.rfft(x) * 2), (4, 8)),
    "custom_function": (whole(lambda x: Double.apply(x) + 1), (3, 4)),
    "inner_gradient": (whole(inner_gradient), (3, 4), (3, 4)),
    "expanded_result": (lambda x: (x * 2).unsqueeze(0).expand(3, *x.shape), (3, 4)),
    "index_put": (lambda x, w: x.index_put((torch.tensor([0, 2]),), w, accumulate=True), (3, 4), (2, 4)),
    "gather_scatter": (lambda x: x.gather(1, torch.tensor([[0, 1], [2, 0]])).cumsum(1), (2, 4)),
    "sort_and_topk": (lambda x: (x.sort(1).values, x.topk(2, 1).values), (3, 4)),
    "linalg": (lambda x: torch.linalg.solve(x @ x.mT + torch.eye(3), x), (3, 3)),
    "where_masked": (lambda x: torch.where(x > 0, x, x * 0.1).masked_fill(x > 1, 0.0), (3, 4)),
    "einsum": (lambda x, w: torch.einsum("ij,kj->ik", x, w), (3, 4), (5, 4)),
    "as_strided": (lambda x: (x * 2).as_strided((2, 2), (4, 1), 1), (3, 4)),
    "unfold_written": (lambda x: (x * 1).unfold(0, 2, 2).mul_(3), (4, 4)),
    "functional_gradient": (whole(lambda x: torch.func.grad(lambda t: (t**3).sum())(x)), (3,)),
    "vmap": (whole(lambda x: torch.func.vmap(lambda t: t.sin() * t.sum())(x)), (3, 4)),
    "batched_jacobian": (whole(lambda x: torch.func.jacrev(lambda t: t.sin() * t.sum())(x)), (3,)),
    "prelu_and_rrelu": (lambda x, w: F.prelu(x, w) + F.rrelu(x, training=False), (3, 4), (4,)),
    "embedding": (lambda w: F.embedding(torch.tensor([[0, 2, 1]]), w, padding_idx=0), (5, 3)),
    "interpolate": (lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), (1, 2, 3, 3)),
    "pad_and_roll": (lambda x: F.pad(x, (1, 2)).roll(1, 0), (3, 4)),
    "checkpointless_chain": (lambda x: x.relu().add(1).relu_().mul(2), (3, 4)),
    "no_gradient_output_beside": (lambda x: (x * 2, (x > 0), x.argmax()), (3, 4)),
    "foreach": (lambda x, w: tuple(torch._foreach_mul([x, w], 2.0)), (3,), (4,)),
    "random_fills": (lambda x: x * torch.empty_like(x).normal_().uniform_(0, 1).bernoulli_(0.5), (3, 4)),
    "half_precision": (lambda x: (x.to(torch.bfloat16) @ x.to(torch.bfloat16).mT).float(), (3, 4)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_gradients_equal_eager(name):
    program, *shapes = PROGRAMS[name]
    torch.manual_seed(0)
    check(program, *[leaf(*shape) for shape in shapes])


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "inner_gradient"])
def test_values_equal_eager_without_gradients(name):
    program, *shapes = PROGRAMS[name]
    torch.manual_seed(0)
    graph = check(program, *[plain(*shape) for shape in shapes])
    assert not any(info.differentiable for info in graph.epilogue.slots)


def test_training_batch_norm_updates_its_statistics():
    def program(x, w, mean, var):
        return F.batch_norm(x, mean, var, w, None, training=True, momentum=0.1)

    graph = check(program, leaf(4, 3, 5), leaf(3), torch.zeros(3), torch.ones(3))
    assert sorted(write.input for write in graph.epilogue.write_backs) == [2, 3]


def test_input_written_with_gradients_gets_a_new_history():
    def program(x, w):
        inner = x * 1
        inner.mul_(w)
        return inner, inner[0]

    check(program, leaf(3, 4), leaf(3, 4))


def test_non_leaf_input_written_to_is_written_back_with_autograd():
    a = leaf(3, 4)
    w = leaf(3, 4)

    def program(x, v):
        x.mul_(v)
        return (x.sum(),)

    x = a * 1.0
    captured = replay.capture(program, [x, w])
    graph = joint_graph(captured)
    assert [write.mode for write in graph.epilogue.write_backs] == ["grad"]
    found = replay.run_joint(graph, [x, w])
    (found[0] + x.sin().sum()).backward()
    b = a.detach().clone().requires_grad_()
    v = w.detach().clone().requires_grad_()
    y = b * 1.0
    y.mul_(v)
    (y.sum() + y.sin().sum()).backward()
    torch.testing.assert_close(a.grad, b.grad)
    torch.testing.assert_close(w.grad, v.grad)


def test_saved_tensor_changed_later_is_refused_at_capture():
    def program(x):
        y = x.exp()
        z = y * 1
        y.add_(1)
        return (z + y,)

    captured = replay.capture(program, [leaf(3)])
    with pytest.raises(RecorderRefused, match="modified by an inplace operation"):
        joint_graph(captured)


def test_gradient_of_unused_input_is_absent():
    captured = replay.capture(lambda x, w: (x * 2,), [leaf(3), leaf(3)])
    graph = joint_graph(captured)
    assert graph.gradients == (1, None)
    assert graph.tangents == (2,)
    assert graph.forward_outputs == 1


def test_backward_nodes_are_marked_and_know_their_forward_call():
    graph = joint_graph(replay.capture(lambda x, w: ((x * w).tanh(),), [leaf(3), leaf(3)]))
    nodes = [node for node in graph.module.graph.nodes if node.op == "call_function"]
    backward = [node for node in nodes if node.meta.get("backward")]
    assert len(backward) == 3  # tanh_backward, mul, mul
    assert all(node.meta["user_line"] == replay.LINE for node in nodes)
    calls = [node.meta["torch_node"].target for node in backward]
    assert calls == ["tanh", "__mul__", "__mul__"]


def test_attention_stays_one_operator_forward_and_backward():
    graph = joint_graph(replay.capture(lambda q: (F.scaled_dot_product_attention(q, q, q),), [leaf(1, 2, 3, 4)]))
    names = [str(node.target) for node in graph.module.graph.nodes if "scaled_dot" in str(node.target)]
    assert len(names) == 2
    assert sum("backward" in name for name in names) == 1


def test_autocast_is_recorded_as_casts_and_left_again():
    def program(x, w):
        builder = x.builder
        token = builder.enter_autocast("cpu", torch.bfloat16)
        y = x @ w
        builder.exit_autocast(token)
        return (y.float() * 2,)

    x, w = leaf(3, 4), leaf(4, 5)
    captured = replay.capture(program, [x, w])
    assert not torch.is_autocast_enabled("cpu")
    graph = joint_graph(captured)
    (found,) = replay.run_joint(graph, [x, w])
    with torch.autocast("cpu", torch.bfloat16):
        expected = x @ w
    expected = expected.float() * 2
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found.sum(), (x, w)), torch.autograd.grad(expected.sum(), (x, w)))


def test_autograd_grad_through_outside_history_is_unsupported():
    x = leaf(3) * 2

    def program(t):
        return torch.autograd.grad((t * t).sum(), (t,))

    with pytest.raises(Unsupported, match="history lies outside"):
        replay.capture(program, [x])


@pytest.mark.parametrize("first", [0, 1])
def test_input_that_is_a_differentiable_view_of_another_is_refused(first):
    base = leaf(3, 4)
    inputs = [base, base[0]]
    captured = replay.capture(lambda x, y: (x.sum() + y.sum(),), inputs[first:] + inputs[:first])
    with pytest.raises(RecorderRefused, match="view of the memory of another"):
        joint_graph(captured)


def test_gradient_present_before_capture_is_no_obstacle():
    weight = leaf(3)
    (weight * 2).sum().backward()
    graph = joint_graph(replay.capture(lambda w: (w * 3,), [weight]))
    (found,) = replay.run_joint(graph, [weight])
    found.sum().backward()
    assert torch.equal(weight.grad, torch.full((3,), 5.0))


def test_checkpointed_region_is_computed_again_in_the_backward():
    from torch.utils.checkpoint import checkpoint

    program = whole(lambda x, w: checkpoint(lambda a, b: (a @ b).tanh().sin(), x, w, use_reentrant=False))
    graph = check(program, leaf(3, 4), leaf(4, 5))
    products = [node for node in graph.module.graph.nodes if node.target is torch.ops.aten.mm.default]
    assert len(products) == 4  # forward, again, two gradients


def test_checkpointed_dropout_is_refused():
    from torch.utils.checkpoint import checkpoint

    program = whole(lambda x: checkpoint(lambda a: F.dropout(a.sin(), 0.5, True), x, use_reentrant=False))
    x = leaf(30, 4)
    before = torch.get_rng_state()
    captured = replay.capture(program, [x])
    with pytest.raises(RecorderRefused):
        joint_graph(captured)
    assert torch.equal(before, torch.get_rng_state())


def test_fused_optimizer_step_writes_back_every_state():
    def step(p, g, a, b, n):
        torch._fused_adamw_(
            [p], [g], [a], [b], [], [n], lr=0.1, beta1=0.9, beta2=0.99, weight_decay=0.1, eps=1e-8,
            amsgrad=False, maximize=False,
        )  # fmt: skip
        return p * 1

    inputs = [plain(3, 4), plain(3, 4), torch.zeros(3, 4), torch.zeros(3, 4), torch.ones(())]
    graph = check(whole(step), *inputs)
    assert {write.input for write in graph.epilogue.write_backs} >= {0, 2, 3}
