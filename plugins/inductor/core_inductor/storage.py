"""A compiled program as bytes and back: another process runs it without lowering, printing or building anything.

The bytes are a magic word, a digest of what follows, and that, compressed: a header of JSON with the sources and what
each kernel is, the built machine code, the elements of the program's constants. Weights are inputs of a program and in
none of it. The header says for what the code was made; where that is not this process, the bytes are stale. Nothing is
unpickled, but what is read is run: load only what may run code here.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch

from . import __version__
from .runtime.spec import CXX_FLAGS, KernelSpec, OutputSpec
from .runtime.toolchain import OUTPUT_FLAGS, CompilerMissing, instruction_set
from .torch_compat import disable_current_modes
from .wrapper import CompiledProgram

MAGIC = b"core-inductor-program\x00\x01"
_DIGEST_BYTES = 32
_LENGTH_BYTES = 8
_TEXTS = ("cpp_source", "python_source")
_COUNTS = ("extern_calls", "kernel_calls")


class Unfit(ValueError):
    """Bytes that are no program, or one for another process; the text says which."""


def pack(program: CompiledProgram, provenance: Mapping[str, str], key: str, code: bytes) -> bytes | None:
    """The bytes of a program, None for one that needs objects of this process.

    key: the name of its library in the cache of kernels; code: that library, empty for a program without kernels.
    """
    if not program.storable:
        return None
    with disable_current_modes():
        constants = [_constant(name, tensor) for name, tensor in program.constants.items()]
    header = {
        "made for": made_for(),
        **{name: getattr(program, name) for name in (*_TEXTS, *_COUNTS)},
        "kernels": [asdict(kernel) for kernel in program.kernels],
        "fallbacks": program.fallbacks,
        "origins": program.provenance,
        "provenance": dict(provenance),
        "library": [key, len(code)],
        "constants": [layout for layout, _ in constants],
    }
    text = json.dumps(header).encode()
    parts = [len(text).to_bytes(_LENGTH_BYTES, "little"), text, code, *(elements for _, elements in constants)]
    body = zlib.compress(b"".join(parts), 1)
    return MAGIC + hashlib.sha256(body).digest() + body


def unpack(blob: bytes) -> tuple[CompiledProgram, dict[str, str], str, bytes]:
    """Program, provenance, name and machine code of its library. Raises Unfit."""
    head = len(MAGIC) + _DIGEST_BYTES
    body = blob[head:]
    if blob[:head] != MAGIC + hashlib.sha256(body).digest():
        raise Unfit("the bytes are no stored program of core-inductor, or not whole")
    content = memoryview(zlib.decompress(body))
    end = _LENGTH_BYTES + int.from_bytes(content[:_LENGTH_BYTES], "little")
    header = json.loads(bytes(content[_LENGTH_BYTES:end]))
    _require_here(header["made for"])
    key, length = header["library"]
    code, rest = bytes(content[end : end + length]), content[end + length :]
    constants: dict[str, torch.Tensor] = {}
    for layout in header["constants"]:
        constants[layout["name"]], rest = _tensor(layout, rest)
    program = CompiledProgram(
        kernels=[_kernel(kernel) for kernel in header["kernels"]],
        constants=constants,
        fallbacks=[(name, reason) for name, reason in header["fallbacks"]],
        provenance=header["origins"],
        **{name: header[name] for name in (*_TEXTS, *_COUNTS)},
    )
    return program, header["provenance"], key, code


def made_for() -> dict[str, str]:
    """What machine code and wrapper rely on. Raises CompilerMissing for a processor that can't be identified."""
    return {
        "core-inductor": __version__,
        "torch": f"{torch.__version__} {torch.version.git_version}",
        "processor": instruction_set(),
        "flags": " ".join((*CXX_FLAGS, *OUTPUT_FLAGS)),
    }


def _require_here(stored: Mapping[str, str]) -> None:
    try:
        here = made_for()
    except CompilerMissing as error:
        raise Unfit(str(error)) from error
    for name, value in here.items():
        if stored.get(name) != value:
            if name == "processor":
                raise Unfit("the program was built for another processor")
            raise Unfit(f"the program was made with {name} {stored.get(name)}, here is {value}")


def _constant(name: str, tensor: torch.Tensor) -> tuple[dict[str, Any], bytes]:
    """The layout of a tensor and the elements of its memory from the first to the last, also those between."""
    layout = {
        "name": name,
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "sizes": list(tensor.shape),
        "strides": list(tensor.stride()),
        "elements": _extent(tensor),
    }
    memory = tensor.detach().as_strided((_extent(tensor),), (1,), tensor.storage_offset())
    return layout, ctypes.string_at(memory.data_ptr(), memory.nbytes) if layout["elements"] else b""


def _extent(tensor: torch.Tensor) -> int:
    if tensor.numel() == 0:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))


def _tensor(layout: Mapping[str, Any], content: memoryview) -> tuple[torch.Tensor, memoryview]:
    """A constant in memory of its own, and what follows it."""
    dtype = getattr(torch, layout["dtype"])
    length = layout["elements"] * dtype.itemsize
    with disable_current_modes(), torch.no_grad():
        if not length:
            return torch.empty_strided(layout["sizes"], layout["strides"], dtype=dtype), content
        memory = torch.empty(layout["elements"], dtype=dtype)
        memory.view(torch.uint8).copy_(torch.frombuffer(bytearray(content[:length]), dtype=torch.uint8))
        return memory.as_strided(layout["sizes"], layout["strides"]), content[length:]


def _kernel(data: dict[str, Any]) -> KernelSpec:
    outputs = tuple(
        OutputSpec(_sizes(output["sizes"]), _sizes(output["strides"]), output["dtype"]) for output in data["outputs"]
    )
    return KernelSpec(**{**data, "outputs": outputs, "reuse": tuple(data["reuse"])})


def _sizes(values: list[Any]) -> tuple[Any, ...]:
    return tuple(tuple(value) if isinstance(value, list) else value for value in values)
