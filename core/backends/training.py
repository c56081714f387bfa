"""Training: one autograd function around a compiled forward and a compiled backward, both called from generated source.

Enters: a JointGraph and its Partition, the forward's call, a function that compiles the backward. Leaves: a callable
`(*inputs) -> outputs of the program`. The backward is compiled when the first gradient arrives, for those gradients
that arrive (backward_parts.py).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.fx as fx

from .. import _C, torch_compat
from ..events import FellBack, emit
from ..graph.functional import JointGraph
from ..graph.partition import Partition
from ..graph.shared_gradients import shared_gradients
from ..torch_compat import saved
from .backward_parts import (
    BackwardPart,
    Backwards,
    Releases,
    Watched,
    function_of,
    open_alone,
    refuse_written,
)
from .double_backward import EagerBackward
from .epilogue import write_epilogue
from .generated import Code, compile_source, names, tuple_text
from .layout import layout_copy, layout_test, zeros_like_layout
from .result_hooks import telling_slots, write_tables
from .wrapper import CallState, follow, write_run


class TrainingGraph:
    """What the generated functions of one joint graph are written from."""

    beyond: Sequence[str] = ()
    """What a backward returns behind the gradients: None for arguments that have none."""

    def __init__(self, joint: JointGraph, parts: Partition, state: CallState) -> None:
        self.joint = joint
        self.parts = parts
        self.state = state
        self.inputs = names("i", len(joint.inputs))
        self.slots = names("s", joint.forward_outputs)
        self.extras = [f"s{value.index}" for value in parts.saved if value.kind == "extra"]
        self.edges = {item.index: at for at, item in enumerate(item for item in joint.inputs if item.is_tensor)}
        placeholders = [node for node in joint.module.graph.nodes if node.op == "placeholder"]
        self.tangents = {slot: placeholders[at].meta["val"] for slot, at in zip(joint.tangent_slots, joint.tangents)}
        self.backwards = Backwards(joint, parts)
        self.releases = Releases(joint, parts, self.backwards)
        self.watched = Watched(joint, parts)

    def saved_names(self) -> tuple[list[str], list[str]]:
        """(numbers, tensors) that the forward saves, as the forward names them."""
        found: tuple[list[str], list[str]] = ([], [])
        for value in self.parts.saved:
            prefix = "i" if value.kind == "input" else "s"
            found[0 if value.is_number else 1].append(f"{prefix}{value.index}")
        return found

    def returned(self, gradients: Iterable[str]) -> str:
        """Source of what a backward returns."""
        return tuple_text([*gradients, *self.beyond])

    def kept_names(self, replay: EagerBackward) -> set[str]:
        """The values that the forward's context keeps something of, as the forward names them."""
        numbers, tensors = self.saved_names()
        places = [f"{'i' if kind == 'input' else 's'}{index}" for kind, index in self.watched.places]
        shapes = [self.slots[slot] for slot in self.symbolic_tangents()]
        of_replay = [f"i{at}" for at in (*replay.scalars, *replay.held, *replay.versioned)]
        return {*numbers, *tensors, *places, *shapes, *of_replay}

    def writes_to_come(self, place: tuple[str, int]) -> int:
        """How often autograd will count a write to a watched tensor before the call has ended."""
        epilogue, index = self.joint.epilogue, place[1]
        writes = sum(write.input == index and write.mode != "data" for write in epilogue.write_backs)
        return writes + epilogue.counted.count(index) if place[0] == "input" else 0

    def symbolic_tangents(self) -> list[int]:
        """Slots whose gradient has symbolic sizes: the forward keeps their shape, for zeros."""
        return [s for s, fake in self.tangents.items() if not all(isinstance(size, int) for size in fake.shape)]


def wrap_training(
    joint: JointGraph,
    parts: Partition,
    fakes: Sequence[Any],
    run_forward: Callable[..., Any],
    compile_backward: Callable[[fx.GraphModule], Callable[..., Any]],
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
    saved.defaults_of(function).rest = None  # type: ignore[attr-defined]
    apply = torch_compat.function_apply(function)
    tables = telling_slots(joint, range(len(joint.tangent_slots)))
    if joint.epilogue.trivial and not tables:
        run = _direct(apply)
        return run if state.grad_enabled else with_gradients(run)
    code = Code("compiled", graph.inputs)
    code.namespace["apply"] = apply
    code.line(f"{tuple_text(graph.slots)} = apply({', '.join(graph.inputs)})")
    write_tables(code, tables)
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
    fixed = [
        slot
        for slot, info in zip(graph.slots, graph.joint.epilogue.slots)
        if info.size is not None and not info.differentiable
    ]
    if fixed:
        code.line(f"ctx.mark_non_differentiable({', '.join(fixed)})")
    write_keeping(code, graph, replay)
    code.line(f"return {tuple_text(graph.slots)}")
    function = code.finish()
    follow(function, code.namespace, "run", run)
    return function


def write_keeping(code: Code, graph: TrainingGraph, replay: EagerBackward) -> None:
    """Lines of a forward: what its context keeps."""
    numbers, tensors = graph.saved_names()
    code.line(f"ctx.save_for_backward({', '.join(tensors)})")
    code.line("ctx.set_materialize_grads(False)")
    if numbers:
        code.line(f"ctx.numbers = {tuple_text(numbers)}")
    shapes = [f"{graph.slots[slot]}.shape" for slot in graph.symbolic_tangents()]
    if shapes:
        code.line(f"ctx.shapes = {tuple_text(shapes)}")
    _remember_unsaved(code, replay)
    _watch(code, graph)


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


def _watch(code: Code, graph: TrainingGraph) -> None:
    """The versions of tensors that aren't saved, but would be in eager."""
    watched = []
    for place in graph.watched.places:
        name, writes = f"{'i' if place[0] == 'input' else 's'}{place[1]}", graph.writes_to_come(place)
        watched.append((name, f"{name}._version + {writes}" if writes else f"{name}._version"))
    if watched:
        reference = code.bind(weakref.ref, "ref")
        code.line(f"ctx.watched = {tuple_text(f'({reference}({name}), {version})' for name, version in watched)}")


# -- backward ---------------------------------------------------------------------------------------------------------


def write_backward(
    graph: TrainingGraph, compile_backward: Callable[[fx.GraphModule], Callable[..., Any]], replay: EagerBackward
) -> Callable[..., Any]:
    """The backward of the autograd function: `(ctx, *gradients of the slots) -> gradients of the inputs`."""
    gradients = names("g", len(graph.slots))
    tangents = [gradients[slot] for slot in graph.joint.tangent_slots]
    replay.saved_of = lambda ctx, incoming: graph.releases.for_replay(
        ctx, frozenset(at for at, slot in enumerate(graph.joint.tangent_slots) if incoming[slot] is not None)
    )
    parts = _Parts(graph, compile_backward, uncaptured(replay))
    code = Code("backward", ["ctx", *gradients])
    code.namespace.update(
        grad_enabled=torch.is_grad_enabled,
        transform_level=torch_compat.functorch_level_function(),
        known=parts.functions,
        function_for=parts.function,
    )
    code.line("if grad_enabled() or transform_level() is not None:")
    code.line(f"    return replay(ctx, {tuple_text(gradients)})")
    present = tuple_text(f"{name} is not None" for name in tangents)
    if tangents and graph.releases.by_argument:
        _choose_by_arguments(code, graph, parts, present, gradients)
    if tangents:
        code.line(f"if {' or '.join(f'{name} is None' for name in tangents)}:")
        code.line(f"    present = {present}")
        code.line(f"    return (known.get(present) or function_for(present))(ctx, {', '.join(gradients)})")
    return parts.finish(code, graph.backwards.every)


def _choose_by_arguments(
    code: Code, graph: TrainingGraph, parts: _Parts, present: str, gradients: Sequence[str]
) -> None:
    """Lines that leave a backward for some of the arguments to the function for those."""
    wanted = tuple(graph.edges[at] for at in parts.arguments)
    edges_run = saved.edges_run_function()
    if edges_run is saved.edges_asked:
        emit(FellBack("backward", "autograd's table of nodes is not readable; torch is asked for each argument"))
    code.namespace.update(
        runs_part=saved.runs_part_function(),
        edges_run=edges_run,
        runs_node=saved.runs_node,
        known_for=parts.functions_for_arguments,
        function_for_arguments=parts.function_for_arguments,
    )
    code.line("if runs_part():")
    code.line(f"    edges = edges_run(ctx.next_functions, {wanted!r}, runs_node)")
    code.line(f"    if edges != {bytes([1]) * len(wanted)!r}:")
    code.line(f"        key = {present}, edges")
    code.line(f"        return (known_for.get(key) or function_for_arguments(key))(ctx, {', '.join(gradients)})")


class _Parts:
    """The functions `(ctx, *gradients of the slots)` for the sets of gradients that have arrived."""

    def __init__(
        self, graph: TrainingGraph, compile_backward: Callable[[fx.GraphModule], Callable[..., Any]], replay: Any
    ) -> None:
        self._graph = graph
        self._compile = compile_backward
        self._replay = replay
        self.functions: dict[tuple[bool, ...], Callable[..., Any]] = {}
        self.arguments = sorted(graph.backwards.arguments)
        self.functions_for_arguments: dict[tuple[tuple[bool, ...], bytes], Callable[..., Any]] = {}
        self._compiled = 0

    def function(self, present: tuple[bool, ...]) -> Callable[..., Any]:
        """The function for gradients of which not all have arrived."""
        code = Code("backward", ["ctx", *names("g", len(self._graph.slots))])
        self.functions[present] = self.finish(code, frozenset(at for at, there in enumerate(present) if there))
        return self.functions[present]

    def function_for_arguments(self, key: tuple[tuple[bool, ...], bytes]) -> Callable[..., Any]:
        """The function where not all gradients have arrived, or a backward is for the arguments marked by bytes."""
        code = Code("backward", ["ctx", *names("g", len(self._graph.slots))])
        arrived = frozenset(at for at, there in enumerate(key[0]) if there)
        asked = frozenset(at for at, runs in zip(self.arguments, key[1]) if runs)
        self.functions_for_arguments[key] = self.finish(code, arrived, asked)
        return self.functions_for_arguments[key]

    def finish(self, code: Code, present: frozenset[int], asked: frozenset[int] | None = None) -> Callable[..., Any]:
        """The rest of the function: gradients in the recorded form, what was saved, the run, and the results."""
        graph = self._graph
        if not present and graph.joint.tangents:
            if graph.releases.apart:
                code.line(f"{code.bind(graph.releases.leave, 'leave')}(ctx)")
            code.line(f"return {graph.returned(['None'] * len(graph.parts.gradients))}")
            return code.finish()
        part = graph.backwards.part(present, asked)
        code.namespace.update(replay=self._replay, Tensor=torch.Tensor, strided=torch.strided)
        gradients = names("g", len(graph.slots))
        slots = graph.joint.tangent_slots
        for at in part.tangents:
            _normalise(code, graph, slots[at], gradients, at in present)
        for at in sorted(present.difference(part.tangents)):
            code.line(f"if type({gradients[slots[at]]}) is not Tensor:")
            code.line(f"    return replay(ctx, {tuple_text(gradients)})")
        numbers, tensors = graph.saved_names()
        saved_numbers, saved_tensors = names("n", len(numbers)), names("t", len(tensors))
        if part.numbers:
            code.line(f"{tuple_text(saved_numbers)} = ctx.numbers")
        self._take_saved(code, part, saved_tensors)
        arguments = [
            *(saved_numbers[at] for at in part.numbers),
            *(saved_tensors[at] for at in part.tensors),
            *(gradients[slots[at]] for at in part.tangents),
        ]
        count = sum(at is not None for at in graph.parts.gradients)
        if any(at is not None for at in part.gradients):
            write_run(code, names("r", count), arguments, [torch_compat.without_autocast_guard()])
            for at in set(shared_gradients(part.module)).intersection(part.gradients):
                code.line(f"r{at} = r{at}.clone()")
        code.line(f"return {graph.returned('None' if at is None else f'r{at}' for at in part.gradients)}")
        function = code.finish()
        compiled = self._compiled
        self._compiled += 1
        first_use = _compiled_at_first_use(code.namespace, lambda: function_of(part, compiled, self._compile))
        code.namespace["run"] = uncaptured(first_use)
        return function

    def _take_saved(self, code: Code, part: BackwardPart, tensors: Sequence[str]) -> None:
        """Lines that name the saved tensors, and raise autograd's errors where eager's nodes would."""
        graph = self._graph
        _open_saved(code, graph, part, tensors)
        for at in graph.watched.of(part.present, part.asked):
            code.line(f"reference, version = ctx.watched[{at}]")
            code.line("tensor = reference()")
            code.line("if tensor is not None and tensor._version != version:")
            code.line(f"    {code.bind(refuse_written, 'refuse_written')}(ctx, tensor, version)")


def _open_saved(code: Code, graph: TrainingGraph, part: BackwardPart, tensors: Sequence[str]) -> None:
    """Lines that name the saved tensors that a part takes, and raise where eager finds them freed or written to."""
    releases = graph.releases
    wanted = [tensors[at] for at in part.tensors]
    target = f"{tuple_text(wanted)} = " if wanted else ""
    if releases.apart:
        take = code.bind(BoundTake(releases, part), "take")
        if part.asked is not None or releases.freed_by(part.present) != graph.backwards.every:
            code.line(f"{target}{take}(ctx)")
            return
        code.line("if ctx.rest is not None:")
        code.line(f"    {target}{take}(ctx)")
        code.line("else:")
        code.depth += 1
    if not wanted:
        if releases.freed_by(part.present):
            code.line(f"{code.bind(saved.raw_saved_tensors, 'raw_saved')}(ctx)  # freed: an error")
        elif releases.apart:
            code.line("pass")
    elif len(wanted) == len(tensors):
        code.line(f"{target}ctx.saved_tensors")
    else:
        code.line("try:")
        code.line(f"    {tuple_text(tensors)} = ctx.saved_tensors")
        code.line("except RuntimeError:  # of another part, perhaps")
        code.line(f"    {target}{code.bind(open_alone, 'open_alone')}(ctx, {part.tensors!r})")
    if releases.apart:
        code.depth -= 1


class BoundTake:
    """`(ctx) -> the saved tensors` of one part."""

    def __init__(self, releases: Releases, part: BackwardPart) -> None:
        self._releases = releases
        self._part = part
        self._opened = (*part.tensors, *releases.looked_at(part))

    def __call__(self, ctx: Any) -> tuple[Any, ...]:
        part = self._part
        return self._releases.take(ctx, part.present, self._opened, part.asked)[: len(part.tensors)]


def uncaptured(call: Callable[..., Any]) -> Callable[..., Any]:
    """`call` with frame capture off while it runs: the engine enters a backward from whatever frame runs it."""
    return _C.BoundGraph(call, ())


def _normalise(code: Code, graph: TrainingGraph, slot: int, gradients: Sequence[str], present: bool) -> None:
    """Bring an incoming gradient into the recorded form: it may be absent, expanded, transposed, lazily negated, ..."""
    name, fake = gradients[slot], graph.tangents[slot]
    symbolic = graph.symbolic_tangents()
    like = f"ctx.shapes[{symbolic.index(slot)}]" if slot in symbolic else ""
    if not present:
        code.line(f"{name} = {zeros_like_layout(like, fake, code)}")
        return
    code.line(f"if type({name}) is not Tensor:")
    code.line(f"    return replay(ctx, {tuple_text(gradients)})")
    code.line(f"if {name}.layout is not strided:")
    code.line(f"    {name} = {name}.to_dense()")
    dtype = code.bind(fake.dtype, "dtype")
    lazy = f"{name}.is_neg()" + (f" or {name}.is_conj()" if fake.dtype.is_complex else "")
    test = layout_test(name, fake)
    wrong = f"{name}.dtype is not {dtype} or {lazy}" + (f" or not ({test})" if test else "")
    code.line(f"if {wrong}:")
    code.line(f"    {name} = {_converted(name, fake, code)}")


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
        followers = getattr(run, "followers", None)
        if followers is not None:
            followers.append(lambda final: namespace.__setitem__("run", uncaptured(final)))
        return run(*arguments)

    return compile_and_run
