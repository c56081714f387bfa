"""Modes and transforms of torch that the program is inside of: which one keeps a frame from capture, and torch beside
them all. Checked with torch 2.11 and 2.13 where nothing else is said."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from .tensor_hooks import has_saved_tensor_hooks, saves_through_torch_itself

dispatch_stack_length = torch._C._len_torch_dispatch_stack  # how many TorchDispatch modes stand (2.11 and 2.13)


def unknown_active_mode() -> str | None:
    """The name of an active TorchFunction or TorchDispatch mode, under which capture leaves the call alone."""
    if torch._C._len_torch_dispatch_stack():
        return "a TorchDispatchMode"
    count = torch._C._len_torch_function_stack()
    default = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)  # set_default_device's, lowest of all
    if count > 1 or count and torch._C._get_function_stack_at(0) is not default:
        return "a TorchFunctionMode"
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


@contextlib.contextmanager
def beside_modes() -> Iterator[None]:
    """Torch as it is outside of the program's modes: no function or dispatch mode, no transform, gradients recorded.

    For what is made once a process and lives on, whatever the program is in the middle of. Checked with 2.13.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(beside_transforms())
        if torch._C._len_torch_dispatch_stack():
            from torch.utils._python_dispatch import _disable_current_modes

            stack.enter_context(_disable_current_modes())
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(torch._C.DisableTorchFunction())
        yield


def default_device() -> str:
    """The device on which factories make tensors, also inside beside_modes(). Checked with 2.13."""
    with torch._C._EnableTorchFunction():
        return str(torch.get_default_device())
