"""GpuTests: what programs do with a GPU beside calculating: streams, several cards, memory, graphs of calls."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from core.errors import InvalidOption

from ..assertions import assert_like_eager
from ..rules import closely, exactly, require
from ..torch_compat import keep_busy
from .base import ConformanceTests
from .in_threads import in_threads
from .values import draw, needs_training, seeded

LONG = 400_000_000
"""Cycles that a stream is kept busy for: a fifth of a second or more, a thousand times what a call of a test takes."""
CALLS = 200
ROUNDS = 5
QUIET_S = 0.3
PATIENCE_S = 30.0
MEGABYTE = 1 << 20
GROWTH_BYTES = 64 * MEGABYTE
BEYOND_32_BITS = (1 << 31) + 64


def card(subject: Any) -> torch.device:
    """The device under test, with its number. Skips where it is no GPU, or torch finds none."""
    device = torch.device(subject.device)
    if device.type != "cuda":
        pytest.skip(f"the run is on {subject.device}: tests of GPUs need --device cuda")
    if not torch.cuda.is_available():
        pytest.skip("torch finds no GPU here")
    return torch.device("cuda", device.index if device.index is not None else torch.cuda.current_device())


def program(x: Any, w: Any) -> Any:
    """A product, a reduction and operations on elements."""
    h = torch.tanh(x @ w)
    return h * 2 + 1, h.sum(0), torch.softmax(h, -1)


@contextmanager
def side_stream(device: torch.device) -> Iterator[torch.cuda.Stream]:
    """A stream beside the current one, which has waited for it. What runs on it is over when the block is."""
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    try:
        with torch.cuda.stream(stream):
            yield stream
    finally:
        torch.cuda.synchronize(device)


class GpuTests(ConformanceTests):
    """A compiled call is one more kernel launch: it goes where the program's other launches go."""

    def _inputs(self, subject: Any, generator: torch.Generator, rows: int = 64) -> list[torch.Tensor]:
        device = card(subject)
        return [draw(generator, rows, 48).to(device), draw(generator, 48, 32).to(device)]

    # -- results ---------------------------------------------------------------------------------------------------

    def test_results_are_those_of_eager_on_the_device(self, subject: Any, generator: torch.Generator) -> None:
        device = card(subject)
        make = lambda source: [draw(source, 64, 48).to(device), draw(source, 48, 32).to(device)]  # noqa: E731
        assert_like_eager(subject, program, make, generator=generator)

    def test_results_of_a_module_and_its_gradients(self, subject: Any, generator: torch.Generator) -> None:
        needs_training(subject)
        device = card(subject)
        module = seeded(nn.Sequential(nn.Linear(20, 30), nn.GELU(), nn.LayerNorm(30), nn.Linear(30, 5)), generator)
        make = lambda source: [draw(source, 16, 20).to(device)]  # noqa: E731
        assert_like_eager(subject, module.to(device), make, generator=generator, grad=True)

    def test_results_in_float32_are_calculated_in_float32(self, subject: Any, generator: torch.Generator) -> None:
        device = card(subject)
        make = lambda source: [draw(source, 128, 256).to(device), draw(source, 96, 256).to(device)]  # noqa: E731
        with _tensor_cores_for_float32(False):
            assert_like_eager(subject, F.linear, make, generator=generator)

    def test_results_follow_the_process_in_its_precision(self, subject: Any, generator: torch.Generator) -> None:
        device = card(subject)
        compiled = subject.compile(lambda x, w: F.linear(x, w))
        x, w = draw(generator, 128, 512).to(device), draw(generator, 96, 512).to(device)
        exact = F.linear(x.double(), w.double())

        def error() -> float:
            return float((compiled(x, w).double() - exact).abs().max())

        with _tensor_cores_for_float32(False):
            before = error()
            with _tensor_cores_for_float32(True):
                error()
            after = error()
        text = (
            f"the error of a float32 product is {before:.3g}, and {after:.3g} after tensor cores were allowed for once"
        )
        require(after <= 4 * before + 1e-6, "numerics", text)

    def test_results_that_leave_the_device_do(self, subject: Any, generator: torch.Generator) -> None:
        device = card(subject)
        make = lambda source: [draw(source, 8, 8).to(device), draw(source)]  # noqa: E731  # the second stays on the CPU
        assert_like_eager(
            subject, lambda x, scale: ((x * scale).sum(0).cpu() + 1, x - scale), make, generator=generator
        )

    def test_results_of_memory_that_is_not_aligned(self, subject: Any, generator: torch.Generator) -> None:
        device = card(subject)
        make = lambda source: [draw(source, 1001).to(device)[1:], draw(source, 1003).to(device)[3:]]  # noqa: E731
        assert_like_eager(subject, lambda x, y: (torch.sin(x) + y, (x * y).sum()), make, generator=generator)

    def test_results_follow_the_seed_of_the_device(self, subject: Any, generator: torch.Generator) -> None:
        device = card(subject)
        compiled = subject.compile(lambda x: F.dropout(torch.ones_like(x), 0.5, True))
        x = torch.empty(4096, device=device)

        def drawn(seed: int) -> torch.Tensor:
            torch.manual_seed(seed)
            return compiled(x)

        first = drawn(5)
        exactly(drawn(5), first, "rng", "numbers drawn on the device after the same seed")
        require(not torch.equal(drawn(6), first), "rng", "another seed gives the same numbers on the device")
        require(0.4 < float((first == 0).double().mean()) < 0.6, "rng", "dropout does not drop a half on the device")

    # -- streams ---------------------------------------------------------------------------------------------------

    def test_streams_of_the_program_are_used(self, subject: Any, generator: torch.Generator) -> None:
        """A call begins when what its stream was given before is over."""
        x, w = self._inputs(subject, generator)
        compiled = subject.compile(program)
        compiled(x, w)
        fresh = draw(generator, *x.shape).to(x.device)
        want = program(fresh, w)
        with side_stream(x.device):
            keep_busy(LONG)
            x.copy_(fresh)
            got = [result.clone() for result in compiled(x, w)]
        closely(tuple(got), want, "streams", "the result of a call on a busy stream", factor=8)

    def test_streams_beside_the_programs_are_not_waited_for(self, subject: Any, generator: torch.Generator) -> None:
        x, w = self._inputs(subject, generator)
        compiled = subject.compile(program)
        compiled(x, w)
        want = [value.cpu() for value in program(x, w)]
        busy = torch.cuda.Stream(x.device)
        with side_stream(x.device) as stream:
            compiled(x, w)  # what a first call on a stream sets up
            stream.synchronize()
            with torch.cuda.stream(busy):
                keep_busy(LONG)
                end = torch.cuda.Event()
                end.record()
            got = compiled(x, w)
            stream.synchronize()
            over = end.query()
            values = [value.cpu() for value in got]
        require(not over, "streams", "a call on one stream was over only when another stream's work was")
        closely(values, want, "streams", "the result of a call beside a busy stream", factor=8)

    def test_streams_are_left_as_they_were(self, subject: Any, generator: torch.Generator) -> None:
        x, w = self._inputs(subject, generator)
        compiled = subject.compile(program)
        with side_stream(x.device) as stream:
            compiled(x, w)
            now = torch.cuda.current_stream(x.device)
        require(now == stream, "streams", "another stream is the current one after a call")

    def test_streams_are_not_waited_for_by_the_host(self, subject: Any, generator: torch.Generator) -> None:
        """A call returns while the device still works: a program that does not look at results never waits."""
        x, w = self._inputs(subject, generator)
        compiled = subject.compile(program)
        for _ in range(3):
            compiled(x, w)
        torch.cuda.synchronize(x.device)
        keep_busy(LONG)
        end = torch.cuda.Event()
        end.record()
        compiled(x, w)
        over = end.query()
        torch.cuda.synchronize(x.device)
        require(not over, "streams", "a call returned only after all work before it was done")

    def test_streams_of_two_threads_are_apart(self, subject: Any, generator: torch.Generator) -> None:
        x, w = self._inputs(subject, generator)
        compiled = subject.compile(program)
        compiled(x, w)
        work = [[draw(generator, *x.shape).to(x.device) for _ in range(20)] for _ in range(2)]

        def run(values: list[torch.Tensor]) -> None:
            with torch.cuda.device(x.device), side_stream(x.device):
                for value in values:
                    closely(compiled(value, w), program(value, w), "streams", "a result in a thread", factor=8)

        in_threads(run, work)

    def test_streams_of_forward_serve_backward(self, subject: Any, generator: torch.Generator) -> None:
        needs_training(subject)
        x, w = self._inputs(subject, generator)
        loss = lambda x, w: program(x, w)[2].square().sum()  # noqa: E731
        compiled = subject.compile(loss)
        weights = w.clone().requires_grad_()
        compiled(x, weights).backward()
        fresh = draw(generator, *x.shape).to(x.device)
        twin = w.clone().requires_grad_()
        loss(fresh, twin).backward()
        weights.grad = None
        with side_stream(x.device):
            keep_busy(LONG)
            x.copy_(fresh)
            compiled(x, weights).backward()
            got = weights.grad.clone()
        closely(got, twin.grad, "streams", "a gradient calculated on a busy stream", factor=64)

    # -- memory ----------------------------------------------------------------------------------------------------

    def test_memory_is_given_back(self, subject: Any, generator: torch.Generator) -> None:
        x, w = self._inputs(subject, generator, rows=4096)
        compiled = subject.compile(program)
        _settled(lambda: compiled(x, w), x.device)
        before = torch.cuda.memory_allocated(x.device)
        taken = []
        for _ in range(ROUNDS):  # other processes take memory too, most of it as they start
            free = _settled_memory(x.device)
            for _ in range(CALLS):
                compiled(x, w)
            _settled(lambda: None, x.device)
            taken.append(free - torch.cuda.mem_get_info(x.device)[0])
            if taken[-1] < GROWTH_BYTES:
                break
        grown = torch.cuda.memory_allocated(x.device) - before
        require(grown <= 0, "leak", f"{CALLS} calls left {grown} bytes of torch's memory allocated on the device")
        least = min(taken)
        require(least < GROWTH_BYTES, "leak", f"{CALLS} calls took {least / MEGABYTE:.0f} MiB of the device each time")

    def test_memory_of_inputs_may_be_used_again_at_once(self, subject: Any, generator: torch.Generator) -> None:
        x, w = self._inputs(subject, generator)
        compiled = subject.compile(program)
        compiled(x, w)
        shape, kept = x.shape, []
        for _ in range(30):
            values = draw(generator, *shape)
            x = values.to(w.device)
            got = compiled(x, w)
            del x
            torch.full(values.shape, float("nan"), device=w.device)  # the allocator hands out what was let go last
            kept.append((values, got))
        for values, got in kept:
            closely(got, program(values.to(w.device), w), "stale-result", "a result whose input was let go", factor=8)

    def test_memory_of_results_belongs_to_the_caller(self, subject: Any, generator: torch.Generator) -> None:
        x, w = self._inputs(subject, generator)
        compiled = subject.compile(program)
        kept = []
        for _ in range(10):
            x = draw(generator, *x.shape).to(w.device)
            got = compiled(x, w)
            kept.append((got, [value.clone() for value in got]))
        for got, copies in kept:
            exactly(list(got), copies, "buffer-reuse", "a result, after later calls")

    def test_memory_beyond_32_bits_is_reached(self, subject: Any, generator: torch.Generator) -> None:
        device = card(subject)
        if not subject.supports(torch.int8):
            pytest.skip("the backend does not declare int8")
        if torch.cuda.mem_get_info(device)[0] < 4 * BEYOND_32_BITS:
            pytest.skip("the device has no 8 GiB to spare")
        x = torch.zeros(BEYOND_32_BITS, dtype=torch.int8, device=device)
        ends = draw(generator, 64, dtype=torch.int8).to(device)
        x[:64], x[-64:] = ends, ends
        got = subject.compile(lambda x: x * 2 - 1)(x)
        for part in (got[:64], got[-64:]):
            exactly(part, ends * 2 - 1, "numerics", "the elements at one end of a very long tensor")
        require(int((got[64:-64] != -1).sum()) == 0, "numerics", "elements within a very long tensor are wrong")
        del x, got
        torch.cuda.empty_cache()

    # -- the process -----------------------------------------------------------------------------------------------

    def test_process_keeps_its_current_device(self, subject: Any, generator: torch.Generator) -> None:
        x, w = self._inputs(subject, generator)
        before = torch.cuda.current_device()
        subject.compile(program)(x, w)
        now = torch.cuda.current_device()
        require(now == before, "global-state", f"the current device was {before}, and is {now} after a compile")

    def test_process_keeps_its_settings_of_products(self, subject: Any, generator: torch.Generator) -> None:
        x, w = self._inputs(subject, generator)
        before = _settings()
        subject.compile(program)(x, w)
        changed = {name: value for name, value in _settings().items() if value != before[name]}
        require(not changed, "global-state", f"settings of CUDA changed: {changed}")

    # -- several cards ---------------------------------------------------------------------------------------------

    def test_cards_other_than_the_current_one(self, subject: Any, generator: torch.Generator) -> None:
        first = card(subject)
        if torch.cuda.device_count() < 2:
            pytest.skip("this machine has one GPU")
        other = torch.device("cuda", (first.index + 1) % torch.cuda.device_count())
        compiled = subject.compile(program)
        for device in (first, other, first):
            x, w = draw(generator, 16, 8).to(device), draw(generator, 8, 6).to(device)
            with torch.cuda.device(first):
                got = compiled(x, w)
            closely(got, program(x, w), "device", f"a result on {device} while {first} is current", factor=8)

    # -- graphs of calls -------------------------------------------------------------------------------------------

    def test_graphs_that_the_program_captures_are_replayed(self, subject: Any, generator: torch.Generator) -> None:
        """A warm call may stand inside `torch.cuda.graph`, for backends that declare it."""
        declared = subject.capabilities.cudagraph_safe
        if declared == "no":
            pytest.skip("the backend does not declare that its calls may be captured")
        x, w = self._inputs(subject, generator)
        compiled = subject.compile(program)
        with side_stream(x.device):
            for _ in range(3):
                compiled(x, w)
        if declared == "per-artifact" and not all(watched.artifact.cudagraph_safe for watched in subject.watched):
            pytest.skip("the backend says of this artifact that it may not be captured")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            got = compiled(x, w)
        for _ in range(3):
            x.copy_(draw(generator, *x.shape))
            graph.replay()
            closely(tuple(got), program(x, w), "stale-result", "the result of a replayed graph", factor=8)

    def test_graphs_that_core_replays_read_new_addresses(self, subject: Any, generator: torch.Generator) -> None:
        """Under mode="reduce-overhead" each call has inputs at other addresses, and layouts that repeat."""
        x, w = self._inputs(subject, generator)
        compiled = _replayed(subject, program)
        held = []
        for turn in range(8):
            x = draw(generator, *x.shape).to(w.device)
            held.append(x)  # so that the next one lies elsewhere
            if turn % 3 == 2:
                w = w.clone().mul_(0.5)
            got = [value.clone() for value in compiled(x, w)]
            closely(tuple(got), program(x, w), "stale-result", f"the result of call {turn}", factor=8)

    def test_graphs_that_core_replays_in_training(self, subject: Any, generator: torch.Generator) -> None:
        needs_training(subject)
        device = card(subject)
        module = seeded(nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 3)), generator).to(device)
        twin = seeded(nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 3)), generator).to(device)
        twin.load_state_dict(module.state_dict())
        compiled = _replayed(subject, module)
        for turn in range(6):
            x = draw(generator, 10, 12).to(device)
            for target, owner in ((compiled, module), (twin, twin)):
                for parameter in owner.parameters():
                    parameter.grad = None
                target(x).square().mean().backward()
                with torch.no_grad():
                    for parameter in owner.parameters():
                        parameter -= 0.1 * parameter.grad
            for (name, mine), other in zip(module.named_parameters(), twin.parameters()):
                closely(mine.detach(), other.detach(), "gradients", f"{name} after step {turn}", factor=64)


def _replayed(subject: Any, target: Any) -> Any:
    """`target` compiled to be replayed as CUDA graphs by core."""
    try:
        return subject.compile(target, mode="reduce-overhead")
    except InvalidOption:
        pytest.skip("the backend does not know modes")


@contextmanager
def _tensor_cores_for_float32(allowed: bool) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _settings() -> dict[str, Any]:
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    return {
        "float32 products": torch.get_float32_matmul_precision(),
        "float16 sums": matmul.allow_fp16_reduced_precision_reduction,
        "bfloat16 sums": matmul.allow_bf16_reduced_precision_reduction,
        "cudnn's choice of algorithms": (cudnn.enabled, cudnn.benchmark, cudnn.deterministic),
    }


def _settled_memory(device: torch.device) -> int:
    """The bytes that are free on a device, once nobody has taken or given back any for a while."""
    ends = time.monotonic() + PATIENCE_S
    free = torch.cuda.mem_get_info(device)[0]
    while time.monotonic() < ends:
        time.sleep(QUIET_S)
        before, free = free, torch.cuda.mem_get_info(device)[0]
        if free == before:
            break
    return int(free)


def _settled(call: Callable[[], Any], device: torch.device) -> None:
    """Some calls, and nothing of them left that could be let go."""
    for _ in range(5):
        call()
    torch.cuda.synchronize(device)
    gc.collect()
