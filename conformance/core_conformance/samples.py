"""Samples of torch's table of operators: which operators and dtypes there are, and arguments drawn with a seed."""

from __future__ import annotations

import functools
import itertools
import re
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from .copies import copied
from .subject import tensors_of
from .torch_compat import operator_table, tree_flatten, tree_unflatten

WIDTHS = (torch.float32,)
NARROW = (torch.bfloat16, torch.float16)
WHOLE = (torch.int64, torch.bool)
SEEDING = "wrapper_set_seed"
SAMPLES = 24
"""How many of an operator's samples are looked at; its later ones are variations of those."""
LARGEST = 1 << 18
"""Elements of the largest tensor among the arguments of a sample that is taken."""
UNWRITTEN = frozenset("empty empty_like empty_permuted empty_strided new_empty new_empty_strided resize_".split())
"""Operators whose results hold whatever the memory held: they have no values to compare."""
SEVERAL_RIGHT = re.compile(
    r"svd|eig|qr$|qr\b|geqrf|lu_factor|ldl|lstsq|lowrank|householder|ormqr|linalg\.lu$|^lu$|cond$"
)
"""Operators with several right results (signs of vectors, order of pivots): float64 may choose another one."""
CARDS = re.compile(
    r"^jiterator|_flash_attention|_efficient_attention|triton_optimized|_scaled_mm|^to_sparse$|^sparse\."
)
"""Operators of the table that need a card, or give no strided tensors."""


def name_of(op: Any) -> str:
    """`div.floor_rounding`: the operator with the variant that the table tests."""
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)


@functools.cache
def operators() -> dict[str, Any]:
    """Name -> OpInfo of every operator that the suite tests."""
    found: dict[str, Any] = {}
    for op in operator_table():
        if not CARDS.search(name_of(op)):
            found.setdefault(name_of(op), op)
    return found


def function_of(op: Any) -> Callable[..., Any]:
    """What the operator's user calls.

    The table wraps operators that draw numbers in a function that sets the seed first; here the caller has set it. Its
    own functions become the program's: capture does not look into torch's.
    """
    function: Callable[..., Any] = op.op
    if not isinstance(function, types.FunctionType) or not function.__module__.startswith("torch.testing."):
        return function
    names = {**function.__globals__, "__name__": "program", SEEDING: _call}
    code = function.__code__.replace(co_filename="<program>")
    return types.FunctionType(code, names, function.__name__, function.__defaults__, function.__closure__)


def _call(called: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return called(*args, **kwargs)


def dtypes_of(op: Any, device: str = "cpu") -> list[torch.dtype]:
    """The dtypes an operator is tested in: float32 and a narrow one where eager has them, else whole numbers."""
    supported = op.supported_dtypes(torch.device(device).type)
    chosen = [dtype for dtype in WIDTHS if dtype in supported]
    chosen += [dtype for dtype in NARROW if dtype in supported][:1]
    return chosen or [dtype for dtype in WHOLE if dtype in supported][:1]


@functools.cache
def cases(device: str = "cpu") -> tuple[str, ...]:
    """`add-float32`: every operator with each dtype it is tested in."""
    return tuple(
        f"{name}-{str(dtype).removeprefix('torch.')}"
        for name, op in operators().items()
        for dtype in dtypes_of(op, device)
    )


def parse_case(case: str) -> tuple[Any, torch.dtype]:
    """The OpInfo and the dtype of a case."""
    name, _, dtype = case.rpartition("-")
    return operators()[name], getattr(torch, dtype)


@dataclass(frozen=True)
class Sample:
    """Arguments of one call: tensors in order, and the structure with everything else, which is fixed.

    Compiling happens once for a structure; the tensors' values change from call to call.
    """

    tensors: tuple[torch.Tensor, ...]
    rest: tuple[Fixed | None, ...]
    """The other arguments in their places; None where a tensor goes."""
    tree: Any

    @property
    def structure(self) -> tuple[Any, ...]:
        """Equal for samples that differ in their tensors' values alone."""
        shown = tuple("tensor" if value is None else repr(value) for value in self.rest)
        return (shown, str(self.tree), tuple(_outside(tensor) for tensor in self.tensors))

    def program(self, op: Any) -> Callable[..., Any]:
        """A function of the tensors that calls the operator as its user would write it: all else stands in its text."""
        names = iter(f"t{at}" for at in range(len(self.tensors)))
        namespace: dict[str, Any] = {"op": op}
        shown = [Text(next(names)) if fixed is None else _text(fixed.value, namespace) for fixed in self.rest]
        args, kwargs = tree_unflatten(shown, self.tree)
        given = [_nested(arg) for arg in args] + [f"{name}={_nested(value)}" for name, value in kwargs.items()]
        parameters = ", ".join(f"t{at}" for at in range(len(self.tensors)))
        source = f"def program({parameters}):\n    return op({', '.join(given)})\n"
        exec(compile(source, "<program>", "exec"), namespace)  # text made above, of names and plain constants
        program: Callable[..., Any] = namespace["program"]
        return program


@dataclass(frozen=True)
class Text:
    """A piece of a program's text."""

    text: str


def _text(value: Any, namespace: dict[str, Any]) -> Text:
    if value is None or isinstance(value, (bool, int, str)):
        return Text(repr(value))
    name = f"c{len(namespace)}"
    namespace[name] = value
    return Text(name)


def _nested(value: Any) -> str:
    if isinstance(value, Text):
        return value.text
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_nested(item)}" for key, item in value.items()) + "}"
    items = "".join(f"{_nested(item)}, " for item in value)
    return f"[{items}]" if isinstance(value, list) else f"({items})"


def _outside(tensor: torch.Tensor) -> tuple[Any, ...]:
    strides = tensor.stride() if tensor.layout is torch.strided else None
    return (tuple(tensor.shape), strides, tensor.dtype, tensor.layout, tensor.requires_grad)


def as_sample(op_input: Any, args: Any, kwargs: Any) -> Sample:
    """The sample of one call. Values that are None stay apart from the places of tensors."""
    leaves, tree = tree_flatten(((op_input, *args), dict(kwargs)))
    tensors = tuple(leaf for leaf in leaves if isinstance(leaf, torch.Tensor))
    rest = tuple(None if isinstance(leaf, torch.Tensor) else Fixed(leaf) for leaf in leaves)
    return Sample(tensors, rest, tree)


_DEVICES = ("cpu", "cuda", "meta", "mps", "xpu")


def stays_on(sample: Sample, device: str) -> bool:
    """False for a call that goes to another device than its tensors are drawn on, as some do where there is a GPU."""
    fixed = [one.value for one in sample.rest if one is not None]
    named = {
        torch.device(value).type
        for value in fixed
        if isinstance(value, torch.device) or (isinstance(value, str) and value in _DEVICES)
    }
    return named | {tensor.device.type for tensor in sample.tensors} <= {torch.device(device).type}


@dataclass(frozen=True)
class Fixed:
    """An argument that is no tensor."""

    value: Any


def drawn(op: Any, dtype: torch.dtype, seed: int, *, device: str = "cpu", grad: bool = False) -> Iterator[Sample]:
    """The operator's samples with the values of a seed, in the table's order."""
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        found = [
            as_sample(one.input, one.args, one.kwargs)
            for one in itertools.islice(op.sample_inputs(device, dtype, requires_grad=grad), SAMPLES)
        ]
    yield from found


def chosen(
    op: Any, dtype: torch.dtype, generator: torch.Generator, count: int, *, device: str = "cpu", grad: bool = False
) -> list[tuple[int, Sample]]:
    """Up to `count` samples of different structure, with their places; the first is always one of them."""
    fitting, seen = [], set()
    for at, sample in enumerate(drawn(op, dtype, _number(generator), device=device, grad=grad)):
        small = all(tensor.numel() <= LARGEST for tensor in sample.tensors)
        if sample.structure not in seen and small and stays_on(sample, device):
            seen.add(sample.structure)
            fitting.append((at, sample))
    if len(fitting) <= count:
        return fitting
    order = torch.randperm(len(fitting) - 1, generator=generator).tolist()
    return [fitting[0], *(fitting[i + 1] for i in order[: count - 1])]


def redrawn(op: Any, dtype: torch.dtype, at: int, like: Sample, generator: torch.Generator, **more: Any) -> Sample:
    """The sample in the same place with other values; `like` itself where the table has none of that structure."""
    for place, sample in enumerate(drawn(op, dtype, _number(generator), **more)):
        if place == at:
            return sample if sample.structure == like.structure else like
    return like


def _number(generator: torch.Generator) -> int:
    return int(torch.randint(2**31, (), generator=generator))


def draws_numbers(op: Any, sample: Sample) -> bool:
    """Whether two calls of the operator on the same values differ, which says that it draws random numbers."""
    results = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        results.append(tensors_of(sample.program(op)(*copied(list(sample.tensors)))))
    return not all(a.shape == b.shape and torch.equal(_plain(a), _plain(b)) for a, b in zip(*results))


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.to_dense() if tensor.layout is not torch.strided else tensor.detach()
    if tensor.dtype is torch.complex32:
        return torch.view_as_real(tensor.resolve_conj()).nan_to_num()
    return tensor.nan_to_num() if tensor.is_floating_point() else tensor.resolve_conj()
