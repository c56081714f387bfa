"""The replacement code of a captured frame: graph call, side effects, then a return or a graph break."""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .. import _C
from ..bytecode import emit
from ..bytecode.assemble import assemble
from ..bytecode.instruction import ExceptionEntry, Instruction, located
from ..graph.captured import CapturedGraph
from ..graph.repeatable import footprint
from ..guards import source as sources
from ..torch_compat import training
from ..variables.base import VariableTracker
from . import assumptions
from .as_written import WayOut, argument_names
from .reconstruct import CodeEmitter
from .trace import Trace

VT = VariableTracker


@dataclass(frozen=True)
class Ending:
    """What follows the graph and the side effects: instructions that end in a return.

    write: appends them and returns the protected ranges among them; position: the user's line for all of them.
    """

    write: Callable[[CodeEmitter], list[ExceptionEntry]]
    position: Any = None


def build(
    trace: Trace, ending: Ending, compile_graph: Callable[[CapturedGraph], Any]
) -> tuple[types.CodeType, CapturedGraph | None, CapturedGraph | None]:
    """Assemble the code; the graph is compiled here, once its outputs are known.

    Returns the code, the graph that it calls, and the graph whose symbols the capture decided about: the same one, or,
    where there is nothing to call, one without operations.
    """
    for generator in trace.generators:
        if generator.left_waiting():
            raise generator.not_given_back()
    emitter = CodeEmitter(trace.frame, trace.grad_mode, trace.unreal, trace.made_again)
    way_out = WayOut(trace)
    assumptions.write(emitter, trace, way_out)
    if not trace.side_effects.empty:
        for tracker in read_before_effects(trace, ending):
            emitter.preload(tracker)
        write_effects(emitter, trace)
    table = ending.write(emitter)

    graph = decided = None
    before: list[Instruction] = []
    prefix: list[Instruction] = []
    if trace.builder.ops or emitter.outputs:
        graph = decided = trace.builder.finish(emitter.outputs)
        assumptions.verify(trace, graph)
        left = footprint(graph, bool(trace.before_graph))  # now: a backend may spend what the record holds
        compiled = compile_graph(graph)
        prefix, bound = call_graph(trace, emitter, graph, compiled)
        way_out.target.covers(left, compiled, bound)
        table = [*table, way_out.protects(prefix)]
        before = way_out.begin(emitter)
        if trace.undoes:
            before += way_out.keep_written(emitter, graph)
        way_out.write(emitter)
        trace.as_written = way_out.target
    elif trace.builder.has_symbols:
        decided = trace.builder.finish(())
    else:
        trace.builder.abort()
    prefix = [*before, *first_calls(trace), *prefix]
    code = trace.frame.code
    body = without_idle_stores([*emit.prologue((), code.co_freevars), *prefix, *emitter.out])
    replacement = assemble(
        located(body, ending.position),
        code,
        exception_table=table,
        cellvars=(),
        varnames=argument_names(code),
        consts=code.co_consts[:1],
        names=(),
    )
    return replacement, graph, decided


def first_calls(trace: Trace) -> list[Instruction]:
    """What has to happen before the graph runs."""
    emitter = CodeEmitter(trace.frame)
    for call in trace.before_graph:
        call.write(emitter)
    return emitter.out


def read_before_effects(trace: Trace, ending: Ending) -> list[VT]:
    """What must be in hand before the first change is written, for it is reached through what changes."""
    rehearsal = CodeEmitter(trace.frame, trace.grad_mode, trace.unreal, trace.made_again)
    write_effects(rehearsal, trace)
    ending.write(rehearsal)
    return list({id(tracker): tracker for tracker in rehearsal.loaded_by_source}.values())


def without_idle_stores(instructions: list[Instruction]) -> list[Instruction]:
    """The instructions less each copy into a temporary that nobody reads."""
    read = {i.argval for i in instructions if i.opname.startswith("LOAD_FAST")}
    kept: list[Instruction] = []
    for instruction in instructions:
        idle = instruction.opname == "STORE_FAST" and instruction.argval not in read
        if idle and kept and kept[-1].opname == "COPY" and kept[-1].arg == 1:
            kept.pop()
        else:
            kept.append(instruction)
    return kept


def call_graph(
    trace: Trace, emitter: CodeEmitter, graph: CapturedGraph, compiled: Any
) -> tuple[list[Instruction], _C.BoundGraph]:
    """Call the compiled graph with its inputs and put the outputs into temporaries; what is called."""
    loader = CodeEmitter(trace.frame, unreal=trace.unreal)
    lifted = [item for item in graph.inputs if item.lifted]
    places = tuple(item.index for item in lifted)
    bound = _C.BoundGraph(compiled, tuple(item.real for item in lifted), places)
    _follow(compiled, bound)
    loader.load_const(bound)
    loaded = [item for item in graph.inputs if not item.lifted]
    for item in loaded:
        loader.load_source(item.source)
    loader.call(len(loaded))
    count = len(emitter.outputs)
    if count:
        loader.add(emit.unpack_sequence(count))
        for index in range(count):
            if index in graph.spent:
                _give_spent_history(loader, graph.spent[index])
            loader.add(emit.store_fast(emitter.output_name(index)))
    else:
        loader.pop_top()
    return loader.out, bound


def _give_spent_history(loader: CodeEmitter, words: str) -> None:
    """Let the tensor on the stack require gradients, with a history that raises when a backward gets there."""
    loader.call_method("detach", [])
    loader.call_method("requires_grad_", [])
    loader.push_null_under(1)
    loader.load_const(training.delayed_error(words))
    loader.swap(2)
    loader.call(1)


def _follow(compiled: Any, bound: Any) -> None:
    """Let the bound graph call what the compiled graph settles on after its checked first run, without a step between.

    The list of followers is emptied by that run, so the reference to the bound graph does not last.
    """
    followers = getattr(compiled, "followers", None)
    if followers is not None:
        followers.append(lambda final: setattr(bound, "fn", final))


def write_effects(emitter: CodeEmitter, trace: Trace) -> None:
    """Bring every changed object to its traced state."""
    effects = trace.side_effects
    for fn, args, kwargs in effects.deferred:
        emitter.load_const(fn)
        for value in (*args, *kwargs.values()):
            emitter.load(value)
        emitter.call_keywords(tuple(kwargs), len(args) + len(kwargs))
        emitter.pop_top()
    for tracker in sorted(effects.changed(), key=lambda changed: not changed.writes_first):
        if tracker.payload_of is not None:
            emitter.write_payload(tracker, tracker.payload_of)
        else:
            tracker.write_back(emitter)
    _write_globals(emitter, trace)
    for fn, args in effects.closing:
        emitter.load_const(fn)
        for value in args:
            emitter.load(value)
        emitter.call(len(args))
        emitter.pop_top()


def _write_globals(emitter: CodeEmitter, trace: Trace) -> None:
    effects = trace.side_effects
    for (_, name), (namespace, source, value) in effects.globals.items():
        if value is not None:
            emitter.load(value)
        if namespace is trace.frame.globals:
            emitter.add(emit.store_global(name) if value is not None else emit.delete_global(name))
            continue
        emitter.load_source(source if source is not None else sources.ConstSource(namespace))
        emitter.load_const(name)
        if value is not None:
            emitter.store_subscr()
        else:
            emitter.delete_subscr()


def return_ending(trace: Trace, value: VT, position: Any) -> Ending:
    """The ending of a frame that was traced to its return."""

    def write(emitter: CodeEmitter) -> list[ExceptionEntry]:
        emitter.load(value)
        emitter.settle_modes(trace.builder, trace.function_modes)
        emitter.add(emit.return_value())
        return []

    return Ending(write, position)
