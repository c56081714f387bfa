"""torch.utils.checkpoint inside captured code."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from observed import BACKENDS, agrees
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
    noop_context_fn,
)

import core


def leaf(*shape):
    return torch.randn(*shape, requires_grad=True)


def layers(*more):
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), *more, nn.Linear(4, 4))


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


def gradients(module):
    return lambda: [p.grad for p in module.parameters()] + list(module.buffers())


def test_a_checkpointed_module_with_dropout(backend):
    def build():
        module = layers(nn.Dropout(0.5))
        return lambda x: checkpoint(module, x, use_reentrant=False) + 1, (leaf(2, 4),), gradients(module)

    agrees(build, backend)


def test_a_checkpointed_block_in_a_loop_and_inside_another(backend):
    def build():
        blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.2), nn.GELU()) for _ in range(3))

        def fn(x):
            for block in blocks:
                x = checkpoint(lambda t, b=block: checkpoint(b, t.sin(), use_reentrant=False), x, use_reentrant=False)
            return x

        return fn, (leaf(2, 4),), gradients(blocks)

    agrees(build, backend)


def test_checkpoint_sequential(backend):
    def build():
        module = layers(nn.Dropout(0.3))
        return lambda x: checkpoint_sequential(module, 2, x, use_reentrant=False) + 1, (leaf(2, 4),), gradients(module)

    agrees(build, backend)


class Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y.sin())
        return x + y

    @staticmethod
    def backward(ctx, gradient):
        x, bent = ctx.saved_tensors
        return gradient * bent, gradient * x


def test_a_function_with_a_gradient_of_its_own_is_checkpointed_in_one_graph(backend):
    def program(x, y):
        return checkpoint(lambda x: Gate.apply(x.exp(), y) * x, x, use_reentrant=False) + y

    agrees(lambda: (program, (leaf(4), leaf(4))), backend)


def test_trees_keywords_and_results_that_are_arguments(backend):
    def body(x, options, *, scale):
        return {"a": x.sin(), "b": [x.cos() * options["k"], 3], "x": x * scale}

    def fn(x):
        out = checkpoint(body, x, {"k": x * 2}, use_reentrant=False, scale=2)
        first, second = checkpoint(lambda a, b: (a, b.sin()), x, x * 2, use_reentrant=False)
        return out["a"] + out["b"][0] * out["b"][1] + out["x"] + first + second

    agrees(lambda: (fn, (leaf(2, 4),)), backend)


def test_writes_inside_and_autocast(backend):
    def body(x):
        y = x * 2
        y.sin_()
        y[0] = 0
        return y * x

    def build():
        module = layers()

        def fn(x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return checkpoint(module, checkpoint(body, x, use_reentrant=False), use_reentrant=False).float()

        return fn, (leaf(2, 4),), gradients(module)

    agrees(build, backend)


def test_side_effects_run_as_often_as_in_eager(backend):
    def build():
        log = []

        def body(x):
            log.append(1)
            return x.sin().cos()

        return lambda x: checkpoint(body, x, use_reentrant=False) + 1, (leaf(2, 4),), lambda: len(log)

    agrees(build, backend, graphs=None, breaks=1)

    def without_gradients():
        log = []

        def fn(x):
            with torch.no_grad():
                return checkpoint(lambda t: (log.append(1), t.sin())[1], x, use_reentrant=False)

        return fn, (leaf(2, 4),), lambda: len(log)

    agrees(without_gradients, backend)


def test_buffers_written_inside_break_the_graph(backend):
    def build():
        module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
        return lambda x: checkpoint(module, x, use_reentrant=False) + 1, (leaf(2, 4),), gradients(module)

    agrees(build, backend, graphs=None, breaks=1)


def test_reentrant_checkpoints_and_lost_generator_states_break_the_graph(backend):
    def dropped(x):
        return F.dropout(x, 0.5) * x

    agrees(lambda: (lambda x: checkpoint(torch.sin, x, use_reentrant=True) + 1, (leaf(2, 4),)), backend, breaks=1)

    def fn(x):
        return checkpoint(dropped, x, use_reentrant=False, preserve_rng_state=False) * 2

    agrees(lambda: (fn, (leaf(2, 40),)), backend, graphs=None, breaks=1)


def test_saved_bytes_of_a_checkpointed_net_are_at_most_eagers():
    def saved(run, x):
        kept = {}

        def pack(t):
            kept[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
            return t

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            run(x)
        return sum(kept.values())

    torch.manual_seed(0)
    blocks = nn.ModuleList(nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 32)) for _ in range(3))

    def net(x):
        for block in blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x.sum()

    x = leaf(64, 32)
    compiled = core.compile(net, backend="aot_eager")
    compiled(x)
    parameters = sum(p.untyped_storage().nbytes() for p in blocks.parameters())
    # eager's checkpoints keep their inputs: the argument of each block
    inputs = 3 * x.untyped_storage().nbytes()
    assert saved(compiled, x) <= 1.05 * (inputs + parameters)


def keeps_products(ctx, op, *args, **kwargs):
    kept = op in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE


def contexts_that_keep_products():
    return create_selective_checkpoint_contexts(keeps_products)


SELECTIVE = {
    "a function": lambda x, module: checkpoint(module, x, use_reentrant=False, context_fn=contexts_that_keep_products),
    "a list of operators": lambda x, module: checkpoint(
        module,
        x,
        use_reentrant=False,
        context_fn=partial(create_selective_checkpoint_contexts, [torch.ops.aten.addmm.default]),
    ),
    "a policy defined inside": lambda x, module: checkpoint(
        module,
        x,
        use_reentrant=False,
        context_fn=partial(
            create_selective_checkpoint_contexts,
            lambda ctx, op, *args, **kwargs: (
                CheckpointPolicy.PREFER_SAVE if op is torch.ops.aten.relu.default else CheckpointPolicy.MUST_RECOMPUTE
            ),
        ),
    ),
}


@pytest.mark.parametrize("name", SELECTIVE)
def test_selective_checkpoints_are_part_of_the_graph(name, backend):
    def build():
        module = layers(nn.Dropout(0.5), nn.Linear(4, 4), nn.Dropout(0.3))
        return lambda x: SELECTIVE[name](x, module) + 1, (leaf(2, 4),), gradients(module)

    agrees(build, backend)


def test_a_selective_checkpoint_keeps_what_its_policy_says():
    asked = []

    def policy(ctx, op, *args, **kwargs):
        asked.append((ctx.is_recompute, op))
        return keeps_products(ctx, op)

    def products(context_fn):
        def fn(x, w):
            chain = lambda x: ((x @ w).sin() @ w).sin()  # noqa: E731
            return checkpoint(chain, x, use_reentrant=False, context_fn=context_fn)

        module = core.compile(fn, backend="aot_eager", fullgraph=True)
        x, w = leaf(4, 4), leaf(4, 4)
        y = module(x, w)
        with torch.profiler.profile() as profile:
            y.sum().backward()
        return sum(event.name == "aten::mm" for event in profile.events())

    kept = products(partial(create_selective_checkpoint_contexts, policy))
    again = products(noop_context_fn)
    assert kept < again, (kept, again)
    assert (False, torch.ops.aten.mm.default) in asked


def test_contexts_of_the_programs_own_break_the_graph():
    def contexts():
        return nullcontext(), nullcontext()

    def fn(x):
        return checkpoint(torch.sin, x, use_reentrant=False, context_fn=contexts) + 1

    agrees(lambda: (fn, (leaf(2, 4),)), breaks=1)


def test_a_compiled_function_is_made_again_by_the_entry_that_served_whatever_came_in_between():
    def fn(x):
        a = (x @ x.transpose(-1, -2) * x.shape[1]).softmax(-1)
        return F.gelu(a @ x).sin() * x.sum(1, keepdim=True)

    core.reset()
    fast = core.compile(fn, backend="aot_eager")
    inputs = [leaf(2, size, 4) for size in (3, 5, 3, 6)]
    results = [checkpoint(fast, x, use_reentrant=False) for x in inputs]
    assert [entry.hits for entry in fast.entries()] == [1, 1]  # of one size and of any
    for x, result in zip(inputs, results):
        result.sum().backward()
        (gradient,) = torch.autograd.grad(fn(x).sum(), x)
        torch.testing.assert_close(x.grad, gradient)
    assert [entry.hits for entry in fast.entries()] == [3, 3] and core.stats()["recompiles"] == 1
