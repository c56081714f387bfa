"""Modes and transforms of torch that the program is inside of: which one keeps a frame from capture, and torch beside
them all. Checked with torch 2.11 and 2.13 where nothing else is said."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from .tensor_hooks import has_saved_tensor_hooks, saves_through_torch_itself

dispatch_stack_length = torch._C._len_torch_dispatch_stack  # how many TorchDispatch modes stand (2.11 and 2.13)


def function_mode_stack() -> list[Any]:
    """The TorchFunction modes that stand, the lowest first: those of `with torch.device(...)` among them, and that of
    set_default_device."""
    return [torch._C._get_function_stack_at(at) for at in range(torch._C._len_torch_function_stack())]


def _is_device(mode: Any) -> bool:
    """Whether it only says which device new tensors are made on."""
    from torch.utils._device import DeviceContext

    return type(mode) is DeviceContext


def unknown_active_mode() -> str | None:
    """The name of an active TorchFunction or TorchDispatch mode, under which capture leaves the call alone."""
    if torch._C._len_torch_dispatch_stack():
        return (
            f"a TorchDispatchMode ({type(torch._C._get_dispatch_stack_at(dispatch_stack_length() - 1)).__qualname__})"
        )
    for mode in function_mode_stack():
        if not _is_device(mode):
            return f"a TorchFunctionMode ({type(mode).__qualname__})"
    if torch._C._functorch.maybe_current_level() is not None:
        return "a functorch transform"
    if torch.autograd.forward_ad._current_level >= 0:
        return "a level of forward-mode differentiation"
    if has_saved_tensor_hooks() and not saves_through_torch_itself():
        return "a saved-tensor hook"
    if torch._C._get_tracing_state() is not None:
        return "torch.jit.trace"
    return None


@contextlib.contextmanager
def beside_transforms() -> Iterator[None]:
    """Torch outside of every transform of torch.func, and of what they forbid. Checked with 2.13."""
    if torch._C._functorch.maybe_current_level() is None:
        yield
        return
    from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

    hooks = torch._C._autograd
    forbidden = hooks._saved_tensors_hooks_get_disabled_error_message()  # torch.func.grad forbids hooks
    hooks._saved_tensors_hooks_enable()
    try:
        with temporarily_clear_interpreter_stack():
            yield
    finally:
        if forbidden is not None:
            hooks._saved_tensors_hooks_disable(forbidden)


def beside_dispatch_modes() -> contextlib.AbstractContextManager[Any]:
    """Torch outside of every dispatch mode. Checked with 2.13."""
    if not torch._C._len_torch_dispatch_stack():
        return contextlib.nullcontext()
    from torch.utils._python_dispatch import _disable_current_modes

    return _disable_current_modes()


@contextlib.contextmanager
def beside_modes() -> Iterator[None]:
    """Torch as it is outside of the program's modes: no function or dispatch mode, no transform, gradients recorded.

    For what is made once a process and lives on, whatever the program is in the middle of. Checked with 2.13.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(beside_transforms())
        stack.enter_context(beside_dispatch_modes())
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(torch._C.DisableTorchFunction())
        yield


def default_device() -> str:
    """The device on which factories make tensors, also inside beside_modes(). Checked with 2.13."""
    with torch._C._EnableTorchFunction():
        return str(torch.get_default_device())
