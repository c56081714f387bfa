"""What capturing and replaying needs of a device: an interface, and the one of CUDA behind it.

Everything else in this folder works with any device of this interface; tests have one on the CPU.
State shared between threads: none; `DeviceGraphs` calls the parts that change something under its lock.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import torch

from ...torch_compat import cuda_streams

Call = Callable[..., Sequence[Any]]


class CapturedWork(Protocol):
    """Work that was captured; it needs the memory that it was captured with."""

    def replay(self) -> None:
        """Launch it on the current stream."""


class GraphDevice(Protocol):
    """A device whose work can be captured."""

    device: torch.device
    stream: Callable[[], int]
    """() -> the handle of the current stream."""
    capturing: Callable[[], bool]
    """() -> whether the program captures the current stream."""

    memory_view: Callable[[Lease], torch.Tensor]
    """(lease) -> the bytes that it describes, as uint8, in a storage that keeps the lease alive."""

    def wait_for(self, stream: int) -> None:
        """Let the current stream wait for what was given to `stream` so far."""

    def aside(self) -> AbstractContextManager[None]:
        """Within it another stream is current, which begins after the current one and is waited for at the end."""

    def new_pool(self) -> Any:
        """The handle of memory that captured work shares."""

    def capture(self, call: Call, arguments: Sequence[Any], pool: Any) -> tuple[CapturedWork, Sequence[Any]]:
        """Capture what a call launches; within `aside`. Results have their memory, and values only after a replay.

        Raises RuntimeError where something can't be captured.
        """

    def random_state(self) -> Any:
        """The state of the device's default generator."""

    def set_random_state(self, state: Any) -> None:
        """Go back to a state of the default generator."""

    def trim(self) -> None:
        """Give memory back that nobody uses."""


class Lease:
    """Memory of a graph while tensors of the program lie in it: alive exactly as long as one of them is.

    It is the owner of the storage that those tensors share, through the interface by which foreign memory becomes a
    tensor; `memory` keeps the graph's own tensors there alive, also when the graph is dropped meanwhile.
    """

    __slots__ = ("__cuda_array_interface__", "__weakref__", "memory")
    __cuda_array_interface__: dict[str, Any]
    memory: Any


def bytes_at(address: int, count: int) -> dict[str, Any]:
    """The description of `count` bytes at an address, as __cuda_array_interface__ has it."""
    return {"shape": (count,), "typestr": "|u1", "data": (address, False), "strides": None, "version": 2}


class CudaDevice:
    """A GPU of CUDA."""

    def __init__(self, device: torch.device) -> None:
        index = device.index if device.index is not None else torch.cuda.current_device()
        self.device = torch.device("cuda", index)
        self._index = index
        self._side: torch.cuda.Stream | None = None
        self._failed: list[Any] = []
        self.memory_view = functools.partial(torch.as_tensor, device=self.device)
        self.stream = cuda_streams.current_raw_stream(index)
        self.capturing = cuda_streams.cuda_capturing_function()

    def wait_for(self, stream: int) -> None:
        default = torch.cuda.default_stream(self.device)
        other = torch.cuda.ExternalStream(stream, device=self.device) if stream else default
        torch.cuda.current_stream(self.device).wait_stream(other)

    @contextmanager
    def aside(self) -> Iterator[None]:
        with torch.cuda.device(self._index):
            current = torch.cuda.current_stream(self._index)
            if self._side is None:
                self._side = torch.cuda.Stream(self._index)
            side = self._side
            side.wait_stream(current)
            try:
                with torch.cuda.stream(side):
                    yield
            finally:
                current.wait_stream(side)

    def new_pool(self) -> Any:
        return torch.cuda.graph_pool_handle()

    def capture(self, call: Call, arguments: Sequence[Any], pool: Any) -> tuple[CapturedWork, Sequence[Any]]:
        graph = torch.cuda.CUDAGraph()
        generator = torch.cuda.default_generators[self._index]
        before = generator.clone_state()
        torch.cuda.synchronize(self._index)
        collecting = gc.isenabled()
        gc.disable()  # what a collection frees meanwhile may be another graph, and that ends this capture
        try:
            # Other threads go on with what they do; only this one may do nothing that can't be captured.
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            try:
                results = call(*arguments)
            except BaseException:
                self._end_failed(graph, pool)
                raise
            graph.capture_end()
        except BaseException:
            # A capture that fails leaves the generator and the stream as if it went on.
            generator.graphsafe_set_state(before)
            self._side = None
            raise
        finally:
            if collecting:
                gc.enable()
        return graph, results

    def _end_failed(self, graph: Any, pool: Any) -> None:
        """Leave a capture in which something failed. CUDA has invalidated it and says so once more, and then torch's
        allocator goes on as if it were one: it is told, and the graph that it may ask lives on."""
        try:
            graph.capture_end()
        except RuntimeError:
            self._failed.append(graph)
            cuda_streams.end_allocation_to_pool(self._index, pool)

    def random_state(self) -> Any:
        return torch.cuda.get_rng_state(self._index)

    def set_random_state(self, state: Any) -> None:
        torch.cuda.set_rng_state(state, self._index)

    def trim(self) -> None:
        torch.cuda.synchronize(self._index)
        torch.cuda.empty_cache()


KINDS: dict[str, Callable[[torch.device], GraphDevice]] = {"cuda": CudaDevice}
"""Device type -> what makes the interface of a device of that type."""
