"""The call of an engine on torch's memory, as generated code: what a warm call runs, line by line.

It enqueues on torch's current stream and waits for nothing, but for numbers that the program needs. An execution
context serves one thread on one stream; in it an address is set only when it has changed, so weights are set once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from core_onnx.ports import Port, Ports

ALIGNMENT = 256
"""Bytes that every address must be a multiple of."""


class EngineCall:
    """Generates the call of an engine. `source` is its text, `function` the call.

    new_context: makes an execution context; failure: the text of what went wrong last; ports: inputs and outputs that
    the engine has; count: number of the graph's inputs; outputs: for each of its results the name of an output or a
    constant. State shared between threads: none, each has contexts of its own.
    """

    def __init__(
        self,
        new_context: Callable[[], Any],
        failure: Callable[[], str],
        ports: Ports,
        count: int,
        outputs: Sequence[Any],
        device: str,
    ) -> None:
        self.inputs, self.results = ports
        self.device = torch.device(device)
        unused = len(self.inputs)

        def make(stream: int) -> Any:
            found = new_context()
            if found is None:
                raise failed()
            state = (found, [None] * unused)
            _contexts()[stream] = state
            return state

        local = threading.local()

        def _contexts() -> dict[int, Any]:
            try:
                return local.contexts  # type: ignore[no-any-return]
            except AttributeError:
                local.contexts = {}
                return local.contexts  # type: ignore[no-any-return]

        def failed() -> RuntimeError:
            return RuntimeError(f"TensorRT could not run the engine: {failure()}")

        self.namespace: dict[str, Any] = {
            "_empty": torch.empty,
            "_tensor": torch.tensor,
            "_device": self.device,
            "_on": torch.cuda.device,
            "_stream": torch.cuda.current_stream,
            "_contexts": _contexts,
            "_make": make,
            "_failed": failed,
            "_int64": torch.int64,
            "_bool": torch.bool,
        }
        self.source = "\n".join(self._lines(count, outputs))
        exec(compile(self.source, f"<tensorrt call of {count} inputs>", "exec"), self.namespace)
        self.function: Callable[..., Any] = self.namespace["compiled"]

    # -- the text ----------------------------------------------------------------------------------------------------

    def _lines(self, count: int, outputs: Sequence[Any]) -> Iterator[str]:
        yield f"def compiled({', '.join(f'i{index}' for index in range(count))}):"
        yield "    with _on(_device):"
        yield "        current = _stream()"
        yield "        stream = current.cuda_stream"
        yield "        context, bound = _contexts().get(stream) or _make(stream)"
        if any(0 in (port.sizes or (0,)) for port in (*self.inputs, *self.results)):
            self.namespace["_nothing"] = torch.empty(ALIGNMENT, dtype=torch.uint8, device=self.device).data_ptr()
        for at, port in enumerate(self.inputs):
            yield from self._input(at, port)
        for port in self.results:
            yield from self._output(port)
        yield "        if not context.execute_async_v3(stream):"
        yield "            raise _failed()"
        if any(port.number and port.host for port in self.results):
            yield "        current.synchronize()"
        for port in self.results:
            if port.number:
                yield f"        {port.name} = {port.name}.item()"
        items = [output if isinstance(output, str) else self._constant(output) for output in outputs]
        yield f"    return ({''.join(f'{item}, ' for item in items)})"

    def _input(self, at: int, port: Port) -> Iterator[str]:
        value = f"i{port.index}"
        if port.number:
            place = "" if port.host else ", device=_device"
            yield f"        {value} = _tensor({value}, dtype=_{str(port.dtype).removeprefix('torch.')}{place})"
            yield f"        at = {value}.data_ptr()"
        else:
            yield f"        if not {value}.is_contiguous():"
            yield f"            {value} = {value}.contiguous()"
            yield f"        at = {value}.data_ptr()"
            if port.sizes is None or 0 in port.sizes:
                yield "        if not at:"
                yield "            at = _nothing"
            yield f"        if at % {ALIGNMENT}:"
            yield f"            {value} = {value}.clone()"
            yield f"            at = {value}.data_ptr()"
        if port.sizes is None:
            yield f"        key = (at, {value}.shape)"
            yield f"        if bound[{at}] != key:"
            yield f"            if not context.set_input_shape({port.name!r}, tuple({value}.shape)):"
            yield "                raise _failed()"
            yield from self._address(port, "                ")
            yield f"            bound[{at}] = key"
        else:
            yield f"        if bound[{at}] != at:"
            yield from self._address(port, "                ")
            yield f"            bound[{at}] = at"

    def _address(self, port: Port, indent: str) -> Iterator[str]:
        yield f"{indent[4:]}if not context.set_tensor_address({port.name!r}, at):"
        yield f"{indent}raise _failed()"

    def _output(self, port: Port) -> Iterator[str]:
        dtype = f"_{port.name}_dtype"
        self.namespace[dtype] = port.dtype
        sizes = repr(port.sizes) if port.sizes is not None else f"tuple(context.get_tensor_shape({port.name!r}))"
        place = "" if port.host else ", device=_device"
        yield f"        {port.name} = _empty({sizes}, dtype={dtype}{place})"
        yield f"        at = {port.name}.data_ptr()"
        if port.sizes is None or 0 in port.sizes:
            yield "        if not at:"
            yield "            at = _nothing"
        yield from self._address(port, "            ")

    def _constant(self, value: Any) -> str:
        name = f"_constant_{len(self.namespace)}"
        self.namespace[name] = value
        return name
