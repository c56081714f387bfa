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
from .outputs import Epilogue, InputItself, Slot, ViewOfSlot
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
            self._add_root(index, fake, plan, [plan.epilogue.outputs[at] for at in places], mode, tangent)

    def _add_root(
        self, index: int, fake: Any, plan: OutputPlan, kinds: Sequence[Any], mode: Any, tangent: Callable[[Any], Any]
    ) -> None:
        places = [self._place(inner, kind, plan) for inner, kind in zip(plain_tensors(fake), kinds)]
        with mode, torch.no_grad():
            build = Build.of(fake.detach())
        assert build is not None
        parts = [tangent(inner) if place is not None else inner for inner, place in zip(plain_tensors(fake), places)]
        with mode, torch.no_grad():
            self.tangents.append(put_together(build, iter(parts)))
        self.roots.append(fake)
        self.slot_tangents += [part for part, place in zip(parts, places) if place is not None]
        self._carried_roots.append(CarriedRoot(index, build, tuple(places), tuple(kinds)))

    def _place(self, inner: Any, kind: Any, plan: OutputPlan) -> int | None:
        """The slot of what a root is made of, for which a gradient arrives; None for what carries none: numbers of a
        kind without gradients, and tensors without elements."""
        own = isinstance(kind, (Slot, ViewOfSlot)) and not getattr(kind, "steps", ())
        idle = not (inner.dtype.is_floating_point or inner.dtype.is_complex) or any(_is_zero(n) for n in inner.shape)
        if idle and (own or isinstance(kind, InputItself)):
            return None
        if idle or not own or kind.index in self.slots or plan.slot_infos[kind.index].differentiable:
            raise RecorderRefused(
                "a wrapper tensor that takes gradients is returned and shares its memory with another tensor",
                instead="the graph runs as captured",
            )
        self.slots.append(kind.index)
        return int(kind.index)

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


def _is_zero(size: Any) -> bool:
    return isinstance(size, int) and size == 0
