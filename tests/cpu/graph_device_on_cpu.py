"""A device whose work can be captured, on the CPU: a capture is the call itself, run again on each replay.

It is as unkind as a GPU's memory may be: a capture computes nothing, and a replay leaves garbage in whatever its pool
holds of other captures, and of itself where it does not write.
"""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import torch

CPU = torch.device("cpu")


def span(tensor):
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))


def flat(tensor):
    return tensor.as_strided((span(tensor),), (1,))


def storage_address(tensor):
    return tensor.untyped_storage().data_ptr()


class _Described:
    """Memory as numpy takes it; the array keeps this, and with it the lease."""

    def __init__(self, lease):
        self.lease = lease
        self.__array_interface__ = {**lease.__cuda_array_interface__, "version": 3}


def spoil(tensor):
    if tensor.dtype is torch.bool:
        tensor.logical_not_()
    else:
        tensor.fill_(float("nan") if tensor.is_floating_point() or tensor.is_complex() else 77)


class _Bytes:
    """Bytes at an address that nobody keeps: what captured work knows of its inputs."""

    def __init__(self, address, count):
        self.__array_interface__ = {"shape": (count,), "typestr": "|u1", "data": (address, False), "version": 3}


def at_its_address(value):
    if not isinstance(value, torch.Tensor) or not value.numel():
        return value
    bytes_there = torch.from_numpy(np.asarray(_Bytes(value.data_ptr(), span(value) * value.element_size())))
    return bytes_there.view(value.dtype).as_strided(value.shape, value.stride())


class Work:
    def __init__(self, call, arguments, results, pool):
        self.call, self.pool = call, pool
        self.arguments = [at_its_address(value) for value in arguments]
        taken = {storage_address(value) for value in arguments if isinstance(value, torch.Tensor)}
        self.written = [
            value.detach() if isinstance(value, torch.Tensor) and storage_address(value) not in taken else None
            for value in results
        ]
        pool.append(self)
        self.spoil()

    def spoil(self):
        for tensor in self.written:
            if tensor is not None and tensor.numel():
                spoil(flat(tensor))

    def replay(self):
        results = self.call(*self.arguments)
        for work in self.pool:
            work.spoil()
        for place, value in zip(self.written, results):
            if place is not None and place.numel():
                assert value.stride() == place.stride()
                flat(place).copy_(flat(value))


class DeviceOnCpu:
    """now: the current stream; busy: whether the program captures it; waits: (stream, stream waited for)."""

    def __init__(self, device=CPU):
        self.device = device
        self.now, self.busy, self.trims, self.captures = 0, False, 0, 0
        self.waits = []
        self.fails = None  # raised by the next capture

    def stream(self):
        return self.now

    def capturing(self):
        return self.busy

    def wait_for(self, stream):
        self.waits.append((self.now, stream))

    @contextmanager
    def aside(self):
        yield

    def new_pool(self):
        return []

    def capture(self, call, arguments, pool):
        if self.fails is not None:
            raise self.fails
        before = torch.get_rng_state()
        results = call(*arguments)
        torch.set_rng_state(before)
        self.captures += 1
        return Work(call, arguments, results, pool), results

    def random_state(self):
        return torch.get_rng_state()

    def set_random_state(self, state):
        torch.set_rng_state(state)

    def memory_view(self, lease):
        return torch.from_numpy(np.asarray(_Described(lease)))

    def trim(self):
        self.trims += 1
