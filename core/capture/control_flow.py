"""torch.cond, while_loop, map and scan: the functions given to them are traced into regions, the operator is one node.

The node's operator is torch's own (torch.ops.higher_order), called on the graphs of the regions, so results, gradients
and what requires them are what torch makes of these operators in eager. Tensors that the functions read from around
them are further operands. What torch refuses of such a function breaks the graph, and Python meets torch's refusal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from .. import torch_compat
from ..errors import Unsupported
from ..graph.geometry import has_storage, same_geometry, storage_key
from ..graph.mutation import written_arguments
from ..graph.region import Region
from ..torch_compat import higher_order
from ..variables.base import VariableTracker
from ..variables.tensor import TensorVariable
from .regions import TensorTree, refuse_escapes, trace_body
from .special_calls import Handler, function

VT = VariableTracker

OUTSIDE = "call it outside the compiled function"
OPERATORS: dict[str, Handler] = {}  # by name of torch.ops.higher_order


def operator(name: str) -> Callable[[Handler], Handler]:
    """Register the handler of a higher-order operator."""

    def add(handler: Handler) -> Handler:
        OPERATORS[name] = handler
        return handler

    return add


def call(tx: Any, op: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """A higher-order operator called by the traced code."""
    handler = OPERATORS.get(op.name())
    if handler is None:
        raise Unsupported(f"the higher-order operator {op.name()} is not traced", remedy=OUTSIDE)
    found: VT = handler(tx, args, kwargs)
    return found


@function(higher_order.run_captured)
def run_captured(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """How torch's functions call their operators: in eager under its own compiler, here as they are."""
    result: VT = tx.call_function(args[0], args[1:], kwargs)
    return result


def add_node(tx: Any, name: str, args: tuple[Any, ...]) -> list[VT]:
    """The results of one of torch's higher-order operators, called in the graph."""
    torch_compat.fakes_take_higher_order_operators()
    tx.builder.shape_env  # noqa: B018 - torch's rules for fakes ask for one, although no symbol comes of it
    op = getattr(torch.ops.higher_order, name)
    return [tx.graph_result(value) for value in tx.builder.call_function(op, args, {}, line=tx.line)]


class Body:
    """A function under a higher-order operator, traced: its region and its result as a tree.

    inputs: makes what the operator itself will pass, in the open region; run: calls the function with that; shares:
    the result may be a tensor that the function was given.
    """

    def __init__(
        self,
        tx: Any,
        name: str,
        run: Callable[[list[VT]], VT],
        inputs: Callable[[Region], list[VT]] | None = None,
        shares: bool = False,
    ) -> None:
        self.what = f"the function under {name}"
        moment = VariableTracker().made
        sealed = tx.side_effects.sealed(f"{self.what} changes something outside of it", f"return it, or {OUTSIDE}")
        with tx.builder.region(name) as region, sealed:
            own = inputs(region) if inputs is not None else []
            mark = len(tx.builder.recorded_calls)
            self.result = trace_body(tx, self.what, lambda: run(own))
            self.tree = TensorTree(tx, self.result, f"the result of {self.what}")
            self.calls = tuple(tx.builder.recorded_calls[mark:])
            self._refuse_writes(region)
        self.region = region
        refuse_escapes(tx, moment, (region,))
        if not shares:
            self._refuse_shared_memory()

    def _refuse_writes(self, region: Region) -> None:
        own = {storage_key(value.fake) for value in region.own_inputs if isinstance(value.fake, torch.Tensor)}
        for recorded in self.calls:
            for fake in written_arguments(recorded):
                if has_storage(fake) and storage_key(fake) in own:
                    raise Unsupported(f"{self.what} writes to its argument", where=recorded.line, remedy="clone() it")

    def _refuse_shared_memory(self) -> None:
        values = [*self.region.own_inputs, *self.region.inputs()]
        seen = {storage_key(value.fake) for value in values if isinstance(value.fake, torch.Tensor)}
        for tensor in self.tree.tensors:
            key = storage_key(tensor.fake) if has_storage(tensor.fake) else None
            if tensor.value.region is not self.region or key in seen:
                raise Unsupported(
                    f"{self.what} returns a tensor that shares memory with another one it knows",
                    remedy="clone() what it returns",
                )
            seen.add(key)  # type: ignore[arg-type]

    def close(self) -> Any:
        return self.region.close([tensor.value for tensor in self.tree.tensors])


def shared_operands(bodies: Sequence[Body]) -> list[Any]:
    """The values that the bodies read from around them, made the last inputs of each in the same order."""
    found: dict[int, Any] = {}
    for body in bodies:
        found.update((id(value), value) for value in body.region.inputs())
    for body in bodies:
        body.region.arrange(list(found.values()))
    return list(found.values())


def fresh_inputs(tx: Any, region: Region, fakes: Iterable[Any], grads: Iterable[bool]) -> list[VT]:
    """Inputs that the operator makes: like the fakes, in memory of their own."""
    made = []
    for fake, grad in zip(fakes, grads):
        own = tx.run_on_fakes(_empty_like, [fake], {})
        own.requires_grad_(grad)
        made.append(tx.graph_result(tx.builder.add_region_input(region, own)))
    return made


def _empty_like(fake: Any) -> Any:
    return torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device=fake.device)


def given(names: Sequence[str], args: Sequence[VT], kwargs: dict[str, VT], what: str) -> dict[str, VT]:
    """The arguments by name; Unsupported for others than these."""
    found = dict(zip(names, args)) | kwargs
    if len(args) > len(names) or not set(found) <= set(names):
        raise Unsupported(f"{what} with these arguments is not traced", remedy=OUTSIDE)
    return found


def only_tensors(tx: Any, tree: VT, what: str) -> TensorTree:
    """The tree; Unsupported when a leaf is no tensor."""
    found = TensorTree(tx, tree, what)
    if found.constants:
        raise Unsupported(f"{what} hold values that are no tensors", remedy="pass tensors, close over numbers")
    return found


# -- cond ----------------------------------------------------------------------------------------------------------


@function(torch.cond)
@operator("cond")
def cond(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """A predicate that tracing knows chooses now; a tensor becomes a node over both branches."""
    arguments = given(("pred", "true_fn", "false_fn", "operands"), args, kwargs, "torch.cond")
    if not {"pred", "true_fn", "false_fn"} <= set(arguments):
        raise Unsupported("torch.cond with these arguments is not traced", remedy=OUTSIDE)
    pred = arguments["pred"].realize(tx)
    operands = arguments["operands"].realize(tx).unpack(tx) if "operands" in arguments else []
    if not isinstance(pred, TensorVariable):
        branch: VT = tx.call_function(arguments["true_fn" if tx.truth(pred) else "false_fn"], operands)
        return branch
    if pred.fake.numel() != 1:
        raise Unsupported("torch.cond decides by a tensor of more than one element", remedy="reduce it to one")
    only_tensors(tx, tx.new_tuple(operands), "the operands of torch.cond")
    bodies = [
        Body(tx, "cond_true", lambda _: tx.call_function(arguments["true_fn"], operands)),
        Body(tx, "cond_false", lambda _: tx.call_function(arguments["false_fn"], operands)),
    ]
    result = _merged(bodies)
    shared = shared_operands(bodies)
    graphs = [body.close() for body in bodies]
    return result.over(add_node(tx, "cond", (pred.value, *graphs, tuple(shared))))


def _merged(bodies: Sequence[Body]) -> TensorTree:
    """The tree that both branches return; Unsupported when they differ in more than values."""
    first, second = (body.tree for body in bodies)
    alike = first.same_structure(second) and first.tensors
    if not alike or not all(map(_interchangeable, first.tensors, second.tensors)):
        raise Unsupported(
            "the branches of torch.cond return results of different structure, shape, strides, dtype or device",
            remedy="return tensors alike from both; call contiguous() where strides differ",
        )
    return first


def _interchangeable(left: TensorVariable, right: TensorVariable) -> bool:
    a, b = left.fake, right.fake
    facts = a.dtype == b.dtype and a.device == b.device and a.layout == b.layout and a.is_conj() == b.is_conj()
    return bool(facts and has_storage(a) and same_geometry(a, b) and not a.is_conj())


# -- while_loop ----------------------------------------------------------------------------------------------------


@function(higher_order.while_loop)
@operator("while_loop")
def while_loop(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """The operator beneath the function has further inputs, which both functions are given behind what is carried."""
    arguments = given(("cond_fn", "body_fn", "carried_inputs", "additional_inputs"), args, kwargs, "while_loop")
    rest = arguments.pop("additional_inputs").realize(tx).unpack(tx) if "additional_inputs" in arguments else []
    if len(arguments) < 3:
        raise Unsupported("while_loop with these arguments is not traced", remedy=OUTSIDE)
    carried = only_tensors(tx, arguments["carried_inputs"], "the carried inputs of while_loop")
    if not carried.tensors:
        raise Unsupported("a while_loop that carries nothing is not traced", remedy=OUTSIDE)

    def inputs(region: Region) -> list[VT]:
        fakes = [tensor.fake for tensor in carried.tensors]
        own = fresh_inputs(tx, region, fakes, [fake.requires_grad for fake in fakes])
        return carried.over(own).unpack(tx)

    test = Body(tx, "while_loop_cond", lambda own: tx.call_function(arguments["cond_fn"], [*own, *rest]), inputs)
    body = Body(tx, "while_loop_body", lambda own: tx.call_function(arguments["body_fn"], [*own, *rest]), inputs)
    wanted = test.tree.tensors[0].fake if test.tree.is_tensor else None
    if wanted is None or wanted.dtype is not torch.bool or wanted.ndim:
        raise Unsupported("the condition of while_loop is no tensor of one bool", remedy="return a bool tensor")
    if not carried.same_structure(body.tree) or not all(map(_interchangeable, carried.tensors, body.tree.tensors)):
        raise Unsupported(
            "the body of while_loop returns other structures, shapes, strides or dtypes than it is given",
            remedy="return what the next turn takes; call contiguous() where strides differ",
        )
    shared = shared_operands((test, body))
    graphs = (test.region.close(test.tree.tensors[0].value), body.close())
    start = tuple(tensor.value for tensor in carried.tensors)
    return body.tree.over(add_node(tx, "while_loop", (*graphs, start, tuple(shared))))


# -- map and scan --------------------------------------------------------------------------------------------------


@operator("map_impl")
def mapped(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """map_impl(function, mapped tensors, further arguments)."""
    arguments = given(("f", "xs", "pos_args"), args, kwargs, "map")
    xs = only_tensors(tx, arguments["xs"], "what is mapped over")
    rest = arguments["pos_args"].realize(tx).unpack(tx)
    body = Body(
        tx,
        "map_body",
        lambda own: tx.call_function(arguments["f"], [*own, *rest]),
        lambda region: slices(tx, region, xs),
    )
    if body.tree.constants or not body.tree.tensors:
        raise Unsupported("a mapped function returns something that is no tensor", remedy=OUTSIDE)
    shared = shared_operands((body,))
    rows = [tensor.value for tensor in xs.tensors]
    return body.tree.over(add_node(tx, "map_impl", (body.close(), rows, tuple(shared))))


@operator("scan")
def scanned(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """scan_op(function, first carry, scanned tensors, further inputs); the function returns (carry, output)."""
    arguments = given(("combine_fn", "init", "xs", "additional_inputs"), args, kwargs, "scan")
    init = only_tensors(tx, arguments["init"], "the first carry of scan")
    xs = only_tensors(tx, arguments["xs"], "what is scanned")
    if "additional_inputs" in arguments and arguments["additional_inputs"].realize(tx).unpack(tx):
        raise Unsupported("scan with additional inputs is not traced", remedy="let the function close over them")

    def inputs(region: Region) -> list[VT]:
        fakes = [tensor.fake for tensor in init.tensors]
        return [*fresh_inputs(tx, region, fakes, [f.requires_grad for f in fakes]), *slices(tx, region, xs)]

    body = Body(tx, "scan_body", lambda own: tx.call_function(arguments["combine_fn"], own), inputs)
    parts = body.result.unpack(tx)
    if len(parts) != 2 or body.tree.constants:
        raise Unsupported("a scanned function must return two trees of tensors", remedy="return (carry, output)")
    carry = TensorTree(tx, parts[0], "the carry of scan")
    if len(carry.tensors) != len(init.tensors) or not all(map(_interchangeable, init.tensors, carry.tensors)):
        raise Unsupported(
            "scan's function returns a carry of other shape, strides or dtype than it is given",
            remedy="return what the next step takes; call contiguous() where strides differ",
        )
    shared = shared_operands((body,))
    start, rows = ([tensor.value for tensor in tree.tensors] for tree in (init, xs))
    return body.tree.over(add_node(tx, "scan", (body.close(), start, rows, tuple(shared))))


def slices(tx: Any, region: Region, xs: TensorTree) -> list[VT]:
    """One row of each tensor, as inputs of the region."""
    if not xs.tensors or any(not tensor.fake.ndim or not tensor.fake.shape[0] for tensor in xs.tensors):
        raise Unsupported("a map or scan over nothing is not traced", remedy=OUTSIDE)
    rows = [tx.run_on_fakes(lambda fake: fake.detach().select(0, 0), [tensor.fake], {}) for tensor in xs.tensors]
    return fresh_inputs(tx, region, rows, [tensor.fake.requires_grad for tensor in xs.tensors])
