"""Epilogue: how what a functional graph returns becomes what the traced program returns and changes. Data only.

A functional graph mutates nothing and its results ("slots") alias nothing. Eager's results may be inputs, views of
inputs, views of each other; eager's program may have written to its inputs. After each run the executor, in this order,
1. writes back: for each WriteBack, `inputs[wb.input]` takes the value of `slots[wb.slot]`; 2. makes each output by its
kind. Equal output objects (same kind, same numbers) are one Python object, as in eager.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class SlotRef:
    """In the arguments of a ViewStep: the symbolic int that slot `index` of the graph returned."""

    index: int


class _Base:
    """In the arguments of a ViewStep: the tensor that the step is applied to."""

    _instance: _Base | None = None

    def __new__(cls) -> _Base:
        if cls._instance is None:
            cls._instance = super().__new__(cls)
        return cls._instance

    def __repr__(self) -> str:
        return "BASE"


BASE = _Base()


@dataclass(frozen=True)
class ViewStep:
    """One view operation: op(*args, **kwargs) with BASE replaced by the tensor and each SlotRef by its number.

    op is an OpOverload, `as_strided_within` or `data_of`. args may nest lists and tuples. item: which element of the
    result, for operators that return several views. grad: the grad mode in which the program took the view; run the
    step in that mode. same: for a step that made a result of the program, or with which autograd begins anew (detach),
    the number of that tensor; results behind the same one are views of one tensor, 0 elsewhere.
    """

    op: Any
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...] = ()
    item: int | None = None
    grad: bool = True
    same: int = 0


@dataclass(frozen=True)
class Constant:
    """The output is this Python value."""

    value: Any


@dataclass(frozen=True)
class Slot:
    """The output is what the graph returned at `index`."""

    index: int


@dataclass(frozen=True)
class InputItself:
    """The output is the input object at `index` (after the write-back)."""

    index: int


@dataclass(frozen=True)
class ViewOfInput:
    """The output is a view of the input at `index`, taken with autograd after the write-back: apply the steps in order.

    number tells apart views that the program took twice in the same way: two objects.
    """

    index: int
    steps: tuple[ViewStep, ...]
    number: int = 0


@dataclass(frozen=True)
class ViewOfSlot:
    """The output is a view of what the graph returned at `index`, taken with autograd: apply the steps in order.

    Several outputs that share memory in eager are views of one slot. `steps` may be empty: the slot itself. number: as
    in ViewOfInput.
    """

    index: int
    steps: tuple[ViewStep, ...]
    number: int = 0


Output = Constant | Slot | InputItself | ViewOfInput | ViewOfSlot


@dataclass(frozen=True)
class WriteBack:
    """`inputs[input]` takes the value of `slots[slot]` by copy_.

    mode "grad": with autograd (the program's in-place operation gave the input a new history); "no_grad": under
    torch.no_grad(); "data": through `.data`, because the program's write bumped no version counter.
    """

    input: int
    slot: int
    mode: str


@dataclass(frozen=True)
class SlotInfo:
    """What the executor must find at a slot: the recorded geometry. All None for a symbolic int.

    size and stride may hold SymInts. Strides of dimensions of size 1 don't matter. differentiable: the slot carries
    gradients (an output of the autograd function that isn't marked non-differentiable).
    """

    size: tuple[Any, ...] | None = None
    stride: tuple[Any, ...] | None = None
    dtype: Any = None
    device: Any = None
    differentiable: bool = False


@dataclass(frozen=True)
class Epilogue:
    """slots: one entry a graph result; outputs: one entry an output of the program; write_backs: in order of inputs.

    counted: inputs to which nothing is written back, though autograd counts a write (`squeeze_` with nothing to
    squeeze, a write that reaches them through the memory of another input).
    """

    slots: tuple[SlotInfo, ...]
    outputs: tuple[Output, ...]
    write_backs: tuple[WriteBack, ...] = ()
    counted: tuple[int, ...] = ()

    @property
    def trivial(self) -> bool:
        """True when the program's outputs are the graph's slots, one by one, and nothing is written back."""
        changed = self.write_backs or self.counted
        return not changed and self.outputs == tuple(Slot(index) for index in range(len(self.slots)))


def as_strided_within(base: Any, size: Any, stride: Any, offset: Any) -> Any:
    """A strided view whose offset counts from the first element of `base`, wherever that lies in its storage."""
    return base.as_strided(size, stride, base.storage_offset() + offset)


def data_of(base: Any) -> Any:
    """`.data`: a tensor on the same memory, with a count of writes of its own."""
    return base.data
