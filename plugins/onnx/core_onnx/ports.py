"""The inputs and outputs of a model as a runtime's call has to handle them, and their place in stored artifacts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx

from .builder import Draw, Question
from .convert import OnnxGraph

_DIGEST_BYTES = 32


@dataclass(frozen=True)
class Port:
    """One input or output of a model: its place in the graph, its name, its dtype, its sizes where all are known.

    number: it is a number of the program and no tensor; host: a runtime on another device has it in the CPU's memory.
    The inputs that are drawn come behind the graph's own; outputs that answer questions are of no place, -1.
    """

    index: int
    name: str
    dtype: torch.dtype
    sizes: tuple[int, ...] | None
    number: bool = False
    host: bool = False


Ports = tuple[list[Port], list[Port]]
"""Inputs and outputs."""


def ports_of(model: OnnxGraph, graph: fx.GraphModule) -> Ports:
    """The model's inputs that are still inputs, and its outputs, each once. graph: what the model was written for."""
    fed = {value.name for value in model.model.graph.input}
    inputs = [node.meta["val"] for node in graph.graph.nodes if node.op == "placeholder"]
    named = zip(model.inputs, inputs)
    given = [_port(model, index, name, fake) for index, (name, fake) in enumerate(named) if name in fed]
    given += [Port(len(inputs) + at, draw.name, draw.dtype, draw.sizes) for at, draw in enumerate(model.draws)]
    output = next(node for node in reversed(graph.graph.nodes) if node.op == "output")
    outputs = [value.meta["val"] if isinstance(value, fx.Node) else value for value in output.args[0]]
    made = {
        name: _port(model, index, name, fake)
        for index, (name, fake) in enumerate(zip(model.outputs, outputs))
        if isinstance(name, str)
    }
    made |= {asked.name: Port(-1, asked.name, model.dtypes[asked.name], ()) for asked in model.questions}
    return given, [made[name] for name in model.output_names]


def _port(model: OnnxGraph, index: int, name: str, fake: Any) -> Port:
    if not isinstance(fake, torch.Tensor):
        return Port(index, name, model.dtypes[name], (), number=True)
    known = all(isinstance(size, int) for size in fake.shape)
    return Port(index, name, model.dtypes[name], tuple(fake.shape) if known else None)


def calls_of(graph: fx.GraphModule) -> list[fx.Node]:
    """The calls of operators, in order."""
    return [node for node in graph.graph.nodes if node.op == "call_function"]


@dataclass(frozen=True)
class Stored:
    """An artifact without its code: what the call needs, and the runtime's own bytes.

    count: number of the graph's inputs; outputs: for each of its results the name of an output or a constant; calls:
    names of its nodes; payload: the model, or what the runtime made of it; draws, questions: see OnnxGraph.
    """

    ports: Ports
    count: int
    outputs: tuple[Any, ...]
    calls: tuple[str, ...]
    payload: bytes
    draws: tuple[Draw, ...] = ()
    questions: tuple[Question, ...] = ()

    @property
    def provenance(self) -> dict[str, str]:
        """Each node's: the model's own, but that torch draws random numbers."""
        return dict.fromkeys(self.calls, "native") | {draw.node: "library" for draw in self.draws}


def pack(stored: Stored, marks: Mapping[str, str]) -> bytes | None:
    """A digest, a header of JSON, the payload; None for results that JSON can't hold.

    marks: what must be the same where it is read, as the version of the plugin.
    """
    if not all(value is None or isinstance(value, (str, int, float)) for value in stored.outputs):
        return None
    header = {
        "marks": dict(marks),
        "ports": [[_port_data(port) for port in side] for side in stored.ports],
        "count": stored.count,
        "outputs": list(stored.outputs),
        "calls": list(stored.calls),
        "draws": [{**vars(draw), "dtype": _dtype_name(draw.dtype)} for draw in stored.draws],
        "questions": [vars(question) for question in stored.questions],
    }
    text = json.dumps(header).encode()
    body = len(text).to_bytes(8, "little") + text + stored.payload
    return hashlib.sha256(body).digest() + body


def unpack(blob: bytes, marks: Mapping[str, str]) -> Stored | None:
    """What `pack` made; None for bytes of another kind, damaged ones, and others' marks."""
    digest, body = blob[:_DIGEST_BYTES], blob[_DIGEST_BYTES:]
    if digest != hashlib.sha256(body).digest():
        return None
    try:
        size = int.from_bytes(body[:8], "little")
        header = json.loads(body[8 : 8 + size])
        if header["marks"] != dict(marks):
            return None
        given, made = ([_port_of(data) for data in side] for side in header["ports"])
        outputs, calls = tuple(header["outputs"]), tuple(header["calls"])
        draws = tuple(_draw_of(data) for data in header["draws"])
        questions = tuple(Question(**data) for data in header["questions"])
        return Stored((given, made), int(header["count"]), outputs, calls, body[8 + size :], draws, questions)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _port_data(port: Port) -> list[Any]:
    return [port.index, port.name, _dtype_name(port.dtype), port.sizes, port.number, port.host]


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _draw_of(data: dict[str, Any]) -> Draw:
    numbers, sizes, strides = (tuple(data[name]) for name in ("numbers", "sizes", "strides"))
    dtype = getattr(torch, data["dtype"])
    return Draw(data["name"], data["node"], data["operator"], numbers, sizes, strides, dtype)


def _port_of(data: list[Any]) -> Port:
    index, name, dtype, sizes, number, host = data
    return Port(index, name, getattr(torch, dtype), None if sizes is None else tuple(sizes), number, host)
