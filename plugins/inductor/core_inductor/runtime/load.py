"""From a loaded library and its specs to Python callables.

On first use the C extension looks up torch's functions in this process and its answers are compared with torch's own.
State shared between threads: `_dtypes` and `_calibrated`, under `_lock`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import torch

from .. import _runtime
from ..torch_compat import disable_current_modes, impl_address
from .spec import FAILURES, KernelSpec, OutputSpec

GRAIN_ELEMENTS = 4096
"""A kernel gets torch's threads when its largest tensor has so many elements for each. Measured with two threads: at
8192 elements an addition loses 0.2 us by it and 20 multiplications an element gain 2.4 us."""

PARALLEL_ELEMENTS = 32768
"""From so many elements on a kernel gets all threads, however many there are, as torch's own loops do."""

RELEASE_ELEMENTS = 16384
"""From so many elements on a kernel runs without the GIL; giving it up and taking it back costs about 30 ns."""

_lock = threading.Lock()
_dtypes: dict[str, tuple[int, torch.dtype]] = {}
_calibrated = False


def make_kernels(library: _runtime.Library, specs: Iterable[KernelSpec], *, parallel: bool = True) -> list[Any]:
    """A callable for each spec, in order. `parallel=False` keeps all of them on one thread."""
    calibrate()
    return [_make_kernel(library, spec, parallel) for spec in specs]


def calibrate() -> None:
    """Prepare the C extension for this process's torch. Raises ImportError for a torch that it can't read."""
    global _calibrated
    with _lock:
        if not _calibrated:
            with disable_current_modes(), torch.no_grad():
                _calibrate()
            _calibrated = True


def _calibrate() -> None:
    tensors = (
        torch.zeros(2, 3, dtype=torch.float64),
        torch.zeros(0),
        torch.zeros((), dtype=torch.bool),
        torch.nn.Parameter(torch.zeros(4)),
        torch.zeros(8)[3:],
    )
    _runtime.calibrate(torch, tuple((tensor, impl_address(tensor)) for tensor in tensors))
    for tensor in tensors:
        if _runtime.data_pointer(tensor) != tensor.data_ptr():
            raise ImportError(f"torch {torch.__version__} keeps tensor memory in a way this plugin can't read")
    if not _allocates_well():
        _runtime.allocate_in_python()


def _allocates_well() -> bool:
    """Compare a tensor made by the C extension with what torch says of it."""
    code = _runtime.dtype_code(torch.zeros(0, dtype=torch.float64))
    made = _runtime.empty_strided((2, 3), (1, 2), code, torch.float64)
    return (
        type(made) is torch.Tensor
        and made.dtype is torch.float64
        and made.shape == (2, 3)
        and made.stride() == (1, 2)
        and made.device.type == "cpu"
        and not made.requires_grad
        and made.grad_fn is None
        and made.untyped_storage().nbytes() == 48
        and made.storage_offset() == 0
        and made.data_ptr() == _runtime.data_pointer(made)
    )


def dtype_code(name: str) -> tuple[int, torch.dtype]:
    """torch's number of a dtype and the dtype, by its name ("float32")."""
    with _lock:
        found = _dtypes.get(name)
    if found is None:
        dtype = getattr(torch, name)
        with disable_current_modes():
            found = (_runtime.dtype_code(torch.zeros(0, dtype=dtype)), dtype)
        with _lock:
            _dtypes[name] = found
    return found


def _make_kernel(library: _runtime.Library, spec: KernelSpec, parallel: bool) -> Any:
    return _runtime.Kernel(
        library,
        spec.name,
        spec.inputs,
        tuple(_output(output, reuse) for output, reuse in zip(spec.outputs, spec.reuse)),
        spec.int_args,
        spec.float_args,
        failures=FAILURES,
        parallel=parallel and spec.parallel,
        grain_elements=GRAIN_ELEMENTS,
        parallel_elements=PARALLEL_ELEMENTS,
        release_elements=RELEASE_ELEMENTS,
    )


def _output(output: OutputSpec, reuse: int | None) -> tuple[Any, ...]:
    code, dtype = dtype_code(output.dtype)
    return (output.sizes, output.strides, code, dtype, -1 if reuse is None else reuse)
