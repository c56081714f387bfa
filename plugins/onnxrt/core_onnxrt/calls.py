"""The call of an engine on torch's memory, as generated code: what a warm call runs, line by line.

Inputs are bound by address, and again only when an address or a size has changed since the thread's last call: weights
are bound once. Results of known size are written to tensors of torch's own; others come from the runtime, whose memory
they keep alive.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from core_onnx.failures import as_eager, refusal
from core_onnx.ports import Port, Stored
from core_onnx.types import element_type


class EngineCall:
    """Generates the call of an engine. `source` is its text, `function` the call.

    open_engine: makes the engine, now and once more in the child of a fork, where the runtime's threads are gone;
    made: the model and what its call has to handle.
    State shared between threads: none but `_living` below; each thread has a binding of its own.
    """

    def __init__(self, open_engine: Callable[[], Any], made: Stored, device: str) -> None:
        self.open_engine = open_engine
        self.made = made
        self.inputs, self.results = made.ports
        self.device = torch.device(device)
        self.namespace: dict[str, Any] = {
            "_empty": torch.empty,
            "_held": _held,
            "_tensor": torch.tensor,
            "_nothing": torch.zeros(1, device=self.device).data_ptr,
            "_device": self.device,
            "_int64": torch.int64,
            "_float64": torch.float64,
            "_bool": torch.bool,
            "_memory": torch.empty_strided,
            "_as_eager": as_eager,
            "_refusal": refusal,
        }
        self.source = "\n".join(self._lines(made.count, made.outputs))
        self._connect(open_engine())
        exec(compile(self.source, f"<onnxrt call of {made.count} inputs>", "exec"), self.namespace)
        self.function: Callable[..., Any] = self.namespace["compiled"]
        _living.add(self)

    def _connect(self, engine: Any) -> None:
        self.engine = engine
        empty = [None] * len(self.inputs)
        self.namespace["_new"] = lambda: (engine.io_binding(), list(empty))
        self.namespace["_run"] = engine.run_with_iobinding
        self.namespace["_local"] = threading.local()

    def reopen(self) -> None:
        """Another engine in place of this one."""
        self._connect(self.open_engine())

    # -- the text ----------------------------------------------------------------------------------------------------

    def _lines(self, count: int, outputs: Sequence[Any]) -> Iterator[str]:
        yield f"def compiled({', '.join(f'i{index}' for index in range(count))}):"
        yield "    try:"
        yield "        binding, bound = _local.state"
        yield "    except AttributeError:"
        yield "        binding, bound = _local.state = _new()"
        yield from self._draw(count)
        for at, port in enumerate(self.inputs):
            yield from self._bind_input(at, port)
        if self.device.type != "cpu":
            yield "    binding.synchronize_inputs()"
        late = []
        for port in self.results:
            if port.sizes is None or port.number:
                late.append(port)
                yield f"    binding.bind_output({port.name!r}, {self._place()})"
            else:
                yield from self._bind_output(port)
        yield "    try:"
        yield "        _run(binding)"
        yield "    except RuntimeError as error:"
        yield "        raise _as_eager(error) from None"
        if late:
            yield "    values = binding.get_outputs()"
        for at, port in enumerate(self.results):
            if port in late:
                yield f"    {port.name} = {self._taken(at, port)}"
        for asked in self.made.questions:
            yield f"    if {asked.name}.item():"
            yield f"        raise _refusal({asked.error!r}, {asked.text!r})"
        items = [output if isinstance(output, str) else self._constant(output) for output in outputs]
        yield f"    return ({''.join(f'{item}, ' for item in items)})"

    def _draw(self, count: int) -> Iterator[str]:
        """Random numbers as eager draws them."""
        for at, draw in enumerate(self.made.draws, count):
            self.namespace[f"_{draw.name}"] = draw.dtype
            form = f"{draw.sizes!r}, {draw.strides!r}, dtype=_{draw.name}, device=_device"
            yield f"    i{at} = _memory({form}).{draw.operator}{draw.numbers!r}"

    def _place(self) -> str:
        return f"{self.device.type!r}, {self.device.index or 0}"

    def _bind_input(self, at: int, port: Port) -> Iterator[str]:
        value = f"i{port.index}"
        if port.number:
            yield f"    {value} = _tensor({value}, dtype=_{str(port.dtype).removeprefix('torch.')})"
            where = "'cpu', 0"
        else:
            yield f"    if not {value}.is_contiguous():"
            yield f"        {value} = {value}.contiguous()"
            where = self._place()
        yield f"    at = {value}.data_ptr() or _nothing()"
        known = port.sizes is not None
        sizes = repr(port.sizes) if known else f"{value}.shape"
        key = "at" if known else f"(at, {value}.shape)"
        yield f"    if bound[{at}] != {key}:"
        yield f"        binding.bind_input({port.name!r}, {where}, {element_type(port.dtype)}, {sizes}, at)"
        yield f"        bound[{at}] = {key}"

    def _bind_output(self, port: Port) -> Iterator[str]:
        dtype = f"_{port.name}_dtype"
        self.namespace[dtype] = port.dtype
        yield f"    {port.name} = _empty({port.sizes!r}, dtype={dtype}, device=_device)"
        place, kind = self._place(), element_type(port.dtype)
        where = f"{port.name}.data_ptr() or _nothing()"
        yield f"    binding.bind_output({port.name!r}, {place}, {kind}, {port.sizes!r}, {where})"

    def _taken(self, at: int, port: Port) -> str:
        if port.number:
            return f"values[{at}].numpy().item()"
        return f"_held(values[{at}])"

    def _constant(self, value: Any) -> str:
        name = f"_constant_{len(self.namespace)}"
        self.namespace[name] = value
        return name


def _held(value: Any) -> torch.Tensor:
    """A result in the runtime's memory, which gives what has no elements strides of its own."""
    tensor = torch.from_dlpack(value)
    return tensor if tensor.numel() else tensor.new_empty(tensor.shape)


_living: weakref.WeakSet[EngineCall] = weakref.WeakSet()
_left_behind: list[Any] = []


def _after_fork_in_child() -> None:
    """The runtime's threads did not come along: each engine is made again, and the old ones are never torn down."""
    for call in list(_living):
        _left_behind.append((call.engine, call.namespace["_local"]))
        call.reopen()


os.register_at_fork(after_in_child=_after_fork_in_child)
