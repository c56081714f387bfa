"""What torch computes beside the models of a runtime: which calls that may be, and one function for all steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.fx as fx

from .division import ModelStep, Step

_OPERATOR = type(torch.ops.aten.add.Tensor)


def can_be_called(node: fx.Node) -> bool:
    """Whether a node is a call that runs by itself: of an operator, or arithmetic of Python."""
    if isinstance(node.target, _OPERATOR) or getattr(node.target, "__module__", "") in ("_operator", "math"):
        return True
    return getattr(node.target, "__name__", "") == "clone_mutate"


def _call_text(node: fx.Node, names: dict[fx.Node, str], namespace: dict[str, Any]) -> str:
    """The expression that calls a node's target on named values; what else it needs goes to `namespace`."""
    given = [_text(value, names, namespace) for value in node.args]
    given += [f"{name}={_text(value, names, namespace)}" for name, value in node.kwargs.items()]
    return f"{_kept(node.target, namespace)}({', '.join(given)})"


def _text(value: Any, names: dict[fx.Node, str], namespace: dict[str, Any]) -> str:
    if isinstance(value, fx.Node):
        return names[value]
    if isinstance(value, (list, tuple)):
        inside = "".join(f"{_text(item, names, namespace)}, " for item in value)
        return f"[{inside}]" if isinstance(value, list) else f"({inside})"
    if value is None or isinstance(value, (bool, str)) or type(value) is int:
        return repr(value)
    return _kept(value, namespace)


def _kept(value: Any, namespace: dict[str, Any]) -> str:
    name = f"_kept{len(namespace)}"
    namespace[name] = value
    return name


def joined(
    graph: fx.GraphModule, steps: Sequence[Step], models: Mapping[ModelStep, Callable[..., Any]], name: str
) -> tuple[str, Callable[..., Any]]:
    """One function that takes the graph's inputs and runs the steps: its text, and itself. models: each one's call."""
    namespace: dict[str, Any] = {}
    names: dict[fx.Node, str] = {}
    inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
    for at, node in enumerate(inputs):
        names[node] = f"i{at}"
    for node in graph.graph.nodes:
        if node.op == "get_attr":
            names[node] = f"constant{len(names)}"
            found: Any = graph
            for part in str(node.target).split("."):
                found = getattr(found, part)
            namespace[names[node]] = found
    lines = [f"def compiled({', '.join(names[node] for node in inputs)}):"]
    for step in steps:
        if isinstance(step, ModelStep):
            for node in step.outputs:
                names[node] = f"v{len(names)}"
            model = f"model{len(namespace)}"
            namespace[model] = models[step]
            given, taken = (", ".join(names[node] for node in side) for side in (step.inputs, step.outputs))
            lines.append(f"    ({taken},) = {model}({given})")
        else:
            expression = _call_text(step.node, names, namespace)
            names[step.node] = f"v{len(names)}"
            lines.append(f"    {names[step.node]} = {expression}")
    output = next(node for node in reversed(graph.graph.nodes) if node.op == "output")
    results = []
    for value in output.args[0]:
        if isinstance(value, fx.Node):
            results.append(names[value])
        else:
            results.append(f"result{len(results)}")
            namespace[results[-1]] = value
    lines.append(f"    return ({''.join(f'{one}, ' for one in results)})")
    source = "\n".join(lines)
    exec(compile(source, f"<steps of {name}>", "exec"), namespace)
    function: Callable[..., Any] = namespace["compiled"]
    return source, function
