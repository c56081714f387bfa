"""Fusions of a graph: a product or convolution with the nodes behind it that its kernel computes too.

oneDNN's own relu turns NaN into 0 where torch keeps it, so relu is no part of a kernel here: it overwrites the kernel's
result, which nothing else reads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx as fx

from .patterns import (
    ADD,
    BATCH_NORM,
    CONVOLUTION,
    KERNEL_DTYPES,
    PRODUCTS,
    RELU,
    RESHAPES,
    UNARY,
    aten,
    convolution_refusal,
    fake,
    is_turn,
    known,
    source,
    weight_of,
)


@dataclass
class Fusion:
    """anchor: the product or convolution; at: the node where the kernel is called, all operands being there;
    behind: nodes whose value is the kernel's, in order; reshape: a reshape among them, which is made from it; norm: a
    batch normalization that is folded into the weight; other: what is added; unary: oneDNN's name of a function;
    ready: weight and bias where both are known while compiling; native: they are the extension's, in one."""

    anchor: fx.Node
    values: fx.Node
    weight: fx.Node
    bias: fx.Node | None
    at: fx.Node
    reshape: fx.Node | None = None
    norm: fx.Node | None = None
    other: fx.Node | None = None
    unary: str = "none"
    algorithm: str = ""
    relu: bool = False
    behind: list[fx.Node] = field(default_factory=list)
    ready: tuple[Any, torch.Tensor | None] | None = None
    native: bool = False

    @property
    def is_convolution(self) -> bool:
        return self.anchor.target is CONVOLUTION

    @property
    def label(self) -> str:
        """As "linear+gelu"."""
        parts = ["convolution" if self.is_convolution else "linear"]
        parts += ["batch_norm"] * (self.norm is not None) + ["add"] * (self.other is not None)
        parts += [{"swish": "silu"}.get(self.unary, self.unary)] * (self.unary != "none") + ["relu"] * self.relu
        return "+".join(parts)

    @property
    def geometry(self) -> tuple[list[int], list[int], list[int], int]:
        """A convolution's padding, stride, dilation and groups."""
        args = self.anchor.args
        return list(args[4]), list(args[3]), list(args[5]), args[8]


def find(graph: fx.Graph, frozen: Collection[fx.Node], bfloat16: bool, kept: Collection[fx.Node] = ()) -> list[Fusion]:
    """The fusions of a graph.

    frozen: placeholders whose values are known; bfloat16: whether oneDNN computes it; kept: normalizations not to fold.
    """
    found: list[Fusion] = []
    taken: set[fx.Node] = set()
    for node in graph.nodes:
        fusion = _anchored(node, frozen, bfloat16)
        if fusion is None:
            continue
        _extend(fusion, frozen, taken, kept)
        if fusion.is_convolution or fusion.weight in frozen or fusion.behind:
            taken.update(fusion.behind)
            found.append(fusion)
    return found


def _anchored(node: fx.Node, frozen: Collection[fx.Node], bfloat16: bool) -> Fusion | None:
    result = fake(node)
    if result is None or result.dtype not in (KERNEL_DTYPES if bfloat16 else (torch.float32,)):
        return None
    if node.target is CONVOLUTION:
        if convolution_refusal(node, node.args[1] in frozen):
            return None
        values, weight, bias = node.args[:3]
        return Fusion(node, values, weight, bias, node)
    if node.target not in PRODUCTS or not is_turn(weight_of(node)) or node.kwargs:
        return None
    weight = source(weight_of(node))
    if not known(fake(weight).shape):
        return None
    if node.target is aten.mm.default:
        return Fusion(node, node.args[0], weight, None, node)
    bias = node.args[0]
    if fake(bias).dim() != 1 or fake(bias).shape[0] != fake(weight).shape[0]:
        return None
    return Fusion(node, node.args[1], weight, bias, node)


def _extend(fusion: Fusion, frozen: Collection[fx.Node], taken: set[fx.Node], kept: Collection[fx.Node]) -> None:
    """Adds what is behind the anchor, as long as it has one reader."""
    last = fusion.anchor
    if fusion.is_convolution:
        if _only(last) not in kept:
            last = _fold_norm(fusion, frozen) or last
    else:
        reader = _only(last)
        if reader is not None and reader.target in RESHAPES and _behind_reshape(reader):
            fusion.reshape = last = reader
    reader = _only(last)
    if reader is not None and reader.target is ADD and reader not in taken and _is_sum(reader):
        other = reader.args[1] if reader.args[0] is last else reader.args[0]
        if other is not last:
            fusion.other, fusion.at, last = other, reader, reader
            fusion.behind.append(reader)
    reader = _only(last)
    if reader is None or reader in taken:
        return
    if fusion.other is None and reader.target in UNARY:
        fusion.unary = UNARY[reader.target]
        if fusion.unary == "gelu":
            fusion.algorithm = reader.kwargs.get("approximate", "none")
        fusion.behind.append(reader)
    elif reader.target is RELU:
        fusion.relu = True
        fusion.behind.append(reader)


def _only(node: fx.Node) -> fx.Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


def _behind_reshape(reshape: fx.Node) -> bool:
    reader = _only(reshape)
    last = fake(reshape).shape[-1] if fake(reshape).dim() else None
    if reader is None or last != fake(source(reshape)).shape[-1]:
        return False
    return reader.target in UNARY or reader.target is RELU or reader.target is ADD


def _is_sum(node: fx.Node) -> bool:
    """A sum of two tensors of one shape and dtype."""
    if node.kwargs or len(node.args) != 2:
        return False
    tensors = [fake(value) for value in node.args]
    if any(tensor is None for tensor in tensors):
        return False
    first, second = tensors
    return first.dtype is second.dtype and _same(first.shape, second.shape)


def _same(first: torch.Size, second: torch.Size) -> bool:
    """Equal sizes, by their text where they are symbols: nothing is assumed about those."""
    return len(first) == len(second) and all(str(one) == str(two) for one, two in zip(first, second))


def _fold_norm(fusion: Fusion, frozen: Collection[fx.Node]) -> fx.Node | None:
    """A batch normalization of known statistics behind a convolution of a known weight, in float32."""
    norm = _only(fusion.anchor)
    if norm is None or norm.target is not BATCH_NORM or norm.args[5] or fake(fusion.anchor).dtype is not torch.float32:
        return None
    needed = [fusion.weight, *([fusion.bias] if fusion.bias is not None else []), *norm.args[1:5]]
    if not all(value is None or value in frozen for value in needed) or norm.args[3] is None:
        return None
    readers = list(norm.users)
    if len(readers) != 1 or readers[0].args[1] != 0:
        return None
    fusion.norm = norm
    fusion.behind += [norm, readers[0]]
    return readers[0]


def labels(fusions: list[Fusion]) -> Iterator[str]:
    """As "2 linear+gelu", by name."""
    names = sorted(fusion.label for fusion in fusions)
    for name in dict.fromkeys(names):
        yield f"{names.count(name)} {name}"
