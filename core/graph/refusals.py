"""What a graph can't hold: calls refused by name, and errors of the fake run told apart.

A failing fake run means one of three things. The result depends on data: no graph can hold the call. There is no fake
kernel: a gap in torch. Or eager raises too: then the program sees eager's exception, found by running the call on real
tensors of the same metadata, since fake kernels word their errors differently.
"""

from __future__ import annotations

import logging
import re
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from .. import torch_compat
from ..errors import Unsupported, UserLine
from .geometry import extent, hint, storage_key
from .tree import leaves, map_tree

INTERNAL = "INTERNAL ASSERT FAILED"
"""Stands in errors of torch about itself: on real tensors, whose views are other views, it may say something else."""

_SYMBOL = re.compile(r"\b[suz]f?\d+\b")
"""The name of a symbol in the words of an error, where eager has a number."""

LARGEST_TRIAL_BYTES = 1 << 28
"""Above this many bytes of operands a failing call isn't repeated on real tensors; it becomes a break."""

_REAL_TENSOR = "keep it outside the compiled function: it needs the real tensor"
_BACKWARD = "run the engine by torch.autograd.grad and assign .grad"
_GENERATOR = "seed and query the random generator outside the compiled function"

REFUSED_METHODS = {
    "data_ptr": _REAL_TENSOR,
    "numpy": "use torch functions in place of NumPy's, or call .numpy() outside the compiled function",
    "tolist": "keep the values in a tensor, or call .tolist() outside the compiled function",
    "storage": _REAL_TENSOR,
    "untyped_storage": _REAL_TENSOR,
    "_typed_storage": _REAL_TENSOR,
    "share_memory_": _REAL_TENSOR,
    "__array__": "use torch functions in place of NumPy's",
    "__dlpack__": _REAL_TENSOR,
    "__reduce_ex__": "copy or pickle outside the compiled function",
    "__deepcopy__": "use clone(), or copy outside the compiled function",
    "__repr__": "print tensors outside the compiled function",
    "__str__": "print tensors outside the compiled function",
    "__format__": "format tensors outside the compiled function",
    "set_": "give the tensor other storage outside the compiled function",
    "resize_": "make a tensor of the new size",
    "resize_as_": "make a tensor of the new size",
    "backward": _BACKWARD,
    "register_hook": "register hooks outside the compiled function",
    "register_post_accumulate_grad_hook": "register hooks outside the compiled function",
    "retain_grad": "call retain_grad() outside the compiled function",
    "rename_": "name dimensions outside the compiled function",
    "pin_memory": _REAL_TENSOR,
}
"""Tensor methods that no graph holds, with the remedy."""

REFUSED_FUNCTIONS: dict[Any, str] = {
    torch.manual_seed: _GENERATOR,
    torch.seed: _GENERATOR,
    torch.initial_seed: _GENERATOR,
    torch.get_rng_state: _GENERATOR,
    torch.set_rng_state: _GENERATOR,
    torch.random.fork_rng: _GENERATOR,
    torch.cuda.manual_seed: _GENERATOR,
    torch.cuda.manual_seed_all: _GENERATOR,
    torch.cuda.get_rng_state: _GENERATOR,
    torch.cuda.set_rng_state: _GENERATOR,
    torch.autograd.backward: _BACKWARD,
    torch.from_numpy: "convert NumPy arrays outside the compiled function",
    torch.save: "save outside the compiled function",
    torch.load: "load outside the compiled function",
}
"""Functions that no graph holds, with the remedy."""


def refuse_by_name(fn: Any, line: UserLine | None) -> None:
    """Raise Unsupported for a function or method that no graph holds."""
    if isinstance(fn, str):
        remedy, name = REFUSED_METHODS.get(fn), f"Tensor.{fn}()"
    else:
        name = getattr(fn, "__name__", repr(fn))
        try:
            remedy = REFUSED_FUNCTIONS.get(fn)
        except TypeError:  # unhashable callables are not in the table
            remedy = None
        if remedy is None and getattr(torch.Tensor, name, None) is fn:
            remedy = REFUSED_METHODS.get(name)
    if remedy is None and name.startswith("_set_") and getattr(fn, "__self__", None) is torch._C:
        remedy = "change torch's settings outside the compiled function"  # it would be done once, while capturing
    if remedy is not None:
        raise Unsupported(f"{name} can't be part of a graph", where=line, remedy=remedy)


class NeedsSymbols(Unsupported):
    """A number or a size of the data stopped the capture, which symbols for such numbers would not."""


def judge(
    error: Exception,
    fn: Callable[..., Any],
    name: str,
    fake_args: Any,
    fake_kwargs: Any,
    line: UserLine | None,
) -> Exception:
    """What to raise for `error`, which a fake run of `fn` raised: Unsupported, or the exception eager raises."""
    if isinstance(error, torch_compat.data_dependent_errors()):
        return NeedsSymbols(
            f"the result of {name} depends on the values in a tensor",
            where=line,
            remedy="use torch.where, masks or tensors of a fixed size, or do it outside the compiled function; "
            "capture_scalar_outputs=True records single values",
        )
    if isinstance(error, torch_compat.missing_fake_errors()):
        return Unsupported(
            f"{name} has no fake kernel: {_first_line(error)}",
            where=line,
            remedy="register one with torch.library.register_fake, or call it outside the compiled function",
        )
    inside = INTERNAL in str(error) or _SYMBOL.search(str(error)) is not None
    if _repeatable(fn) and not _raised_by_fake(error) and not inside:
        return error.with_traceback(None)
    found = eager_exception(fn, fake_args, fake_kwargs) if _repeatable(fn) else None
    if isinstance(found, Exception):
        return found
    if found is None and _repeatable(fn) and not isinstance(error, RuntimeError):
        return error  # wrong arguments (TypeError, IndexError) are found before any kernel, fake or real
    return Unsupported(
        f"{name} can't be run on fake tensors: {_first_line(error)}",
        where=line,
        remedy="call it outside the compiled function",
    )


def _raised_by_fake(error: BaseException) -> bool:
    """False when the error came before any fake kernel: from argument parsing, torch's Python code or autograd's
    checks.

    Those word it as in eager, and autograd's know the views of the program, which tensors made for a trial don't.
    """
    if "FakeTensor" in str(error):
        return True
    at = error.__traceback__
    while at is not None:
        if at.tb_frame.f_code.co_name == "__torch_dispatch__":  # what lies beneath it is fake, whoever runs it
            return True
        at = at.tb_next
    return False


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def _repeatable(fn: Any) -> bool:
    """Only torch's own functions are called a second time: they have no effect besides their operands.

    Operators over graphs are not: torch's code around them fails on fakes in ways that eager never meets.
    """
    if isinstance(fn, torch_compat.HigherOrderOperator):
        return False
    module = getattr(fn, "__module__", None) or getattr(getattr(fn, "__objclass__", None), "__module__", "") or ""
    return (
        module == f"{__package__}.engine"
        or module.split(".")[0] in ("torch", "_operator", "operator", "builtins", "math")
        or isinstance(fn, torch_compat.OpOverload)
    )


def eager_exception(
    fn: Callable[..., Any], fake_args: Any, fake_kwargs: Any, settle: Callable[[Any], int] | None = None
) -> Exception | bool | None:
    """The exception `fn` raises for real tensors like the fakes; False when it raises none, None when not tried.

    Tensors are filled with zeros, which are valid indices; none requires grad: autograd's own checks were passed on the
    fakes. Random generators are left as they were.
    """
    sizes = [leaf for leaf in leaves((fake_args, fake_kwargs)) if isinstance(leaf, torch.Tensor)]
    if any(fake.layout is not torch.strided for fake in sizes):
        return None
    memory = TrialMemory(sizes, settle or _settled)
    if memory.size_bytes > LARGEST_TRIAL_BYTES:
        return None
    state = torch.get_rng_state()
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            real_args, real_kwargs = map_tree(memory.real_like, (fake_args, fake_kwargs))
            fn(*real_args, **real_kwargs)
    except torch.OutOfMemoryError:
        return None
    except Exception as error:  # whatever eager raises is the answer, not a failure of ours
        return error.with_traceback(None)
    finally:
        torch.set_rng_state(state)
    return False


class TrialMemory:
    """Real tensors like fakes, filled with zeros; fakes that share memory give tensors that do.

    settle: gives the number of a size, by a guard if it has to.
    """

    def __init__(self, fakes: Sequence[torch.Tensor], settle: Callable[[Any], int]) -> None:
        self._settle = settle
        self._spans: dict[tuple[int, torch.dtype], tuple[int, int]] = {}
        for fake in fakes:
            start = hint(fake.storage_offset())
            low, high = self._spans.get(self._key(fake), (start, start))
            self._spans[self._key(fake)] = min(low, start), max(high, start + extent(fake))
        self._memory: dict[tuple[int, torch.dtype], torch.Tensor] = {}
        self._made: dict[int, torch.Tensor] = {}

    @staticmethod
    def _key(fake: torch.Tensor) -> tuple[int, torch.dtype]:
        return storage_key(fake), fake.dtype

    @property
    def size_bytes(self) -> int:
        return sum((high - low) * dtype.itemsize for (_, dtype), (low, high) in self._spans.items())

    def real_like(self, leaf: Any) -> Any:
        """The real tensor for a fake, the value for a symbolic number; others as they are."""
        if isinstance(leaf, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return torch_compat.hint_of(leaf)
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if id(leaf) not in self._made:
            key = self._key(leaf)
            low, high = self._spans[key]
            if key not in self._memory:
                self._memory[key] = torch.zeros(high - low, dtype=leaf.dtype, device=leaf.device)
            size = tuple(self._settle(size) for size in leaf.shape)  # the words of the error name it
            strides = tuple(hint(stride) for stride in leaf.stride())
            self._made[id(leaf)] = self._memory[key].as_strided(size, strides, hint(leaf.storage_offset()) - low)
        return self._made[id(leaf)]


def _settled(size: Any) -> int:
    """The number of a size, which is guarded; a guess where only a run can tell."""
    try:
        return int(size)
    except torch_compat.data_dependent_errors():
        return hint(size)


class _OwnThread(logging.Filter):
    """Drops what one thread logs."""

    def __init__(self) -> None:
        super().__init__()
        self.thread = threading.get_ident()

    def filter(self, record: logging.LogRecord) -> bool:
        return record.thread != self.thread


@contextmanager
def quiet_fakes() -> Iterator[None]:
    """No log lines about failing fake kernels from this thread: the exception is the answer that was asked for."""
    logger = logging.getLogger(torch_compat.FAKE_TENSOR_LOGGER)
    drop = _OwnThread()
    logger.addFilter(drop)
    try:
        yield
    finally:
        logger.removeFilter(drop)


def open_size_refusal(name: str, line: UserLine | None) -> Unsupported:
    """For a call that failed on fakes of which a size is not known."""
    return Unsupported(
        f"{name} can't be traced for sizes that are not known",
        where=line,
        remedy="promise what it needs with torch._check, or remove the mark_unbacked",
    )


def no_place(name: str, line: UserLine | None) -> Unsupported:
    """For a function of the program's that gives nothing of a graph, so that no graph would call it each time."""
    return Unsupported(
        f"{name}() is allowed in the graph and gives no tensor",
        where=line,
        remedy="let it return a tensor, or take the mark off: it is traced then",
    )
