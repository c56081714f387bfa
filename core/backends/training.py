"""Training: one autograd function around a compiled forward and a compiled backward, both called from generated source.

Enters: a JointGraph and its Partition, the forward's call, a function that compiles the backward. Leaves: a callable
`(*inputs) -> outputs of the program`. The backward is compiled when the first gradient arrives.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx as fx

from .. import _C, torch_compat
from ..graph.functional import JointGraph
from ..graph.partition import Partition
from .double_backward import EagerBackward
from .epilogue import write_epilogue
from .generated import Code, compile_source, names, tuple_text
from .layout import layout_copy, layout_test, zeros_like_layout
from .wrapper import CallState, follow, write_run


class TrainingGraph:
    """What the generated functions of one joint graph are written from."""

    def __init__(self, joint: JointGraph, parts: Partition, state: CallState) -> None:
        self.joint = joint
        self.parts = parts
        self.state = state
        self.inputs = names("i", len(joint.inputs))
        self.slots = names("s", joint.forward_outputs)
        self.extras = [f"s{value.index}" for value in parts.saved if value.kind == "extra"]
        placeholders = [node for node in joint.module.graph.nodes if node.op == "placeholder"]
        self.tangents = {slot: placeholders[at].meta["val"] for slot, at in zip(joint.tangent_slots, joint.tangents)}

    def saved_names(self) -> tuple[list[str], list[str]]:
        """(numbers, tensors) that the forward saves, as the forward names them."""
        found: tuple[list[str], list[str]] = ([], [])
        for value in self.parts.saved:
            prefix = "i" if value.kind == "input" else "s"
            found[0 if value.is_number else 1].append(f"{prefix}{value.index}")
        return found

    def slots_behind(self) -> list[frozenset[int]]:
        """For each gradient that the backward computes, the slots whose incoming gradients it is made of."""
        reach: dict[fx.Node, frozenset[int]] = {}
        placeholders = [node for node in self.parts.backward.graph.nodes if node.op == "placeholder"]
        for slot, node in zip(self.joint.tangent_slots, placeholders[len(self.parts.saved) :]):
            reach[node] = frozenset((slot,))
        for node in self.parts.backward.graph.nodes:
            if node.op == "output":
                return [reach[value] if isinstance(value, fx.Node) else frozenset() for value in node.args[0]]
            if node not in reach:
                reach[node] = frozenset().union(*(reach[operand] for operand in node.all_input_nodes))
        return []

    def symbolic_tangents(self) -> list[int]:
        """Slots whose gradient has symbolic sizes: the forward keeps their shape, for zeros."""
        return [s for s, fake in self.tangents.items() if not all(isinstance(size, int) for size in fake.shape)]


def wrap_training(
    joint: JointGraph,
    parts: Partition,
    fakes: Sequence[Any],
    run_forward: Callable[..., Any],
    compile_backward: Callable[[], Callable[..., Any]],
    replay: EagerBackward,
    state: CallState,
) -> Callable[..., tuple[Any, ...]]:
    """Wrap a forward artifact, and the backward artifact to come. `replay` serves what the compiled backward can't.

    fakes: the program's outputs as captured.
    """
    graph = TrainingGraph(joint, parts, state)
    forward = write_forward(graph, run_forward, replay)
    backward = write_backward(graph, compile_backward, replay)
    members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    function = type("CompiledGraph", (torch.autograd.Function,), members)
    apply = torch_compat.function_apply(function)
    if joint.epilogue.trivial:
        run = _direct(apply)
        return run if state.grad_enabled else with_gradients(run)
    code = Code("compiled", graph.inputs)
    code.namespace["apply"] = apply
    code.line(f"{tuple_text(graph.slots)} = apply({', '.join(graph.inputs)})")
    requires_grad = [item.requires_grad for item in joint.inputs]
    write_epilogue(code, joint.epilogue, fakes, grad_enabled=True, requires_grad=requires_grad)
    compiled = code.finish()
    follow(compiled, code.namespace, "apply", apply)
    return compiled if state.grad_enabled else with_gradients(compiled)


def with_gradients(run: Callable[..., Any]) -> Callable[..., Any]:
    """`run` for calls in which gradients are off: the program turns them on in the graph (it leaves `no_grad` there,
    that it entered before), and what was made before that is marked as not differentiable."""
    code = Code("compiled", ["*inputs"])
    switch = code.bind(torch_compat.set_grad_enabled_function(), "set_grad_enabled")
    code.line(f"{switch}(True)")
    code.line("try:")
    code.line("    return run(*inputs)")
    code.line("finally:")
    code.line(f"    {switch}(False)")
    compiled = code.finish()
    follow(compiled, code.namespace, "run", run)
    return compiled


def _direct(apply: Callable[..., Any]) -> Callable[..., Any]:
    """`apply` itself for those who follow; a builtin has no attributes, so one function stands before it until then."""
    followers: list[Callable[[Callable[..., Any]], None]] = []

    def first(*inputs: Any) -> tuple[Any, ...]:
        namespace["run"] = apply
        for follower in followers:
            follower(apply)
        followers.clear()
        return apply(*inputs)

    namespace: dict[str, Any] = {"run": first}
    compiled = compile_source(("def compiled(*inputs):", "    return run(*inputs)"), namespace, "compiled")
    compiled.followers = followers  # type: ignore[attr-defined]
    return compiled


# -- forward ----------------------------------------------------------------------------------------------------------


def write_forward(graph: TrainingGraph, run: Callable[..., Any], replay: EagerBackward) -> Callable[..., Any]:
    """The forward of the autograd function: `(ctx, *inputs) -> slots`."""
    code = Code("forward", ["ctx", *graph.inputs])
    guards = [torch_compat.below_autograd_guard()]  # else results that are views would be tied to their bases
    if graph.state.autocast:
        guards.append(torch_compat.without_autocast_guard())
    write_run(code, [*graph.slots, *graph.extras], graph.inputs, guards)
    numbers, tensors = graph.saved_names()
    code.line(f"ctx.save_for_backward({', '.join(tensors)})")
    code.line("ctx.set_materialize_grads(False)")
    fixed = [
        slot
        for slot, info in zip(graph.slots, graph.joint.epilogue.slots)
        if info.size is not None and not info.differentiable
    ]
    if fixed:
        code.line(f"ctx.mark_non_differentiable({', '.join(fixed)})")
    if numbers:
        code.line(f"ctx.numbers = {tuple_text(numbers)}")
    shapes = [f"s{slot}.shape" for slot in graph.symbolic_tangents()]
    if shapes:
        code.line(f"ctx.shapes = {tuple_text(shapes)}")
    _remember_unsaved(code, replay)
    code.line(f"return {tuple_text(graph.slots)}")
    function = code.finish()
    follow(function, code.namespace, "run", run)
    return function


def _remember_unsaved(code: Code, replay: EagerBackward) -> None:
    """What the replay needs of inputs that aren't saved: their identity and version, but never their life."""
    if replay.refusal:
        return
    if replay.scalars:
        code.line(f"ctx.scalars = {tuple_text(f'i{index}' for index in replay.scalars)}")
    if replay.held:
        reference = code.bind(weakref.ref, "ref")
        code.line(f"ctx.held = {tuple_text(f'{reference}(i{index})' for index in replay.held)}")
    if replay.versioned:
        code.line(f"ctx.versions = {tuple_text(f'i{index}._version' for index in replay.versioned)}")


# -- backward ---------------------------------------------------------------------------------------------------------


def write_backward(
    graph: TrainingGraph, compile_backward: Callable[[], Callable[..., Any]], replay: EagerBackward
) -> Callable[..., Any]:
    """The backward of the autograd function: `(ctx, *gradients of the slots) -> gradients of the inputs`."""
    gradients = names("g", len(graph.slots))
    code = Code("backward", ["ctx", *gradients])
    code.namespace.update(
        grad_enabled=torch.is_grad_enabled,
        transform_level=torch_compat.functorch_level_function(),
        replay=uncaptured(replay),
        Tensor=torch.Tensor,
        strided=torch.strided,
    )
    code.line("if grad_enabled() or transform_level() is not None:")
    code.line(f"    return replay(ctx, {tuple_text(gradients)})")
    absent = _absences(graph)
    for slot in sorted(set().union(*absent.values())):
        code.line(f"a{slot} = {gradients[slot]} is None")
    for slot in graph.joint.tangent_slots:
        _normalise(code, graph, slot, gradients)
    numbers, tensors = graph.saved_names()
    saved = [f"n{at}" for at in range(len(numbers))] + [f"t{at}" for at in range(len(tensors))]
    if numbers:
        code.line(f"{tuple_text(saved[: len(numbers)])} = ctx.numbers")
    if tensors:
        code.line(f"{tuple_text(saved[len(numbers) :])} = ctx.saved_tensors")
    arguments = [*saved, *(f"g{slot}" for slot in graph.joint.tangent_slots)]
    count = sum(at is not None for at in graph.parts.gradients)
    write_run(code, names("r", count), arguments, [torch_compat.without_autocast_guard()])
    results = []
    for at in graph.parts.gradients:
        none = " and ".join(f"a{slot}" for slot in sorted(absent.get(at, ())))
        results.append("None" if at is None else f"None if {none} else r{at}" if none else f"r{at}")
    code.line(f"return {tuple_text(results)}")
    function = code.finish()
    code.namespace["run"] = uncaptured(_compiled_at_first_use(code.namespace, compile_backward))
    return function


def _absences(graph: TrainingGraph) -> dict[Any, frozenset[int]]:
    """By gradient: the slots without whose gradients there is none, where that is not all of them.

    Autograd leaves alone what no gradient reaches; zeros would give its `.grad` a value.
    """
    every = frozenset(graph.joint.tangent_slots)
    return {at: slots for at, slots in enumerate(graph.slots_behind()) if slots and slots != every}


def uncaptured(call: Callable[..., Any]) -> Callable[..., Any]:
    """`call` with frame capture off while it runs: the engine enters a backward from whatever frame runs it."""
    return _C.BoundGraph(call, ())


def _normalise(code: Code, graph: TrainingGraph, slot: int, gradients: Sequence[str]) -> None:
    """Bring an incoming gradient into the recorded form: it may be absent, expanded, transposed, lazily negated, ..."""
    name, fake = gradients[slot], graph.tangents[slot]
    symbolic = graph.symbolic_tangents()
    like = f"ctx.shapes[{symbolic.index(slot)}]" if slot in symbolic else ""
    code.line(f"if {name} is None:")
    code.line(f"    {name} = {zeros_like_layout(like, fake, code)}")
    code.line(f"elif type({name}) is not Tensor:")
    code.line(f"    return replay(ctx, {tuple_text(gradients)})")
    code.line("else:")
    code.line(f"    if {name}.layout is not strided:")
    code.line(f"        {name} = {name}.to_dense()")
    dtype = code.bind(fake.dtype, "dtype")
    lazy = f"{name}.is_neg()" + (f" or {name}.is_conj()" if fake.dtype.is_complex else "")
    test = layout_test(name, fake)
    wrong = f"{name}.dtype is not {dtype} or {lazy}" + (f" or not ({test})" if test else "")
    code.line(f"    if {wrong}:")
    code.line(f"        {name} = {_converted(name, fake, code)}")


def _converted(name: str, fake: Any, code: Code) -> str:
    """A fresh tensor in the recorded dtype and layout; copy_ resolves lazy negation and conjugation."""
    dtype = code.bind(fake.dtype, "dtype")
    if layout_test(name, fake):
        return layout_copy(name, fake, code).replace(f"dtype={name}.dtype", f"dtype={dtype}")
    return f"{name}.to({dtype}, copy=True).resolve_conj().resolve_neg()"


def _compiled_at_first_use(
    namespace: dict[str, Any], compile_backward: Callable[[], Callable[..., Any]]
) -> Callable[..., Any]:
    """Stands for the backward until it is needed. Two threads may both compile it; either result is right."""

    def compile_and_run(*arguments: Any) -> Any:
        run = compile_backward()
        namespace["run"] = uncaptured(run)
        run.followers.append(lambda final: namespace.__setitem__("run", uncaptured(final)))  # type: ignore[attr-defined]
        return run(*arguments)

    return compile_and_run
