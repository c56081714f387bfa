"""torch.utils.checkpoint: the function is traced into a region, which one node of the graph runs as a checkpoint.

Eager runs the function once more in the backward, side effects included; a function that has any breaks the graph.
"""

from __future__ import annotations

import functools
import types
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint as torch_checkpoint
from torch.utils.checkpoint import noop_context_fn

from ..errors import Unsupported
from ..graph.checkpoint_region import checkpointed
from ..graph.functionalize import is_random
from ..guards.checks import Is
from ..torch_compat import training
from ..variables.base import VariableTracker
from ..variables.function import NestedFunctionVariable, UserFunctionVariable
from ..variables.partial import PartialVariable
from ..variables.torch_function import TorchFunctionVariable
from .regions import TensorTree, trace_body
from .special_calls import function

VT = VariableTracker

OPTIONS = ("use_reentrant", "context_fn", "determinism_check", "debug", "early_stop", "preserve_rng_state")
OUTSIDE = "call checkpoint() outside the compiled function"


@function(torch_checkpoint)
def checkpoint(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """checkpoint(function, *args, use_reentrant=False, **kwargs)."""
    options = {name: kwargs[name].realize(tx) for name in OPTIONS if name in kwargs}
    keywords = {name: value for name, value in kwargs.items() if name not in OPTIONS}
    chosen = _options(tx, options)
    if not args:
        raise Unsupported("checkpoint() without a function to call is not traced", remedy=OUTSIDE)
    body, *operands = args
    if not torch.is_grad_enabled():
        return tx.call_function(body, operands, keywords)
    keeps_state = chosen.get("preserve_rng_state", True)
    with (
        tx.builder.region("checkpoint") as region,
        tx.side_effects.sealed(
            "a checkpointed function changes something outside of it", "keep side effects out of it, or " + OUTSIDE
        ),
    ):
        mark = len(tx.builder.recorded_calls)
        result = trace_body(tx, "a checkpointed function", lambda: tx.call_function(body, operands, keywords))
        tree = TensorTree(tx, result, "the result of a checkpointed function")
        if not keeps_state and any(is_random(call) for call in tx.builder.recorded_calls[mark:]):
            raise Unsupported(
                "a checkpoint without preserve_rng_state draws other random numbers in the backward", remedy=OUTSIDE
            )
        graph = region.close([tensor.value for tensor in tree.tensors])
    made = tx.builder.call_function(checkpointed, (graph, chosen, *region.inputs()), {}, line=tx.line)
    return tree.over([tx.graph_result(value) for value in made])


def _options(tx: Any, options: dict[str, VT]) -> dict[str, Any]:
    """The keywords of torch's checkpoint that the region keeps; Unsupported for those it can't honour."""
    reentrant = options.get("use_reentrant")
    if reentrant is None or not reentrant.is_constant() or reentrant.as_constant() is not False:
        raise Unsupported("a reentrant checkpoint is not traced", remedy="pass use_reentrant=False")
    if "debug" in options and options["debug"].as_constant() is not False:
        raise Unsupported("checkpoint(debug=True) is not traced", remedy=OUTSIDE)
    kept = ("determinism_check", "early_stop", "preserve_rng_state")
    chosen = {name: options[name].as_constant() for name in kept if name in options}
    context = options.get("context_fn")
    if context is not None and getattr(context, "fn", None) is not noop_context_fn:
        chosen["context_fn"] = _selective(tx, context)
    return chosen


def _selective(tx: Any, context: VT) -> Any:
    """The real context_fn, where it makes the contexts of selective checkpointing: they say which results are kept."""
    made = _real(tx, context)
    if not training.makes_selective_contexts(made):
        raise Unsupported(
            "checkpoint(context_fn=...) with contexts of the program's own is not traced",
            remedy="make them with create_selective_checkpoint_contexts, or " + OUTSIDE,
        )
    return made


def _real(tx: Any, value: VT) -> Any:
    """A function, an operator, a partial call or a container of such as the object that it is, which is guarded."""
    value = value.realize(tx)
    if isinstance(value, UserFunctionVariable):
        if value.source is not None:
            tx.guard(value.source, Is(value.fn))
        return value.fn
    if isinstance(value, TorchFunctionVariable):
        return value.fn
    if isinstance(value, NestedFunctionVariable) and not (value.closure or value.defaults or value.kwdefaults):
        return types.FunctionType(value.code, value.globals_dict())
    if isinstance(value, PartialVariable):
        keywords = {name: _real(tx, part) for name, part in value.kwargs.items()}
        return functools.partial(_real(tx, value.function), *(_real(tx, part) for part in value.args), **keywords)
    if value.kind in ("list", "tuple"):
        return value.python_type()(_real(tx, item) for item in value.unpack(tx))
    if value.look_inside(tx).is_constant():
        return value.as_constant()
    raise Unsupported(
        f"checkpoint(context_fn=...) with {value.describe()} is not traced", remedy="define it outside the function"
    )
