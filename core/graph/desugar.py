"""A capture with wrapper tensors as one with plain tensors only: the form in which compilers get it.

Enters: a CapturedGraph whose inputs or outputs are wrapper tensors. Leaves: a capture of the same calls whose inputs
and outputs are the tensors that those are made of, and how the one's inputs and outputs become the other's. Autograd
sees the wrappers, not what they are made of: which of them take part in a backward is said here too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..errors import RecorderRefused
from .captured import CapturedGraph, GraphInput
from .mutation import fixed_offsets, mutated_inputs
from .recorder import AtenRecord, InputFacts
from .wrapper_tensors import Build, is_wrapper, parts, plain_tensors
from .wrapper_views import WrapperView, view_of


@dataclass(frozen=True)
class InputPart:
    """A plain input: input `index` of the capture itself, or what the attributes in `path` lead to from there."""

    index: int
    path: tuple[str, ...] = ()


@dataclass(frozen=True)
class OutputBuild:
    """An output of the capture. input: it is this input itself; view: it is taken of another tensor, with autograd;
    else build: how it is made (None: it is plain) of the plain outputs at `places`, its symbolic sizes being those at
    `numbers` (symbolic number, place)."""

    build: Build | None = None
    places: tuple[int, ...] = ()
    numbers: tuple[tuple[Any, int], ...] = ()
    input: int | None = None
    view: WrapperView | None = None


@dataclass(frozen=True)
class Carriers:
    """The wrappers that gradients pass through.

    inputs: (input of the capture, its facts); outputs: (output of the capture, its fake).
    """

    inputs: tuple[tuple[int, InputFacts], ...]
    outputs: tuple[tuple[int, Any], ...]


@dataclass(frozen=True)
class Desugared:
    """captured: the capture of plain tensors; parts: one an input of it; outputs: one an output of the original.

    written: inputs of the original, wrappers, that the program writes to.
    """

    original_outputs: tuple[Any, ...]

    captured: CapturedGraph
    parts: tuple[InputPart, ...]
    outputs: tuple[OutputBuild, ...]
    carriers: Carriers
    written: tuple[int, ...]


def has_wrappers(captured: CapturedGraph) -> bool:
    """Whether a wrapper tensor enters or leaves the graph."""
    return any(is_wrapper(item.fake) for item in captured.inputs) or any(map(is_wrapper, captured.outputs))


def desugared(captured: CapturedGraph) -> Desugared:
    """The capture of plain tensors. Raises RecorderRefused for what can't be said of them."""
    record = captured.record
    if record is None:
        raise RecorderRefused("the graph was captured without a record", instead="the graph runs as captured")
    inputs, places = _plain_inputs(captured, record)
    outputs, fakes = _plain_outputs(captured)
    own = dataclasses.replace(
        record,
        inputs=[item.fake for item in inputs],
        facts=[record.known_facts.get(id(item.fake)) if item.is_tensor else None for item in inputs],
        calls=record.calls,
    )
    wrappers = [(at, record.known_facts[id(i.fake)]) for at, i in enumerate(captured.inputs) if is_wrapper(i.fake)]
    for _, facts in wrappers:
        if facts.fake.requires_grad and facts.edge_moved():
            raise RecorderRefused(
                f"a {type(facts.fake).__name__} that carries gradients is written to",
                instead="the graph runs as captured",
            )
    plain_capture = dataclasses.replace(
        captured,
        inputs=tuple(inputs),
        outputs=tuple(fakes),
        record=own,
        mutated=mutated_inputs(own),
        fixed_offsets=fixed_offsets(own),
        spent={},
    )
    carried = tuple(
        (at, fake) for at, fake in enumerate(captured.outputs) if outputs[at].build is not None and fake.requires_grad
    )
    if carried and not captured.needs_grad:
        raise RecorderRefused("a wrapper tensor is returned that takes gradients", instead="the graph runs as captured")
    return Desugared(
        captured.outputs,
        plain_capture,
        tuple(places),
        tuple(outputs),
        Carriers(tuple((at, facts) for at, facts in wrappers if facts.requires_grad), carried),
        tuple(at for at, facts in wrappers if facts.version is not None and facts.fake._version != facts.version),
    )


def _plain_inputs(captured: CapturedGraph, record: AtenRecord) -> tuple[list[GraphInput], list[InputPart]]:
    known = {id(item.fake): item for item in captured.every_input}
    inputs: list[GraphInput] = []
    places: list[InputPart] = []
    seen: set[int] = set()
    for item in captured.inputs:
        if not is_wrapper(item.fake):
            if item.is_tensor:
                seen.add(id(item.fake))
            inputs.append(dataclasses.replace(item, index=len(inputs)))
            places.append(InputPart(item.index))
    for item in captured.inputs:
        for path, fake in _paths(item.fake) if is_wrapper(item.fake) else ():
            if id(fake) in seen:
                continue
            if id(fake) not in known:
                raise RecorderRefused(
                    f"a {type(item.fake).__name__} was given another inner tensor", instead="the graph runs as captured"
                )
            seen.add(id(fake))
            own = known[id(fake)]
            inputs.append(
                dataclasses.replace(
                    own, index=len(inputs), lifted=False, is_parameter=item.is_parameter, is_buffer=item.is_buffer
                )
            )
            places.append(InputPart(item.index, path))
    return inputs, places


def _paths(tensor: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, inner in parts(tensor):
        if is_wrapper(inner):
            yield from _paths(inner, (*path, name))
        else:
            yield (*path, name), inner


def _plain_outputs(captured: CapturedGraph) -> tuple[list[OutputBuild], list[Any]]:
    inputs = {id(item.fake): item.index for item in captured.inputs if is_wrapper(item.fake)}
    outputs: list[OutputBuild] = []
    fakes: list[Any] = []

    def place(value: Any) -> int:
        fakes.append(value)
        return len(fakes) - 1

    for fake in captured.outputs:
        if not is_wrapper(fake):
            outputs.append(OutputBuild(places=(place(fake),)))
        elif id(fake) in inputs:
            outputs.append(OutputBuild(input=inputs[id(fake)]))
        elif (view := view_of(captured, len(outputs))) is not None:
            outputs.append(OutputBuild(view=view))
        else:
            build = Build.of(fake)
            assert build is not None
            tensors = tuple(place(inner) for inner in plain_tensors(fake))
            outputs.append(OutputBuild(build, tensors, tuple((n, place(n)) for n in build.symbols())))
    return outputs, fakes
