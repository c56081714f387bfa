"""From a graph to the text of one Python function, and from the text to the function."""

import keyword
import operator

import numpy as np
import torch
from torch import fx

from .calls import CALLS, COMPARING

KINDS = {
    torch.float32: np.dtype("float32"),
    torch.float64: np.dtype("float64"),
    torch.int8: np.dtype("int8"),
    torch.int16: np.dtype("int16"),
    torch.int32: np.dtype("int32"),
    torch.int64: np.dtype("int64"),
    torch.uint8: np.dtype("uint8"),
    torch.bool: np.dtype("bool"),
}
FLOATING = ("mm", "bmm", "addmm", "dot", "mv", "pow", "convolution", "native_layer_norm", "embedding_renorm")


def refusal(node):
    """Why a node is not for us; empty when it is."""
    name = _overload(node)
    if name not in CALLS:
        return f"no NumPy code for {name}"
    values = []
    for value in (node.meta.get("val"), *(operand.meta.get("val") for operand in node.all_input_nodes)):
        values += value if isinstance(value, list | tuple) else [value]
    for value in values:
        if not isinstance(value, torch.Tensor):
            if isinstance(value, int | float | torch.SymInt | torch.SymFloat):
                continue
            return f"{name} with a {type(value).__name__}"
        if value.dtype not in KINDS or value.layout is not torch.strided or value.device.type != "cpu":
            return f"{name} with {value.dtype}, {value.layout} on {value.device.type}"
    val = _first(node.meta["val"])
    if name.split(".")[-2:-1] and name.split(".")[-2] in FLOATING and not val.dtype.is_floating_point:
        return f"{name} of integers"
    if name == "aten.convolution.default" and (node.args[6] or _first(node.args[0].meta["val"]).dim() not in (3, 4, 5)):
        return "a transposed convolution"
    if name == "aten.cat.default" and any(part.meta["val"].dim() == 1 for part in node.args[0]) and val.dim() != 1:
        return "torch skips empty vectors in a concatenation, NumPy does not"
    if name == "aten._softmax.default":
        operand = node.args[0].meta["val"]
        if node.args[2]:
            return "a softmax that changes the dtype"
        if operand.dim() == 0 or not isinstance(operand.numel(), int) or operand.numel() == 0:
            return "a softmax of a tensor that may be empty"
    return ""


def translate(graph, *, wide_sums):
    """(function, source): takes the graph's inputs, returns a tuple of its outputs."""
    nodes = list(graph.graph.nodes)
    inputs = [node for node in nodes if node.op == "placeholder"]
    lines, space = [], {"as_array": as_array, "as_tensor": as_tensor, "quiet": quiet}
    for node in inputs:
        if isinstance(node.meta["val"], torch.Tensor):
            lines.append(f"{_name(node)} = as_array({_name(node)})")
    for node in nodes:
        if node.op == "get_attr":
            space[f"constant_{node.name}"] = getattr(graph, node.target)
            lines.append(f"{_name(node)} = as_array(constant_{node.name})")
        elif node.op == "call_function":
            lines.append(_line(node, space, wide_sums))
    results = [_result(value) for value in nodes[-1].args[0]]
    source = "\n".join(
        [
            f"def run({', '.join(map(_name, inputs))}):",
            "    with quiet():",
            *(f"        {line}" for line in lines),
            f"    return ({''.join(result + ', ' for result in results)})",
        ]
    )
    exec(compile(source, "<core-numpy>", "exec"), space)
    return space["run"], source


def _line(node, space, wide_sums):
    overload = _overload(node)
    function = "call_" + overload.replace(".", "_")
    space[function] = CALLS[overload]
    space.setdefault("dtypes", KINDS)
    out = _first(node.meta["val"]).dtype
    args = [_text(value) for value in node.args]
    if overload.partition(".")[2].partition(".")[0] in COMPARING:
        common = _common(node.args[0], node.args[1])
        space[_kind(common)] = KINDS[common]
        args = [f"as_kind({text}, {_kind(common)})" for text in args[:2]]
        space["as_kind"] = as_kind
    words = {key: value for key, value in node.kwargs.items() if key != "pin_memory"}
    args += [f"{key}={_text(value)}" for key, value in words.items() if not isinstance(value, torch.dtype)]
    space[_kind(out)] = KINDS[out]
    return f"{_name(node)} = {function}({', '.join([*args, f'out={_kind(out)}', f'wide={wide_sums}'])})"


def _overload(node):
    return "getitem" if node.target is operator.getitem else str(node.target)


def _first(value):
    return value[0] if isinstance(value, list | tuple) else value


def _common(left, right):
    values = [value.meta["val"] if isinstance(value, fx.Node) else value for value in (left, right)]
    return torch.result_type(*values)


def _kind(dtype):
    return str(dtype).replace("torch.", "np_")


def _text(value):
    if isinstance(value, fx.Node):
        return _name(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_text, value)) + "]"
    if isinstance(value, float):
        return f"float({str(value)!r})"  # inf and nan have no literal
    if isinstance(value, torch.memory_format):
        return "None"  # core puts the result into the layout that the graph promises
    return repr(value)


def _name(node):
    return node.name + "_" if keyword.iskeyword(node.name) else node.name


def _result(value):
    if not isinstance(value, fx.Node):
        return repr(value)
    if not isinstance(value.meta["val"], torch.Tensor):
        return _name(value)
    return f"as_tensor({_name(value)})"


def quiet():
    """torch says nothing about infinities and NaN."""
    return np.errstate(all="ignore")


def as_array(tensor):
    return tensor.numpy(force=True)


def as_kind(value, dtype):
    return value.astype(dtype, copy=False) if isinstance(value, np.ndarray | np.generic) else dtype.type(value)


def as_tensor(value):
    """A tensor with memory of its own: views of inputs and read-only broadcasts are copied."""
    array = np.asarray(value)
    if array.base is not None or not array.flags.writeable or not array.flags.owndata:
        array = array.copy()
    return torch.from_numpy(array)
