"""Calls that raise by what their operands hold: a place that is not there, a singular matrix, a division by zero."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..torch_compat import tracing
from .geometry import extent, has_storage, is_static
from .tree import leaves

if TYPE_CHECKING:
    from .recorder import Call

PURE_NAMESPACES = ("aten", "prims")
BY_VALUE = tuple(
    "index _index _unsafe_index scatter _scatter gather take put masked_scatter embedding _embedding one_hot nll_loss "
    "_ctc_loss linalg_ _linalg_ cholesky _cholesky lu_ ormqr triangular_solve geqrf multinomial bernoulli normal "
    "poisson binomial _standard_gamma bincount histc histogram repeat_interleave max_unpool segment_reduce quantile "
    "nanquantile multi_margin_loss multilabel_margin_loss _local_scalar_dense as_strided _assert_ sym_constrain".split()
)
"""How the names begin of ATen operators that raise for some values of their operands: a place that is not there, a
matrix that is singular, a probability that is none."""

_MORE_BY_VALUE = frozenset(
    f"aten::{name}"
    for name in "binary_cross_entropy masked_scatter masked_scatter_ _pack_padded_sequence "
    "fake_quantize_per_channel_affine_cachemask".split()
)
"""Further ones by their whole names: numbers that are no probabilities, too few elements, lengths, zero points."""

_DIVISIONS = frozenset(("aten::div", "aten::floor_divide", "aten::remainder", "aten::fmod"))


def may_raise(call: Call) -> bool:
    """True for a call that raises for some values of its operands, or for sizes that only the data gives."""
    if call.raises or call.op.namespace not in PURE_NAMESPACES:
        return True
    name = call.op._schema.name
    if name == "aten::as_strided":
        return not _stays_inside(call)
    if name in _MORE_BY_VALUE:
        return True
    if name.partition("::")[2].startswith(BY_VALUE):
        return not _is_masked(call)
    if divides(call.op, call.args):
        return isinstance(call.result, torch.Tensor) and not call.result.dtype.is_floating_point  # by zero
    return any(tracing.depends_on_data(leaf) for leaf in leaves((call.args, call.kwargs)) if _is_number(leaf))


def divides(op: Any, args: Any) -> bool:
    """True for a division by what a tensor holds."""
    return op._schema.name.rstrip("_") in _DIVISIONS and len(args) > 1 and isinstance(args[1], torch.Tensor)


def _is_masked(call: Call) -> bool:
    """True for indexing by masks, whose sizes are known."""
    places = call.args[1] if len(call.args) > 1 and isinstance(call.args[1], (list, tuple)) else ()
    return bool(places) and all(
        place is None or isinstance(place, torch.Tensor) and place.dtype is torch.bool for place in places
    )


def _stays_inside(call: Call) -> bool:
    """True for a view by strides that leads nowhere but where its base leads: its storage may be longer, or may not."""
    base, view = call.args[0], call.result
    if not (has_storage(base) and is_static(base) and is_static(view)):
        return False
    first, start = view.storage_offset(), base.storage_offset()
    return bool(not view.numel() or start <= first and first + extent(view) <= start + extent(base))


def _is_number(leaf: Any) -> bool:
    return isinstance(leaf, (torch.SymInt, torch.SymFloat, torch.SymBool))
