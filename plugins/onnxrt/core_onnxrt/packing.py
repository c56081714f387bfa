"""Weights of convolutions that the runtime lays out once, though they may change at any time.

The runtime computes convolutions faster when their weights are constants. A program's weights are none: they can be
written past torch, which bumps no version. So a copy of them is the constant, and before each run the weights are
compared with the copy, byte by byte. Weights that differ are read by an engine of their own, until two calls in a row
find them the same. What is compared is small beside the work: each number of a convolution's weight is used for at
least POSITIONS numbers of its result.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx
import torch
from core_onnx.ports import Port
from onnx import shape_inference

from core.plugin import CompileFailed

from .calls import EngineCall

POSITIONS = 512
"""The least number of places of a result for which its convolution's weight is packed. A number of the weight costs two
operations at each place, 25 ns in all at 40 a ns, and 0.1 ns (in a cache) to 0.4 ns (in memory) to compare. With fewer
places the gain of packing and the cost of comparing cancel out: fifty convolutions over one small picture take the same
time with 64, 16 and 1 as with 512."""
RESTLESS = 8
"""So many copies are packed for one graph; weights that change after that are read on each call for good."""


def packable(model: onnx.ModelProto, given: Sequence[Port], weights: frozenset[int]) -> list[Port]:
    """The inputs worth packing: weights of large convolutions, and of normalizations that follow them, which the
    runtime then makes part of the convolution. weights: places of the graph's inputs that are a module's."""
    ports = {port.name: port for port in given if port.index in weights and port.sizes and not port.number}
    nodes = [node for node in model.graph.node if node.op_type in ("Conv", "BatchNormalization")]
    if not any(node.op_type == "Conv" and node.input[1] in ports for node in nodes):
        return []
    positions = _positions(model)
    found: dict[str, Port] = {}
    packed: set[str] = set()
    for node in nodes:
        own = [name for name in node.input[1:] if name]
        follows = node.op_type == "BatchNormalization" and node.input[0] in packed
        large = node.op_type == "Conv" and positions.get(node.output[0], 0) >= POSITIONS
        if (follows or large) and all(name in ports for name in own):
            found.update((name, ports[name]) for name in own)
            packed.add(node.output[0])
    return [port for port in given if port.name in found]


def _positions(model: onnx.ModelProto) -> dict[str, int]:
    """Name of a value -> its number of elements a channel; sizes that are not known count as one."""
    found = {}
    for value in shape_inference.infer_shapes(model).graph.value_info:
        sizes = [dim.dim_value or 1 for dim in value.type.tensor_type.shape.dim]
        total = 1
        for size in sizes[:1] + sizes[2:]:
            total *= size
        found[value.name] = total
    return found


def with_constants(model: onnx.ModelProto, values: Mapping[str, torch.Tensor]) -> bytes:
    """The model with inputs turned into initializers whose bytes stay outside of it."""
    from core_onnx.convert import initializer

    made = onnx.ModelProto()
    made.CopyFrom(model)
    rest = [one for one in made.graph.input if one.name not in values]
    del made.graph.input[:]
    made.graph.input.extend(rest)
    made.graph.initializer.extend(initializer(name, value) for name, value in values.items())
    return made.SerializeToString()


class PackedCall:
    """The call of a graph whose `ports` are packed. `source` is its text, `function` the call.

    reading: the call that reads all weights; open_packed: makes the call for given constants.
    State shared between threads: the copy and the engine in use, replaced as one tuple under `_lock`.
    """

    def __init__(
        self,
        reading: EngineCall,
        open_packed: Callable[[Mapping[str, torch.Tensor]], EngineCall],
        ports: Sequence[Port],
        count: int,
    ) -> None:
        self.reading = reading
        self.open_packed = open_packed
        self.ports = list(ports)
        self.engines: list[EngineCall] = []  # the one in use, alive, so that a fork makes it again
        self.left = RESTLESS
        self.copy: list[torch.Tensor] = []
        self._lock = threading.Lock()
        self._nothing = (None, *[0] * len(self.ports))
        self.namespace: dict[str, Any] = {"_differs": _differs, "_renew": self._renew, "_now": self._nothing}
        self.source = self._text(count)
        exec(compile(self.source, f"<onnxrt packed call of {count} inputs>", "exec"), self.namespace)
        self.function: Callable[..., Any] = self.namespace["compiled"]

    def _text(self, count: int) -> str:
        inputs = ", ".join(f"i{index}" for index in range(count))
        tests = ["packed is None"]
        for at, port in enumerate(self.ports):
            value = f"i{port.index}"
            tests.append(f"not {value}.is_contiguous() or _differs({value}.data_ptr(), at{at}, {_bytes(port)})")
        lines = [
            f"def compiled({inputs}):",
            f"    packed, {', '.join(f'at{at}' for at in range(len(self.ports)))} = _now",
            "    if (",
            "        " + "\n        or ".join(tests),
            "    ):",
            f"        return _renew({inputs})",
            f"    return packed({inputs})",
        ]
        return "\n".join(lines)

    def _renew(self, *inputs: Any) -> Any:
        """A call with weights that no engine has: they are read, and packed where the call before found them so."""
        with self._lock:
            weights = [inputs[port.index].detach() for port in self.ports]
            if not all(weight.is_contiguous() for weight in weights):
                self._give_up()
            elif self.copy and not any(map(_changed, weights, self.copy)):
                self._pack()
            else:
                self.namespace["_now"] = self._nothing
                self.copy = [weight.clone() for weight in weights]
        return self.reading.function(*inputs)

    def _pack(self) -> None:
        copy, self.copy = self.copy, []
        if not self.left:
            self._give_up()
            return
        self.left -= 1
        try:
            call = self.open_packed({port.name: value for port, value in zip(self.ports, copy)})
        except CompileFailed:  # the engine that reads them is there
            self._give_up()
            return
        self.engines = [call]
        self.namespace["_now"] = (call.function, *(value.data_ptr() for value in copy))

    def _give_up(self) -> None:
        self.namespace["_now"], self.engines = self._nothing, []
        self.namespace["_renew"] = self.reading.function


def _bytes(port: Port) -> int:
    total = port.dtype.itemsize
    for size in port.sizes or ():
        total *= size
    return total


def _changed(weight: torch.Tensor, copy: torch.Tensor) -> bool:
    return bool(_differs(weight.data_ptr(), copy.data_ptr(), copy.nbytes))


_differs = ctypes.CDLL(None).memcmp
_differs.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_differs.restype = ctypes.c_int
