"""Training on a GPU with captured forwards and backwards, against eager or the same kernels without captures."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from core_cudagraphs.plugin import CudaGraphsBackend
from gpu_runs import DEVICE, captures, close, compiled, draw, network, reasons, rows
from torch import nn

import core

pytestmark = pytest.mark.usefixtures("gpu")


def trained(model, steps, run=None, keep=False):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    generator = torch.Generator(DEVICE).manual_seed(1)
    losses, held = [], []
    for _ in range(steps):
        x, y = (torch.randn(32, 64, generator=generator, device=DEVICE) for _ in range(2))
        loss = F.mse_loss((run or model)(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().clone())
        held.append(loss if keep else None)
    return losses, [parameter.detach().clone() for parameter in model.parameters()]


@pytest.mark.parametrize("keep", [False, True], ids=["losses let go", "losses kept"])
def test_training_is_that_of_plain_calls(keep, heard):
    model = network()
    want = trained(model, 8, core.compile(model, backend="aot_eager"))
    model = network()
    got = trained(model, 8, compiled(model), keep)
    for a, b in zip(got[0] + got[1], want[0] + want[1]):
        close(a, b, factor=256)
    assert rows() == [(1, 7, 1), (1, 7, 1)]
    assert captures(heard)[1].inputs[3] > 0
    assert reasons(heard) == []


def test_several_forwards_before_their_backwards():
    model, twin = network(), network()
    fast = compiled(model)
    for _ in range(4):
        model.zero_grad(), twin.zero_grad()
        xs = [draw(32, 64) for _ in range(3)]
        losses, wants = [fast(x).square().mean() for x in xs], [twin(x).square().mean() for x in xs]
        for loss, want in zip(losses, wants):
            loss.backward(), want.backward()
        for a, b in zip(model.parameters(), twin.parameters()):
            close(a.grad, b.grad, factor=512)


def test_gradients_survive_later_steps():
    model, twin = network(), network()
    fast = compiled(model)
    kept = []
    for _ in range(6):
        x = draw(32, 64)
        got = torch.autograd.grad(fast(x).square().mean(), list(model.parameters()))
        kept.append((got, torch.autograd.grad(twin(x).square().mean(), list(twin.parameters()))))
    for got, want in kept:
        for a, b in zip(got, want):
            close(a, b, factor=512)


def test_another_model_between_forward_and_backward_spoils_nothing():
    models, twins = [network(), network(128)], [network(), network(128)]
    fast = [compiled(model) for model in models]
    for _ in range(5):
        xs = [draw(32, 64), draw(32, 128)]
        losses = [run(x).square().mean() for run, x in zip(fast, xs)]
        with torch.no_grad():
            for run, x in zip(fast, xs):
                run(x)
        for model in (*models, *twins):
            model.zero_grad()
        for loss in losses:
            loss.backward()
        for twin, x in zip(twins, xs):
            twin(x).square().mean().backward()
        for model, twin in zip(models, twins):
            for a, b in zip(model.parameters(), twin.parameters()):
                close(a.grad, b.grad, factor=512)


def test_gradients_of_dropout_belong_to_its_numbers():
    fast = compiled(lambda x: F.dropout(x, 0.5, True) * 3)
    for _ in range(5):
        x = draw(4096).requires_grad_()
        result = fast(x)
        result.sum().backward()
        assert torch.equal(x.grad != 0, result != 0)


def test_attention_forward_and_backward(heard):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.project, self.out = nn.Linear(64, 192), nn.Linear(64, 64)

        def forward(self, x):
            q, k, v = self.project(x).view(*x.shape[:2], 3, 4, 16).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return x + self.out(y.transpose(1, 2).reshape(x.shape))

    torch.manual_seed(0)
    model = Block().to(DEVICE, torch.bfloat16)
    plain, fast = core.compile(model, backend="aot_eager"), compiled(model)
    for _ in range(5):
        x = draw(2, 32, 64, dtype=torch.bfloat16)
        got, want = fast(x), plain(x)
        close(got, want)
        a = torch.autograd.grad(got.float().square().mean(), list(model.parameters()))
        b = torch.autograd.grad(want.float().square().mean(), list(model.parameters()))
        for mine, others in zip(a, b):
            close(mine, others, factor=64)
    assert all(each[0] >= 1 for each in rows()), (rows(), reasons(heard))


def test_a_language_model_learns_as_plain_calls_do(heard):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.norm = nn.Embedding(100, 64), nn.LayerNorm(64)
            self.layers, self.head = network(), nn.Linear(64, 100)

        def forward(self, tokens):
            x = F.dropout(self.embedding(tokens), 0.1, self.training)
            return self.head(self.norm(x + self.layers(x)))

    def run(wrap):
        torch.manual_seed(3)
        model = Model().to(DEVICE)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        fast = wrap(model)
        losses = []
        torch.manual_seed(4)
        for number in range(8):
            tokens = torch.arange(number, number + 4 * 16, device=DEVICE).view(4, 16) % 100
            loss = F.cross_entropy(fast(tokens).flatten(0, 1), tokens.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return losses

    got, want = run(compiled), run(lambda model: core.compile(model, backend="aot_eager"))
    for a, b in zip(got, want):
        close(a, b, factor=4096)
    assert rows() and all(each[0] == 1 for each in rows()), (rows(), reasons(heard))


def test_convolutions_in_channels_last_under_autocast():
    def make():
        torch.manual_seed(0)
        layers = [nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 8, 3, stride=2)]
        return nn.Sequential(*layers).to(DEVICE, memory_format=torch.channels_last)

    model, twin = make(), make()
    fast, plain = compiled(model), core.compile(twin, backend="aot_eager")
    for _ in range(5):
        x = draw(4, 3, 32, 32).to(memory_format=torch.channels_last)
        model.zero_grad(), twin.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            got, want = fast(x), plain(x)
        assert got.stride() == want.stride() and got.dtype is want.dtype
        close(got, want)
        got.float().square().mean().backward(), want.float().square().mean().backward()
    for a, b in zip(model.parameters(), twin.parameters()):
        close(a.grad, b.grad, factor=1 << 17)  # in bfloat16, with kernels that may sum in any order
    close(model[1].running_mean, twin[1].running_mean, factor=1 << 14)
    assert all(each[0] == 1 for each in rows())


def test_a_whole_step_with_its_optimizer_is_captured():
    def run(wrap):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

        def step(x, y):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        fast = wrap(step)
        generator = torch.Generator(DEVICE).manual_seed(1)
        draws = [torch.randn(32, 64, generator=generator, device=DEVICE) for _ in range(16)]
        losses = [fast(x, y) for x, y in zip(draws[::2], draws[1::2])]
        return [*losses, *(parameter.detach() for parameter in model.parameters())]

    for a, b in zip(run(compiled), run(lambda fn: fn)):
        close(a, b, factor=1024)
    assert any(replays >= 3 for _, replays, _ in rows())


def test_training_on_a_side_stream_and_with_results_in_the_graphs_memory():
    model, twin = network(), network()
    fast = compiled(model, cudagraph_copy_outputs=False)
    side = torch.cuda.Stream()
    kept = []
    for number in range(8):
        x = draw(32, 64)
        model.zero_grad(), twin.zero_grad()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side if number % 2 else torch.cuda.current_stream()):
            got = fast(x)
            got.square().mean().backward()
        torch.cuda.current_stream().wait_stream(side)
        want = twin(x)
        want.square().mean().backward()
        kept.append((got, want, [p.grad for p in model.parameters()], [p.grad for p in twin.parameters()]))
    torch.cuda.synchronize()
    for got, want, gradients, wanted in kept:
        close(got, want, factor=64)
        for a, b in zip(gradients, wanted):
            close(a, b, factor=512)


def test_sizes_of_training_have_a_capture_each():
    model, twin = network(), network()
    fast = core.compile(model, backend=CudaGraphsBackend(), dynamic=True)
    for _ in range(3):
        for count in (8, 24, 40):
            x = draw(count, 64)
            model.zero_grad(), twin.zero_grad()
            fast(x).square().mean().backward(), twin(x).square().mean().backward()
            for a, b in zip(model.parameters(), twin.parameters()):
                close(a.grad, b.grad, factor=512)
    assert [each[0] for each in rows()] == [3, 3]


def test_a_second_backward_through_a_kept_graph():
    model, twin = network(), network()
    fast = compiled(model)
    for _ in range(4):
        x, other = draw(32, 64), draw(32, 64)
        model.zero_grad(), twin.zero_grad()
        loss, want = fast(x).square().mean(), twin(x).square().mean()
        loss.backward(retain_graph=True), want.backward(retain_graph=True)
        fast(other).square().mean().backward(), twin(other).square().mean().backward()
        loss.backward(), want.backward()
        for a, b in zip(model.parameters(), twin.parameters()):
            close(a.grad, b.grad, factor=1024)


def test_gradients_of_gradients():
    program = lambda x: torch.tanh(x * x).sum()  # noqa: E731
    fast = compiled(program)
    for _ in range(4):
        x = draw(64).requires_grad_()
        found = []
        for run in (fast, program):
            first = torch.autograd.grad(run(x), x, create_graph=True)[0]
            found.append(torch.autograd.grad(first.square().sum(), x)[0])
        close(*found, factor=64)
