"""GraphLowering: walks a functional ATen graph and builds its LoopGraph.

Enters: an fx.GraphModule whose nodes carry fake values in meta["val"]. Leaves: a LoopGraph. What each operation means
is in the neighbouring files; here are arguments, constants, numbers, outputs and the way to make nodes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from ..ir import expr
from ..ir.body import BodyBuilder
from ..ir.dtypes import HALF, ITEM_BYTES
from ..ir.expr import Index
from ..ir.graph import Argument, LoopGraph, PythonValue
from ..ir.nodes import (
    Input,
    Node,
    Pointwise,
    Reduce,
    Scalar,
    View,
    loop_vars,
    storage_strides,
    whole,
)
from ..ir.symbols import SymbolTable, lone_size, size_in
from . import fallback
from .promotion import dtype_name
from .registry import lowering_of

MOST_DIMENSIONS = 64
"""Of more dimensions torch's own kernels refuse to take the sum, the maximum and their kin: they say so themselves."""


class GraphLowering:
    """One run over one graph. 16-bit floats round after every operation, as eager's do."""

    def __init__(self, module: fx.GraphModule, *, device: str = "cpu") -> None:
        self.module = module
        self.device = device
        self.graph = LoopGraph()
        self.symbols = SymbolTable()
        self.values: dict[fx.Node, Any] = {}
        self.externs: list[tuple[str, str]] = []
        self._count = 0

    def run(self) -> LoopGraph:
        """Lower every node, then the outputs."""
        for node in self.module.graph.nodes:
            if node.op == "placeholder":
                self.values[node] = self.placeholder(node)
            elif node.op == "get_attr":
                self.values[node] = self.constant(node)
            elif node.op == "output":
                self.graph.outputs = [self.resolve(a) for a in self._output_list(node.args[0])]
            elif node.op == "call_function":
                self.values[node] = self.call(node)
            else:
                raise NotImplementedError(f"{node.op} node {node.name} in a functional graph")
        return self.graph

    @staticmethod
    def _output_list(value: Any) -> Sequence[Any]:
        outputs = value if isinstance(value, (list, tuple)) else (value,)
        if any(isinstance(o, (list, tuple, dict)) for o in outputs):
            raise fallback.GraphNotFunctional("the graph's output is not a flat tuple")
        return outputs

    # --- arguments and constants --------------------------------------------------------------------------------------

    def placeholder(self, node: fx.Node) -> Any:
        """An argument of the graph: a tensor, a symbolic int, a float or an opaque object."""
        name = f"a{len(self.graph.arguments)}"
        fake = node.meta.get("val")
        if isinstance(fake, torch.Tensor):
            made = Input(name, *self.geometry(fake), dtype_name(fake.dtype), origin=node)
            self.graph.arguments.append(Argument(name, node=made))
            self.graph.inputs.append(made)
            self._bind_sizes(made)
            return whole(made)
        if isinstance(fake, torch.SymInt):
            size = self.symbols.index(fake)
            self.graph.arguments.append(Argument(name, size=size))
            self._bind(size, name)
            return Scalar(expr=size)
        is_float = isinstance(fake, (float, torch.SymFloat))
        self.graph.arguments.append(Argument(name, is_float=is_float))
        if isinstance(fake, int) and not isinstance(fake, bool):
            return fake
        return Scalar(name=name)

    def _bind(self, size: Index, source: str) -> None:
        found = size_in(size)
        if found is not None and found[0].name not in self.graph.bindings:
            solved = found[1] and f"__index__(){found[1]}"
            self.graph.bindings[found[0].name] = (source, solved)

    def _bind_sizes(self, node: Input) -> None:
        for what, values in (("size", node.sizes), ("stride", node.strides)):
            for k, value in enumerate(values):
                found = size_in(value)
                if found is None or found[0].name in self.graph.bindings or found[1] and what == "stride":
                    continue  # the stride of a single element may be any
                self.graph.bindings[found[0].name] = (node.name, f"{what}({k}){found[1]}")

    def constant(self, node: fx.Node) -> Any:
        """An attribute of the module: a constant tensor, or an object handed to an extern call."""
        value: Any = self.module
        for part in str(node.target).split("."):
            value = getattr(value, part)
        key = str(node.target)
        self.graph.constants[key] = value
        if isinstance(value, torch.Tensor) and type(value) in (torch.Tensor, torch.nn.Parameter):
            return self.constant_tensor(key, value)
        return Scalar(name=f"constants[{key!r}]")

    def constant_tensor(self, key: str, value: torch.Tensor) -> View:
        """A tensor owned by the program."""
        for known in self.graph.inputs:
            if known.constant == key:
                return whole(known)
        made = Input(
            f"c{len(self.graph.constants)}",
            tuple(value.shape),
            tuple(value.stride()) if value.layout == torch.strided else expr.row_major(tuple(value.shape)),
            dtype_name(value.dtype),
            constant=key,
        )
        self.graph.inputs.append(made)
        return whole(made)

    def geometry(self, fake: torch.Tensor) -> tuple[tuple[Index, ...], tuple[Index, ...]]:
        """Sizes and strides of a fake tensor."""
        sizes = self.sizes(fake)
        if fake.layout != torch.strided:
            return sizes, expr.row_major(sizes)
        strides = fake.stride()
        return sizes, tuple(s if type(s) is int else self.symbols.index(s) for s in strides)

    def sizes(self, fake: torch.Tensor) -> tuple[Index, ...]:
        """Sizes of a fake tensor."""
        return tuple(s if type(s) is int else self.symbols.index(s) for s in fake.shape)

    # --- calls --------------------------------------------------------------------------------------------------------

    def resolve(self, value: Any) -> Any:
        """fx nodes replaced by their lowered values in nested arguments."""
        if isinstance(value, fx.Node):
            return self.values[value]
        if isinstance(value, (list, tuple)):
            return (
                type(value)(self.resolve(v) for v in value)
                if type(value) in (list, tuple)
                else tuple(self.resolve(v) for v in value)
            )
        if isinstance(value, dict):
            return {k: self.resolve(v) for k, v in value.items()}
        if isinstance(value, slice):
            return slice(self.resolve(value.start), self.resolve(value.stop), self.resolve(value.step))
        if isinstance(value, torch.SymInt):
            known = self.symbols.index(value)
            return known if isinstance(known, int) else Scalar(expr=known)
        return value

    def call(self, node: fx.Node) -> Any:
        """Lower one call: a number, a part of a tuple, a lowering, or an extern call."""
        target = node.target
        fake = node.meta.get("val")
        if target is operator.getitem:
            container = self.resolve(node.args[0])
            if isinstance(container, (list, tuple)):
                return container[node.args[1]]
        if isinstance(fake, (torch.SymInt, int)) and not isinstance(fake, bool):
            number = self._integer(node, fake)
            if number is not None:
                return number
        if isinstance(fake, torch.SymFloat) and any(
            isinstance(source.meta.get("val"), torch.Tensor) for source in node.all_input_nodes
        ):
            return self.extern(node)  # a number out of a tensor
        if isinstance(fake, (torch.SymFloat, float, torch.SymBool, bool)) or target is operator.getitem:
            return self._python_value(node)
        lower = lowering_of(target)
        if lower is not None and self.lowerable(node):
            args = self.resolve(node.args)
            kwargs = self.resolve(node.kwargs)
            result = lower(self, node, *args, **kwargs)
            if result is not NotImplemented:
                self._record_strides(result, fake)
                return result
        return self.extern(node)

    def _record_strides(self, result: Any, fake: Any) -> None:
        if isinstance(result, View):
            if result.strides is None:
                result.strides = self.geometry(fake)[1]
        elif isinstance(result, tuple):
            for part, part_fake in zip(result, fake):
                self._record_strides(part, part_fake)

    def _integer(self, node: fx.Node, fake: int | torch.SymInt) -> Any:
        """The value of an integer node: known from its expression unless it first appears here (`.item()`)."""
        size = self.symbols.index(fake)
        if isinstance(size, int):
            return size
        if all(a.name in self.graph.bindings for a in expr.atoms_of(size) if isinstance(a, expr.SizeVar)):
            return Scalar(expr=size)
        atom = lone_size(size)
        if atom is None:
            return None
        if hasattr(node.target, "_schema"):
            call = fallback.make_extern(self, node)
            call.binds = atom.name
            self.graph.items.append(call)
        else:
            value = self._python_value(node)
            self.graph.bindings[atom.name] = (value.name, "")
            return Scalar(expr=size)
        self.graph.bindings[atom.name] = ("", "")
        return Scalar(expr=size)

    def _python_value(self, node: fx.Node) -> Scalar:
        name = f"n{self._next()}"
        path = fallback.path_of(node.target)
        if path is None:
            path = f"callables[{name!r}]"
            self.graph.callables[name] = node.target
        self.graph.items.append(PythonValue(name, path, self.resolve(tuple(node.args))))
        return Scalar(name=name)

    def lowerable(self, node: fx.Node) -> bool:
        """True when every tensor in and out of a call is a plain dense tensor of a known dtype on this device."""
        for source in node.all_input_nodes:
            if not self._plain(source.meta.get("val"), source):
                return False
        return self._plain(node.meta.get("val"), node)

    def _plain(self, fake: Any, node: fx.Node) -> bool:
        cached = node.meta.get("core_inductor_plain")
        if cached is not None:
            return cached
        plain = self._is_plain(fake)
        node.meta["core_inductor_plain"] = plain
        return plain

    def _is_plain(self, fake: Any) -> bool:
        if isinstance(fake, torch.Tensor):
            return (
                fake.layout == torch.strided
                and dtype_name(fake.dtype) in ITEM_BYTES
                and fake.device.type == self.device
                and not fake.is_nested
                and fake.dim() <= MOST_DIMENSIONS
            )
        if isinstance(fake, (tuple, list)):
            return all(self._is_plain(f) for f in fake)
        return True

    # --- making nodes -------------------------------------------------------------------------------------------------

    def _next(self) -> int:
        self._count += 1
        return self._count - 1

    def builder(self) -> BodyBuilder:
        """A new empty body."""
        return BodyBuilder()

    def pointwise(
        self,
        fake: torch.Tensor,
        build: Callable[[BodyBuilder, tuple[Index, ...]], int],
        *,
        origin: fx.Node | None = None,
    ) -> View:
        """A new tensor like `fake` whose element at the loop variables is `build(body, variables)`."""
        sizes, strides = self.geometry(fake)
        return self.pointwise_of(sizes, dtype_name(fake.dtype), build, strides=strides, origin=origin)

    def pointwise_of(
        self,
        sizes: tuple[Index, ...],
        dtype: str,
        build: Callable[[BodyBuilder, tuple[Index, ...]], int],
        *,
        strides: tuple[Index, ...] | None = None,
        origin: fx.Node | None = None,
    ) -> View:
        """A new tensor of a given shape."""
        body = self.builder()
        value = build(body, loop_vars(sizes))
        value = body.widen(value, dtype)
        if dtype in HALF:
            value = body.round(value, dtype)
        made = Pointwise(
            f"t{self._next()}",
            sizes,
            storage_strides(sizes, strides if strides is not None else expr.row_major(sizes)),
            dtype,
            body=body.ops,
            result=value,
            origin=origin,
        )
        self.graph.items.append(made)
        return whole(made)

    def reduce(
        self,
        source: View,
        dims: Sequence[int],
        kind: str,
        dtype: str,
        *,
        keepdim: bool = False,
        prepare: Callable[[BodyBuilder, int, tuple[Index, ...]], int] | None = None,
        compute: str | None = None,
        origin: fx.Node | None = None,
    ) -> View:
        """Fold `source` over `dims`; `prepare(body, value, index)` changes each element first; `compute` is its
        type."""
        rank = len(source.sizes)
        dims = sorted(d % rank for d in dims) if rank else []
        outer = tuple(s for k, s in enumerate(source.sizes) if k not in dims)
        reduced = tuple(source.sizes[k] for k in dims)
        outer_vars, reduced_vars = iter(loop_vars(outer)), iter(loop_vars(reduced, "r"))
        index = tuple(next(reduced_vars) if k in dims else next(outer_vars) for k in range(rank))
        body = self.builder()
        value = body.load_view(source, index)
        if prepare is not None:
            value = prepare(body, value, index)
        if compute is not None:
            value = body.widen(value, compute)
        made = Reduce(
            f"t{self._next()}",
            outer,
            expr.row_major(outer),
            dtype,
            body=body.ops,
            result=value,
            reduced=reduced,
            kind=kind,
            origin=origin,
        )
        self.graph.items.append(made)
        view = whole(made)
        if not keepdim:
            return view
        kept = tuple(1 if k in dims else s for k, s in enumerate(source.sizes))
        kept_vars = loop_vars(kept)
        return View(made, kept, tuple(kept_vars[k] for k in range(rank) if k not in dims), dtype)

    def extern(self, node: fx.Node) -> Any:
        """Call the operation as it is."""
        self.externs.append((node.name, str(node.target)))
        call = fallback.make_extern(self, node)
        self.graph.items.append(call)
        return fallback.results_of(self, call, node.meta.get("val"))

    def make_node_name(self) -> str:
        """A name no other node of the graph has."""
        return f"t{self._next()}"

    def add(self, node: Node) -> View:
        """Append a node built elsewhere."""
        self.graph.items.append(node)
        return whole(node)
