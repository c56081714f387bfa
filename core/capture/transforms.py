"""torch.func: grad, grad_and_value, vmap, jvp, vjp, jacrev, jacfwd, hessian.

The function is traced once, into a region; one node of the graph applies torch's transform to that region's graph. The
region's own inputs are fakes like those the function sees inside the transform: one example of a batch for vmap, a
tensor that requires grad for grad.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..errors import Unsupported
from ..graph.functionalize import is_random
from ..graph.transform_region import TransformPlan, transformed
from ..variables.base import VariableTracker
from ..variables.function import UserFunctionVariable
from ..variables.tensor import TensorVariable
from ..variables.transform import PullbackVariable, TransformVariable
from .regions import TensorTree, refuse_escapes, trace_body
from .special_calls import Handler, function

VT = VariableTracker

APIS: dict[str, Callable[..., Any]] = {
    name: getattr(torch.func, name) for name in ("grad", "grad_and_value", "vmap", "jacrev", "jacfwd")
}
OPTIONS = {
    "grad": ("argnums", "has_aux"),
    "grad_and_value": ("argnums", "has_aux"),
    "vmap": ("in_dims", "out_dims", "randomness", "chunk_size"),
    "jacrev": ("argnums", "has_aux", "chunk_size", "_preallocate_and_copy"),
    "jacfwd": ("argnums", "has_aux", "randomness"),
}
POSITIONAL = {"vmap": 3, "jacrev": 1}
OUTSIDE = "call it outside the compiled function"


def _maker(name: str) -> Handler:
    def make(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
        names = OPTIONS[name]
        given = dict(zip(names[: POSITIONAL.get(name, len(names))], args[1:])) | kwargs
        if not args or len(args) - 1 > POSITIONAL.get(name, len(names)) or not set(given) <= set(names):
            raise Unsupported(f"torch.func.{name} with these arguments is not traced", remedy=OUTSIDE)
        return TransformVariable(name, APIS[name], args[0].realize(tx), given)

    return make


for _name in APIS:
    function(APIS[_name])(_maker(_name))


@function(torch.func.hessian)
def hessian(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """jacfwd(jacrev(function))."""
    options = dict(zip(("argnums",), args[1:])) | kwargs
    inner = TransformVariable("jacrev", APIS["jacrev"], args[0].realize(tx), options)
    return TransformVariable("jacfwd", APIS["jacfwd"], inner, options)


@functools.cache
def _wrapper_codes() -> dict[types.CodeType, str]:
    return {api(lambda x: x).__code__: name for name, api in APIS.items()}


def from_wrapper(tx: Any, fn: UserFunctionVariable) -> TransformVariable | None:
    """The transform behind a function that torch.func made outside of the traced code, None for other functions."""
    name = _wrapper_codes().get(fn.code)
    if name is None:
        return None
    cells = dict(zip(fn.code.co_freevars, fn.closure_cells(tx)))
    options = {key: cells[key].get(tx) for key in OPTIONS[name]}
    found = cells["func"].get(tx)
    assert found is not None
    return TransformVariable(name, APIS[name], found.realize(tx), options)  # type: ignore[arg-type]


def apply(tx: Any, transform: TransformVariable, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """Call a transformed function."""
    call = TransformCall(tx, transform.name, transform.function, transform.options)
    if transform.name == "vmap":
        return call.vmap(args, kwargs)
    if transform.name in ("grad", "grad_and_value"):
        return call.grad(args, kwargs, transform.name == "grad_and_value")
    return call.jacobian(args, kwargs)


@function(torch.func.jvp)
def jvp(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    given = dict(zip(("func", "primals", "tangents"), args)) | kwargs
    options = {key: given[key] for key in given if key not in ("func", "primals", "tangents")}
    if "strict" in options and options.pop("strict").as_constant() is not False:
        raise Unsupported("jvp(strict=True) is not traced", remedy=OUTSIDE)
    return TransformCall(tx, "jvp", given["func"].realize(tx), options).jvp(given["primals"], given["tangents"])


@function(torch.func.vjp)
def vjp(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    return TransformCall(tx, "vjp", args[0].realize(tx), kwargs).vjp(args[1:])


class TransformCall:
    """One call of a transformed function being traced."""

    def __init__(self, tx: Any, name: str, fn: VT, options: dict[str, VT]) -> None:
        self.tx = tx
        self.name = name
        self.fn = fn
        self.options = {key: value.look_inside(tx).as_constant() for key, value in options.items()}
        self.own: list[TensorVariable] = []

    # -- the kinds -------------------------------------------------------------------------------------------------

    def vmap(self, args: list[VT], kwargs: dict[str, VT]) -> VT:
        if self.options.get("chunk_size") is not None:
            raise Unsupported("vmap(chunk_size=...) is not traced", remedy=OUTSIDE)
        in_dims = self.options.get("in_dims", 0)
        dims = [in_dims] * len(args) if in_dims is None or isinstance(in_dims, int) else list(in_dims)
        if len(dims) != len(args):
            raise Unsupported("vmap's in_dims don't match the arguments", remedy=OUTSIDE)
        own_dims: list[int] = []

        def examples(tree: VT, dim: Any) -> VT:
            found = TensorTree(self.tx, tree, "an argument of vmap")
            spread = found.spread(dim)
            own_dims.extend(d for d in spread if d is not None)
            return found.over([self._example(t, d) if d is not None else t for t, d in zip(found.tensors, spread)])

        def inputs() -> tuple[list[VT], dict[str, VT]]:
            return [examples(*pair) for pair in zip(args, dims)], kwargs  # keywords are not batched

        graph, region, result, _ = self._trace(inputs, grad=None, has_aux=False)
        out_dims = result.spread(self.options.get("out_dims", 0))
        if not own_dims or not result.tensors or result.constants:
            raise Unsupported("vmap without batched tensors or with other results is not traced", remedy=OUTSIDE)
        options = {"in_dims": tuple(own_dims), "out_dims": tuple(out_dims)}
        options["randomness"] = self.options.get("randomness", "error")
        made = self._node(TransformPlan("vmap", len(self.own), len(result.tensors), 0, options), graph, region)
        return result.over(made)

    def grad(self, args: list[VT], kwargs: dict[str, VT], with_value: bool) -> VT:
        trees, inputs = self._differentiated(args, kwargs)
        has_aux = bool(self.options.get("has_aux", False))
        graph, region, result, aux = self._trace(inputs, grad=True, has_aux=has_aux)
        if len(result.tensors) != 1 or not result.is_tensor or result.tensors[0].fake.ndim:
            raise Unsupported("grad() of a function that returns no scalar tensor is not traced", remedy=OUTSIDE)
        made = self._node(TransformPlan("grad", len(self.own), 1, len(aux.tensors) if aux else 0), graph, region)
        count = len(self.own)
        grads, value, rest = self._over(trees, made[:count]), made[count], made[count + 1 :]
        tx = self.tx
        if aux is not None:
            extra = aux.over(rest)
            return tx.new_tuple([grads, tx.new_tuple([value, extra]) if with_value else extra])
        return tx.new_tuple([grads, value]) if with_value else grads

    def jacobian(self, args: list[VT], kwargs: dict[str, VT]) -> VT:
        if self.options.get("chunk_size") is not None or self.options.get("_preallocate_and_copy"):
            raise Unsupported("jacrev(chunk_size=...) is not traced", remedy=OUTSIDE)
        trees, inputs = self._differentiated(args, kwargs)
        has_aux = bool(self.options.get("has_aux", False))
        graph, region, result, aux = self._trace(inputs, grad=True if self.name == "jacrev" else None, has_aux=has_aux)
        if not result.tensors or result.constants:
            raise Unsupported(f"{self.name} of a function with other results is not traced", remedy=OUTSIDE)
        options = {"randomness": self.options["randomness"]} if "randomness" in self.options else {}
        count, main = len(self.own), len(result.tensors)
        plan = TransformPlan(self.name, count, main, len(aux.tensors) if aux else 0, options)
        made = self._node(plan, graph, region)
        rows = [self._over(trees, made[at * count : (at + 1) * count]) for at in range(main)]
        found = result.over(rows)
        return found if aux is None else self.tx.new_tuple([found, aux.over(made[main * count :])])

    def jvp(self, primals: VT, tangents: VT) -> VT:
        tx = self.tx
        main = TensorTree(tx, primals, "the primals of jvp")
        directions = TensorTree(tx, tangents, "the tangents of jvp")
        if len(main.tensors) != len(directions.tensors) or main.constants:
            raise Unsupported("jvp with tangents unlike its primals is not traced", remedy=OUTSIDE)

        def inputs() -> tuple[list[VT], dict[str, VT]]:
            return main.over([self._like(t, t.fake.requires_grad) for t in main.tensors]).unpack(tx), {}

        graph, region, result, aux = self._trace(inputs, grad=None, has_aux=bool(self.options.get("has_aux", False)))
        plan = TransformPlan("jvp", len(self.own), len(result.tensors), len(aux.tensors) if aux else 0)
        made = self._node(plan, graph, region, directions.tensors)
        count = plan.main
        parts = [result.over(made[:count]), result.over(made[count : 2 * count])]
        return tx.new_tuple(parts if aux is None else [*parts, aux.over(made[2 * count :])])

    def vjp(self, primals: Sequence[VT]) -> VT:
        tx = self.tx
        trees = [TensorTree(tx, primal, "a primal of vjp") for primal in primals]
        if any(tree.constants for tree in trees):
            raise Unsupported("vjp at values that are no tensors is not traced", remedy=OUTSIDE)

        def inputs() -> tuple[list[VT], dict[str, VT]]:
            return [tree.over([self._like(t, True) for t in tree.tensors]) for tree in trees], {}

        mark = len(tx.builder.recorded_calls)
        has_aux = bool(self.options.get("has_aux", False))
        graph, region, result, aux = self._trace(inputs, grad=True, has_aux=has_aux)
        aux_count = len(aux.tensors) if aux else 0
        count = len(result.tensors)
        made = self._node(TransformPlan("vjp", len(self.own), count, aux_count), graph, region)
        if any(is_random(call) for call in tx.builder.recorded_calls[mark:]):
            raise Unsupported("vjp of a function that draws random numbers is not traced", remedy=OUTSIDE)

        def pull(tx: Any, cotangents: Sequence[VT]) -> VT:
            given = TensorTree(tx, tx.new_tuple(list(cotangents)), "the cotangents of vjp")
            if len(given.tensors) != count:
                raise Unsupported("cotangents unlike the results of vjp are not traced", remedy=OUTSIDE)
            plan = TransformPlan("vjp_gradients", len(self.own), count, aux_count)
            grads = iter(self._node(plan, graph, region, given.tensors))
            return tx.new_tuple([tree.over([next(grads) for _ in tree.tensors]) for tree in trees])

        parts = [result.over(made[:count]), PullbackVariable(pull)]
        return tx.new_tuple(parts if aux is None else [*parts, aux.over(made[count:])])

    # -- what they share -------------------------------------------------------------------------------------------

    def _differentiated(self, args: list[VT], kwargs: dict[str, VT]) -> tuple[Any, Callable[[], Any]]:
        """The trees of the arguments named by argnums (one, or a tuple), and what makes the function's arguments."""
        argnums = self.options.get("argnums", 0)
        numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
        numbers = tuple(number + len(args) if number < 0 else number for number in numbers)
        if not numbers or max(numbers) >= len(args) or len(set(numbers)) < len(numbers):
            raise Unsupported(f"{self.name} with these argnums is not traced", remedy=OUTSIDE)
        trees = {number: TensorTree(self.tx, args[number], f"an argument of {self.name}") for number in numbers}
        if any(tree.constants or not tree.tensors for tree in trees.values()):
            raise Unsupported(f"{self.name} at values that are no tensors is not traced", remedy=OUTSIDE)

        def inputs() -> tuple[list[VT], dict[str, VT]]:
            made = list(args)
            for number, tree in trees.items():
                made[number] = tree.over([self._like(t, True) for t in tree.tensors])
            return made, kwargs

        return (trees[numbers[0]] if isinstance(argnums, int) else list(trees.values())), inputs

    def _over(self, trees: Any, tensors: Sequence[VT]) -> VT:
        if isinstance(trees, TensorTree):
            return trees.over(tensors)
        rest = iter(tensors)
        return self.tx.new_tuple([tree.over([next(rest) for _ in tree.tensors]) for tree in trees])

    def _trace(self, inputs: Callable[[], Any], *, grad: bool | None, has_aux: bool) -> tuple[Any, Any, Any, Any]:
        """(graph, region, result, auxiliary result or None) of the function at the inputs made inside the region."""
        tx = self.tx
        moment = VariableTracker().made
        with tx.builder.region(self.name, grad=grad) as region:
            region.transform = True
            self.region = region
            args, kwargs = inputs()
            returned = trace_body(
                tx, f"the function under {self.name}", lambda: tx.call_function(self.fn, args, kwargs)
            )
            aux = None
            if has_aux:
                parts = returned.unpack(tx)
                if len(parts) != 2:
                    raise Unsupported("a function with has_aux must return a pair", remedy=OUTSIDE)
                returned, aux = parts[0], TensorTree(tx, parts[1], "an auxiliary result")
                if aux.constants:
                    raise Unsupported("an auxiliary result that is no tensor is not traced", remedy=OUTSIDE)
            result = TensorTree(tx, returned, f"the result of the function under {self.name}")
            tensors = [*result.tensors, *(aux.tensors if aux else ())]
            graph = region.close([tensor.value for tensor in tensors])
        refuse_escapes(tx, moment, (region,))
        return graph, region, result, aux

    def _node(self, plan: TransformPlan, graph: Any, region: Any, extra: Sequence[TensorVariable] = ()) -> list[VT]:
        own = tuple(tensor.value for tensor in self.own)
        values = (plan, graph, own, tuple(tensor.value for tensor in extra), *region.inputs())
        made = self.tx.builder.call_function(transformed, values, {}, line=self.tx.line)
        return [self.tx.graph_result(value) for value in made]

    def _example(self, tensor: TensorVariable, dim: int) -> VT:
        """One example of a batch."""
        ndim = tensor.fake.ndim
        if not -ndim <= dim < ndim:
            raise Unsupported(f"vmap over dimension {dim} of a tensor of {ndim} dimensions", remedy=OUTSIDE)
        fake = self.tx.run_on_fakes(lambda value: value.detach().select(dim, 0), [tensor.fake], {})
        return self._input(tensor, fake, tensor.fake.requires_grad)

    def _like(self, tensor: TensorVariable, requires_grad: bool) -> VT:
        fake = self.tx.run_on_fakes(lambda value: value.detach(), [tensor.fake], {})
        return self._input(tensor, fake, requires_grad)

    def _input(self, tensor: TensorVariable, fake: Any, requires_grad: bool) -> VT:
        if requires_grad and not (fake.is_floating_point() or fake.is_complex()):
            raise Unsupported(f"{self.name} at a tensor of integers is not traced", remedy=OUTSIDE)
        fake.requires_grad_(requires_grad)
        self.own.append(tensor)
        return self.tx.graph_result(self.tx.builder.add_region_input(self.region, fake))
