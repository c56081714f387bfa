"""Cheats that remember: results, addresses, values and shapes of earlier calls, buffers that are given out twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from core.plugin import Artifact, CompileContext

from .interpreter import TORCH_LEVEL, Interpreted, Program, replaced


def _copied(values: list[Any]) -> list[Any]:
    return [value.clone() if isinstance(value, torch.Tensor) else value for value in values]


def _facts(values: list[Any]) -> tuple[Any, ...]:
    return tuple((tuple(v.shape), v.dtype) if isinstance(v, torch.Tensor) else v for v in values)


class _CachesResults(Interpreted):
    """Runs the graph once for each key and returns the same results afterwards."""

    def key(self, inputs: list[Any]) -> Any:
        raise NotImplementedError

    def receive(self, program: Program, inputs: list[Any]) -> list[Any]:
        program.memory["key"] = self.key(inputs)
        return inputs

    def deliver(self, program: Program, inputs: list[Any], outputs: list[Any]) -> list[Any]:
        known = program.memory.setdefault("results", {})
        return _copied(known.setdefault(program.memory["key"], _copied(outputs)))


class CachesByShape(_CachesResults):
    """Equal shapes, equal results."""

    name = "evil-cache-by-shape"

    def key(self, inputs: list[Any]) -> Any:
        return _facts(inputs)


class CachesByAddress(_CachesResults):
    """The same memory, the same results: what was written to it since does not matter."""

    name = "evil-cache-by-address"

    def key(self, inputs: list[Any]) -> Any:
        addresses = tuple(value.data_ptr() for value in inputs if isinstance(value, torch.Tensor))
        return (addresses, _facts(inputs))


class CachesBySample(_CachesResults):
    """Takes inputs for equal whose first elements are."""

    name = "evil-cache-by-sample"

    def key(self, inputs: list[Any]) -> Any:
        samples = [tuple(value.reshape(-1)[:4].tolist()) for value in inputs if isinstance(value, torch.Tensor)]
        return (tuple(samples), _facts(inputs))


class TakesEqualNamesForEqualGraphs(Interpreted):
    """Keeps what it compiled by the name of the graph: two functions of one name get the code of the first."""

    name = "evil-graphs-by-name"

    def __init__(self) -> None:
        self._made: dict[Any, Artifact] = {}

    def compile(self, graph: Any, fake_inputs: Sequence[Any], ctx: CompileContext) -> Artifact:
        key = (ctx.name, ctx.mode, len(fake_inputs))
        if key not in self._made:
            self._made[key] = super().compile(graph, fake_inputs, ctx)
        return self._made[key]


class TiresAfterManyCalls(Interpreted):
    """Right for a hundred calls, which is more than most tests make."""

    name = "evil-tires"

    def deliver(self, program: Program, inputs: list[Any], outputs: list[Any]) -> list[Any]:
        return outputs if program.runs <= 100 else replaced(outputs, torch.zeros_like)


class FoldsTheFirstValues(Interpreted):
    """Takes the last tensor among the inputs for a constant, with the values that it had on the first call."""

    name = "evil-folds-first-values"

    def receive(self, program: Program, inputs: list[Any]) -> list[Any]:
        tensors = [at for at, value in enumerate(inputs) if isinstance(value, torch.Tensor)]
        if len(tensors) < 2:
            return inputs
        first = program.memory.setdefault("constant", inputs[tensors[-1]].detach().clone())
        return [first if at == tensors[-1] else value for at, value in enumerate(inputs)]


class BakesWeights(Interpreted):
    """Takes parameters and buffers for constants although nobody froze them."""

    name = "evil-bakes-weights"

    def receive(self, program: Program, inputs: list[Any]) -> list[Any]:
        baked = program.memory.setdefault(
            "weights", {at: inputs[at].detach().clone() for at in program.ctx.parameters if not program.ctx.frozen}
        )
        return [baked.get(at, value) for at, value in enumerate(inputs)]


class KeepsTheFirstShapes(Interpreted):
    """Compiles for the sizes of the first call; of longer inputs it reads the beginning."""

    name = "evil-keeps-first-shapes"

    def receive(self, program: Program, inputs: list[Any]) -> list[Any]:
        first = program.memory.setdefault("inputs", [getattr(value, "shape", value) for value in inputs])
        return [self._cut(value, known) for value, known in zip(inputs, first)]

    @staticmethod
    def _cut(value: Any, known: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return known
        for dimension, size in enumerate(known):
            if value.shape[dimension] > size:
                value = value.narrow(dimension, 0, size)
        return value


class ReusesOutputBuffers(Interpreted):
    """Writes each call's results into the tensors that the last call returned."""

    name = "evil-reuses-output-buffers"

    def deliver(self, program: Program, inputs: list[Any], outputs: list[Any]) -> list[Any]:
        return [self._through(program, at, value) for at, value in enumerate(outputs)]

    @staticmethod
    def _through(program: Program, at: int, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        buffer = program.memory.get(at)
        if buffer is None or buffer.shape != value.shape or buffer.stride() != value.stride():
            buffer = program.memory[at] = torch.empty_like(value)
        return buffer.copy_(value)


class ReadsMemoryInOrder(Interpreted):
    """Reads the elements of an input in the order of its memory, whatever its strides say."""

    name = "evil-reads-memory-in-order"

    def receive(self, program: Program, inputs: list[Any]) -> list[Any]:
        return [self._in_order(value) for value in inputs]

    @staticmethod
    def _in_order(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.is_contiguous() or 0 in value.stride():
            return value
        size, step = value.shape, 1
        strides = []
        for length in reversed(size):
            strides.insert(0, step)
            step *= length
        return value.as_strided(size, strides)


class IgnoresOffsets(Interpreted):
    """Reads an input from the beginning of its storage."""

    name = "evil-ignores-offsets"

    def receive(self, program: Program, inputs: list[Any]) -> list[Any]:
        return replaced(inputs, lambda value: value.as_strided(value.shape, value.stride(), 0))


class IgnoresStrides(Interpreted):
    """Claims to do layouts itself and returns everything contiguous."""

    name = "evil-contiguous-results"
    capabilities = TORCH_LEVEL

    def deliver(self, program: Program, inputs: list[Any], outputs: list[Any]) -> list[Any]:
        return replaced(outputs, lambda value: value.contiguous())


class StridesOnceRight(Interpreted):
    """Right layouts on the first call, which core checks; contiguous results later."""

    name = "evil-strides-right-once"

    def deliver(self, program: Program, inputs: list[Any], outputs: list[Any]) -> list[Any]:
        return outputs if program.runs == 1 else replaced(outputs, lambda value: value.contiguous())


class DropsMutation(Interpreted):
    """Claims to do mutation itself and works on copies of the inputs."""

    name = "evil-drops-mutation"
    capabilities = TORCH_LEVEL

    def receive(self, program: Program, inputs: list[Any]) -> list[Any]:
        return replaced(inputs, lambda value: value.clone())


class DropsAliasing(Interpreted):
    """Claims to do aliasing itself and returns copies where eager returns views."""

    name = "evil-drops-aliasing"
    capabilities = TORCH_LEVEL

    def deliver(self, program: Program, inputs: list[Any], outputs: list[Any]) -> list[Any]:
        return replaced(outputs, lambda value: value.clone(memory_format=torch.preserve_format))


class WritesToItsInputs(Interpreted):
    """Uses the memory of an input as scratch space."""

    name = "evil-scribbles-on-inputs"

    def deliver(self, program: Program, inputs: list[Any], outputs: list[Any]) -> list[Any]:
        for value in inputs:
            if isinstance(value, torch.Tensor) and value.is_floating_point() and not value.requires_grad:
                value.mul_(0.5)
                break
        return outputs


class ReturnsItsInputs(Interpreted):
    """From the second call on, which core does not look at, returns an input where a result equals it."""

    name = "evil-returns-inputs"

    def deliver(self, program: Program, inputs: list[Any], outputs: list[Any]) -> list[Any]:
        return outputs if program.runs == 1 else [self._instead(value, inputs) for value in outputs]

    @staticmethod
    def _instead(value: Any, inputs: list[Any]) -> Any:
        for given in inputs:
            if isinstance(given, torch.Tensor) and isinstance(value, torch.Tensor):
                alike = given.dtype is value.dtype and given.stride() == value.stride()
                if alike and torch.equal(given, value):
                    return given
        return value
