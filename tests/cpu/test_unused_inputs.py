"""Tensors of which a program reads no element are guarded and are no inputs of its graph."""

from __future__ import annotations

import torch
from agreement import agree

import core


def counted(seen):
    def backend(module, examples):
        seen.append(len(examples))
        assert sum(node.op == "placeholder" for node in module.graph.nodes) == len(examples)
        return module

    return backend


def test_a_tensor_of_which_only_the_shape_is_read_is_guarded_and_not_passed():
    seen = []
    fn = core.compile(lambda x, like, kind: (x.new_zeros(like.shape) + x.sum()).to(kind.dtype), backend=counted(seen))
    x = torch.ones(2)
    assert fn(x, torch.ones(3), x.double()).dtype == torch.float64
    assert seen == [1]
    assert torch.equal(fn(x, torch.ones(3), torch.ones(2)), torch.full((3,), 2.0))
    assert fn(x, torch.ones(3), x.half()).dtype == torch.float16
    assert fn(x, torch.ones(4), x.half()).shape == (4,)
    assert core.stats()["recompiles"] >= 3


def test_the_inputs_that_stay_keep_their_places():
    def fn(a, b, c, d):
        d.mul_(b.shape[0])
        return a.dim() * c, d.view(-1)

    agree(fn, torch.ones(2), torch.ones(3), torch.ones(4, requires_grad=True), torch.ones(2, 2))


def test_memory_shared_with_a_tensor_that_is_written_to():
    def fn(base, part):
        base.add_(part.dim())
        return base * 2

    base = torch.ones(4)
    compiled = core.compile(fn, backend="aot_eager")
    assert torch.equal(compiled(base, base[1:]), torch.full((4,), 4.0))
    assert torch.equal(base, torch.full((4,), 2.0))


def test_gradients_flow_to_what_is_used_only():
    used, unused = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    for backend in ("eager", "aot_eager", "inductor"):
        used.grad = None
        core.compile(lambda x, y: (x * y.numel()).sum(), backend=backend)(used, unused).backward()
        assert torch.equal(used.grad, torch.full((3,), 3.0)) and unused.grad is None


def test_a_module_whose_parameters_only_describe_it_has_one_input():
    seen = []
    net = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(5)])

    def fn(x):
        return x * sum(p.shape[0] for p in net.parameters())

    compiled = core.compile(fn, backend=counted(seen))
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 40.0))
    assert seen == [1]
    net[0].weight = torch.nn.Parameter(torch.ones(5, 4))
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 41.0))
