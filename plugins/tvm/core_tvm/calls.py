"""The call of a compiled program on torch's memory, as generated code: what a warm call runs, line by line.

Tensors go in and come out by DLPack, without a copy. The compiled code reads aligned vectors of adjacent elements: what
lies otherwise is copied first. Each thread has a virtual machine of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .convert import Program

ALIGNMENT = 64
"""Bytes; TVM takes the memory of every tensor to be aligned so."""


_OUTPUTS = {"tensor": "made[{}]", "bits": "made[{}].view(_bfloat16)", "input": "i{}", "number": "{}"}


class ProgramCall:
    """Generates the call. `source` is its text, `function` the call. count: number of the graph's inputs."""

    def __init__(self, machine: Callable[[], Any], program: Program, count: int, name: str) -> None:
        import tvm_ffi

        self.namespace: dict[str, Any] = {
            "_local": threading.local(),
            "_new": lambda: machine()["main"],
            "_shape": tvm_ffi.Shape,
            "_fit": fitted,
            "_outside": outside,
            "_tensor": torch.from_dlpack,
            "_uint16": torch.uint16,
            "_bfloat16": torch.bfloat16,
        }
        self.source = "\n".join(self._lines(program, count))
        exec(compile(self.source, f"<tvm call of {name}>", "exec"), self.namespace)
        self.function: Callable[..., Any] = self.namespace["compiled"]

    def _lines(self, program: Program, count: int) -> Iterator[str]:
        yield f"def compiled({', '.join(f'i{index}' for index in range(count))}):"
        given = [f"i{index}" for index in program.inputs]
        constants = [self._constant(bits_of(fitted(value))) for value in program.constants]
        for name, (index, axis) in program.symbols.items():
            yield f"    {name} = i{index}" + ("" if axis is None else f".shape[{axis}]")
        if program.made:
            yield "    try:"
            yield "        main = _local.main"
            yield "    except AttributeError:"
            yield "        main = _local.main = _new()"
            for index, value in zip(program.inputs, given):
                yield f"    if {value}.data_ptr() & {ALIGNMENT - 1} or not {value}.is_contiguous():"
                yield f"        {value} = _fit({value})"
                if index in program.as_bits:
                    yield f"    b{index} = {value}.view(_uint16)"
            given = [f"b{index}" if index in program.as_bits else f"i{index}" for index in program.inputs]
            sizes = [f"_shape(({''.join(f'{name}, ' for name in program.symbols)}))"] if program.symbols else []
            result = f"main({', '.join((*sizes, *given, *constants))})"
            # Beside tensors of torch's the results come as torch's; a call without any is answered with TVM's.
            yield f"    made = {result if given or constants else f'[_tensor(one) for one in {result}]'}"
        for place, error, operator in program.alarms:
            yield f"    if made[{place}].item():"
            yield f"        _outside({error!r}, {operator!r})"
        yield f"    return ({''.join(f'{self._output(kind, what)}, ' for kind, what in program.outputs)})"

    def _output(self, kind: str, what: Any) -> str:
        if kind == "constant":
            return self._constant(what)
        return {"tensor": "made[{}]", "bits": "made[{}].view(_bfloat16)", "input": "i{}", "number": "{}"}[kind].format(
            what
        )

    def _constant(self, value: Any) -> str:
        name = f"_constant_{len(self.namespace)}"
        self.namespace[name] = value
        return name


def fitted(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with adjacent elements in memory that is aligned; the tensor itself where it is so."""
    if tensor.is_contiguous() and not tensor.data_ptr() % ALIGNMENT:
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)


def bits_of(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor as it travels: of bfloat16 the bits."""
    return tensor.view(torch.uint16) if tensor.dtype is torch.bfloat16 else tensor


def outside(error: str, operator: str) -> None:
    """Raise what eager raises for an index outside of the tensor."""
    kind = IndexError if error == "IndexError" else RuntimeError
    raise kind(f"an index is out of range, in {operator}")
