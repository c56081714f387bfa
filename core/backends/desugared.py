"""From a program's wrapper tensors to the plain ones that a compiled graph takes, and back, as generated source.

Enters: a Desugared capture and the callable that was compiled for its plain tensors. Leaves: a callable on the
capture's own inputs that gives its own outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..graph.captured import CapturedGraph
from ..graph.desugar import Desugared, OutputBuild
from ..graph.functional import CarriedGradient
from ..graph.wrapper_tensors import Build, is_wrapper
from .generated import Code, names, tuple_text
from .wrapper import follow


def around(
    plain: Desugared,
    captured: CapturedGraph,
    run: Callable[..., Any],
    anchors: Sequence[int] = (),
    made: Sequence[int] = (),
    originals: bool = False,
) -> Callable[..., tuple[Any, ...]]:
    """`run`, which knows plain tensors, for the capture's own inputs and outputs.

    anchors: inputs that it is given in addition; made: outputs that it gives in addition, ready; originals: it is given
    the tuple of all inputs as well.
    """
    code = Code("compiled", names("i", len(captured.inputs)))
    results = names("o", len(plain.captured.outputs))
    ready = {at: f"r{at}" for at in made}
    targets = f"{tuple_text([*results, *ready.values()])} = " if results or ready else ""
    arguments = [*_input_texts(plain), *(f"i{at}" for at in anchors)]
    if originals:
        arguments.append(tuple_text(names("i", len(captured.inputs))))
    code.line(f"{targets}run({', '.join(arguments)})")
    _bump_versions(code, plain)
    code.line(f"return {tuple_text(_output_texts(code, plain, captured, results, ready))}")
    code.namespace["run"] = run
    compiled = code.finish()
    follow(compiled, code.namespace, "run", run)
    return compiled


def _input_texts(plain: Desugared) -> list[str]:
    """Source of each plain input, the capture's inputs being i0, i1, ..."""
    return [".".join((f"i{part.index}", *part.path)) for part in plain.parts]


def _bump_versions(code: Code, plain: Desugared) -> None:
    """A write to what a wrapper is made of is one to the wrapper: autograd asks after its version."""
    for index in plain.written:
        increment = code.bind(torch.autograd.graph.increment_version, "increment_version")
        code.line(f"{increment}(i{index})")


def _output_texts(
    code: Code,
    plain: Desugared,
    captured: CapturedGraph,
    results: Sequence[str],
    made: Mapping[int, str],
) -> list[str]:
    """Source of each output of the capture; lines that make wrappers are written. made: those that exist, by output."""
    by_fake = {id(captured.outputs[at]): text for at, text in made.items()}
    texts: dict[int, str] = {}
    views = [at for at, output in enumerate(plain.outputs) if output.view is not None]
    for at in [*(at for at in range(len(plain.outputs)) if at not in views), *views]:  # of what is there by then
        output, fake = plain.outputs[at], captured.outputs[at]
        text = by_fake.get(id(fake)) if is_wrapper(fake) else None
        if text is None:
            text = _output(code, output, results, f"w{at}", texts)
        if is_wrapper(fake):
            by_fake[id(fake)] = text
        texts[at] = text
    return [texts[at] for at in range(len(plain.outputs))]


def _output(code: Code, output: OutputBuild, results: Sequence[str], name: str, others: Mapping[int, str]) -> str:
    if output.view is not None:
        base = f"i{output.view.base}" if output.view.from_input else others[output.view.base]
        code.line(f"{name} = {code.bind(output.view.take, 'view')}({base})")
        return name
    if output.input is not None:
        return f"i{output.input}"
    if output.build is None:
        return results[output.places[0]]
    write_build(code, output, [results[at] for at in output.places], results, name)
    return name


def write_build(code: Code, output: OutputBuild, tensors: Sequence[str], results: Sequence[str], name: str) -> None:
    """A line that puts the wrapper of an output together of `tensors`; results: source of all plain outputs."""
    assert output.build is not None
    numbers = {id(number): results[at] for number, at in output.numbers}
    code.line(f"{name} = {_build(code, output.build, iter(tensors), numbers)}")


def write_made(code: Code, gradient: CarriedGradient, tensors: Sequence[str], name: str) -> str:
    """Source of a gradient made of `tensors`, for which a line may be written; it is absent where they are."""
    if gradient.build is None:
        return tensors[0]
    numbers = {id(n): f"{tensors[at.tensor]}.{at.kind}({at.dim})" for n, at in gradient.numbers}
    made = _build(code, gradient.build, iter(tensors), numbers)
    code.line(f"{name} = None if {tensors[0]} is None else {made}")
    return name


def _build(code: Code, build: Build, tensors: Any, numbers: Mapping[int, str]) -> str:
    inner = ", ".join(
        f"{name!r}: {next(tensors) if how is None else _build(code, how, tensors, numbers)}"
        for name, how in build.inner
    )
    unflatten = code.bind(build.cls.__tensor_unflatten__, f"make_{build.cls.__name__}")
    meta = code.bind(build.meta, "metadata")
    if build.jagged:
        return f"{unflatten}({{{inner}}}, {meta}, None, None)"
    size = f"{code.bind(torch.Size, 'Size')}({_numbers(code, build.size, numbers)})"
    return f"{unflatten}({{{inner}}}, {meta}, {size}, {_numbers(code, build.stride, numbers)})"


def _numbers(code: Code, values: Sequence[Any], known: Mapping[int, str]) -> str:
    return tuple_text(known[id(v)] if id(v) in known else repr(int(v)) for v in values)
