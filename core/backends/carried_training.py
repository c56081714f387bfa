"""Training with wrapper tensors: autograd sees them, the compiled forward and backward see what they are made of.

Enters: the JointGraph of a Desugared capture. Leaves: a callable on the capture's own inputs. One autograd function
takes the plain inputs and, behind them, the wrappers that take gradients; it gives the plain slots and the wrappers
that gradients arrive for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.fx as fx

from .. import _C, torch_compat
from ..graph.captured import CapturedGraph
from ..graph.desugar import Desugared
from ..graph.functional import Carried, JointGraph
from ..graph.outputs import InputItself, Slot
from ..graph.partition import Partition
from ..graph.wrapper_tensors import Build, equal_meta
from .carried_replay import CarriedReplay
from .desugared import around, write_build, write_made
from .double_backward import EagerBackward
from .epilogue import write_epilogue
from .generated import Code, names, tuple_text
from .training import TrainingGraph, with_gradients, write_backward, write_forward
from .wrapper import CallState, follow


def wrap_carried(
    joint: JointGraph,
    parts: Partition,
    plain: Desugared,
    captured: CapturedGraph,
    run_forward: Callable[..., Any],
    compile_backward: Callable[[fx.GraphModule], Callable[..., Any]],
    state: CallState,
) -> Callable[..., tuple[Any, ...]]:
    """Wrap a forward artifact, and the backward artifact to come, for `captured`, of which `plain` is made."""
    carried = joint.carried or Carried((), (), ())
    replay = EagerBackward(plain.captured, joint, parts, state)
    replay.refusal = replay.refusal or "CarriedReplay serves it"  # nothing is kept for this one, and nobody asks it
    graph = TrainingGraph(joint, parts, state)
    again = CarriedReplay(captured, plain, joint, carried, state)
    forward = _forward(graph, carried, plain, again, write_forward(graph, run_forward, replay))
    backward = _backward(graph, carried, again, write_backward(graph, compile_backward, replay))
    members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    apply = torch_compat.function_apply(type("CompiledGraph", (torch.autograd.Function,), members))
    anchors, made = names("x", len(carried.anchors)), names("w", len(carried.roots))
    code = Code("compiled", [*graph.inputs, *anchors, "originals"])
    code.namespace["apply"] = apply
    code.line(f"{tuple_text([*graph.slots, *made])} = apply({', '.join([*graph.inputs, *anchors, 'originals'])})")
    for root, name in zip(carried.roots, made):
        paths = list(_paths(root.build))
        for slot, at in root.tangent_slots().items():
            code.line(f"s{slot} = {name}{paths[at]}")
    write_epilogue(
        code,
        joint.epilogue,
        plain.captured.outputs,
        grad_enabled=True,
        requires_grad=[item.requires_grad for item in joint.inputs],
        also=made,
    )
    run = code.finish()
    run.followers = []  # type: ignore[attr-defined]
    compiled = around(plain, captured, run, carried.anchors, [root.output for root in carried.roots], True)
    return compiled if state.grad_enabled else with_gradients(compiled)


def _paths(build: Build) -> Iterator[str]:
    """Source of the way from a wrapper to each plain tensor that it is made of."""
    for name, how in build.inner:
        for rest in _paths(how) if how is not None else ("",):
            yield f".{name}{rest}"


def _forward(
    graph: TrainingGraph, carried: Carried, plain: Desugared, again: CarriedReplay, forward: Callable[..., Any]
) -> Callable[..., Any]:
    code = Code("forward", ["ctx", *graph.inputs, *names("x", len(carried.anchors)), "originals"])
    version = code.bind(torch_compat.tensor_version, "version")
    code.line("ctx.originals = originals")
    tensors = [f"{version}(originals[{item.index}])" for item in again.versioned]
    code.line(f"ctx.versions = {tuple_text(tensors)}")
    code.line(f"{tuple_text(graph.slots)} = plain_forward({', '.join(['ctx', *graph.inputs])})")
    texts = [f"s{out.index}" if isinstance(out, Slot) else "None" for out in graph.joint.epilogue.outputs]
    taken: set[int] = set()
    for at, root in enumerate(carried.roots):
        made = [f"i{kind.index}" if isinstance(kind, InputItself) else f"s{kind.index}" for kind in root.kinds]  # type: ignore[union-attr]
        write_build(code, plain.outputs[root.output], made, texts, f"w{at}")
        taken.update(root.tangent_slots())
    slots = ["None" if at in taken else slot for at, slot in enumerate(graph.slots)]
    code.line(f"return {tuple_text([*slots, *names('w', len(carried.roots))])}")
    function = code.finish()
    follow(function, code.namespace, "plain_forward", forward)
    return function


def _backward(
    graph: TrainingGraph, carried: Carried, again: CarriedReplay, backward: Callable[..., Any]
) -> Callable[..., Any]:
    gradients, of_roots = names("g", len(graph.slots)), names("h", len(carried.roots))
    code = Code("backward", ["ctx", *gradients, *of_roots])
    code.namespace.update(
        plain_backward=backward,
        replay=_C.BoundGraph(again, ()),
        grad_enabled=torch.is_grad_enabled,
        transform_level=torch_compat.functorch_level_function(),
        Tensor=torch.Tensor,
    )
    every = tuple_text([*gradients, *of_roots])
    taken = {slot for root in carried.roots for slot in root.tangent_slots()}
    arriving = [gradients[slot] for slot in graph.joint.tangent_slots if slot not in taken]
    other = "".join(f" or ({g} is not None and type({g}) is not Tensor)" for g in arriving)
    code.line(f"if grad_enabled() or transform_level() is not None{other}:")
    code.line(f"    return replay(ctx, {every})")
    for at, root in enumerate(carried.roots):
        code.line(f"if h{at} is not None:")
        code.line(f"    parts = {code.bind(TakenApart(root.build), 'apart')}(h{at})")
        code.line(f"    if parts is None: return replay(ctx, {every})")
        for slot, place in root.tangent_slots().items():
            code.line(f"    g{slot} = parts[{place}]")
    code.line(f"results = plain_backward({', '.join(['ctx', *gradients])})")
    plain_results = [f"results[{at}]" for at in range(len(graph.inputs))]
    of_anchors = ["None"] * len(carried.anchors)
    for at, gradient in enumerate(carried.gradients):
        places = range(gradient.first, gradient.first + gradient.count)
        text = write_made(code, gradient, [f"results[{place}]" for place in places], f"d{at}")
        if gradient.input is not None:
            plain_results[gradient.input] = text
        if gradient.anchor is not None:
            of_anchors[gradient.anchor] = text
    code.line(f"return {tuple_text([*plain_results, *of_anchors, 'None'])}")
    return code.finish()


class TakenApart:
    """An incoming gradient as the tensors that it is made of; None where it is made in another way than recorded."""

    def __init__(self, build: Build) -> None:
        self.build = build

    def __call__(self, gradient: Any) -> Sequence[Any] | None:
        found: list[Any] = []
        return found if _collect(self.build, gradient, found) else None


def _collect(build: Build | None, tensor: Any, found: list[Any]) -> bool:
    if build is None:
        found.append(tensor)
        return True
    if type(tensor) is not build.cls:
        return False
    names_now, meta = tensor.__tensor_flatten__()
    if list(names_now) != [name for name, _ in build.inner] or not equal_meta(build.cls, build.meta, meta):
        return False
    return all(_collect(how, getattr(tensor, name), found) for name, how in build.inner)
