"""What the guard evaluator learns from: tensors of known contents, and the functions that read this torch's state."""

from __future__ import annotations

import warnings

import torch

from . import beside_modes, dispatch_key_bits


def calibrate() -> str:
    """Let the guard evaluator learn how this torch's tensors and global state are read; once a process.

    Returns 'A' (offsets) or 'B' (exported functions) for tensors. Checked with torch 2.13.
    """
    from torch.utils import _device

    from .. import _C

    hooks = torch._C._autograd
    accelerator = torch.accelerator.current_accelerator()
    kinds = {"xpu": 12, "mps": 13}  # c10::DeviceType; cpu is 0, cuda 1
    device_types = (0, 1, *(kinds[name] for name in kinds if accelerator is not None and accelerator.type == name))
    _C.global_state_calibrate(
        torch.autograd.forward_ad.__dict__,
        _device.DeviceContext(torch.device("meta")),
        device_types,
        hooks._push_saved_tensors_default_hooks,
        hooks._pop_saved_tensors_default_hooks,
        torch.__version__.startswith("2.13."),  # its flags were compared with the headers
    )
    samples = [(sample, dispatch_key_bits(sample)) for sample in _sample_tensors()]
    return _C.tensor_abi.calibrate(torch, samples, torch._C._dispatch_keys)


def _sample_tensors() -> list[torch.Tensor]:
    """Tensors of known contents: one a dtype, then shapes, strides, autograd states, views and layouts."""
    with beside_modes():
        samples = _one_a_dtype()
        leaf = torch.ones(3, 4, requires_grad=True)
        was_leaf = torch.ones(2, requires_grad=True)
        was_leaf.requires_grad_(False)
        samples += [
            torch.ones((), device="cpu"),
            torch.ones(2, 3, 4)[1:, ::2].transpose(0, 2),
            torch.ones(1, 2, 3, 4, 5),
            torch.ones(1, 2, 3, 4, 5, 6),
            torch.ones(0, 7),
            leaf,
            was_leaf,
            leaf * 2,
            torch.nn.Parameter(torch.ones(2)),
            torch.nn.Parameter(torch.ones(2), requires_grad=False),
            torch.ones(2, dtype=torch.complex64).conj(),
            torch.ones(2, dtype=torch.complex64).conj().imag,
            torch.ones(2, 2).to_sparse(),
            torch.empty(4, device="meta")[1:],
        ]
        samples += _one_a_layout()
        with torch.inference_mode():
            samples.append(torch.ones(2, 2))
    return samples


def _one_a_layout() -> list[torch.Tensor]:
    """Tensors without strides: what their keys have alone tells a layout where torch exports no function for it."""
    layouts = [torch.sparse_csr, *([torch._mkldnn] if torch.backends.mkldnn.is_available() else [])]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # compressed tensors are said to be unfinished: nothing is computed here
        return [torch.empty(1, 1, layout=layout) for layout in layouts]


def _one_a_dtype() -> list[torch.Tensor]:
    dtypes = {value for value in vars(torch).values() if isinstance(value, torch.dtype)}
    samples = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some dtypes are experimental, some deprecated: nothing is computed here
        for dtype in sorted(dtypes, key=str):
            try:
                samples.append(torch.empty(2, dtype=dtype, device="meta"))
            except (RuntimeError, TypeError, NotImplementedError):
                continue  # a dtype without tensors can't be guarded either
    return samples
