"""What a tensor class with a __torch_dispatch__ must be for its tensors to enter a graph, and the guards for that."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch

from ..errors import Unsupported
from ..graph import wrapper_tensors
from ..guards.checks import Equals, Is, Length
from ..guards.source import AttrSource, CellSource, ConstSource, DictItemSource, InstanceAttrSource, TypeAttrSource
from .dispatch_effects import Read, code_facts
from .literal import is_literal

if TYPE_CHECKING:
    from .protocols import Tracer

REMEDY = (
    "give the class __tensor_flatten__ and __tensor_unflatten__ and code that only computes, or use plain tensors in "
    "the compiled function"
)
_checked: weakref.WeakKeyDictionary[Any, set[type]] = weakref.WeakKeyDictionary()  # by graph builder
CODE_OF_THE_CLASS = ("__torch_dispatch__", "__torch_function__", "__tensor_flatten__", "__tensor_unflatten__")


def has_own_dispatch(cls: type) -> bool:
    """True for a tensor class with a __torch_dispatch__ of its own."""
    return cls.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__  # type: ignore[attr-defined]


def reason_against(value: torch.Tensor) -> str | None:
    """What keeps a tensor of such a class out of a graph, None when nothing does."""
    cls = type(value)
    if not wrapper_tensors.is_wrapper_class(cls):
        return f"a tensor of class {cls.__name__}, which has no __tensor_flatten__ and __tensor_unflatten__,"
    effect = code_facts(cls).effect
    if effect is not None:
        return f"a tensor of class {cls.__name__}, whose {effect},"
    if value.device.type == "meta":
        return "a tensor of the meta device"
    names, meta = value.__tensor_flatten__()  # type: ignore[attr-defined]
    if not names or not all(isinstance(getattr(value, name, None), torch.Tensor) for name in names):
        return f"a tensor of class {cls.__name__}, whose __tensor_flatten__ names what is no tensor,"
    try:
        alike = wrapper_tensors.equal_meta(cls, meta, value.__tensor_flatten__()[1])  # type: ignore[attr-defined]
    except (RuntimeError, TypeError, ValueError):
        alike = False
    if not alike:
        return f"a tensor of class {cls.__name__}, whose metadata can't be compared,"
    return None


def check_class(tx: Tracer, cls: type) -> None:
    """Guard the code that runs on the fakes, and what it reads, for each later call; once a capture.

    Raises Unsupported for a class whose tensors can't be in a graph.
    """
    done = _checked.setdefault(tx.builder, set())
    if cls in done:
        return
    if not wrapper_tensors.is_wrapper_class(cls):
        raise Unsupported(f"a tensor of class {cls.__name__} has no __tensor_flatten__", remedy=REMEDY)
    facts = code_facts(cls)
    if facts.effect is not None:
        raise Unsupported(f"a tensor of class {cls.__name__} is not traced: its {facts.effect}", remedy=REMEDY)
    done.add(cls)
    for name in CODE_OF_THE_CLASS:
        raw = next((base.__dict__[name] for base in cls.__mro__ if name in base.__dict__), None)
        if raw is not None:
            tx.guard(TypeAttrSource(ConstSource(cls), name), Is(raw))
    for read in facts.reads.values():
        _guard_read(tx, read)


def _guard_read(tx: Tracer, read: Read) -> None:
    owner = ConstSource(read.owner)
    sources = {
        "item": lambda: DictItemSource(owner, read.name),
        "cell": lambda: CellSource(owner),
        "type": lambda: TypeAttrSource(owner, read.name),
        "instance": lambda: InstanceAttrSource(owner, read.name),
    }
    source = sources[read.kind]()
    if is_literal(read.value):
        tx.guard(source, Equals(read.value))
        return
    tx.guard(source, Is(read.value))
    if type(read.value) in (list, dict, set):
        tx.guard(source, Length(len(read.value)))


def inner_source(value: torch.Tensor, source: Any, name: str) -> Any:
    """The way to an inner tensor."""
    return InstanceAttrSource(source, name) if name in value.__dict__ else AttrSource(source, name)


def memory_of(value: torch.Tensor, source: Any) -> list[tuple[Any, torch.Tensor]]:
    """The plain tensors that a real tensor is made of, with the ways to them."""
    if not wrapper_tensors.is_wrapper(value):
        return [(source, value)]
    found = []
    for name, inner in wrapper_tensors.parts(value):
        found += memory_of(inner, inner_source(value, source, name))
    return found
