"""What becomes of a capture that our recorder refuses: AOTAutograd traces it again, or it runs as it was captured.

Enters: a CapturedGraph and the reason. Leaves: a callable `(*inputs) -> outputs`, and an event that says which road was
taken. A record refused as such (storage replaced, `.grad` or requires_grad changed, ...) describes a program that
AOTAutograd would trace without noticing, with wrong results; such a graph runs as captured, on eager's own kernels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import torch_compat
from ..errors import BackendError, RecorderRefused
from ..events import FellBack, emit
from ..graph.captured import CapturedGraph
from ..graph.desugar import has_wrappers
from ..graph.functionalize import is_random
from ..graph.inverse import Refused
from ..graph.repeatable import EFFECT
from .artifact import first_line
from .fallback import Lineup
from .first_run import checked_once
from .generated import compile_source
from .regions_compile import Task, compile_task
from .resolved import ResolvedBackend
from .restored_modes import restoring

_BY_STRIDES = torch.ops.aten.as_strided.default


def compile_refused(
    captured: CapturedGraph,
    lineup: Lineup,
    claimants: Sequence[ResolvedBackend],
    name: str,
    refusal: RecorderRefused,
) -> Callable[..., tuple[Any, ...]]:
    """Compile without the record. Errors of the backend are raised; AOTAutograd's lead to the graph as captured."""
    if traceable_again(captured, refusal):
        reason = f"{refusal.what}; AOTAutograd traces the graph"
        emit(FellBack("recorder", reason, refusal.where or first_line(captured)))
        try:
            return compile_with_aot(captured, lineup, claimants, name)
        except BackendError:
            raise
        except Exception as error:  # whatever a second tracer stumbles over, the captured graph itself still runs
            reason = f"AOTAutograd failed: {type(error).__name__}: {error}; the graph runs as captured"
            emit(FellBack("aot", reason, first_line(captured)))
    else:
        reason = f"{refusal.what}; the graph runs as captured"
        emit(FellBack("recorder", reason, refusal.where or first_line(captured)))
    if lineup.options.fullgraph_backend:
        raise refusal
    return checked_once(restoring(captured, captured.module.forward), captured.outputs, "eager")


def traceable_again(captured: CapturedGraph, refusal: RecorderRefused) -> bool:
    """Whether AOTAutograd can be trusted with the graph.

    It can when there is no record, when a higher-order operator is what the record lacks, and when only the backward
    could not be recorded. For programs whose views and writes our functionalisation refuses it is sometimes wrong
    (measured with random programs: in training, returned views that carry gradients past their base, without an error;
    in inference, views of inputs that share memory, with one), and so it is where inputs that share memory are written
    to.
    """
    if has_wrappers(captured) or any(node.meta.get(EFFECT) for node in captured.module.graph.nodes):
        return False
    if captured.record is not None and any(is_random(call) for call in captured.record.calls):
        return False  # AOTAutograd drops random calls nobody needs and moves others: the generator ends elsewhere
    if captured.record is not None and any(call.op is _BY_STRIDES for call in captured.record.calls):
        return False  # it counts their offsets from where the tensor begins, or from what it takes for its base
    if captured.needs_grad and captured.mutated and _sharing_memory(captured):
        return False  # what it makes of their common memory has other results
    if _carries_gradients(captured, _sharing_memory(captured)):
        return False  # views of them would come out without their history
    if captured.needs_grad and captured.record is not None and len({call.grad for call in captured.record.calls}) > 1:
        return False  # views taken while gradients are off come out with a history
    if any(isinstance(node.target, torch._ops.HigherOrderOperator) for node in captured.module.graph.nodes):
        return True
    if captured.record is not None and captured.record.refused is not None:
        return False
    return not isinstance(refusal, Refused) and captured.mutated.isdisjoint(_sharing_memory(captured))


def compile_with_aot(
    captured: CapturedGraph, lineup: Lineup, claimants: Sequence[ResolvedBackend], name: str
) -> Callable[..., tuple[Any, ...]]:
    """Trace and wrap with AOTAutograd; the backend compiles the graphs that come out of it."""

    def compiler(mode: str) -> Callable[[Any, Sequence[Any]], Callable[..., Any]]:
        def compile_one(graph: Any, fakes: Sequence[Any]) -> Callable[..., Any]:
            with torch_compat.beside_dispatch_modes():  # AOTAutograd's: constants in the graph are real
                return _boxed(compile_task(Task(captured, graph, lineup, claimants, name, mode)))

        return compile_one

    compiled = torch_compat.aot_module_simplified()(
        mod=captured.module,
        args=fresh_inputs(captured),
        fw_compiler=compiler("forward" if captured.needs_grad else "inference"),
        bw_compiler=compiler("backward"),
        inference_compiler=compiler("inference"),
    )
    shared = [] if captured.needs_grad else _sharing_memory(captured)
    label = claimants[0].label if claimants else "eager"
    return checked_once(_without_bases(compiled, shared), captured.outputs, label)


def _sharing_memory(captured: CapturedGraph) -> list[int]:
    """Inputs whose storage another input has too."""
    if captured.record is None:
        return []
    storages = {i.index: captured.record.facts[i.index].storage._cdata for i in captured.inputs if i.is_tensor}
    counts = Counter(storages.values())
    return [index for index, storage in storages.items() if counts[storage] > 1]


def _carries_gradients(captured: CapturedGraph, inputs: Sequence[int]) -> bool:
    facts = [captured.record.facts[index] for index in inputs] if captured.record is not None else []
    return any(item is not None and item.requires_grad for item in facts)


def _without_bases(call: Callable[..., Any], shared: Sequence[int]) -> Callable[..., Any]:
    """`call` on inputs that are nobody's views.

    Inputs that share memory are merged into one base: when tracing their storage, when running the tensor that they are
    views of, if they are. A detached input is no view, and both are the storage.
    """
    if not shared:
        return call

    def run(*inputs: Any) -> tuple[Any, ...]:
        given = list(inputs)
        for index in shared:
            given[index] = inputs[index].detach()
        originals = {id(given[index]): inputs[index] for index in shared}
        return tuple(originals.get(id(output), output) for output in call(*given))

    return run


def _boxed(call: Callable[..., Any]) -> Callable[..., Any]:
    """The calling convention of AOTAutograd: one list, emptied so that its tensors can be freed during the run."""
    source = ("def compiled(inputs):", "    values = tuple(inputs)", "    inputs.clear()", "    return run(*values)")
    compiled = compile_source(source, {"run": call}, "compiled")
    compiled._boxed_call = True  # type: ignore[attr-defined]
    return compiled


def fresh_inputs(captured: CapturedGraph) -> list[Any]:
    """Fakes like the inputs before the capture ran on them: no history, no writes, memory shared as theirs."""
    storages: dict[int, Any] = {}
    return [_fresh(captured, item, storages) if item.is_tensor else item.fake for item in captured.inputs]


def _fresh(captured: CapturedGraph, item: Any, storages: dict[int, Any]) -> Any:
    fake = item.fake
    facts = captured.record.facts[item.index] if captured.record is not None else None
    size, stride, offset = (
        (facts.size, facts.stride, facts.offset)
        if facts is not None
        else (tuple(fake.shape), tuple(fake.stride()), fake.storage_offset())
    )
    key = (facts.storage if facts is not None else fake.untyped_storage())._cdata
    with captured.fake_mode, torch.no_grad():
        if key not in storages:
            nbytes = facts.storage.nbytes() if facts is not None else fake.untyped_storage().nbytes()
            storages[key] = torch.empty((nbytes,), dtype=torch.uint8, device=fake.device)
        memory = storages[key].view(fake.dtype) if fake.dtype is not torch.uint8 else storages[key]
        fresh = memory.as_strided(size, stride, offset).detach()
    if item.is_parameter:
        fresh = torch.nn.Parameter(fresh, requires_grad=item.requires_grad)
    else:
        fresh.requires_grad_(item.requires_grad)
    return fresh
