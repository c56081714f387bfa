"""A wrapper tensor becomes an input of the graph: its inner tensors first, then the tensor around their fakes."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..graph.symbols import plain
from ..graph.wrapper_tensors import SizeLink, equal_meta, fake_wrapper, parts, size_links
from ..guards.checks import Is, NotSameAs, Predicate, TensorMatch, TypeIs
from ..guards.tensor_spec import TensorSpec
from ..marks import tensor_marks
from ..torch_compat import nested
from ..variables.base import VariableTracker
from ..variables.tensor import TensorVariable
from ..variables.wrapper_class import check_class, inner_source
from ..variables.wrapper_tensor import WrapperTensorVariable
from .dynamic import is_buffer_source

VT = VariableTracker


@dataclass(frozen=True)
class MadeAlike:
    """Whether a wrapper consists of tensors of the same names, with equal metadata and sizes linked as they were."""

    names: tuple[str, ...]
    meta: Any
    links: tuple[SizeLink, ...]

    def __call__(self, tensor: Any) -> bool:
        names, meta = tensor.__tensor_flatten__()
        return (
            tuple(names) == self.names
            and equal_meta(type(tensor), self.meta, meta)
            and all(tensor.shape[at.dim] == getattr(tensor, at.name).shape[at.inner_dim] for at in self.links)
        )

    def __hash__(self) -> int:
        return hash((self.names, self.links))


def wrapper_input(tx: Any, value: torch.Tensor, source: Any) -> VT:
    """The tracker of a real wrapper tensor that nothing speaks against. Raises Unsupported for parts that no graph
    takes."""
    cls = type(value)
    tx.guard(source, TypeIs(cls))
    check_class(tx, cls)
    fakes: dict[str, Any] = {}
    for name, inner in parts(value):
        place = inner_source(value, source, name) if source is not None else None
        tx.trace.policy.lenient.add(id(inner))
        tx.trace.policy.wished[id(inner)] = _marked(value, inner)
        tracker = tx.wrap(inner, place).realize(tx)
        if not isinstance(tracker, TensorVariable):
            raise tracker.refuse(f"as a part of a tensor of class {cls.__name__}")
        fakes[name] = tracker.as_proxy().fake
    links = size_links(value, fakes)
    fake = fake_wrapper(tx.builder.fake_mode, value, fakes, links)
    lifted = source is None or tx.trace.policy.is_lifted(value, source)
    result = tx.builder.add_tensor_input(value, source, lifted=lifted, is_buffer=is_buffer_source(source), fake=fake)
    if source is not None:
        _guard(tx, value, source, fake, links)
        if lifted:
            tx.guard(source, Is(value))
    if nested.is_jagged(value) and source is not None:
        _guard_other_components(tx, value, source)
    known = WrapperTensorVariable(result, cls, source, value)
    tx.trace.remember(result, known)
    return known


def _marked(value: Any, inner: Any) -> list[int]:
    """The dimensions of an inner tensor that are those of its wrapper and marked as dynamic there."""
    dims = [dim for dim, mark in tensor_marks(value).items() if mark.kind != "static"]
    return [dim for dim in dims if dim < inner.dim() and inner.shape[dim] == value.shape[dim]]


def _guard(tx: Any, value: Any, source: Any, fake: Any, links: Sequence[SizeLink]) -> None:
    names, meta = value.__tensor_flatten__()
    tx.guard(source, Predicate((source,), MadeAlike(tuple(names), meta, tuple(links))))
    if all(type(size) is int for size in value.shape):
        free = frozenset(link.dim for link in links)
        moving = [dim for dim, stride in enumerate(fake.stride()) if type(plain(stride)) is not int]
        tx.guard(source, TensorMatch(TensorSpec.of(value, free_sizes=free, free_strides=moving)))


_ragged: weakref.WeakKeyDictionary[Any, list[tuple[Any, Any]]] = weakref.WeakKeyDictionary()  # by graph builder


def _guard_other_components(tx: Any, value: Any, source: Any) -> None:
    """Two jagged tensors have one ragged size where one tensor tells it of both; where two do, they must stay two."""
    name = nested.ragged_name(value.__tensor_flatten__()[0])
    own, place = getattr(value, name), inner_source(value, source, name)
    met = _ragged.setdefault(tx.builder, [])
    for other, elsewhere in met:
        if other is not own:
            tx.guard(place, NotSameAs(elsewhere))
    if all(other is not own for other, _ in met):
        met.append((own, place))
