"""Calls of ATen: every operation that has no lowering, or whose case the lowering does not cover.

Enters: an fx call. Leaves: an Extern with one ExternResult for each tensor it returns. Which results may share storage
with arguments is read from the schema, a short list, and the fake tensors themselves.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from ..ir.graph import leaves
from ..ir.nodes import Extern, ExternResult, Scalar, View, whole
from ..ir.symbols import lone_size
from .promotion import dtype_name

if TYPE_CHECKING:
    from .lowering import GraphLowering

MAY_ALIAS = frozenset(
    "aten::_unsafe_view aten::unsafe_split aten::unsafe_split_with_sizes aten::unsafe_chunk aten::_reshape_alias "
    "aten::reshape aten::contiguous aten::to aten::dropout aten::native_dropout aten::lift aten::lift_fresh "
    "aten::flatten aten::_conj aten::resolve_conj aten::resolve_neg aten::real aten::imag aten::squeeze "
    "aten::expand_as aten::narrow aten::type_as aten::_fused_dropout aten::alias aten::detach".split()
)
"""Operations whose result may be an argument although the schema does not say so (or says it for some inputs only)."""

CONTIGUOUS_RESULT = frozenset("aten::mm aten::addmm aten::bmm aten::baddbmm aten::addmv aten::mv aten::dot".split())
"""Operations that always return contiguous tensors (given out= or not): no stride check is printed for them."""

OUT_VARIANTS = {
    "aten::mm": "torch.mm",
    "aten::addmm": "torch.addmm",
    "aten::bmm": "torch.bmm",
    "aten::baddbmm": "torch.baddbmm",
}
"""Callables that take out= and compute exactly what the functional call does."""

FAST_PATHS = {
    "aten::mm": "torch.mm",
    "aten::addmm": "torch.addmm",
    "aten::bmm": "torch.bmm",
    "aten::baddbmm": "torch.baddbmm",
    "aten::convolution": "torch.convolution",
}
"""Builtin functions of torch with the overload's exact signature, about 1 us cheaper to call than torch.ops."""


class GraphNotFunctional(ValueError):
    """The graph holds an operation that writes to its arguments; only functional graphs can be compiled."""


def path_of(target: Any) -> str | None:
    """How the program's text names a callable, or None."""
    if hasattr(target, "_schema"):
        namespace, _, rest = target._schema.name.partition("::")
        overload = target._schema.overload_name or "default"
        if rest.isidentifier() and namespace.isidentifier():
            return f"torch.ops.{namespace}.{rest}.{overload}"
        return None
    if getattr(target, "__module__", None) in ("_operator", "operator") and hasattr(operator, target.__name__):
        return f"operator.{target.__name__}"
    if getattr(target, "__module__", None) == "math":
        return f"math.{target.__name__}"
    return None


def make_extern(lowering: GraphLowering, node: fx.Node, *, args: tuple | None = None) -> Extern:
    """The call of `node` with its results not yet made."""
    target: Callable[..., Any] = node.target  # type: ignore[assignment]
    name = f"x{lowering._next()}"
    schema = getattr(target, "_schema", None)
    path = path_of(target)
    if path is None:
        lowering.graph.callables[name] = target
    call = Extern(
        name,
        target,
        path,
        lowering.resolve(tuple(node.args)) if args is None else args,
        lowering.resolve(dict(node.kwargs)),
        origin=node,
    )
    if schema is not None:
        call.path = FAST_PATHS.get(schema.name, path) if schema.overload_name in ("", "default") else path
        call.out_path = OUT_VARIANTS.get(schema.name) if schema.overload_name in ("", "default") else None
        if schema.is_mutable:
            raise GraphNotFunctional(f"{schema.name} in node {node.name} writes to its arguments")
        call.effect = torch.Tag.nondeterministic_seeded in getattr(target, "tags", ())
        aliased = any(r.alias_info is not None for r in schema.returns)
        call.fresh = not aliased and schema.name not in MAY_ALIAS and not shares_storage(node)
        call.negated = not call.fresh and _may_negate(node, schema.name)
    else:
        call.fresh = False
        call.effect = True
    return call


def _may_negate(node: fx.Node, name: str) -> bool:
    """True for a view of real numbers that the call may negate lazily: of complex ones, or by its very meaning."""
    fake = node.meta.get("val")
    if not isinstance(fake, torch.Tensor) or fake.layout != torch.strided or not fake.is_floating_point():
        return False
    fakes = [value for source in node.all_input_nodes for value in leaves(source.meta.get("val"))]
    return name == "aten::_neg_view" or any(isinstance(f, torch.Tensor) and f.is_complex() for f in fakes)


def shares_storage(node: fx.Node) -> bool:
    """True when a fake result of the call lives in the storage of a fake argument."""
    arguments = set()
    for source in node.all_input_nodes:
        for fake in leaves(source.meta.get("val")):
            if isinstance(fake, torch.Tensor) and fake.layout == torch.strided:
                arguments.add(fake.untyped_storage()._cdata)
    return any(
        fake.untyped_storage()._cdata in arguments
        for fake in leaves(node.meta.get("val"))
        if isinstance(fake, torch.Tensor) and fake.layout == torch.strided
    )


def results_of(lowering: GraphLowering, call: Extern, fake: Any) -> Any:
    """One View for each tensor the call returns, in the shape of the fake value."""
    if isinstance(fake, torch.Tensor):
        return _result(lowering, call, fake, None)
    if isinstance(fake, (tuple, list)):
        found: list[Any] = []
        for k, part in enumerate(fake):
            if isinstance(part, torch.Tensor):
                found.append(_result(lowering, call, part, k))
            elif part is None:
                found.append(None)
            else:
                found.append(Scalar(name=f"{call.name}[{k}]"))
        return tuple(found)
    return Scalar(name=call.name) if fake is not None else None


def _result(lowering: GraphLowering, call: Extern, fake: torch.Tensor, position: int | None) -> View:
    name = call.name if position is None else f"{call.name}_{position}"
    made = ExternResult(name, *lowering.geometry(fake), dtype_name(fake.dtype), extern=call, position=position)
    schema = getattr(call.target, "_schema", None)
    made.strided = fake.layout == torch.strided
    known = call.kernel is not None or schema is not None and schema.name in CONTIGUOUS_RESULT
    made.trusted_strides = known or not made.strided
    call.results.append(made)
    for dim, size in enumerate(made.sizes):
        symbol = lone_size(size)
        if symbol is not None and symbol.name not in lowering.graph.bindings:  # a size that depends on the data
            call.size_binds.append((symbol.name, made, dim))
            lowering.graph.bindings[symbol.name] = ("", "")
    view = whole(made)
    view.fresh = not call.fresh and any(
        isinstance(operand, View) and operand.fresh for operand in leaves((call.args, call.kwargs))
    )  # it may be a view of a copy that is left out
    return view
