"""Our frame hook beside torch.compile's: each nested in the other, and interleaved."""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "extension"))

from replacing import copying, grown, hooked  # noqa: E402

import core  # noqa: E402
from core import _C  # noqa: E402


def add_one(x):
    return x + 1


def doubled_after(x):
    return add_one(x) * 2


class CountingBackend:
    def __init__(self):
        self.graphs = 0

    def __call__(self, module, inputs):
        self.graphs += 1
        return module.forward


def test_torch_compile_inside_an_open_region():
    backend = CountingBackend()
    theirs = torch.compile(doubled_after, backend=backend)

    def outer(x):
        return theirs(x) + add_one(x)

    callback = copying(copy=grown)
    ours = _C.CompiledCallable(outer, callback)
    x = torch.ones(3)
    for _ in range(3):
        assert torch.equal(ours(x), torch.full((3,), 6.0))
    assert backend.graphs == 1 and ours.hits == 2 and not _C.hook_installed()
    assert callback.names.count("outer") == 1 and callback.names.count("add_one") == 1
    torch._dynamo.reset()


def test_our_callable_inside_torch_compile():
    ours = _C.CompiledCallable(add_one, copying())

    @torch.compile(backend=CountingBackend())
    def outer(x):
        torch._dynamo.graph_break()
        return ours(x) * 3

    x = torch.ones(3)
    for _ in range(3):
        assert torch.equal(outer(x), torch.full((3,), 6.0))
    assert len(ours.entries()) == 1 and not _C.hook_installed()
    torch._dynamo.reset()


def test_torch_compile_leaves_what_core_compiled_to_core():
    @core.compile(backend="eager")
    def ours(x, i):
        y = x * 2
        print(end="")
        try:
            return y[i]
        except IndexError:
            return y * 0

    net = torch.nn.Sequential(core.compile(torch.nn.Linear(3, 3), backend="eager"), torch.nn.ReLU())

    def program(x, i):
        return ours(net(x), i) + 1

    core.reset()
    backend = CountingBackend()
    theirs = torch.compile(program, backend=backend)
    x = torch.ones(4, 3, requires_grad=True)
    for i in (torch.tensor([1]), torch.tensor([9]), torch.tensor([3])):
        got, want = theirs(x, i), program(x, i)
        assert torch.equal(got, want)
        assert torch.equal(*(torch.autograd.grad(each.sum(), x)[0] for each in (got, want)))
    assert core.stats()["frames"] == 3 and core.stats()["breaks"] == 1
    torch._dynamo.reset()


def test_their_hook_comes_and_goes_while_ours_stays():
    backend = CountingBackend()
    theirs = torch.compile(doubled_after, backend=backend)
    callback = copying(copy=grown)
    with hooked(callback):
        first = theirs(torch.ones(4))
        assert add_one(1) == 2
    second = theirs(torch.ones(4))
    with hooked(callback):
        assert add_one(1) == 2
    assert torch.equal(first, second) and torch.equal(first, torch.full((4,), 4.0)) and backend.graphs == 1
    assert callback.names.count("add_one") == 1 and not _C.hook_installed()
    torch._dynamo.reset()


def test_a_training_step_is_one_graph_after_torch_compile_has_marked_the_optimizers():
    torch.compile(add_one, backend="eager")(torch.ones(2))
    net = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    assert "not supported" in torch.optim.SGD._init_group._torchdynamo_disable_msg

    def step(x):
        optimizer.zero_grad()
        loss = net(x).sum()
        loss.backward()
        optimizer.step()
        return loss

    core.reset()
    compiled, x = core.compile(step, backend="eager"), torch.ones(4, 3)
    losses = [compiled(x).item() for _ in range(3)]
    assert losses == sorted(losses, reverse=True) and losses[0] > losses[2]
    assert core.stats()["breaks"] == 0
    torch._dynamo.reset()
