"""TensorSpec: what a tensor guard compares, as plain data. Importing this module does not import torch."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TensorSpec:
    """The guarded facts about a tensor.

    sizes and strides: [ndim] each, None where a dimension is free. keys: the 64-bit set of the tensor's dispatch keys
    (it holds conj, neg, sparse, quantized, subclass and inference facts), or None where only the flags count.
    requires_grad is that of the tensor, so true also for a non-leaf.
    """

    exact_type: type
    dtype: Any
    device: str
    ndim: int
    requires_grad: bool
    sizes: tuple[int | None, ...]
    strides: tuple[int | None, ...]
    conj: bool = False
    neg: bool = False
    inference: bool = False
    keys: int | None = None

    @classmethod
    def of(
        cls, tensor: Any, *, free_sizes: Collection[int] = (), free_strides: Collection[int] | None = None
    ) -> TensorSpec:
        """The spec of a tensor, with some dimensions left free.

        free_strides: by default the strides of every dimension outside a free size (its stride depends on that size).
        """
        from ..torch_compat import dispatch_key_bits, has_plain_layout

        ndim = tensor.dim()
        if free_strides is None:
            last = max(free_sizes, default=-1)
            free_strides = range(last)
        plain = has_plain_layout(tensor)
        strides = tensor.stride() if plain else (None,) * ndim
        return cls(
            exact_type=type(tensor),
            dtype=tensor.dtype,
            device=str(tensor.device),
            ndim=ndim,
            requires_grad=bool(tensor.requires_grad),
            sizes=tuple(None if dim in free_sizes else int(size) for dim, size in enumerate(tensor.shape)),
            strides=tuple(
                None if stride is None or dim in free_strides else int(stride) for dim, stride in enumerate(strides)
            ),
            conj=bool(tensor.is_conj()),
            neg=bool(tensor.is_neg()),
            inference=bool(tensor.is_inference()),
            keys=dispatch_key_bits(tensor),
        )

    def as_tuple(self) -> tuple[Any, ...]:
        """The operand of the `tensor` instruction."""
        flags = {"conj": self.conj, "neg": self.neg, "inference": self.inference, "keys": self.keys}
        return (
            self.exact_type,
            self.dtype,
            self.device,
            self.ndim,
            self.requires_grad,
            self.sizes,
            self.strides,
            flags,
        )

    def describe(self, name: str) -> str:
        """One line with every guarded fact."""
        sizes = ", ".join("?" if size is None else str(size) for size in self.sizes)
        strides = ", ".join("?" if stride is None else str(stride) for stride in self.strides)
        flags = "".join(f", {flag}" for flag in ("conj", "neg", "inference") if getattr(self, flag))
        grad = ", requires_grad" if self.requires_grad else ""
        return (
            f"{name} is a {self.exact_type.__name__}: {self.dtype}[{sizes}], strides [{strides}], on {self.device}"
            f"{grad}{flags}"
        )

    def explain(self, value: Any, name: str = "value") -> str:
        """The first fact that differs, such as `L['x'].shape[0] was 4, now 5`."""
        if type(value) is not self.exact_type:
            return f"type({name}) was {self.exact_type.__name__}, now {type(value).__name__}"
        now = TensorSpec.of(value)
        for fact, label in (("dtype", "dtype"), ("device", "device"), ("ndim", "ndim")):
            if getattr(self, fact) != getattr(now, fact):
                return f"{name}.{label} was {getattr(self, fact)}, now {getattr(now, fact)}"
        for dim, (was, is_now) in enumerate(zip(self.sizes, now.sizes)):
            if was is not None and was != is_now:
                return f"{name}.shape[{dim}] was {was}, now {is_now}"
        for dim, (was, is_now) in enumerate(zip(self.strides, now.strides)):
            if was is not None and was != is_now:
                return f"{name}.stride({dim}) was {was}, now {is_now}"
        for fact, label in (
            ("requires_grad", "requires_grad"),
            ("conj", "is_conj()"),
            ("neg", "is_neg()"),
            ("inference", "is_inference()"),
        ):
            if getattr(self, fact) != getattr(now, fact):
                return f"{name}.{label} was {getattr(self, fact)}, now {getattr(now, fact)}"
        if self.keys is not None and self.keys != now.keys:
            return f"the dispatch keys of {name} changed: layout, subclass, wrapper or backend"
        return f"{name} changed and has changed back"
