"""What is private in torch and used here (torch 2.8 to 2.13): an overload's schema, a program's call in C++, and the
modes that are on while another tracer of torch's compiles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch.utils._python_dispatch as dispatch


def typed(overload: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The arguments of a call, each with the type that the overload's schema gives it, "number" for any kind of one."""
    arguments = overload._schema.arguments
    types = {one.name: str(one.type) for one in arguments}
    yield from ((str(one.type), value) for one, value in zip(arguments, args))
    yield from ((types[name], value) for name, value in kwargs.items())


def direct(program: Any) -> Callable[..., Any]:
    """The call of a TorchScript program without the Python module around it."""
    return program._c.forward if hasattr(program, "_c") else program


def real_tensors() -> AbstractContextManager[None]:
    """Tensors made inside are real, whatever mode is on."""
    return dispatch._disable_current_modes()
