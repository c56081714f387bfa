"""The check of a compiled graph's outputs on its first run, and its disappearance afterwards.

A backend that returns another number of outputs, another dtype or another shape than the graph's would corrupt the
program silently; one look at the first results finds it. Later calls go straight to the artifact, or through
a generated function where its layouts must be repaired.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..errors import BackendMisbehaved
from ..events import BackendReported, emit
from ..plugin import Finding
from .generated import compile_source
from .layout import differs_in_name_only, is_static, layout_test, lies_as, relayout


def checked_once(
    call: Callable[..., Any],
    expected: Sequence[Any],
    label: str,
    *,
    restore_layout: bool = False,
    fresh: Sequence[int] = (),
    backend: str = "",
) -> Callable[..., Any]:
    """`call` as a positional callable that returns a tuple, its first results compared with the fakes in `expected`.

    The returned function has an attribute `followers`, a list of functions: each is called once, after the first good
    run, with the callable that does the work from then on, so that an owner can drop this function from its path.
    restore_layout: outputs must have the strides of the fakes; those that don't are copied, on this and on later runs.
    fresh: outputs that must be memory of their own; one that shares it with an input or an earlier output is copied, on
    this and on later runs, and a finding of `backend` says so.
    """

    def first(inputs: tuple[Any, ...]) -> tuple[tuple[Any, ...], Callable[..., Any]]:
        outputs = call(*inputs)
        check_outputs(outputs, expected, label)
        final = call if type(outputs) is tuple else _as_tuple(call)
        shared = _sharing(outputs, inputs, fresh, backend or label) if fresh else []
        repaired = _to_repair(outputs, expected) if restore_layout else []
        if repaired or shared:
            repair = relayout(expected, repaired, shared)
            outputs, final = repair(*outputs), _chained(final, repair)
        return tuple(outputs), final

    return _looked_at_once(first)


def _looked_at_once(
    first: Callable[[tuple[Any, ...]], tuple[tuple[Any, ...], Callable[..., Any]]],
) -> Callable[..., Any]:
    """A function whose first call is `first(inputs)`: the outputs, and what every later call runs instead."""
    namespace: dict[str, Any] = {}
    compiled = compile_source(("def compiled(*inputs):", "    return run(*inputs)"), namespace, "compiled")
    followers: list[Callable[[Callable[..., Any]], None]] = []

    def run(*inputs: Any) -> tuple[Any, ...]:
        outputs, final = first(inputs)
        namespace["run"] = final
        for follower in followers:
            follower(final)
        followers.clear()
        return outputs

    namespace["run"] = run
    compiled.followers = followers  # type: ignore[attr-defined]
    return compiled


def fresh_once(run: Callable[..., Any], fresh: Sequence[int], label: str) -> Callable[..., Any]:
    """`run`, which returns a tuple that is right, with the outputs at `fresh` made memory of their own.

    As checked_once it looks at the first results and is then gone, unless it has to copy.
    """
    if not fresh:
        return run

    def first(inputs: tuple[Any, ...]) -> tuple[tuple[Any, ...], Callable[..., Any]]:
        outputs, final = run(*inputs), run
        shared = _sharing(outputs, inputs, fresh, label)
        if shared:
            repair = relayout([None] * len(outputs), (), shared)
            outputs, final = repair(*outputs), _chained(run, repair)
        return tuple(outputs), final

    return _looked_at_once(first)


def _sharing(outputs: Sequence[Any], inputs: Sequence[Any], fresh: Sequence[int], backend: str) -> list[int]:
    """The outputs among `fresh` that lie in memory of an input or of an earlier output."""
    taken = [(span, f"input {at}") for at, value in enumerate(inputs) if (span := _span(value)) is not None]
    found = []
    for index, output in enumerate(outputs):
        span = _span(output)
        if span is None:
            continue
        owner = next((name for other, name in taken if other[0] < span[1] and span[0] < other[1]), None)
        if owner is not None and index in fresh:
            found.append(index)
            text = f"output {index} of a graph shares memory with {owner}; it is copied on every call"
            emit(BackendReported(backend, Finding("warning", text, "return new tensors")))
        taken.append((span, f"output {index}"))
    return found


def _span(value: Any) -> tuple[int, int] | None:
    """The first byte of a tensor's elements and the one behind the last, None where there are none."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or value.numel() == 0:
        return None
    try:
        start = value.data_ptr()
    except RuntimeError:  # batched by a transform: its memory is not its own
        return None
    reach = 1 + sum((size - 1) * stride for size, stride in zip(value.shape, value.stride()))
    return (start, start + reach * value.element_size()) if start else None


def _as_tuple(call: Callable[..., Any]) -> Callable[..., Any]:
    source = ("def compiled(*inputs):", "    return tuple(run(*inputs))")
    return compile_source(source, {"run": call}, "compiled")


def _chained(call: Callable[..., Any], repair: Callable[..., Any]) -> Callable[..., Any]:
    source = ("def compiled(*inputs):", "    return repair(*run(*inputs))")
    return compile_source(source, {"run": call, "repair": repair}, "compiled")


def _to_repair(outputs: Sequence[Any], expected: Sequence[Any]) -> list[int]:
    """Outputs whose layout differs, and those of symbolic sizes that aren't plainly contiguous: they may next time."""
    found = []
    for index, (output, fake) in enumerate(zip(outputs, expected)):
        if not isinstance(output, torch.Tensor) or output.layout is not torch.strided:
            continue
        if not lies_as(output, fake) or _may_differ_later(fake) or differs_in_name_only(output, fake):
            found.append(index)
    return found


def _may_differ_later(fake: Any) -> bool:
    if not isinstance(fake, torch.Tensor) or is_static(fake):
        return False
    test = layout_test("t", fake)
    return ".permute(" in test or ".stride(" in test


def check_outputs(outputs: Any, expected: Sequence[Any], label: str) -> None:
    """Compare results with the fakes that the graph promised. Raises BackendMisbehaved naming the first difference."""
    if not isinstance(outputs, (tuple, list)):
        raise _misbehaved(label, f"a {type(outputs).__name__} instead of a tuple of {len(expected)} outputs")
    if len(outputs) != len(expected):
        raise _misbehaved(label, f"{len(outputs)} outputs, the graph has {len(expected)}")
    for index, (output, fake) in enumerate(zip(outputs, expected)):
        difference = _difference(output, fake)
        if difference:
            raise _misbehaved(label, f"output {index} with {difference}")


def _difference(output: Any, fake: Any) -> str:
    if not isinstance(fake, torch.Tensor):
        return f"the type {type(output).__name__}, not a number" if isinstance(output, torch.Tensor) else ""
    if not isinstance(output, torch.Tensor):
        return f"the type {type(output).__name__}, not a tensor"
    if output.dtype is not fake.dtype:
        return f"dtype {output.dtype}, the graph has {fake.dtype}"
    if output.device.type != fake.device.type:
        return f"device {output.device}, the graph has {fake.device}"
    if output.layout is torch.strided and not _sizes_agree(output, fake):
        return f"shape {tuple(output.shape)}, the graph has {tuple(fake.shape)}"
    return ""


def _sizes_agree(output: torch.Tensor, fake: torch.Tensor) -> bool:
    if output.dim() != fake.dim():
        return False
    return all(size == want for size, want in zip(output.shape, fake.shape) if isinstance(want, int))


def _misbehaved(label: str, returned: str) -> BackendMisbehaved:
    return BackendMisbehaved(
        f"the graph compiled by backend {label} returned {returned}",
        instead="the result was discarded",
        remedy="this is the backend's fault: use another one, and report it to its authors",
    )
