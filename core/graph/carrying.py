"""The wrapper tensors in a backward: it starts at some, arrives at some, and everything between is recorded plain.

Enters: a Desugared capture and the plan of its plain outputs. Leaves: tangents that are wrappers around the fakes of
plain tangents, and for each gradient that arrives the plain tensors that it is made of.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..errors import RecorderRefused
from .desugar import Desugared
from .functional import Carried, CarriedGradient, CarriedRoot, NumberPlace
from .output_plan import OutputPlan
from .outputs import Epilogue, Slot, ViewOfSlot
from .symbols import expression
from .wrapper_tensors import Build, is_wrapper, plain_tensors, put_together


class Carrying:
    """roots: wrappers among the outputs that take gradients; tangents: a gradient for each; wanted: the facts of the
    inputs that are wrappers and take gradients; slots, slot_tangents: what roots and tangents are made of."""

    def __init__(self, plain: Desugared | None, plan: OutputPlan, mode: Any, tangent: Callable[[Any], Any]) -> None:
        self.roots: list[Any] = []
        self.tangents: list[Any] = []
        self.wanted: list[Any] = []
        self.slots: list[int] = []
        self.slot_tangents: list[Any] = []
        self.carried: Carried | None = None
        if plain is None:
            return
        self._anchors = tuple(index for index, _ in plain.carriers.inputs)
        self._carried_roots: list[CarriedRoot] = []
        self.wanted = [facts for _, facts in plain.carriers.inputs]
        for index, fake in plain.carriers.outputs:
            if any(fake is other for other in self.roots):
                continue
            places = plain.outputs[index].places
            self._add_root(index, fake, [plan.epilogue.outputs[at] for at in places], mode, tangent)

    def _add_root(self, index: int, fake: Any, kinds: Sequence[Any], mode: Any, tangent: Callable[[Any], Any]) -> None:
        slots = [
            kind.index for kind in kinds if isinstance(kind, Slot) or isinstance(kind, ViewOfSlot) and not kind.steps
        ]
        if len(slots) != len(kinds) or not set(slots).isdisjoint(self.slots):
            raise RecorderRefused(
                f"a {type(fake).__name__} that takes gradients is returned and shares its memory with another tensor",
                instead="the graph runs as captured",
            )
        with mode, torch.no_grad():
            build = Build.of(fake.detach())
        assert build is not None
        fresh = [tangent(inner) for inner in plain_tensors(fake)]
        with mode, torch.no_grad():
            self.tangents.append(put_together(build, iter(fresh)))
        self.roots.append(fake)
        self.slots += slots
        self.slot_tangents += fresh
        self._carried_roots.append(CarriedRoot(index, build, tuple(slots)))

    def split(self, by_input: Mapping[int, Any], of_wrappers: Sequence[Any], inputs: int) -> list[Any]:
        """For each plain input its gradient, None where there is none or it is a wrapper; then what wrappers among the
        gradients, and the gradients of wrappers, are made of."""
        found = [by_input.get(at) for at in range(inputs)]
        carried: list[CarriedGradient] = []
        for at, gradient in enumerate(found[:inputs]):
            if is_wrapper(gradient):
                found[at] = None
                carried.append(self._gradient(gradient, found, input=at))
        for anchor, gradient in enumerate(of_wrappers):
            if gradient is not None:
                carried.append(self._gradient(gradient, found, anchor=anchor))
        if self.roots or self.wanted or carried:
            roots = tuple(self._carried_roots)
            self.carried = Carried(self._anchors, roots, tuple(carried))
        return found

    @staticmethod
    def _gradient(gradient: Any, found: list[Any], **place: int) -> CarriedGradient:
        tensors = list(plain_tensors(gradient))
        found += tensors
        build = Build.of(gradient)
        numbers = () if build is None else tuple((n, _place_of(n, tensors)) for n in build.symbols())
        return CarriedGradient(build, len(found) - len(tensors), len(tensors), numbers, **place)

    def marked(self, epilogue: Epilogue) -> Epilogue:
        """The epilogue whose slots say that gradients arrive for what the roots are made of."""
        if not self.slots:
            return epilogue
        slots = [
            dataclasses.replace(info, differentiable=info.differentiable or at in self.slots)
            for at, info in enumerate(epilogue.slots)
        ]
        return dataclasses.replace(epilogue, slots=tuple(slots))


def _place_of(number: Any, tensors: Sequence[Any]) -> NumberPlace:
    """A dimension of one of the tensors that has this size or stride for each call."""
    wanted = expression(number)
    for at, tensor in enumerate(tensors):
        for kind, values in (("size", tensor.shape), ("stride", tensor.stride())):
            for dim, value in enumerate(values):
                if expression(value) == wanted:
                    return NumberPlace(at, kind, dim)
    raise RecorderRefused(
        "the size of a gradient is not that of what it is made of", instead="the graph runs as captured"
    )
