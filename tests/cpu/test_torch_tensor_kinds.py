"""Kinds of tensors that a graph takes, and those that break it: sparse, quantized, nested, meta, NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from observed import BACKENDS, agrees


def leaf(*shape):
    return torch.randn(*shape, requires_grad=True)


class Plain(torch.Tensor):
    pass


LOG: list[str] = []


class Logging(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            LOG.append(getattr(function, "__name__", "?"))
        return super().__torch_function__(function, types, args, kwargs or {})


class Duck:
    def __init__(self, tensor):
        self.tensor = tensor

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return Duck(function(*(a.tensor if isinstance(a, Duck) else a for a in args), **(kwargs or {})))


DUCK = Duck(torch.ones(3))


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


def log_of_calls(x):
    LOG.clear()
    result = (x * 2 + 1).as_subclass(torch.Tensor)
    return result, [name for name in LOG if name in ("mul", "add")]


TRACED = {
    "complex from real": lambda: (
        lambda x: (torch.view_as_complex(x) * (1 + 2j)).conj().abs(),
        (leaf(3, 2),),
    ),
    "complex input": lambda: (
        lambda x: x * 2 + x.conj(),
        (torch.randn(3, dtype=torch.complex64, requires_grad=True),),
    ),
    "fft": lambda: (lambda x: torch.fft.irfft(torch.fft.rfft(x) * 2) + torch.fft.fft(x).abs(), (leaf(8),)),
    "stft": lambda: (
        lambda x: torch.stft(x, 8, return_complex=True, window=torch.hann_window(8)).abs(),
        (leaf(32),),
    ),
    "einsum": lambda: (lambda a, b: torch.einsum("bij,bjk->bik", a, b), (leaf(2, 3, 4), leaf(2, 4, 3))),
    "linalg": lambda: (
        lambda x: torch.linalg.svd(x)[1] + torch.linalg.inv(x + 5 * torch.eye(3)).sum(),
        (leaf(3, 3),),
    ),
    "data": lambda: (lambda x: (x.data.add_(1), x.data * 2 + x)[1], (leaf(3),)),
    "NumPy and back": lambda: (lambda x: torch.from_numpy(np.sin(x.numpy() * 2)) + x, (torch.randn(4),)),
    "a NumPy array": lambda: (lambda x, a: x + torch.from_numpy(a) + a.shape[0], (torch.randn(4), np.arange(4))),
    "a subclass": lambda: (lambda x: (x * 2 + 1).as_subclass(torch.Tensor), (torch.randn(3).as_subclass(Plain),)),
    "a subclass with __torch_function__": lambda: (log_of_calls, (torch.randn(3).as_subclass(Logging),)),
    "a subclass made inside": lambda: (
        lambda x: (x.as_subclass(Plain) * 2).as_subclass(torch.Tensor),
        (torch.randn(3),),
    ),
    "an object with __torch_function__": lambda: (lambda x: torch.add(x, DUCK).tensor, (torch.randn(3),)),
    "a parameter made inside": lambda: (lambda x: torch.nn.Parameter(x * 2) + 1, (torch.randn(3),)),
}


REFUSED_BY_THE_RECORDER = ("stft", "a parameter made inside")


@pytest.mark.parametrize("name", TRACED)
def test_traced(name, backend):
    agrees(TRACED[name], backend, strict=name not in REFUSED_BY_THE_RECORDER)


def nested(a, b):
    return torch.nested.to_padded_tensor(torch.nested.nested_tensor([a, b]) * 2, 0.0)


def quantized(x):
    return torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).dequantize() + 1


def retyped(x):
    y = x * 1
    y.data = torch.zeros(3)
    return y + 1


BREAKING = {
    "a sparse input": lambda: (
        lambda s, x: torch.sparse.mm(s, x) + 1,
        (torch.randn(3, 3).to_sparse(), torch.randn(3, 3)),
    ),
    "a quantized tensor made inside": lambda: (quantized, (torch.randn(3, 3),)),
    "a quantized input": lambda: (
        lambda q: q.dequantize() + 1,
        (torch.quantize_per_tensor(torch.randn(3), 0.1, 0, torch.qint8),),
    ),
    "a nested tensor made inside": lambda: (nested, (torch.randn(2, 3), torch.randn(4, 3))),
    "a nested input": lambda: (
        lambda n: (n * 2).to_padded_tensor(0.0),
        (torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(4, 3)]),),
    ),
    "a meta input": lambda: (lambda x: x * 2 + torch.ones(3, device="meta"), (torch.randn(3, device="meta"),)),
    "data assigned": lambda: (retyped, (leaf(3),)),
    "a NumPy function of a tensor": lambda: (lambda x: torch.as_tensor(np.sin(x)), (torch.randn(4),)),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", BREAKING)
def test_breaks(name, backend):
    assert agrees(BREAKING[name], backend, graphs=None, breaks=None)["breaks"] >= 1


NUMBERS_OF_NUMPY = {
    "a NumPy scalar": lambda: (lambda x, s: x * s, (torch.randn(4), np.float32(2.5))),
    "a NumPy integer as index": lambda: (lambda x, i: x[i] + 1, (torch.randn(4), np.int64(2))),
    "a function of NumPy on constants": lambda: (lambda x: x * float(np.sqrt(2.0)), (torch.randn(4),)),
}


@pytest.mark.parametrize("name", NUMBERS_OF_NUMPY)
def test_numbers_of_numpy_are_numbers_in_one_graph(name, backend):
    agrees(NUMBERS_OF_NUMPY[name], backend)


def test_a_constant_of_numpy_is_a_number(backend):
    agrees(lambda: (lambda x: x * np.pi, (torch.randn(4),)), backend)


def test_subclasses_are_tensors_and_take_over_functions():
    duck = Duck(torch.ones(3))

    def fn(x):
        known = torch.is_tensor(x), isinstance(x, torch.Tensor), torch.overrides.has_torch_function((x,))
        return known, torch.overrides.has_torch_function((duck,)), torch.overrides.has_torch_function((duck.tensor,))

    agrees(lambda: (fn, (torch.randn(3).as_subclass(Plain),)), graphs=None, breaks=None)


@pytest.mark.parametrize("backend", BACKENDS)
def test_classes_that_name_a_dtype_make_tensors_and_have_instances(backend):
    def fn(x):
        made = torch.FloatTensor([1.5, 2.5]) + x, torch.LongTensor([1, 2]) * 2, torch.FloatTensor(x) * 2
        return *made, isinstance(x, torch.FloatTensor), isinstance(x, torch.LongTensor), torch.LongTensor(3).shape

    agrees(lambda: (fn, (torch.ones(2),)), backend)
