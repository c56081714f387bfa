"""Backends for tests of the partition: some take few operators, one computes with numpy and nothing else."""

from __future__ import annotations

import numpy
import torch

from core.plugin import Artifact, Backend, Capabilities, CompileContext, Support, Unsupported


class Taking(Backend):
    """Runs the operators named, through torch; keeps what it compiled as (graph's name, operators)."""

    version = "1.0"

    def __init__(self, *operators, name="taking", refused=(), **capabilities):
        self.name = name
        self.operators = frozenset(operators)
        self.capabilities = Capabilities(**capabilities)
        self.refused = frozenset(refused)
        self.asked = []
        self.compiled = []
        self.contexts: list[CompileContext] = []
        self.graphs = []

    def supports(self, node, ctx):
        self.asked.append(node.name)
        name = node.target._schema.name.partition("::")[2]
        return Support("native") if name in self.operators else Support("no", f"it has no {name}")

    def compile(self, graph, fake_inputs, ctx):
        nodes = [node for node in graph.graph.nodes if node.op == "call_function"]
        calls = [node for node in nodes if hasattr(node.target, "_schema")]  # the rest is arithmetic of sizes
        refused = [node for node in calls if node.target._schema.name.partition("::")[2] in self.refused]
        if refused:
            raise Unsupported(refused, "not today")
        self.compiled.append((ctx.name, [node.target._schema.name.partition("::")[2] for node in calls]))
        self.contexts.append(ctx)
        self.graphs.append((graph, list(fake_inputs)))
        return Artifact(graph.forward)


def _exported(value):
    """A tensor as a numpy array without a copy: what a runtime that speaks DLPack does."""
    if not isinstance(value, torch.Tensor):
        return value
    assert value.is_contiguous() and value.dtype is torch.float32, (value.stride(), value.dtype)
    return numpy.from_dlpack(value.detach())


_NUMPY = {
    "mm": lambda a, b: a @ b,
    "addmm": lambda c, a, b: c + a @ b,
    "t": lambda a: a.T,
    "transpose": lambda a, i, j: numpy.swapaxes(a, i, j),
    "permute": lambda a, dims: numpy.transpose(a, dims),
    "view": lambda a, shape: numpy.reshape(a, shape),
    "expand": lambda a, shape: numpy.broadcast_to(a, [n if n >= 0 else m for n, m in zip(shape, _padded(a, shape))]),
    "add": lambda a, b: numpy.asarray(a + b, dtype=numpy.float32),
    "sub": lambda a, b: numpy.asarray(a - b, dtype=numpy.float32),
    "mul": lambda a, b: numpy.asarray(a * b, dtype=numpy.float32),
    "neg": lambda a: -a,
    "relu": lambda a: numpy.where(numpy.isnan(a), a, numpy.maximum(a, numpy.float32(0))),
    "clone": lambda a, **options: a,
    "sum": lambda a, dims=None, keepdim=False: numpy.sum(a, axis=tuple(dims) if dims else None, keepdims=keepdim),
    "sin": numpy.sin,
    "cos": numpy.cos,
}


def _padded(array, shape):
    return (1,) * (len(shape) - array.ndim) + array.shape


class OverNumpy(Backend):
    """An interpreter on numpy arrays, honest and careless: float32 and contiguous only, `clone` hands its operand on,
    results are whatever numpy gives (views of operands, transposed, 0-dimensional, one array twice)."""

    name = "over_numpy"
    version = "1.0"
    capabilities = Capabilities(dtypes=("float32",), layouts="contiguous")

    def __init__(self, **capabilities):
        self.capabilities = Capabilities(**{"dtypes": ("float32",), "layouts": "contiguous", **capabilities})
        self.compiled = []

    def supports(self, node, ctx):
        name = node.target._schema.name.partition("::")[2]
        if name not in _NUMPY:
            return Support("no", f"numpy has no {name} here")
        extra = [key for key in node.kwargs if key != "memory_format"]
        return Support("no", f"it does not know {extra[0]}") if extra else Support("native")

    def compile(self, graph, fake_inputs, ctx):
        nodes = list(graph.graph.nodes)
        self.compiled.append((ctx.name, [str(node.target) for node in nodes if node.op == "call_function"]))

        def call(*inputs):
            values = dict(zip([node for node in nodes if node.op == "placeholder"], map(_exported, inputs)))
            for node in nodes:
                if node.op == "get_attr":
                    values[node] = _exported(getattr(graph, node.target))
                elif node.op == "call_function":
                    args = torch.fx.node.map_arg(node.args, values.__getitem__)
                    name = node.target._schema.name.partition("::")[2]
                    if name.startswith("sym_size"):
                        values[node] = args[0].shape[args[1]]
                    else:
                        values[node] = _NUMPY[name](*args)
                elif node.op == "output":
                    return tuple(torch.from_dlpack(numpy.asarray(values[item])) for item in node.args[0])

        return Artifact(call)
