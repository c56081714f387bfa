"""The dtypes of results as kernels give them, where the fakes' rules say something else.

Normalizations on the CPU take images of 16-bit floats with weights of 32 bits, as autocast hands them in; their
statistics have 32 bits then, and the image's gradient 16. Losses that are written to memory made like their first
operand have its dtype, whatever that of the target is. Compared with real calls, torch 2.11 and 2.13
(tests/cpu/test_kernel_dtypes.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

aten = torch.ops.aten
_NORMS = frozenset(
    getattr(aten, name).default
    for name in (
        "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional _batch_norm_with_update "
        "_native_batch_norm_legit_no_training _batch_norm_no_update native_layer_norm native_group_norm"
    ).split()
) | {aten._native_batch_norm_legit.no_stats}
_FUNCTIONAL = aten._native_batch_norm_legit_functional.default
_LIKE_FIRST = (aten.huber_loss.default, aten.soft_margin_loss.default)
_SHORT = (torch.bfloat16, torch.float16)


def as_kernels_do(op: Any, args: Sequence[Any], result: Any) -> Any:
    """`result` of a call on fakes, with the dtypes that the kernel's would have."""
    if op is aten.native_group_norm_backward.default:  # the gradient of the image has its dtype, on every device
        return type(result)((_in(result[0], args[1].dtype), *result[1:]))
    if op in _LIKE_FIRST:
        return _in(result, args[0].dtype)
    if op not in _NORMS or args[0].dtype not in _SHORT or args[0].device.type != "cpu":
        return result
    others = [value.dtype for value in args[1:] if isinstance(value, torch.Tensor)]
    statistic = torch.float32 if torch.float32 in others else args[0].dtype
    wanted = [None, statistic, statistic]
    if op is _FUNCTIONAL:  # the running statistics, which keep their dtypes
        wanted += [args[3].dtype, args[4].dtype]
    made = [item if dtype is None else _in(item, dtype) for item, dtype in zip(result, wanted)]
    return type(result)((*made, *result[len(made) :]))


def _in(item: Any, dtype: torch.dtype) -> Any:
    return item if item is None or item.dtype is dtype else torch.empty_like(item, dtype=dtype)
