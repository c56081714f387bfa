"""Names that training needs: wrappers around optimizers, inference mode, results whose history is used up."""

from __future__ import annotations

import math
import sys
import types
from typing import Any

import torch


def delayed_error(words: str) -> Any:
    """A callable that gives one tensor back with a history whose backward raises RuntimeError(words)."""
    return torch._C._functions.DelayedError(words.encode(), 1)


def inference_mode_functions() -> tuple[Any, Any]:
    """(enter(mode) -> token, exit(token)) of inference mode."""
    module = torch.autograd.grad_mode
    return module._enter_inference_mode, module._exit_inference_mode


def inference_mode_guard() -> type:
    """The context manager beneath torch.inference_mode: inference_mode_guard()(mode)."""
    return torch._C._InferenceMode


def symbolic_math() -> dict[Any, Any]:
    """Functions of the math module that are defined for all numbers from 0 on -> torch's for symbolic numbers."""
    names = ("sqrt", "cos", "sin")
    return {getattr(math, name): getattr(torch, f"_sym_{name}") for name in names}


def kept_out_wrapper() -> types.CodeType:
    """The code of what keeps torch.compile out of a function of torch."""
    return torch._compile._disable_dynamo(kept_out_wrapper).__code__


def optimizer_step_wrapper() -> types.CodeType:
    """The code of what torch wraps around the step of each optimizer."""
    wrap = sys.modules["torch.optim.optimizer"]._use_grad_for_differentiable
    return next(const for const in wrap.__code__.co_consts if isinstance(const, types.CodeType))


def optimizer_functions() -> dict[str, types.FunctionType]:
    """Functions that the steps of optimizers call: value of a tensor, groups by device and dtype, check of captures,
    and the two forms of RAdam's step."""
    module = sys.modules["torch.optim.optimizer"]
    names = ("_accelerator_graph_capture_health_check", "_cuda_graph_capture_health_check")  # 2.13, before
    check = next(getattr(module.Optimizer, name) for name in names if hasattr(module.Optimizer, name))
    radam = sys.modules["torch.optim.radam"]
    return {
        "value": module._get_value,
        "groups": module._group_tensors_by_device_and_dtype,
        "check": check,
        "radam": radam._single_tensor_radam,
        "radam of lists": radam._multi_tensor_radam,
    }


def makes_selective_contexts(context_fn: Any) -> bool:
    """Whether context_fn of a checkpoint gives the modes of create_selective_checkpoint_contexts. Checked with 2.13."""
    from torch.utils import checkpoint

    kinds = checkpoint._CachingTorchDispatchMode, checkpoint._CachedTorchDispatchMode
    made = context_fn() if callable(context_fn) else None
    return isinstance(made, tuple) and tuple(map(type, made)) == kinds


def without_the_next_mode() -> Any:
    """Within it the dispatch mode that comes next is left out, in a handler of the one before. Checked with 2.13."""
    from torch.utils._python_dispatch import _pop_mode_temporarily

    return _pop_mode_temporarily()
