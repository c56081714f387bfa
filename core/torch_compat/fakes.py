"""Fake tensors made directly, with this package's private names of torch. Checked with torch 2.11 and 2.13."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import torch

from . import newer

TAKE_SYMBOLS = (
    *(torch.nn.functional.dropout, torch.dropout, torch.ops.aten.dropout.default, torch.broadcast_tensors),
    *(() if newer.VIEWS_TAKE_SYMBOLS else (torch.lstm,)),
)
"""Composite operators that take symbolic sizes in C++ too; the Python ones copy where these return their operand, and
that of torch 2.8 for lstm gives states of a wrong shape."""


def symbolic_dispatch(fn: Any) -> contextlib.AbstractContextManager[Any]:
    """Within it, the composite operators that `fn` calls take symbolic sizes.

    Some C++ kernels of theirs (those of resampling, unfold and Fourier transforms; before torch 2.13 matmul's too) ask
    for plain sizes, which makes a graph for each size or none. The Python ones beside them don't.
    """
    from torch._dispatch.python import enable_python_dispatcher

    return contextlib.nullcontext() if fn in TAKE_SYMBOLS else enable_python_dispatcher()


def is_parameter_class(cls: type) -> bool:
    """True for Parameter, Buffer, and classes of a program that extend them and leave torch's functions alone."""
    return (
        issubclass(cls, (torch.nn.Parameter, torch.nn.Buffer))
        and cls.__torch_function__ is torch._C._disabled_torch_function_impl
        and cls.__torch_dispatch__ is torch.Tensor.__torch_dispatch__  # type: ignore[attr-defined]
    )


def is_plain_leaf(example: torch.Tensor) -> bool:
    """Whether a dense tensor is all there is to it: no view, no history, no gradient, no bit that defers an operation.

    Numbers in a tensor are left to torch, which remembers what their item() is.
    """
    return (
        (type(example) is torch.Tensor or is_parameter_class(type(example)))
        and example.layout is torch.strided
        and example.is_leaf
        and example.dim() > 0
        and not example._is_view()
        and not (example.requires_grad and (example.grad is not None or _other_gradient_dtype(example)))
        and not (example.is_conj() or example.is_neg() or example.is_quantized or example.is_inference())
        and not (example._is_zerotensor() or any(getattr(example, "names", ())))
        and not torch._C._functorch.is_functorch_wrapped_tensor(example)
        and example.device.type in ("cpu", "cuda")
    )


def _other_gradient_dtype(example: torch.Tensor) -> bool:
    """Whether its gradients may be of another dtype than its own, which 2.13 lets a program say."""
    return bool(getattr(example, "grad_dtype", example.dtype) != example.dtype)


def plain_fake(mode: Any, example: torch.Tensor) -> Any:
    """What from_tensor makes of such a tensor, without its imports: sympy for shapes that hold no symbol.

    Known to the mode's own converter, so that tensors which share the memory find it. Checked with torch 2.11 and 2.13.
    """
    from torch._subclasses.fake_tensor import FakeTensor

    converter = mode.fake_tensor_converter
    metas = converter.meta_converter
    known = converter._get_memo(example)
    if known is not None:
        return known
    storage = metas.describer.describe_storage(example.untyped_storage())
    with torch._C._DisableTorchDispatch(), torch.inference_mode(False):
        shared = metas.get_storage_memo(storage)
        if shared is None:
            shared = torch.empty(storage.size, dtype=torch.uint8, device="meta").untyped_storage()
            metas.set_storage_memo(storage, shared)
        meta = torch.empty(0, dtype=example.dtype, device="meta")
        meta.set_(shared, example.storage_offset(), example.shape, example.stride())
        meta.requires_grad_(example.requires_grad)
        fake = FakeTensor(mode, meta, example.device)
    if isinstance(example, torch.nn.Parameter):
        fake._is_param = True
    if isinstance(example, torch.nn.Buffer):
        fake._is_buffer = True
        fake.persistent = example.persistent
    converter.set_tensor_memo(example, fake)
    return fake


def meta_kernels(mode: Any) -> Any:
    """A context in which operators take fakes of the mode for the meta tensors that they are."""
    from torch._subclasses.fake_tensor import in_kernel_invocation_manager

    return in_kernel_invocation_manager(mode)


def wrap_meta(mode: Any, result: Any, device: torch.device) -> Any:
    """A meta tensor as a fake tensor on the device; a fake, which an operator returns that writes to it, as it is."""
    from torch._subclasses.fake_tensor import FakeTensor

    if isinstance(result, FakeTensor):
        return result
    with torch._C._DisableTorchDispatch():
        return FakeTensor(mode, result, device)


def new_fake(
    mode: Any, sizes: Sequence[int], dtype: torch.dtype, device: torch.device, strides: Sequence[int] | None = None
) -> Any:
    """A fake tensor of its own memory, with its elements in order unless strides are given."""
    from torch._subclasses.fake_tensor import FakeTensor

    with torch._C._DisableTorchDispatch():
        if strides is None:
            return FakeTensor(mode, torch.empty(sizes, dtype=dtype, device="meta"), device)
        return FakeTensor(mode, torch.empty_strided(sizes, strides, dtype=dtype, device="meta"), device)


def is_bare_fake(mode: Any, tensor: torch.Tensor) -> bool:
    """Whether a tensor is a fake of the mode with nothing beside its geometry."""
    from torch._subclasses.fake_tensor import FakeTensor

    return (
        type(tensor) is FakeTensor
        and tensor.fake_mode is mode
        and tensor.constant is None
        and tensor.real_tensor is None
        and tensor.layout is torch.strided
        and not (tensor.is_conj() or tensor.is_neg())
    )


def give_constant(mode: Any, fake: Any, constant: torch.Tensor) -> None:
    """Let a fake tensor know its value, until something writes to it. Checked with torch 2.13."""
    fake.constant = constant
    mode.fake_tensor_converter.add_constant_storage_mapping(fake)
