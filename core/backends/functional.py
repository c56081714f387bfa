"""Compiling the functional ATen graph of a capture: inference, or forward and backward of a training region.

Enters: CapturedGraph and a Lineup of backends that want functional graphs. Leaves: a callable `(*inputs) -> outputs`
that does everything the torch-level graph does. What the recorder refuses goes to AOTAutograd, and an event says so.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch.fx as fx

from ..errors import RecorderRefused
from ..events import FellBack, compiling, emit
from ..graph.captured import CapturedGraph
from ..graph.decompose import decompose
from ..graph.desugar import Desugared, desugared, has_wrappers
from ..graph.finish import functional_graph
from ..graph.functional import FunctionalGraph, JointGraph
from ..graph.joint import joint_graph
from ..graph.partition import partition
from ..options import strict
from . import let_go
from .artifact import decomposition_table, first_line, graph_device
from .desugared import around
from .double_backward import EagerBackward
from .fallback import Lineup
from .freeze import frozen_run, frozen_weights
from .inference_outputs import in_inference_mode, inference_places
from .passes import run_passes
from .regions_compile import Task, compile_task
from .resolved import ResolvedBackend
from .symbolic import with_plain_sizes
from .training import wrap_training
from .wrapper import CallState, wrap_inference

_Graph = TypeVar("_Graph", FunctionalGraph, JointGraph)


def compile_functional(
    captured: CapturedGraph, lineup: Lineup, claimants: Sequence[ResolvedBackend], name: str
) -> Callable[..., tuple[Any, ...]]:
    """Compile a capture for backends of the graph levels "aten-functional" and "core-aten".

    claimants: those of the lineup that take this capture, none where all of it falls back. An attribute `writes_last`
    is on what writes to its inputs behind all else that may raise; what raises then has an attribute `after_writes`.
    """
    state = CallState.now((graph_device(captured),))
    job = Job(captured, lineup, claimants, name, state)
    try:
        if has_wrappers(captured):
            return _of_wrappers(job)
        places = inference_places(captured)
        if captured.needs_grad:
            joint = job.prepared(joint_graph(captured), "joint", "forward")
            return _writes_last(in_inference_mode(job.training(joint), captured, places), places)
        functional = job.prepared(functional_graph(captured), "inference", "inference")
    except RecorderRefused as refusal:
        if strict():
            raise
        from .aot_fallback import compile_refused

        return compile_refused(captured, lineup, claimants, name, refusal)
    return _writes_last(in_inference_mode(job.inference(functional), captured, places), places)


def _writes_last(run: Callable[..., tuple[Any, ...]], places: Sequence[int]) -> Callable[..., tuple[Any, ...]]:
    """places: the outputs that are copied once more, behind the writes."""
    if not places:
        run.writes_last = True  # type: ignore[attr-defined]
    return run


def _of_wrappers(job: Job) -> Callable[..., tuple[Any, ...]]:
    """For a capture with wrapper tensors: the backend gets those that they are made of."""
    captured = job.captured
    plain = desugared(captured)
    job = replace(job, captured=plain.captured)
    if captured.needs_grad:
        joint = job.prepared(joint_graph(plain.captured, plain), "joint", "forward")
        return job.training(joint, plain, captured)
    places = inference_places(plain.captured)
    functional = job.prepared(functional_graph(plain.captured), "inference", "inference")
    return around(plain, captured, in_inference_mode(job.inference(functional), plain.captured, places))


@dataclass(frozen=True)
class Job:
    """One capture on its way through a lineup."""

    captured: CapturedGraph
    lineup: Lineup
    claimants: Sequence[ResolvedBackend]
    name: str
    state: CallState

    def prepared(self, graph: _Graph, stage: str, mode: str) -> _Graph:
        """The graph behind the passes of its stage, as the first backend wants it: its operators, plain sizes where it
        takes no symbols."""
        captured = self.captured
        module = run_passes(graph.module, stage, captured)
        table = decomposition_table(self.claimants[0], mode) if self.claimants else {}
        if table:
            module = decompose(module, captured.fake_mode, captured.shape_env, table)
        if any(resolved.capabilities.dynamic_shapes == "none" for resolved in self.claimants):
            module = with_plain_sizes(module, captured.fake_mode)
        return graph if module is graph.module else replace(graph, module=module)

    def inference(self, functional: FunctionalGraph) -> Callable[..., tuple[Any, ...]]:
        """One graph and the epilogue around it."""
        module, weights = functional.module, {}
        if self.lineup.options.freeze:
            weights = frozen_weights(self.captured, functional)
        if weights:
            # a copy each time: it may be compiled again, and a backend may have changed the one it got
            run = frozen_run(
                weights,
                lambda held: self._compiled(
                    _copied(module), self.name, "inference", held, let_go.of_inference(functional.epilogue)
                ),
                self.name,
            )
        else:
            run = self._compiled(module, self.name, "inference", passing=let_go.of_inference(functional.epilogue))
        requires_grad = [item.is_tensor and item.requires_grad for item in functional.inputs]
        return wrap_inference(run, functional.epilogue, self.captured.outputs, self.state, requires_grad)

    def training(
        self, joint: JointGraph, plain: Desugared | None = None, original: CapturedGraph | None = None
    ) -> Callable[..., tuple[Any, ...]]:
        """Partition, compile the forward now and the backward when its first gradient arrives. plain: the capture is
        the plain one of `original`."""
        captured, parts = self.captured, partition(joint)
        if self.lineup.options.freeze:
            emit(
                FellBack(
                    "freeze", f"{self.name} has gradients: it reads its weights on each call", first_line(captured)
                )
            )
        run_forward = self._compiled(parts.forward, self.name, "forward", passing=let_go.of_forward(joint, parts))

        def compile_backward(module: fx.GraphModule) -> Callable[..., Any]:
            with compiling(f"the backward of {self.name}", first_line(captured)):
                return self._compiled(module, f"{self.name}_backward", "backward")

        if plain is not None and original is not None:
            from .carried_training import wrap_carried

            return wrap_carried(joint, parts, plain, original, run_forward, compile_backward, self.state)
        if joint.groups is not None:
            from .grouped_training import group_partitions, without_cuts, wrap_groups

            groups = group_partitions(joint, parts)
            if groups is not None:
                return wrap_groups(joint, parts, groups, captured, run_forward, compile_backward, self.state)
            parts = without_cuts(joint, parts)
        replay = EagerBackward(captured, joint, parts, self.state)
        return wrap_training(joint, parts, captured.outputs, run_forward, compile_backward, replay, self.state)

    def _compiled(
        self,
        module: fx.GraphModule,
        name: str,
        mode: str,
        constants: Mapping[int, Any] | None = None,
        passing: frozenset[int] = frozenset(),
    ) -> Callable[..., Any]:
        """passing: positions of results that core reads and lets go."""
        if mode != "inference":  # that stage is over
            module = run_passes(module, mode, self.captured)
        held = _held_inputs(self.captured, module, mode)
        return compile_task(
            Task(self.captured, module, self.lineup, self.claimants, name, mode, held, constants, passing)
        )


def _copied(module: fx.GraphModule) -> fx.GraphModule:
    return fx.GraphModule(module, copy.deepcopy(module.graph), type(module).__name__)


def _held_inputs(captured: CapturedGraph, module: fx.GraphModule, mode: str) -> frozenset[int]:
    """Placeholders that are parameters or buffers; in the backward, saved inputs keep the joint graph's names."""
    held = [item.index for item in captured.inputs if item.is_parameter or item.is_buffer]
    if mode != "backward":
        return frozenset(held)
    wanted = {f"input_{index}" for index in held}
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    return frozenset(at for at, node in enumerate(placeholders) if node.name in wanted)
