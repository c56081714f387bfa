"""TorchScript: whether this torch has it, and a graph as an optimised program of it."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.fx as fx
import torch.nn.functional as F

from core.plugin import CompileContext, CompileFailed, Finding, Unsupported

from .claims import refused_when_frozen
from .torch_compat import real_tensors

NAMES = ("trace", "freeze", "optimize_for_inference")
DEPRECATED = "TorchScript is deprecated in PyTorch, and with it optimize_for_inference"
REMEDY = 'use backend="inductor"'
aten = torch.ops.aten


def missing() -> str:
    """Why TorchScript can't be had, or ""."""
    absent = [name for name in NAMES if not hasattr(torch.jit, name)]
    return f"torch {torch.__version__} has no torch.jit.{absent[0]}" if absent else ""


class Written(torch.nn.Module):
    """A graph in the operators that TorchScript's passes look for, with the weights that are known as buffers."""

    def __init__(self, graph: fx.GraphModule, weights: Mapping[int, torch.Tensor], kept: Sequence[int]) -> None:
        super().__init__()
        self._graph = (graph,)  # a tuple: not a submodule of what is traced
        self._kept = kept
        self._weights = tuple(weights)
        for at, weight in weights.items():
            self.register_buffer(f"weight_{at}", weight)
        for node in graph.graph.nodes:
            if node.op == "get_attr":
                self.register_buffer(f"constant_{node.name}", getattr(graph, node.target))

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = dict(zip(self._kept, inputs))
        given |= {at: getattr(self, f"weight_{at}") for at in self._weights}
        values: dict[fx.Node, Any] = {}
        places = 0
        for node in self._graph[0].graph.nodes:
            if node.op == "placeholder":
                values[node] = given.get(places)
                places += 1
            elif node.op == "get_attr":
                values[node] = getattr(self, f"constant_{node.name}")
            elif node.op == "call_function":
                args = fx.node.map_arg(node.args, values.__getitem__)
                kwargs = fx.node.map_arg(node.kwargs, values.__getitem__)
                values[node] = _call(node, args, kwargs)
            else:
                return tuple(values[value] for value in node.args[0])
        raise AssertionError("a graph without an output")


def _call(node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    target = node.target
    if target is aten.convolution.default:
        values, weight, bias, stride, padding, dilation, _, _, groups = args
        function = (F.conv1d, F.conv2d, F.conv3d)[values.dim() - 3]
        return function(values, weight, bias, stride, padding, dilation, groups)
    if target is aten.native_batch_norm.default:
        values, weight, bias, mean, variance, _, momentum, eps = args
        return (F.batch_norm(values, mean, variance, weight, bias, False, momentum, eps),)
    if target is aten.addmm.default and is_turn(node.args[2]) and args[0].dim() == 1 and not kwargs:
        return F.linear(args[1], args[2].t(), args[0])
    if target is aten.relu.default:
        return torch.clamp_min(args[0], 0)  # on oneDNN's own tensors relu turns NaN into 0; this stays on torch's
    if target is aten.fill.Tensor:  # TorchScript writes it as full_like, which takes a number
        return args[1].to(args[0].dtype).expand(args[0].shape).clone()
    if target is operator.getitem:
        return args[0][args[1]]
    return target(*args, **kwargs)


def is_turn(node: Any) -> bool:
    """The transpose of a matrix."""
    return isinstance(node, fx.Node) and node.target is aten.t.default


def optimised(graph: fx.GraphModule, fakes: Sequence[Any], ctx: CompileContext) -> tuple[Any, tuple[int, ...]]:
    """The optimised program and the inputs that it still takes. Raises CompileFailed with TorchScript's words."""
    ctx.report(Finding("warning", DEPRECATED, REMEDY))
    weights = {}
    if ctx.frozen:
        weights = {at: value.detach() for at, value in ctx.constants.items() if isinstance(value, torch.Tensor)}
    if weights:
        calls = [node for node in graph.graph.nodes if node.op == "call_function"]
        refused = [node for node in calls if refused_when_frozen(node)]
        if refused:
            raise Unsupported(refused, refused_when_frozen(refused[0]))
        try:
            return _program(graph, fakes, weights)
        except CompileFailed as error:  # operators that oneDNN's tensors lack show when they run
            ctx.report(Finding("info", f"weights are read on each call: {error.log.strip().splitlines()[-1]}"))
    return _program(graph, fakes, {})


def _program(
    graph: fx.GraphModule, fakes: Sequence[Any], weights: Mapping[int, torch.Tensor]
) -> tuple[Any, tuple[int, ...]]:
    # numbers are passed too, but nothing that is traced reads them
    kept = tuple(at for at, one in enumerate(fakes) if at not in weights and isinstance(one, torch.Tensor))
    module = Written(graph, weights, kept).eval()
    with real_tensors(), warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", torch.jit.TracerWarning)
        examples = tuple(_example(fakes[at]) for at in kept)
        try:
            program = torch.jit.trace(module, examples, check_trace=False)
            program = torch.jit.optimize_for_inference(torch.jit.freeze(program))
            for _ in range(2):  # its executor specialises in the first two runs
                program(*examples)
        except Exception as error:  # noqa: BLE001  TorchScript raises RuntimeError and its own, without a common base
            raise CompileFailed("TorchScript", str(error)) from error
    return program, kept


def _example(fake: torch.Tensor) -> torch.Tensor:
    value = 1 if fake.is_floating_point() else 0  # whole numbers may be places
    return torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device=fake.device).fill_(value)
