"""The function that replays a capture, as generated source: what a warm call runs.

It looks at the addresses of held inputs, copies the others into their buffers, launches, and brings results out. No
file of core is entered on the way, except where the program went to another stream meanwhile.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from ... import torch_compat
from ..generated import Code, names, tuple_text
from .graph_device import GraphDevice, Lease, bytes_at
from .memory import Result, flat, is_dense, overlaps_itself, span

CLONES = 2
"""Up to this many results are cloned one by one; more are allocated, and filled by one call a dtype."""
ALIGNMENT = 16
"""Bytes: the size of the largest element there is. A lease begins and ends at a multiple of it."""


def write_replay(made: Any, device: GraphDevice, order: Any, lock: threading.RLock) -> Callable[..., Any]:  # type: ignore[valid-type]
    """The function `(*inputs) -> results or None` of a Recording."""
    inputs = names("i", len(made.roles))
    code = Code("replay", inputs)
    for name, value in (("state", made), ("order", order), ("lock", lock)):
        code.namespace[name] = value
    _write_tests(code, made.addresses)
    leased = [result for result in made.results if result.kind == "leased"]
    code.line("with lock:")
    code.depth += 1
    if leased:
        code.line("if state.lease() is not None:")
        code.line("    return None")
    _write_order(code, device)
    code.line(f"with {code.bind(torch_compat.below_autograd_guard(), 'below')}():")
    code.depth += 1
    _write_copies_in(code, made.buffers)
    code.line(f"{code.bind(made.work.replay, 'launch')}()")
    code.line("state.replays += 1")
    if leased:
        _write_lease(code, leased, made.results, device)
    _write_copies_out(code, made.results)
    _write_views(code, made.results)
    code.depth = 1
    code.line(f"return {tuple_text(_result_names(code, made.results))}")
    return code.finish()


# -- before the launch ------------------------------------------------------------------------------------------------


def _write_tests(code: Code, addresses: dict[int, int]) -> None:
    tests = [f"i{at}.data_ptr() != {address}" for at, address in addresses.items()]
    for first in range(0, len(tests), 16):  # long conditions are hard on the parser
        code.line(f"if {' or '.join(tests[first : first + 16])}:")
        code.line("    return None")


def _write_order(code: Code, device: GraphDevice) -> None:
    """Captures of a device share memory: one that runs on another stream than the last waits for it."""
    stream = code.bind(device.stream, "stream")
    code.namespace["changed"] = _stream_change(device)
    code.line(f"now = {stream}()")
    code.line("if now != order.stream or now != state.stream:")
    code.line("    changed(now, order, state)")


def _stream_change(device: GraphDevice) -> Callable[[int, Any, Any], None]:
    def changed(now: int, order: Any, state: Any) -> None:
        for before in {order.stream, state.stream} - {now}:
            device.wait_for(before)
        order.stream = state.stream = now

    return changed


def _write_copies_in(code: Code, buffers: dict[int, torch.Tensor]) -> None:
    by_dtype: dict[torch.dtype, list[tuple[str, str]]] = {}
    for at, buffer in buffers.items():
        if not buffer.numel():
            continue
        target, value = code.bind(buffer, f"b{at}"), f"i{at}"
        if overlaps_itself(buffer):
            target, value = code.bind(flat(buffer), f"b{at}"), f"i{at}.as_strided(({span(buffer)},), (1,))"
        by_dtype.setdefault(buffer.dtype, []).append((target, value))
    for pairs in by_dtype.values():
        _write_copy(code, pairs)


def _write_copy(code: Code, pairs: Sequence[tuple[str, str]]) -> None:
    if len(pairs) == 1:
        code.line(f"{pairs[0][0]}.copy_({pairs[0][1]})")
        return
    copy = code.bind(torch._foreach_copy_, "foreach_copy")
    code.line(f"{copy}([{', '.join(to for to, _ in pairs)}], [{', '.join(value for _, value in pairs)}])")


# -- behind the launch ------------------------------------------------------------------------------------------------


def _write_lease(code: Code, leased: Sequence[Result], results: Sequence[Result], device: GraphDevice) -> None:
    """Tensors over the graph's own memory, in one storage whose end the lease knows of."""
    tensors = [result.tensor for result in leased]
    begin = min(tensor.data_ptr() for tensor in tensors) // ALIGNMENT * ALIGNMENT
    end = max(tensor.data_ptr() + span(tensor) * tensor.element_size() for tensor in tensors)
    interface = bytes_at(begin, -(-(end - begin) // ALIGNMENT) * ALIGNMENT)
    code.line(f"lease = {code.bind(Lease, 'Lease')}()")
    code.line(f"lease.__cuda_array_interface__ = {code.bind(interface, 'interface')}")
    code.line(f"lease.memory = {code.bind(tensors, 'memory')}")
    code.line(f"state.lease = {code.bind(weakref.ref, 'ref')}(lease)")
    code.line(f"area = {code.bind(device.memory_view, 'memory_view')}(lease)")
    typed: dict[torch.dtype, str] = {}
    for at, result in enumerate(results):
        if result.kind != "leased":
            continue
        tensor = result.tensor
        if tensor.dtype not in typed:
            typed[tensor.dtype] = f"area{len(typed)}"
            code.line(f"{typed[tensor.dtype]} = area.view({code.bind(tensor.dtype, 'dtype')})")
        offset = (tensor.data_ptr() - begin) // tensor.element_size()
        code.line(f"o{at} = {typed[tensor.dtype]}.as_strided({tuple(tensor.shape)}, {tensor.stride()}, {offset})")


def _write_copies_out(code: Code, results: Sequence[Result]) -> None:
    dense, rest = [], []
    for at, result in enumerate(results):
        if result.kind == "copied":
            (dense if is_dense(result.tensor) else rest).append((at, result.tensor))
    if len(dense) <= CLONES:
        for at, tensor in dense:
            code.line(f"o{at} = {code.bind(tensor, f'r{at}')}.clone()")
    else:
        _write_together(code, dense)
    for at, tensor in rest:
        # Strides that a clone would not keep: the whole stretch of memory is copied.
        code.line(f"o{at} = {code.bind(flat(tensor), f'r{at}')}.clone()")
        code.line(f"o{at} = o{at}.as_strided({tuple(tensor.shape)}, {tensor.stride()})")


def _write_together(code: Code, dense: Iterable[tuple[int, torch.Tensor]]) -> None:
    by_dtype: dict[torch.dtype, list[tuple[str, str]]] = {}
    like = code.bind(torch.empty_like, "empty_like")
    for at, tensor in dense:
        name = code.bind(tensor, f"r{at}")
        code.line(f"o{at} = {like}({name})")
        if tensor.numel():
            by_dtype.setdefault(tensor.dtype, []).append((f"o{at}", name))
    for pairs in by_dtype.values():
        _write_copy(code, pairs)


def _write_views(code: Code, results: Sequence[Result]) -> None:
    for at, result in enumerate(results):
        if result.kind == "view":
            base, tensor = f"i{result.source}", result.tensor
            begin = f"{base}.storage_offset() + {result.offset}"
            code.line(f"o{at} = {base}.as_strided({tuple(tensor.shape)}, {tensor.stride()}, {begin})")


def _result_names(code: Code, results: Sequence[Result]) -> list[str]:
    found: list[str] = []
    for at, result in enumerate(results):
        match result.kind:
            case "constant":
                found.append(code.bind(result.value, "value") if result.value is not None else "None")
            case "input":
                found.append(f"i{result.source}")
            case "again":
                found.append(found[result.source])
            case _:
                found.append(f"o{at}")
    return found
