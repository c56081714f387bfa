"""The run-time wrapper of an inference artifact: a generated function around it, or nothing at all.

Enters: an Epilogue and the artifact's call. Leaves: a callable `(*inputs) -> outputs of the program`. Where the
epilogue is trivial and the call's state needs no change, that callable is the artifact's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .. import torch_compat
from ..graph.outputs import Epilogue
from .epilogue import write_epilogue
from .generated import Code, names, tuple_text


@dataclass(frozen=True)
class CallState:
    """The state of the process in which a graph is called; it is guarded, so it is known when the graph is compiled.

    autocast: (device type, dtype) of each device for which it is on.
    """

    grad_enabled: bool
    autocast: tuple[tuple[str, torch.dtype], ...] = ()

    @staticmethod
    def now(devices: Sequence[str]) -> CallState:
        """The state of this thread, for the device types named and the CPU."""
        kinds = sorted({"cpu", *(device.partition(":")[0] for device in devices)})
        on = tuple((kind, torch.get_autocast_dtype(kind)) for kind in kinds if torch.is_autocast_enabled(kind))
        return CallState(torch.is_grad_enabled(), on)


def write_run(code: Code, results: Sequence[str], arguments: Sequence[str], guards: Sequence[type]) -> None:
    """The line that runs the artifact, named `run`, inside the context managers `guards`."""
    targets = f"{tuple_text(results)} = " if results else ""
    if guards:
        opened = ", ".join(f"{code.bind(guard, guard.__name__)}()" for guard in guards)
        code.line(f"with {opened}:")
        code.depth += 1
    code.line(f"{targets}run({', '.join(arguments)})")
    if guards:
        code.depth -= 1


def follow(code_function: Callable[..., Any], namespace: dict[str, Any], name: str, run: Callable[..., Any]) -> None:
    """Let `name` in `namespace` be `run` now and, once its first run was checked, what it settles on."""
    namespace[name] = run
    followers = getattr(run, "followers", None)
    if followers is not None:
        followers.append(lambda final: namespace.__setitem__(name, final))
    code_function.followers = []  # type: ignore[attr-defined]  # the wrapper itself stays: nothing to follow


def wrap_inference(
    run: Callable[..., Any],
    epilogue: Epilogue,
    fakes: Sequence[Any],
    state: CallState,
    requires_grad: Sequence[bool],
) -> Callable[..., tuple[Any, ...]]:
    """Wrap an artifact of a graph without gradients.

    fakes: the program's outputs as captured; requires_grad: that of each input (False for numbers).

    The artifact runs below autograd where an input requires gradients: the program computed it without.
    """
    guards = []
    if state.grad_enabled and any(requires_grad):
        guards.append(torch_compat.below_autograd_guard())
    if state.autocast:
        guards.append(torch_compat.without_autocast_guard())
    if epilogue.trivial and not guards:
        return run
    inputs = names("i", len(requires_grad))
    code = Code("compiled", inputs)
    code.namespace["run"] = run
    write_run(code, names("s", len(epilogue.slots)), inputs, guards)
    write_epilogue(code, epilogue, fakes, grad_enabled=state.grad_enabled, requires_grad=requires_grad)
    compiled = code.finish()
    follow(compiled, code.namespace, "run", run)
    return compiled
