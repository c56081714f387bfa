"""torch.nn.attention.flex_attention: its functions of scores and masks are traced, the attention is one node.

Enters: the operator that torch's function ends in, with functions of one score (or place) among its arguments. The node
is that operator on the graphs of the functions; tensors that they read are further operands, as torch passes them.
"""

from __future__ import annotations

from typing import Any

import torch

from ..errors import Unsupported
from ..graph.region import Region
from ..variables.base import VariableTracker
from ..variables.tensor import TensorVariable
from .control_flow import OUTSIDE, Body, add_node, given, operator, shared_operands

VT = VariableTracker

NAMES = (
    "query",
    "key",
    "value",
    "score_mod",
    "block_mask",
    "scale",
    "kernel_options",
    "score_mod_other_buffers",
    "mask_mod_other_buffers",
)
PLACES = 4  # batch, head, query and key


@operator("flex_attention")
def flex_attention(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    arguments = given(NAMES, args, kwargs, "flex_attention")
    operands = [arguments[name].realize(tx) for name in NAMES[:3]]
    if not all(isinstance(operand, TensorVariable) for operand in operands) or len(arguments) < 7:
        raise Unsupported("flex_attention with these arguments is not traced", remedy=OUTSIDE)
    if any(name in arguments and arguments[name].realize(tx).unpack(tx) for name in NAMES[7:]):
        raise Unsupported("flex_attention with buffers is not traced", remedy="let its functions close over them")
    query: Any = operands[0]
    *blocks, mask_mod = arguments["block_mask"].realize(tx).unpack(tx)
    exact = torch.float64 if query.fake.dtype is torch.float64 else torch.float32
    grad = torch.is_grad_enabled() and any(operand.fake.requires_grad for operand in operands)  # type: ignore[attr-defined]
    score = _modifier(tx, arguments["score_mod"], query, exact, grad)
    mask = _modifier(tx, mask_mod.realize(tx), query, None, False)
    buffers = [tuple(shared_operands((body,))) for body in (score, mask)]
    graphs = [body.region.close(body.tree.tensors[0].value) for body in (score, mask)]
    block_mask = (*(block.look_inside(tx).as_proxy() for block in blocks), graphs[1])
    options = [arguments[name].realize(tx).look_inside(tx).as_proxy() for name in ("scale", "kernel_options")]
    values = (*(operand.as_proxy() for operand in operands), graphs[0], block_mask, *options, *buffers)
    result: VT = tx.new_tuple(add_node(tx, "flex_attention", values))
    return result


def _modifier(tx: Any, function: VT, query: TensorVariable, dtype: torch.dtype | None, grad: bool) -> Body:
    """A function of (a score of this dtype, if any, and) four places, traced at scalars as the operator calls it."""

    def inputs(region: Region) -> list[VT]:
        region.elementwise = True
        kinds = [dtype] * (dtype is not None) + [torch.int32] * PLACES
        made = []
        for kind in kinds:
            fake = tx.run_on_fakes(torch.empty, [()], {"dtype": kind, "device": query.fake.device})
            fake.requires_grad_(grad and kind is dtype)
            made.append(tx.graph_result(tx.builder.add_region_input(region, fake)))
        return made

    name = "flex_attention_mask" if dtype is None else "flex_attention_score"
    body = Body(tx, name, lambda own: tx.call_function(function, own), inputs, shares=True)
    if not body.tree.is_tensor or body.tree.tensors[0].fake.ndim:
        raise Unsupported(f"{body.what} returns no tensor of one element", remedy="return one score or one bool")
    return body
