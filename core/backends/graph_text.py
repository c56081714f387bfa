"""A graph as plain data and back: what the store of artifacts keys by, and what a compiling subprocess is sent.

Enters: an fx.GraphModule of operators, its fake inputs. Leaves: a GraphText of JSON values and a list of constant
tensors. Two graphs with equal texts and constants compute the same: every argument, every operator's full name, the
layout of every input is in it, lines of the user's program are not. A graph that holds something without such a form
(a function of the user's, a module, an object) has no text.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from .. import torch_compat
from .tensor_bytes import tensor_bytes

KNOWN_MODULES = ("torch", "_operator", "operator", "math", "builtins")
"""Functions of these modules mean the same in every process that has these versions."""


class NoText(ValueError):
    """The graph can't be written as data; the text says which part."""


@dataclass(frozen=True)
class GraphText:
    """data: JSON values; constants: the tensors that data refers to by index; symbolic: sizes are not all numbers."""

    data: dict[str, Any]
    constants: list[torch.Tensor] = field(repr=False, default_factory=list)
    symbolic: bool = False

    def digest(self) -> str:
        """sha256 of the text and of the contents of the constants."""
        digest = hashlib.sha256(json.dumps(self.data, sort_keys=True).encode())
        for constant in self.constants:
            digest.update(content_digest(constant))
        return digest.hexdigest()


def content_digest(tensor: torch.Tensor) -> bytes:
    """sha256 of a tensor's layout and elements. Raises NoText for a tensor without plain memory."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout is not torch.strided:
        raise NoText(f"a constant of type {type(tensor).__name__}")
    if tensor.device.type == "meta" or tensor.is_quantized:
        raise NoText("a constant without plain memory")
    plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    head = repr((str(tensor.dtype), tuple(tensor.shape), tensor.stride(), str(tensor.device)))
    return hashlib.sha256(head.encode() + tensor_bytes(plain)).digest()


def graph_text(graph: Any, fakes: Sequence[Any]) -> GraphText:
    """The text of a graph module for inputs like `fakes`. Raises NoText."""
    writer = _Writer()
    data = {"graph": writer.module(graph), "inputs": [writer.value(fake) for fake in fakes]}
    return GraphText(data, writer.constants, writer.symbolic)


class _Writer:
    """Collects the constants of one graph and of the graphs inside it."""

    def __init__(self) -> None:
        self.constants: list[torch.Tensor] = []
        self.symbolic = False

    def module(self, module: Any) -> list[Any]:
        """The nodes of a graph module, each as [name, op, target, args, kwargs]."""
        if not isinstance(module, torch.fx.GraphModule):
            raise NoText(f"a module {type(module).__name__}")
        indices: dict[Any, int] = {}
        rows = []
        for at, node in enumerate(module.graph.nodes):
            indices[node] = at
            target = self._target(module, node)
            arguments = [self._argument(node.args, indices), self._argument(node.kwargs, indices)]
            rows.append([node.name, node.op, target, *arguments])
        return rows

    def value(self, value: Any) -> Any:
        """An input: the layout of a fake tensor, or a number."""
        if isinstance(value, torch.Tensor):
            if value.layout is not torch.strided:
                raise NoText(f"an input of layout {value.layout}")
            return {
                "dtype": str(value.dtype),
                "device": str(value.device),
                "shape": [self._size(size) for size in value.shape],
                "stride": [self._size(size) for size in value.stride()],
                "offset": self._size(value.storage_offset()),
                "requires_grad": value.requires_grad,
                "flags": [value.is_conj(), value.is_neg(), value.is_inference()],
            }
        return {"number": self._size(value)}

    def _size(self, size: Any) -> Any:
        if isinstance(size, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            self.symbolic = True
            return {"symbol": str(size.node.expr)}
        return self._argument(size, {})

    def _target(self, module: Any, node: Any) -> Any:
        if node.op in ("placeholder", "output", "call_method"):
            return str(node.target)
        if node.op == "call_module":
            raise NoText(f"a call of the module {node.target}")
        if node.op == "get_attr":
            return self._attribute(module, node.target)
        if isinstance(node.target, (torch_compat.OpOverload, torch_compat.HigherOrderOperator)):
            return {"operator": _operator_name(node.target)}
        return {"function": _function_name(node.target)}

    def _attribute(self, module: Any, path: str) -> Any:
        value = module
        for name in path.split("."):
            value = getattr(value, name)
        if isinstance(value, torch.Tensor):
            content_digest(value)  # refuses what has no plain memory
            self.constants.append(value)
            return {"constant": len(self.constants) - 1}
        return {"module": self.module(value)}

    def _argument(self, value: Any, indices: dict[Any, int]) -> Any:
        if value is None or isinstance(value, (bool, str)) or type(value) is int:
            return value
        if isinstance(value, torch.fx.Node):
            return {"node": indices[value]}
        if isinstance(value, (list, tuple)):
            return {type(value).__name__ if type(value) in (list, tuple) else "tuple": self._all(value, indices)}
        if isinstance(value, dict):
            if not all(isinstance(key, str) for key in value):
                raise NoText("a dict with other keys than texts")
            return {"dict": [[key, self._argument(item, indices)] for key, item in value.items()]}
        if isinstance(value, slice):
            return {"slice": self._all((value.start, value.stop, value.step), indices)}
        if type(value) is float:
            return {"float": value.hex() if math.isfinite(value) else repr(value)}
        if type(value) is complex:
            return {"complex": [value.real.hex(), value.imag.hex()]}
        if value is Ellipsis:
            return {"ellipsis": True}
        if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
            return {"torch": str(value).removeprefix("torch.")}
        if isinstance(value, torch.device):
            return {"device": str(value)}
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return self._size(value)
        raise NoText(f"an argument of type {type(value).__name__}")

    def _all(self, values: Sequence[Any], indices: dict[Any, int]) -> list[Any]:
        return [self._argument(value, indices) for value in values]


def _operator_name(target: Any) -> str:
    if isinstance(target, torch_compat.OpOverload):
        return str(target)
    return f"higher_order.{target.name()}"


def _function_name(target: Any) -> str:
    module = str(getattr(target, "__module__", None) or "")
    name = str(getattr(target, "__qualname__", None) or getattr(target, "__name__", ""))
    if module.partition(".")[0] not in KNOWN_MODULES or _found(module, name) is not target:
        raise NoText(f"a call of {module}.{name}")
    return f"{module}:{name}"


def _found(module: str, name: str) -> Any:
    try:
        value: Any = importlib.import_module(module)
    except ImportError:
        return None
    for part in name.split("."):
        value = getattr(value, part, None)
    return value


# -- and back ---------------------------------------------------------------------------------------------------------


def read_graph(text: GraphText, mode: Any) -> tuple[torch.fx.GraphModule, list[Any]]:
    """The graph module and its fake inputs in a fake mode of this process. Raises NoText for symbolic sizes.

    Every node gets `meta["val"]` again, by running the graph on the fakes.
    """
    if text.symbolic:
        raise NoText("sizes that are symbols")
    fakes = [_fake(value, mode) for value in text.data["inputs"]]
    module = _module(text.data["graph"], text.constants)
    _Annotated(module, mode).run(*fakes)
    return module, fakes


class _Annotated(torch.fx.Interpreter):
    def __init__(self, module: torch.fx.GraphModule, mode: Any) -> None:
        super().__init__(module)
        self.mode = mode

    def run_node(self, node: Any) -> Any:
        with self.mode:
            value = super().run_node(node)
        if isinstance(value, torch.Tensor) and node.op == "get_attr":
            value = self.mode.from_tensor(value, static_shapes=True)
        node.meta["val"] = value
        return value


def _fake(value: Any, mode: Any) -> Any:
    if "number" in value:
        return _value(value["number"], [])
    shape, stride, offset = value["shape"], value["stride"], value["offset"]
    extent = offset + (1 + sum((size - 1) * step for size, step in zip(shape, stride)) if all(shape) else 0)
    with mode:
        base = torch.empty(extent, dtype=getattr(torch, value["dtype"].removeprefix("torch.")), device=value["device"])
        fake = base.as_strided(shape, stride, offset)
    return fake.requires_grad_(value["requires_grad"])


def _module(rows: list[Any], constants: Sequence[torch.Tensor]) -> torch.fx.GraphModule:
    graph, root = torch.fx.Graph(), torch.nn.Module()
    nodes: list[Any] = []
    for name, op, target, args, kwargs in rows:
        if op == "get_attr":
            held = constants[target["constant"]] if "constant" in target else _module(target["module"], constants)
            target = f"held_{len(nodes)}"
            if isinstance(held, torch.Tensor):
                root.register_buffer(target, held)
            else:
                root.add_module(target, held)
        elif op == "call_function":
            target = _operator(target["operator"]) if "operator" in target else _found(*target["function"].split(":"))
        if target is None:
            raise NoText(f"the operator of {name} is not known in this process")
        nodes.append(graph.create_node(op, target, _value(args, nodes), _value(kwargs, nodes), name=name))
    return torch.fx.GraphModule(root, graph)


def _operator(name: str) -> Any:
    found: Any = torch.ops
    try:
        for part in name.split("."):
            found = getattr(found, part)
    except AttributeError:
        return None  # a custom operator that nobody has registered here
    return found


def _value(data: Any, nodes: Sequence[Any]) -> Any:
    if not isinstance(data, dict):
        return data
    ((kind, inner),) = data.items()
    if kind == "node":
        return nodes[inner]
    if kind in ("list", "tuple"):
        values = [_value(item, nodes) for item in inner]
        return values if kind == "list" else tuple(values)
    if kind == "dict":
        return {key: _value(item, nodes) for key, item in inner}
    if kind == "slice":
        return slice(*(_value(item, nodes) for item in inner))
    return _SCALARS[kind](inner)


_SCALARS: dict[str, Any] = {
    "float": lambda inner: float.fromhex(inner) if "0x" in inner else float(inner),
    "complex": lambda inner: complex(*map(float.fromhex, inner)),
    "ellipsis": lambda inner: Ellipsis,
    "torch": lambda inner: getattr(torch, inner),
    "device": torch.device,
}
