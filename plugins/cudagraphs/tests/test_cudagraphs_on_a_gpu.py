"""The backend on a GPU: results, lifetimes, memory, streams, random numbers and training, against eager. Skipped where
torch finds no GPU; what needs none is tested in tests/cpu/test_captured_calls.py."""

from __future__ import annotations

import gc
import threading

import pytest
import torch
import torch.nn.functional as F
from core_cudagraphs.plugin import CudaGraphsBackend
from torch import nn

import core
from core import events
from core.backends.cuda_graphs import statistics

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU of CUDA here")
DEVICE = "cuda"
BUSY = 200_000_000
"""Cycles that a stream is kept busy for: a tenth of a second or so."""


@pytest.fixture(autouse=True)
def fresh():
    core.reset()
    torch.manual_seed(0)
    yield
    core.reset()
    gc.collect()
    torch.cuda.synchronize()


@pytest.fixture
def heard():
    found = []
    stop = events.subscribe(found.append)
    yield found
    stop()


def reasons(heard):
    return [event.reason for event in heard if isinstance(event, events.FellBack) and event.stage == "cudagraphs"]


def captures(heard):
    return [event for event in heard if isinstance(event, events.CallCaptured)]


def rows():
    """(captures, replays, plain calls) of each graph, in order of name."""
    found = sorted(statistics(), key=lambda row: row["name"])
    return [(row["captures"], row["replays"], row["plain"]) for row in found]


def compiled(fn, **options):
    return core.compile(fn, backend=CudaGraphsBackend(), options=options)


def draw(*shape, dtype=torch.float32):
    return torch.randn(*shape, device=DEVICE).to(dtype)


def network(width=64, dtype=torch.float32):
    torch.manual_seed(0)
    layers = [nn.Linear(width, 2 * width), nn.GELU(), nn.LayerNorm(2 * width), nn.Linear(2 * width, width)]
    return nn.Sequential(*layers).to(DEVICE, dtype)


def close(got, want, factor=16):
    eps = torch.finfo(want.dtype).eps
    scale = float(want.double().abs().max()) + 1e-30
    error = float((got.double() - want.double()).abs().max())
    assert error <= factor * eps * scale, f"error {error:.3g} at a scale of {scale:.3g}"


# -- inference --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_results_are_those_of_the_same_kernels(dtype, heard):
    model = network(dtype=dtype)
    plain, fast = core.compile(model, backend="aot_eager"), compiled(model)
    with torch.no_grad():
        for _ in range(6):
            x = draw(32, 64, dtype=dtype)
            close(fast(x), plain(x))
    assert rows() == [(1, 5, 1)]
    assert captures(heard)[0].inputs == (1, 6, 0, 0)
    assert reasons(heard) == []


def test_the_backend_is_found_by_its_name():
    pytest.importorskip("core_cudagraphs")
    fast = core.compile(lambda x: torch.relu(x) * 2, backend="cudagraphs")
    for _ in range(3):
        x = draw(8, 8)
        assert torch.equal(fast(x), torch.relu(x) * 2)
    assert rows() == [(1, 2, 1)]


def test_results_of_earlier_calls_keep_their_values():
    fast = compiled(lambda x: (torch.softmax(x, -1), x.sum(0), x.t() * 2))
    kept = []
    for _ in range(10):
        x = draw(65, 130)
        kept.append((fast(x), (torch.softmax(x, -1), x.sum(0), x.t() * 2)))
        torch.full((65, 130), float("nan"), device=DEVICE)
    for got, want in kept:
        for a, b in zip(got, want):
            close(a, b)
            assert a.stride() == b.stride()


def test_many_results_of_several_dtypes():
    program = lambda x: tuple((x * k).to(d) for k in (1, 2, 3) for d in (torch.float32, torch.bfloat16, torch.int32))  # noqa: E731
    fast = compiled(program)
    for _ in range(4):
        x = draw(33, 7)
        assert all(torch.equal(a, b) for a, b in zip(fast(x), program(x)))


def test_weights_changed_in_place_and_replaced_are_seen():
    model = network()
    fast = compiled(model)
    with torch.no_grad():
        for number in range(10):
            x = draw(16, 64)
            close(fast(x), model(x))
            if number % 3 == 2:
                model[0].weight.data = draw(128, 64)
            else:
                model[0].weight.mul_(1.1)


def test_a_cache_that_is_written_in_place_is_read_where_it_lies(heard):
    def step(cache, x, at):
        cache.index_copy_(0, at, x)
        return torch.softmax(cache @ x[0], 0)

    fast = compiled(step)
    cache, twin = torch.zeros(16, 8, device=DEVICE), torch.zeros(16, 8, device=DEVICE)
    for number in range(16):
        x, at = draw(1, 8), torch.tensor([number], device=DEVICE)
        close(fast(cache, x, at), step(twin, x, at))
        assert torch.equal(cache, twin)
    assert rows() == [(1, 15, 1)]
    assert captures(heard)[0].inputs[2] == 1


def test_each_size_has_its_capture_and_the_limit_is_kept(heard):
    fast = core.compile(
        lambda x: torch.softmax(x, -1) * x.shape[0],
        backend=CudaGraphsBackend(),
        dynamic=True,
        options={"cudagraph_sizes": 3},
    )
    for _ in range(4):
        for count in (3, 5, 9, 17, 33):
            x = draw(count, 40)
            close(fast(x), torch.softmax(x, -1) * count)
    assert [each[0] for each in rows()] == [3]
    assert len(reasons(heard)) == 1 and "cudagraph_sizes" in reasons(heard)[0]


def test_inputs_of_any_strides_and_alignment():
    program = lambda x, y: (torch.sin(x) + y, (x * y).sum(-1))  # noqa: E731
    fast = compiled(program)
    for _ in range(4):
        for x, y in (
            (draw(33, 64).t(), draw(64, 33)),
            (draw(1, 33).expand(64, 33), draw(64, 33)),
            (draw(128, 66)[::2, ::2], draw(64 * 33 + 1)[1:].view(64, 33)),
        ):
            for a, b in zip(fast(x, y), program(x, y)):
                close(a, b)


def test_several_graphs_of_one_call(heard):
    def program(x):
        y = torch.relu(x @ x)
        print(end="")
        return torch.softmax(y, -1) + x

    fast = compiled(program)
    for _ in range(5):
        x = draw(64, 64)
        close(fast(x), program(x), factor=64)
    assert rows() == [(1, 4, 1)] * 2


# -- random numbers ---------------------------------------------------------------------------------------------------


def test_random_numbers_are_those_of_plain_calls_with_the_same_seed():
    program = lambda x: F.dropout(x, 0.5, True) + torch.rand_like(x)  # noqa: E731
    plain, fast = core.compile(program, backend="aot_eager"), compiled(program)
    x = torch.ones(4096, device=DEVICE)
    torch.manual_seed(9)
    want = [plain(x) for _ in range(6)]
    torch.manual_seed(9)
    got = [fast(x) for _ in range(6)]
    assert all(torch.equal(a, b) for a, b in zip(got, want))
    assert not torch.equal(got[4], got[5])
    assert rows() == [(1, 5, 1)]


def test_random_numbers_behind_a_replay_go_on():
    program = lambda x: F.dropout(x, 0.5, True)  # noqa: E731
    plain, fast = core.compile(program, backend="aot_eager"), compiled(program)
    x = torch.ones(4096, device=DEVICE)

    def drawn(run):
        torch.manual_seed(2)
        return [(run(x), torch.rand(8, device=DEVICE)) for _ in range(5)]

    for got, want in zip(drawn(fast), drawn(plain)):
        assert torch.equal(got[0], want[0]) and torch.equal(got[1], want[1])


# -- training ---------------------------------------------------------------------------------------------------------


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


# -- streams, threads, the program's own captures ---------------------------------------------------------------------


def test_a_call_on_a_busy_stream_begins_when_its_inputs_are_there():
    program = lambda x, w: torch.tanh(x @ w)  # noqa: E731
    fast = compiled(program)
    x, w = draw(64, 48), draw(48, 32)
    for _ in range(3):
        fast(draw(64, 48), w)
    for _ in range(3):
        new = draw(64, 48)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            torch.cuda._sleep(BUSY)
            x.copy_(new)
            got = fast(x, w).clone()
        torch.cuda.synchronize()
        close(got, program(new, w))


def test_streams_in_turn_do_not_mix():
    program = lambda x: torch.softmax(x @ x, -1)  # noqa: E731
    fast = compiled(program)
    streams = [torch.cuda.Stream() for _ in range(3)]
    kept = []
    for number in range(12):
        x = draw(256, 256)
        stream = streams[number % 3]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            kept.append((x, fast(x)))
    torch.cuda.synchronize()
    for x, got in kept:
        close(got, program(x), factor=256)


def test_threads_do_not_mix():
    program = lambda x, w: torch.tanh(x * w).sum(0)  # noqa: E731
    fast = compiled(program)
    w = draw(64)
    wrong = []

    def work():
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(50):
                x = torch.randn(128, 64, device=DEVICE)
                if not torch.allclose(fast(x, w), program(x, w), rtol=1e-4, atol=1e-4):
                    wrong.append(1)

    torch.cuda.synchronize()
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.cuda.synchronize()
    assert not wrong
    assert [each[0] for each in rows()] == [1]


def test_a_capture_of_the_program_holds_the_plain_call():
    program = lambda x, w: torch.relu(x @ w) * 2  # noqa: E731
    fast = compiled(program)
    x, w = draw(16, 16), draw(16, 16)
    for _ in range(3):
        fast(x.clone(), w)
    before = rows()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        fast(x, w)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = fast(x, w)
    for _ in range(3):
        x.copy_(draw(16, 16))
        graph.replay()
        close(got, program(x, w), factor=64)
    assert [each[0] for each in rows()] == [each[0] for each in before] or rows()[0][0] <= 2


def test_the_host_does_not_wait():
    fast = compiled(lambda x: torch.tanh(x) + 1)
    for _ in range(3):
        fast(draw(64, 64))
    x = draw(64, 64)
    torch.cuda.synchronize()
    torch.cuda._sleep(BUSY)
    end = torch.cuda.Event()
    end.record()
    fast(x)
    over = end.query()
    torch.cuda.synchronize()
    assert not over


def test_cards_other_than_the_current_one():
    if torch.cuda.device_count() < 2:
        pytest.skip("this machine has one GPU")
    fast = compiled(lambda x: torch.tanh(x) @ x)
    for _ in range(3):
        for device in ("cuda:1", "cuda:0"):
            x = torch.randn(32, 32, device=device)
            close(fast(x), torch.tanh(x) @ x, factor=64)


def test_captures_are_dropped_and_made_while_the_device_is_busy():
    """Weights that move again and again: what is dropped may still run, and its memory is used anew."""
    program = lambda x, w: torch.tanh(x @ w) @ w  # noqa: E731
    weight = nn.Parameter(draw(256, 256), requires_grad=False)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = weight

        def forward(self, x):
            return program(x, self.weight)

    fast = compiled(Model())
    streams = [torch.cuda.current_stream(), torch.cuda.Stream()]
    kept = []
    for number in range(12):
        x, new = draw(256, 256), draw(256, 256) / 16
        stream = streams[number % 2]
        stream.wait_stream(streams[1 - number % 2])
        weight.data = new
        with torch.cuda.stream(stream):
            torch.cuda._sleep(BUSY // 20)
            kept.append((fast(x), x, new))
    torch.cuda.synchronize()
    for got, x, w in kept:
        close(got, program(x, w), factor=1 << 10)


# -- what can't be captured -------------------------------------------------------------------------------------------


@torch.library.custom_op("cudagraphs_tests::summed_on_the_host", mutates_args=())
def summed_on_the_host(x: torch.Tensor) -> torch.Tensor:
    return x * float(x.sum().item() * 0 + 2)


@summed_on_the_host.register_fake
def _(x):
    return torch.empty_like(x)


def test_a_capture_that_fails_leaves_the_process_as_it_was(heard):
    """An operator that waits for the device, captured on request: the call goes on plainly, and so does everything."""
    program = lambda x: torch.ops.cudagraphs_tests.summed_on_the_host(x) + torch.rand_like(x)  # noqa: E731
    fast = compiled(program, cudagraph_custom_operators=True)
    x = draw(64)
    torch.manual_seed(4)
    want = [program(x) for _ in range(4)]
    torch.manual_seed(4)
    got = [fast(x) for _ in range(4)]
    for a, b in zip(got, want):
        close(a, b)
    assert len(reasons(heard)) == 1
    other = compiled(lambda x: F.dropout(x, 0.5, True))
    for _ in range(4):
        assert 0.2 < float((other(torch.ones(4096, device=DEVICE)) == 0).float().mean()) < 0.8
    assert torch.rand(8, device=DEVICE).isfinite().all()


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x.index_put((x > 0,), torch.zeros((), device=x.device)),
        lambda x: torch.linalg.qr(x)[1],
        lambda x: x + torch.tensor([1.0, 2.0, 3.0, 4.0]).to(x.device),
    ],
    ids=["a mask", "a decomposition", "a constant of the CPU"],
)
def test_graphs_that_wait_for_the_device_are_said_to(program, heard):
    fast = compiled(program)
    for _ in range(3):
        x = draw(4, 4)
        assert torch.allclose(fast(x), program(x), atol=1e-5)
    assert rows() == [] and len(reasons(heard)) >= 1


def test_results_on_the_cpu_are_left_to_another_backend(heard):
    program = lambda x: (x * 2).cpu() + 1  # noqa: E731
    fast = compiled(program)
    for _ in range(4):
        x = draw(4, 4)
        assert torch.equal(fast(x), program(x))
    assert any(isinstance(event, events.Partitioned) for event in heard) or reasons(heard)


def test_numbers_in_tensors_of_the_cpu_are_captured_with_the_kernels():
    program = lambda x: x * torch.tensor(2.5) + torch.tensor(1)  # noqa: E731
    fast = compiled(program)
    for _ in range(4):
        x = draw(64)
        assert torch.equal(fast(x), program(x))


# -- memory -----------------------------------------------------------------------------------------------------------


def test_calls_leave_nothing_behind():
    fast = compiled(lambda x: torch.softmax(x @ x, -1))
    for _ in range(4):
        fast(draw(512, 512))
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for _ in range(100):
        fast(draw(512, 512))
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() <= before


def test_training_leaves_nothing_behind():
    model = network()
    fast = compiled(model)

    def step():
        model.zero_grad()
        fast(draw(32, 64)).square().mean().backward()

    for _ in range(4):
        step()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for _ in range(50):
        step()
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() <= before


def test_a_reset_gives_memory_back():
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    fast = compiled(lambda x: torch.softmax(x @ x, -1))
    for _ in range(4):
        fast(draw(2048, 2048))
    assert torch.cuda.memory_reserved() > before
    core.reset()
    del fast
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    workspace = 96 << 20  # of cuBLAS, one a stream
    assert torch.cuda.memory_reserved() <= before + workspace


def test_results_kept_in_the_graphs_memory_outlive_it():
    fast = compiled(lambda x: (x * 2, x + 1), cudagraph_copy_outputs=False)
    kept = []
    for _ in range(6):
        x = draw(100, 100)
        kept.append((fast(x), (x * 2, x + 1)))
    core.reset()
    del fast
    gc.collect()
    torch.cuda.empty_cache()
    spoilers = [torch.full((100, 100), 7.0, device=DEVICE) for _ in range(30)]
    assert all(torch.equal(a, b) for got, want in kept for a, b in zip(got, want)) and spoilers
