"""Wrapper tensors: classes with a __torch_dispatch__ whose tensors are made of others, and say of which.

Such a class has `__tensor_flatten__` (the names of its inner tensors, and what else makes the tensor) and
`__tensor_unflatten__`. Its fake is the class's own object around the fakes of the inner tensors: what the class does
with an operator runs while the graph is recorded, and the record beneath holds plain tensors only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .. import torch_compat
from ..torch_compat import nested
from .symbols import plain


def is_wrapper_class(cls: type) -> bool:
    """True for a tensor class that runs operators itself and can be taken apart and put together."""
    return (
        issubclass(cls, torch.Tensor)
        and getattr(cls, "__torch_dispatch__", None) is not torch.Tensor.__torch_dispatch__
        and hasattr(cls, "__tensor_flatten__")
        and hasattr(cls, "__tensor_unflatten__")
    )


def is_wrapper(value: Any) -> bool:
    """True for a tensor of such a class."""
    return isinstance(value, torch.Tensor) and is_wrapper_class(type(value))


def parts(tensor: Any) -> list[tuple[str, Any]]:
    """The inner tensors of a wrapper by name, wrappers among them."""
    return [(name, getattr(tensor, name)) for name in tensor.__tensor_flatten__()[0]]


def plain_tensors(tensor: Any) -> Iterator[Any]:
    """The plain tensors that a tensor is made of, in order: itself where it is no wrapper."""
    if not is_wrapper(tensor):
        yield tensor
        return
    for _, inner in parts(tensor):
        yield from plain_tensors(inner)


def is_fake(value: Any) -> bool:
    """True for a fake tensor and for a wrapper that is made of fakes only."""
    if isinstance(value, torch_compat.fake_tensor_class()):
        return True
    return is_wrapper(value) and all(is_fake(inner) for _, inner in parts(value))


@dataclass(frozen=True, eq=False)
class Build:
    """How a wrapper is put together of plain tensors. inner: the names with how each is made, None for a plain tensor.

    size and stride may hold symbolic numbers. jagged: a call has no numbers for them; its class asks the inner tensors.
    """

    cls: Any
    meta: Any
    size: tuple[Any, ...]
    stride: tuple[Any, ...]
    inner: tuple[tuple[str, Build | None], ...]
    jagged: bool = False

    @staticmethod
    def of(tensor: Any) -> Build | None:
        """How this tensor is made; None for a plain one."""
        if not is_wrapper(tensor):
            return None
        names, meta = tensor.__tensor_flatten__()
        inner = tuple((name, Build.of(getattr(tensor, name))) for name in names)
        size, stride = tuple(tensor.shape), tuple(tensor.stride())
        return Build(type(tensor), meta, size, stride, inner, nested.is_jagged(tensor))

    def numbers(self) -> Iterator[Any]:
        """The numbers of the sizes and strides, those of inner wrappers behind those of their owner."""
        if not self.jagged:
            yield from self.size
            yield from self.stride
        for _, inner in self.inner:
            if inner is not None:
                yield from inner.numbers()

    def symbols(self) -> list[Any]:
        """The symbolic ones of those numbers, each object once."""
        found = {id(n): n for n in self.numbers() if type(plain(n)) is not int}
        return list(found.values())


def equal_meta(cls: Any, first: Any, second: Any) -> bool:
    """Whether two tensors of a class are alike in all but their inner tensors; the class may have its own say."""
    own = getattr(cls, "__metadata_guard__", None)
    return bool(own(first, second) if own is not None else first == second)


def put_together(build: Build | None, tensors: Iterator[Any]) -> Any:
    """A tensor made of the next ones in `tensors`."""
    if build is None:
        return next(tensors)
    inner = {name: put_together(how, tensors) for name, how in build.inner}
    return build.cls.__tensor_unflatten__(inner, build.meta, torch.Size(build.size), build.stride)


# -- inputs ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SizeLink:
    """Dimension `dim` of a wrapper has the size of dimension `inner_dim` of its inner tensor `name`."""

    dim: int
    name: str
    inner_dim: int


def size_links(example: Any, fakes: Mapping[str, Any]) -> tuple[SizeLink, ...]:
    """Which symbolic sizes of the inner tensors are sizes of the wrapper as well."""
    if nested.is_jagged(example):
        return ()
    found: dict[int, SizeLink] = {}
    for name, fake in fakes.items():
        for inner_dim, size in enumerate(fake.shape):
            if type(plain(size)) is int:
                continue
            real = getattr(example, name).shape
            nearest = sorted(range(example.dim()), key=lambda dim: abs(dim - inner_dim))
            same = [dim for dim in nearest if _is_size(example.shape[dim], real[inner_dim])]
            if same:
                found.setdefault(same[0], SizeLink(same[0], name, inner_dim))
    return tuple(found.values())


def _is_size(outer: Any, inner: int) -> bool:
    return type(outer) is int and outer == inner


def fake_wrapper(mode: Any, example: Any, fakes: Mapping[str, Any], links: Sequence[SizeLink]) -> Any:
    """The fake of a wrapper: its class around the fakes of its inner tensors, which links give sizes to."""
    size = list(example.shape)
    if nested.is_jagged(example):
        with mode:
            ragged = fakes[nested.ragged_name(fakes)].get_nested_int()
        size = [ragged if nested.is_ragged(extent) else extent for extent in size]
    for link in links:
        size[link.dim] = fakes[link.name].shape[link.inner_dim]
    stride = _strides(example, fakes, size) if links else tuple(example.stride())
    _, meta = example.__tensor_flatten__()

    def make() -> Any:
        return type(example).__tensor_unflatten__(dict(fakes), meta, torch.Size(size), stride)

    with mode, torch.inference_mode(False):
        if example.requires_grad and not example.is_leaf:
            with torch.enable_grad():
                fake = _Made.apply(torch.empty((), dtype=example.dtype, requires_grad=True), make)
        else:
            fake = make()
            if fake.requires_grad != example.requires_grad:
                fake.requires_grad_(example.requires_grad)
    for mark in ("_is_param", "_is_buffer", "persistent"):
        if mark in example.__dict__:
            setattr(fake, mark, example.__dict__[mark])
    return fake


class _Made(torch.autograd.Function):
    """A tensor with a history, as inputs that are no leaves have one."""

    @staticmethod
    def forward(ctx: Any, start: torch.Tensor, make: Any) -> Any:
        return make()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return None, None


def _strides(example: Any, fakes: Mapping[str, Any], size: Sequence[Any]) -> tuple[Any, ...]:
    """The strides of a wrapper some of whose sizes are symbols: an inner tensor's, or those of elements in order."""
    for name, fake in fakes.items():
        real = getattr(example, name)
        if real.shape == example.shape and real.stride() == example.stride():
            return tuple(fake.stride())
    steps: list[Any] = []
    step: Any = 1
    for extent in reversed(size):
        steps.insert(0, step)
        step = step * extent
    return tuple(steps) if example.is_contiguous() else tuple(example.stride())
