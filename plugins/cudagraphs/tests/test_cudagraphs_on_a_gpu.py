"""The backend on a GPU: results, lifetimes, memory, streams and random numbers, against eager. Skipped where there is
none; what needs no GPU is tested in tests/cpu/test_captured_calls.py."""

from __future__ import annotations

import gc
import threading

import pytest
import torch
import torch.nn.functional as F
from core_cudagraphs.plugin import CudaGraphsBackend
from gpu_runs import BUSY, DEVICE, captures, close, compiled, draw, network, reasons, rows
from torch import nn

import core
from core import events

pytestmark = pytest.mark.usefixtures("gpu")


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


def test_indices_are_captured(heard):
    program = lambda x, at: (x[at] * 2, x.index_put((at,), x[at] + 1))  # noqa: E731
    fast = compiled(program)
    for _ in range(4):
        x, at = draw(64, 8), torch.randperm(64, device=DEVICE)[:10]
        assert all(torch.equal(a, b) for a, b in zip(fast(x, at), program(x, at)))
    assert [each[0] for each in rows()] == [1], reasons(heard)


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
