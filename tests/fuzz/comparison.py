"""Running the text of a program in eager and compiled, and describing everything a caller can see after each call."""

from __future__ import annotations

import collections
import contextlib
import dis
import enum
import gc
import io
import itertools
import linecache
import re
import signal
import sys
import traceback
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import core
from core.capture.as_written import AsWritten
from core.errors import CoreError

CALLS = 4
TIMEOUT_S = 60
WATCHED = AsWritten._watched.__code__
FILENAME = "<random program>"

ShapeEnv()  # imports much: while a program runs, that would leave circles of frames, with the program's behind them


class Hangs(BaseException):
    """A call did not end in time."""


@dataclass
class Difference:
    """What differs, at which call. `kind` groups differences of one sort, for the minimiser to stay with.

    endings: the exceptions that left the call, compiled and in eager, by class; the minimiser keeps them too.
    """

    kind: str
    call: int
    path: str
    ours: str
    theirs: str
    endings: tuple[str, str] = ("", "")

    def __str__(self) -> str:
        return f"{self.kind} at call {self.call}, {self.path}:\n  compiled: {self.ours}\n  eager:    {self.theirs}"


@dataclass
class Outcome:
    """The result of one comparison: the first difference, and what was captured."""

    difference: Difference | None = None
    stats: dict[str, int] = field(default_factory=dict)
    raised: int = 0
    """How many of the eager calls raised."""
    reasons: list[str] = field(default_factory=list)
    """Why graphs were broken or functions left alone."""


OWN_WARNING = "has reached recompile_limit="
"""What core says where eager has nothing to say."""


class Describer:
    """Turns objects into nested tuples that can be compared across the two runs: aliases become numbers.

    exact: whether the history of tensors is described too, by the kind of the last gradient.
    loose: whether what compilers leave open is left out: strides of dimensions without a second element, where in
    memory of its own a result begins, and in which memory no element lies. starts: whether the first of these is
    described unless `loose`: no backend but eager promises it.
    """

    def __init__(self, loose: bool = False, exact: bool = False, starts: bool = True) -> None:
        self.loose = loose
        self.starts = starts and not loose
        self.exact = exact
        self.seen: dict[int, int] = {}
        self.memory: dict[int, tuple[int, int]] = {}  # address -> number, bytes before the first tensor seen in it
        self.alive: list[Any] = []

    def __call__(self, value: Any, depth: int = 0) -> Any:
        if isinstance(value, enum.Enum):
            return (type(value).__qualname__, value.name)
        if value is None or isinstance(value, (bool, int, float, complex, str, bytes, torch.dtype, torch.device)):
            return (type(value).__name__, _plain(value))
        if isinstance(value, type):
            return ("class", value.__qualname__)
        if isinstance(value, types.ModuleType):
            return ("module", value.__name__)
        if isinstance(value, types.BuiltinFunctionType):
            return ("builtin", value.__qualname__)
        if depth > 12:
            return ("deep", type(value).__name__)
        if id(value) in self.seen:
            return ("seen", self.seen[id(value)])
        number = self.seen[id(value)] = len(self.seen)
        self.alive.append(value)
        name = type(value).__qualname__
        return (name, number, *self._parts(value, depth + 1))

    def _parts(self, value: Any, depth: int) -> Iterator[Any]:
        if isinstance(value, torch.Tensor):
            yield from self._tensor(value, depth)
        elif isinstance(value, (list, tuple, collections.deque)):
            yield len(value), getattr(value, "maxlen", None)
            yield [self(item, depth) for item in value]
            yield from self._attributes(value, depth)
        elif isinstance(value, dict):
            yield [(self(key, depth), self(item, depth)) for key, item in value.items()]
            yield from self._attributes(value, depth)
        elif isinstance(value, (set, frozenset)):
            yield sorted(repr(self(item, depth)) for item in value)
        elif isinstance(value, types.FunctionType):
            yield value.__qualname__
            yield self(value.__defaults__, depth)
            yield self(value.__kwdefaults__, depth)
            yield [self._cell(cell, depth) for cell in value.__closure__ or ()]
        elif isinstance(value, types.MethodType):
            yield self(value.__self__, depth)
            yield value.__name__
        elif isinstance(value, (types.GeneratorType, type(iter([])), map, zip, enumerate, range)):
            yield [self(item, depth) for item in itertools.islice(value, 5)]
        elif isinstance(value, BaseException):
            yield str(value)
            yield self(value.args, depth)
            yield self(value.__cause__, depth)
            yield self(value.__context__, depth)
            yield value.__suppress_context__
            if self.exact:
                yield _places(value)
            yield from self._attributes(value, depth)
        else:
            yield from self._attributes(value, depth)

    def _cell(self, cell: Any, depth: int) -> Any:
        try:
            contents = cell.cell_contents
        except ValueError:
            return ("empty",)
        return self(contents, depth)

    def _attributes(self, value: Any, depth: int) -> Iterator[Any]:
        found = dict(getattr(value, "__dict__", {}))
        for cls in type(value).__mro__:
            for slot in cls.__dict__.get("__slots__", ()):
                if hasattr(value, slot):
                    found[slot] = getattr(value, slot)
        yield [(name, self(item, depth)) for name, item in found.items()]

    def _tensor(self, value: torch.Tensor, depth: int) -> Iterator[Any]:
        if value.layout is not torch.strided:
            yield (str(value.layout), str(value.dtype), tuple(value.shape), value.requires_grad)
            yield value.detach().to_dense()
            return
        memory = 0 if self.loose and value.numel() == 0 else value.untyped_storage().data_ptr()
        start = value.storage_offset() * value.element_size()
        place, origin = self.memory.setdefault(memory, (len(self.memory), start)) if memory else (-1, start)
        yield ("memory", place, start if self.starts else start - origin)
        yield (str(value.dtype), tuple(value.shape), self._strides(value))
        leaf = _is_leaf(value)
        yield (value.requires_grad, leaf, value.is_conj(), value.is_neg(), value.is_inference())
        if self.exact:
            yield _history(value)
        yield value.detach().clone()
        yield self(value.grad, depth) if leaf is True else None

    def _strides(self, value: torch.Tensor) -> tuple[int, ...]:
        if not self.loose:
            return value.stride()
        if value.numel() == 0:
            return ()
        return tuple(stride if size > 1 else 0 for size, stride in zip(value.shape, value.stride()))


def _is_leaf(value: torch.Tensor) -> bool | str:
    try:
        return value.is_leaf
    except RuntimeError as error:  # a view of several whose base was written to
        return str(error)


def _history(value: torch.Tensor) -> str | None:
    try:
        return None if value.grad_fn is None else type(value.grad_fn).__name__
    except RuntimeError as error:
        return str(error)


def _places(error: BaseException) -> list[tuple[str, int]]:
    """The functions and lines of the program that an exception has passed."""
    found = []
    step = error.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_filename == FILENAME:
            found.append((step.tb_frame.f_code.co_name, _line(step, error)))
        elif step.tb_frame.f_code is WATCHED:
            found.pop()  # a strict run stands between the replacement code and the function as written
        step = step.tb_next
    return found


def _versions(args: Any) -> list[int | None]:
    return [_version(arg) for arg in args]


def _version(value: Any) -> int | None:
    return value._version if isinstance(value, torch.Tensor) and not value.is_inference() else None


def _plain(value: Any) -> Any:
    return repr(value) if isinstance(value, (float, complex)) else value


def first_difference(
    ours: Any, theirs: Any, exact: bool, path: str = "", half: bool = False
) -> tuple[str, Any, Any] | None:
    """(path, ours, theirs) of the first place where two descriptions differ.

    half: numbers may come from 16-bit ones, which compilers may round later than eager does.
    """
    if isinstance(ours, torch.Tensor) and isinstance(theirs, torch.Tensor):
        return None if _tensors_agree(ours, theirs, exact, half) else (f"{path}.values", ours, theirs)
    if type(ours) is not type(theirs):
        return path, ours, theirs
    if isinstance(ours, (list, tuple)):
        if len(ours) != len(theirs):
            return f"{path}.length", ours, theirs
        for at, (left, right) in enumerate(zip(ours, theirs)):
            found = first_difference(left, right, exact, f"{path}[{at}]", half)
            if found is not None:
                return found
        return None
    return None if ours == theirs else (path, ours, theirs)


_HALF = (torch.bfloat16, torch.float16)


def _tensors_agree(ours: torch.Tensor, theirs: torch.Tensor, exact: bool, half: bool) -> bool:
    if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
        return False
    if exact:
        return torch.equal(torch.nan_to_num(ours), torch.nan_to_num(theirs)) and torch.equal(
            ours.isnan(), theirs.isnan()
        )
    loose = 0.05 if half or ours.dtype in _HALF else 2e-4
    return torch.allclose(ours, theirs, rtol=loose, atol=loose, equal_nan=True)


class World:
    """One execution of the program's text: a namespace of its own."""

    def __init__(self, text: str, name: str, loose: bool = False, exact: bool = False) -> None:
        self.loose, self.exact = loose, exact
        module = types.ModuleType(name)
        sys.modules[name] = module
        self.space: dict[str, Any] = vars(module)
        self.name = name
        linecache.cache[FILENAME] = (len(text), None, text.splitlines(True), FILENAME)
        torch.manual_seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile(text, FILENAME, "exec"), self.space)

    def state(self, describe: Describer) -> Any:
        """The globals that are data, and the attributes of the program's classes."""
        found = []
        for name, value in list(self.space.items()):
            if name.isupper():
                found.append((name, describe(value)))
            elif isinstance(value, type) and value.__module__ == self.name:
                plain = {k: v for k, v in vars(value).items() if isinstance(v, (int, float, str, list))}
                found.append((name, [(key, describe(item)) for key, item in plain.items() if key[:2] != "__"]))
        return found

    def run(self, fn: Callable[..., Any], call: int) -> tuple[Any, Any]:
        """(description of everything after this call and its backward, the exception that left it)."""
        gc.collect()
        torch.manual_seed(100 + call)
        try:
            if call and "between" in self.space:
                self.space["between"](call)
            args = self.space["arguments"](call)
        except Exception as raised:  # noqa: BLE001  what earlier calls left behind may not suit it, in both worlds
            return ["no arguments", type(raised).__name__, str(raised)], raised
        torch.manual_seed(call)
        text = io.StringIO()
        error: BaseException | None = None
        result: Any = None
        modes = torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")
        versions = _versions(args)
        with contextlib.redirect_stdout(text), warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                result = fn(*args)
            except Exception as raised:  # noqa: BLE001  whatever the program raises is compared
                error = raised
        describe = Describer(self.loose, self.exact, starts=self.exact)
        seen: list[Any] = ["raised" if error is not None else "returned"]
        seen.append(describe(error) if error is not None else describe(result))
        seen.append(self._lines(error))
        seen.append(text.getvalue())
        seen.append([describe(arg) for arg in args])
        seen.append([before != after for before, after in zip(versions, _versions(args))])
        texts = [str(item.message) for item in warned]
        names = [item.category.__name__ for item in warned]
        seen.append(sorted({f"{name}: {text[:60]}" for name, text in zip(names, texts) if OWN_WARNING not in text}))
        seen.append(self.state(describe))
        seen.append(torch.get_rng_state())
        seen.append((modes, torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")))
        torch.set_grad_enabled(True)
        seen.append(self._after(call, args, result) if "after" in self.space else self._backward(result, args))
        return seen, error

    def _after(self, call: int, args: Any, result: Any) -> Any:
        """What the program's own caller notes of a result, and what it leaves behind."""
        if result is None:
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            notes = self.space["after"](call, args, result)
        describe = Describer(self.loose)
        return [describe(notes), [describe(arg.detach()) for arg in args], self.state(describe)]

    def _lines(self, error: BaseException | None) -> list[int]:
        """The last line of the program in the traceback."""
        return [] if error is None else [line for _, line in _places(error)[-1:]]

    def _backward(self, result: Any, args: Any) -> Any:
        carrying = list(_carrying(result, set()))
        if not carrying:
            return None
        try:
            sum((t.double() * (at + 1)).sum() for at, t in enumerate(carrying)).backward()  # type: ignore[union-attr]
        except (RuntimeError, IndexError) as error:
            return (type(error).__name__, str(error))
        describe = Describer(self.loose, self.exact, starts=self.exact)
        return [describe(args), self.state(describe)]


def _line(step: types.TracebackType, error: BaseException) -> int:
    """The line of a step of a traceback.

    Code that has run a few times has its stores and loads joined in pairs, and Python 3.11 gives an error in the second
    of a pair the line of the first.
    """
    if isinstance(error, UnboundLocalError) and sys.version_info < (3, 12):
        instructions = iter(dis.get_instructions(step.tb_frame.f_code, adaptive=True))
        for first in instructions:
            if first.offset == step.tb_lasti and "__" in first.opname:
                second = next(instructions)
                if first.opname.startswith(("STORE", "LOAD_CONST")) or first.argval in step.tb_frame.f_locals:
                    return (second.positions.lineno if second.positions else None) or step.tb_lineno
    return step.tb_lineno


def _carrying(value: Any, seen: set[int]) -> Iterator[torch.Tensor]:
    """The tensors of a result through which gradients flow."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        if value.requires_grad and value.dtype.is_floating_point and isinstance(_is_leaf(value), bool):
            yield value
    elif isinstance(value, (list, tuple, collections.deque)):
        for item in value:
            yield from _carrying(item, seen)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _carrying(item, seen)


@contextlib.contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Raise Hangs in the main thread after some seconds."""

    def stop(*_: Any) -> None:
        raise Hangs(f"no end after {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def collected_between_calls() -> Iterator[None]:
    """Keep the cyclic collector to what `World.run` asks of it.

    An exception that was caught holds the frames it passed, and these hold it: what their variables hold (a generator
    with a `finally`, say) goes with a collection, and automatic ones come at moments that no program decides.
    """
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def compare(
    text: str,
    backend: str = "eager",
    calls: int = CALLS,
    compiler: Callable[..., Any] | None = None,
    dynamic: bool | None = None,
    loose: bool = False,
    **options: Any,
) -> Outcome:
    """Run the program `calls` times in both worlds, up to the first difference.

    compiler: what makes the compiled function of the program; core.compile unless given. dynamic, options: as its own.
    loose: what compilers leave open is not compared: see Describer, _without_nodes and _is_used_up.
    """
    core.reset()
    outcome = Outcome()
    loose = loose and backend != "eager"
    half = loose and re.search(r"bfloat16|float16|\.half\(", text) is not None
    exact = backend == "eager"
    theirs, ours = (World(text, name, loose, exact) for name in ("eager_program", "compiled_program"))
    compiled = (compiler or core.compile)(ours.space["program"], backend=backend, dynamic=dynamic, **options)
    reasons: list[str] = []
    with warnings.catch_warnings(), time_limit(TIMEOUT_S), collected_between_calls():
        warnings.simplefilter("ignore")
        for call in range(calls):
            want, error = theirs.run(theirs.space["program"], call)
            outcome.raised += error is not None
            got, raised = ours.run(compiled, call)
            outcome.difference = _difference(got, want, raised, call, backend, loose=loose, half=half)
            if outcome.difference is not None:
                outcome.difference.endings = type(raised).__name__, type(error).__name__
                break
            if backend != "eager" and _is_used_up(want[-1], loose):
                break  # the gradients are others from here on
    outcome.stats = dict(core.stats())
    outcome.reasons = reasons
    return outcome


SEEN = (
    "kind of ending",
    "result",
    "line",
    "printed text",
    "arguments",
    "counts of writes",
    "warnings",
    "globals",
    "random numbers",
    "modes",
    "gradients",
)


def _difference(
    got: Any, want: Any, raised: BaseException | None, call: int, backend: str, *, loose: bool, half: bool
) -> Difference | None:
    if isinstance(raised, CoreError):
        lines = [f"{entry.name}:{entry.lineno}" for entry in traceback.extract_tb(raised.__traceback__)[-3:]]
        return Difference(
            f"{type(raised).__name__} {_first_words(raised)}", call, str(lines), str(raised), str(want[1])[:300]
        )
    if raised is not None and want[0] == "returned" != got[0]:
        where = "".join(traceback.format_exception(raised)[-12:])
        return Difference(f"raised {type(raised).__name__}", call, "", where, str(want[1])[:300])
    exact = backend == "eager"
    for name, left, right in zip(SEEN, got, want):
        if not exact and name == "warnings":
            continue  # those of kernels: a compiler has its own
        if not exact and name == "printed text":
            left, right = (_GRAD_FN.sub(" grad_fn", text) for text in (left, right))
        if not exact and name == "gradients" and _is_used_up(right, loose):
            return None
        if not exact and name in ("gradients", "globals") and _NO_REPEAT in repr(left):
            return None
        if loose:
            left, right = _without_nodes(left), _without_nodes(right)
        found = first_difference(left, right, exact, half=half)
        if found is not None:
            where, left, right = found
            kind = name
            if name == "result" and raised is not None:
                kind = "exception"
            return Difference(kind, call, f"{name}{where}", str(left)[:600], str(right)[:600])
    return None


_NO_REPEAT = "NotTwiceDifferentiable"
"""What compiled graphs say of gradients of gradients where they can't be run again."""

_GRAD_FN = re.compile(r"\s*grad_fn=<\w+>")


_NODE = re.compile(r"which is output \d+ of [\w:]+|is at version \d+; expected version \d+")


def _without_nodes(tree: Any) -> Any:
    """Texts without the names of autograd's nodes: a compiled graph is one node."""
    if isinstance(tree, (list, tuple)):
        return type(tree)(map(_without_nodes, tree))
    return _NODE.sub("a node", tree) if isinstance(tree, str) else tree


def _is_used_up(gradients: Any, loose: bool) -> bool:
    """Whether eager refused a second backward, and where loose, one that needs what was written to since.

    One graph of a compiler may have kept nothing that could be freed, and other tensors.
    """
    words = ["backward through the graph a second time", *(["modified by an inplace operation"] if loose else [])]
    return isinstance(gradients, tuple) and any(part in gradients[1] for part in words)


def _first_words(error: BaseException) -> str:
    return " ".join(str(error).split()[:4])
