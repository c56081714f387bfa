"""The call of a compiled model on torch's memory, as generated code: what a warm call runs, line by line.

Each thread has an infer request of its own. An input's memory is wrapped again only when its address or size
has changed since the thread's last call; results of known size are written to tensors of torch's own. Answers to the
model's questions lie in memory that says before each run that it has no answer yet.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy
import torch
import torch.fx as fx
from core_onnx import OnnxGraph
from core_onnx.failures import refusal
from core_onnx.ports import Port, Ports, calls_of

_CARRIERS = {torch.bfloat16: torch.int16, torch.float16: torch.int16}
"""Dtypes that numpy lacks or that travel as bytes: the torch dtype under which numpy sees the same memory."""
_UNANSWERED = -1


class ModelCall:
    """Generates the call of a compiled `model`, of `count` inputs. `source` is its text, `function` the call."""

    def __init__(self, compiled: Any, ports: Ports, model: OnnxGraph, count: int) -> None:
        self.count = count
        self.draws, self.questions = model.draws, model.questions
        named = {port.name: port for port in ports[0]}
        self.inputs = [named[port.get_any_name()] for port in compiled.inputs]  # those that nothing reads are gone
        self.results = ports[1]
        at_of = {port.name: at for at, port in enumerate(self.results)}
        self.answers = [at_of[asked.name] for asked in self.questions]
        self.waits = _loses_errors(compiled)
        self.namespace: dict[str, Any] = {
            "_local": threading.local(),
            "_new": lambda: _request(compiled, len(self.inputs), self.answers),
            "_wrap": _wrapper(),
            "_taken": _taken,
            "_tensor": torch.tensor,
            "_empty": torch.empty,
            "_memory": torch.empty_strided,
            "_narrow": _is_narrow,
            "_refusal": refusal,
            "_wrong": self._wrong,
        }
        for port in (*self.inputs, *self.results, *self.draws):
            self.namespace[_name(port.dtype)] = port.dtype
        self.source = "\n".join(self._lines(model.outputs))
        exec(compile(self.source, f"<openvino call of {self.count} inputs>", "exec"), self.namespace)
        self.function: Callable[..., Any] = self.namespace["compiled"]

    def provenance(self, graph: fx.GraphModule) -> dict[str, str]:
        """Of the nodes that the model was made from: the device's, but that torch draws random numbers."""
        drawn = {draw.node for draw in self.draws}
        return {node.name: "library" if node.name in drawn else "native" for node in calls_of(graph)}

    def _lines(self, outputs: Sequence[Any]) -> Iterator[str]:
        yield f"def compiled({', '.join(f'i{index}' for index in range(self.count))}):"
        yield "    try:"
        yield "        request, bound, answers = _local.state"
        yield "    except AttributeError:"
        yield "        request, bound, answers = _local.state = _new()"
        for at, draw in enumerate(self.draws, self.count):
            form = f"{draw.sizes!r}, {draw.strides!r}, dtype={_name(draw.dtype)}"
            yield f"    i{at} = _memory({form}).{draw.operator}{draw.numbers!r}"
        for at, port in enumerate(self.inputs):
            yield from self._set_input(at, port)
        if self.questions:
            yield f"    answers.fill({_UNANSWERED})"
        for at, port in enumerate(self.results):
            if port.sizes is not None and not port.number and at not in self.answers:
                yield f"    out{at} = _empty({port.sizes!r}, dtype={_name(port.dtype)})"
                if 0 not in port.sizes:
                    yield f"    request.set_output_tensor({at}, _wrap(out{at}))"
        yield "    request.start_async()" if self.waits else "    request.infer()"
        if self.waits:
            yield "    request.wait()"
        for at, port in enumerate(self.results):
            if (port.sizes is None or port.number) and at not in self.answers:
                value = f"_taken(request.get_output_tensor({at}), {_name(port.dtype)})"
                yield f"    out{at} = {value}{'.item()' if port.number else ''}"
        if self.questions:
            yield "    if answers.any():"
            yield "        raise _wrong(answers)"
        items = [output if isinstance(output, str) else self._constant(output) for output in outputs]
        yield f"    return ({''.join(f'{item}, ' for item in items)})"

    def _set_input(self, at: int, port: Port) -> Iterator[str]:
        value = f"i{port.index}"
        if port.number:
            yield f"    {value} = _tensor({value}, dtype={_name(port.dtype)})"
        else:
            yield f"    if not {value}.is_contiguous():"
            yield f"        {value} = {value}.contiguous()"
            if port.dtype is torch.int64:
                yield f"    if not _narrow({value}):"
                yield "        raise _refusal('IndexError', 'an index is out of range: it does not fit in 32 bits')"
        key = f"{value}.data_ptr()" if port.sizes is not None else f"({value}.data_ptr(), {value}.shape)"
        yield f"    if bound[{at}] != {key}:"
        yield f"        request.set_input_tensor({at}, _wrap({value}))"
        yield f"        bound[{at}] = {key}"

    def _wrong(self, answers: Any) -> Exception:
        """The exception of the first question that was not answered with 0."""
        count, asked = next((count, asked) for count, asked in zip(answers.tolist(), self.questions) if count)
        if count == _UNANSWERED:
            return RuntimeError("OpenVINO ended a run before it was through, and said nothing")
        return refusal(asked.error, asked.text)

    def _constant(self, value: Any) -> str:
        name = f"_constant_{len(self.namespace)}"
        self.namespace[name] = value
        return name


def _request(compiled: Any, inputs: int, answers: Sequence[int]) -> tuple[Any, list[Any], Any]:
    """A request, the addresses that its inputs have (none yet), and the memory of its answers."""
    import openvino

    request = compiled.create_infer_request()
    memory = numpy.full(len(answers), _UNANSWERED, numpy.int32)
    for place, at in enumerate(answers):
        request.set_output_tensor(at, openvino.Tensor(memory[place : place + 1].reshape(()), shared_memory=True))
    return request, [None] * inputs, memory


def _loses_errors(compiled: Any) -> bool:
    """Whether `infer` returns as if nothing was wrong where a kernel has raised: it does in a pool of one thread (seen
    in 2026.4.1), where a run that is waited for still raises."""
    return all(compiled.get_property(name) == 1 for name in ("NUM_STREAMS", "INFERENCE_NUM_THREADS"))


def is_seen(dtype: torch.dtype) -> bool:
    """Whether numpy sees tensors of a dtype as the device does."""
    return dtype.is_floating_point and dtype not in _CARRIERS


def _is_narrow(tensor: torch.Tensor) -> bool:
    """Whether the device, which takes 32 bits of each integer, sees the same numbers."""
    values = tensor.numpy()
    return bool((values == values.astype(numpy.int32)).all())


def _name(dtype: torch.dtype) -> str:
    return f"_{str(dtype).removeprefix('torch.')}"


def _wrapper() -> Callable[[torch.Tensor], Any]:
    """Torch's memory as a tensor of the runtime."""
    import openvino

    kinds = {torch.bfloat16: openvino.Type.bf16, torch.float16: openvino.Type.f16}

    def wrap(tensor: torch.Tensor) -> Any:
        plain = tensor.detach()
        carrier = _CARRIERS.get(plain.dtype)
        if carrier is None:
            return openvino.Tensor(plain.numpy(), shared_memory=True)
        return openvino.Tensor(plain.view(carrier).numpy(), list(plain.shape), kinds[plain.dtype])

    return wrap


def _taken(tensor: Any, dtype: torch.dtype) -> torch.Tensor:
    """A copy of a result whose memory the request will use again."""
    data = tensor.data
    if dtype in _CARRIERS:
        return torch.from_numpy(numpy.array(data).view(numpy.int16)).view(dtype)
    return torch.from_numpy(numpy.array(data)).to(dtype)
