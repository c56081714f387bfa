"""UserKernelVariable: a kernel that the program wrote in Triton. A launch, `kernel[grid](...)`, is a node of the graph.

Enters: what triton.jit, triton.autotune and triton.heuristics made of a function, guarded by which object it is.
Leaves: a call of an operator that launches that very object and whose schema says which tensors it writes to. A grid
given as a function is traced, once for each configuration of the kernel that it may meet.
"""

from __future__ import annotations

import inspect
import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..errors import Unsupported
from ..graph.geometry import has_storage, storage_key
from ..graph.kernel_operators import Baked, Grids, LaunchShape, Slot, operator_for
from ..graph.kernel_writes import UnknownWrites, written_parameters
from ..graph.tree import leaves
from ..guards.checks import Is
from .base import KnownVariable, VariableTracker

if TYPE_CHECKING:
    from .protocols import Emitter, Tracer

VT = VariableTracker

REMEDY = "launch the kernel outside the compiled function, or inside a function of torch.library.custom_op"


def is_kernel(value: Any) -> bool:
    """True for an object of Triton's that is launched by `value[grid](...)`."""
    interface = getattr(sys.modules.get("triton.runtime.jit"), "KernelInterface", None)
    return interface is not None and issubclass(type(value), interface)


def is_host_function(value: Any) -> bool:
    """True for a Python function that Triton lets kernels call while they are compiled, as triton.cdiv is."""
    cls = getattr(sys.modules.get("triton.runtime.jit"), "ConstexprFunction", None)
    return cls is not None and type(value) is cls


def from_value(tx: Tracer, value: Any, source: Any) -> VT:
    """The tracker of a kernel, or of a function for kernels and hosts alike."""
    tx.guard(source, Is(value))
    if is_host_function(value):
        return tx.wrap(value.fn, None, constant=True)
    return UserKernelVariable(value, source)


def launch_of(tx: Tracer, function: Any) -> VT | None:
    """What `kernel[grid]` gave before the traced code began, or None: the function (its tracker) is something else."""
    interface = getattr(sys.modules.get("triton.runtime.jit"), "KernelInterface", None)
    if interface is None or function.code not in interface.__getitem__.__code__.co_consts:
        return None
    cells = dict(zip(function.code.co_freevars, function.closure_cells(tx)))
    kernel, grid = (cells[name].get(tx).realize(tx) for name in ("self", "grid"))
    return LaunchVariable(kernel, grid) if isinstance(kernel, UserKernelVariable) else None


class UserKernelVariable(KnownVariable):
    """A kernel of the program's."""

    kind = "user_kernel"

    def hash_key(self, tx: Tracer) -> Any:
        return self

    def get_item(self, tx: Tracer, key: VT) -> VT:
        return LaunchVariable(self, key.realize(tx))

    def get_attr(self, tx: Tracer, name: str) -> VT:
        if name == "run":
            return LaunchVariable(self, None)
        if name == "__name__":
            return tx.constant(_layers(self.value)[-1].fn.__name__)
        return super().get_attr(tx, name)

    def call(self, tx: Tracer, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        raise self.refuse("a call without a grid", "launch it as kernel[grid](...)")

    def reconstruct(self, emit: Emitter) -> None:
        emit.load_global_object(self.value)


class LaunchVariable(VariableTracker):
    """`kernel[grid]`, or `kernel.run` where the grid is None: an argument gives it."""

    kind = "launch"

    def __init__(self, kernel: UserKernelVariable, grid: VT | None) -> None:
        super().__init__(None)
        self.kernel = kernel
        self.grid = grid

    def python_type(self) -> type:
        return type(self.kernel.value.run if self.grid is None else self.kernel.value[(1,)])

    def truth(self, tx: Tracer) -> bool:
        return True

    def call(self, tx: Tracer, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        grid, kwargs = self.grid, dict(kwargs)
        if grid is None:
            warmup = kwargs.pop("warmup", None)
            if "grid" not in kwargs or warmup is None or warmup.look_inside(tx).as_constant() is not False:
                raise Unsupported("a kernel that is compiled without a launch is not traced", remedy=REMEDY)
            grid = kwargs.pop("grid").realize(tx)
        return _Launch(tx, self.kernel.value, list(args), kwargs).run(grid)

    def reconstruct(self, emit: Emitter) -> None:
        emit.load(self.kernel)
        if self.grid is None:
            emit.load_attr("run")
        else:
            emit.load(self.grid)
            emit.binary_subscr()


class CompiledKernelVariable(VariableTracker):
    """What a launch gives: the machine code that Triton chose, which is known to a run alone."""

    kind = "compiled_kernel"

    def python_type(self) -> type:
        return object

    def refuse(self, operation: str, remedy: str = "") -> Unsupported:
        return Unsupported(f"{operation} on what the launch of a kernel gives is not traced", remedy=remedy or REMEDY)


class _Launch:
    """One launch while it is traced."""

    def __init__(self, tx: Tracer, kernel: Any, args: list[VT], kwargs: dict[str, VT]) -> None:
        self.tx = tx
        self.kernel = kernel
        self.layers = _layers(kernel)
        self.base = self.layers[-1]
        self.args = args
        self.kwargs = kwargs
        self.parameters = inspect.signature(self.base.fn).parameters
        self.operands: list[VT] = []
        self.types: list[str] = []
        self._written = self._parameters_written()

    def run(self, grid: VT) -> VT:
        """Add the launch to the graph."""
        names = list(self.parameters)
        if len(self.args) > len(names):
            raise Unsupported("a launch with more arguments than the kernel has parameters fails", remedy=REMEDY)
        args = tuple(self._place(names[at], arg) for at, arg in enumerate(self.args))
        kwargs = tuple((name, self._place(name, arg)) for name, arg in self.kwargs.items())
        self._check_history()
        grids = self._grids(grid)
        shape = LaunchShape(args, kwargs, tuple(self.types), grids, on_host=self._written is None)
        self.tx.graph_call(operator_for(self.kernel, self.base.fn, shape), self.operands, {})
        return self.tx.constant(None) if _is_interpreted(self.base) else CompiledKernelVariable()

    # -- arguments -------------------------------------------------------------------------------------------------

    def _place(self, name: str, arg: VT) -> Any:
        """The tree that stands for an argument; what differs between calls becomes an operand."""
        arg = arg.realize(self.tx)
        if arg.python_type() is tuple:
            return tuple(self._place(name, item) for item in arg.unpack(self.tx))
        if arg.kind == "tensor":
            return self._operand(arg, "Tensor!" if self._is_written(name) else "Tensor")
        number = arg.python_type()
        if number in (int, float) and name in self.parameters and not self._is_fixed(name):
            return self._operand(arg, "SymInt" if number is int else "Scalar")
        return self._known(name, arg)

    def _operand(self, value: VT, kind: str) -> Slot:
        """The operand's place; a tensor that is passed twice is one operand."""
        if kind.startswith("Tensor"):
            for at, known in enumerate(self.operands):
                if known is value:
                    self.types[at] = max(kind, self.types[at])
                    return Slot(at)
        self.operands.append(value)
        self.types.append(kind)
        return Slot(len(self.operands) - 1)

    def _known(self, name: str, arg: VT) -> Baked:
        arg = arg.look_inside(self.tx)
        if arg.kind == "symbolic":
            arg = arg.specialize(self.tx)  # type: ignore[attr-defined]
        if arg.is_constant():
            value = arg.as_constant()
            return Baked(value, f"{type(value).__qualname__} {value!r}")
        value = getattr(arg, "fn", None) if arg.kind == "function" else getattr(arg, "value", None)
        module = type(value).__module__ or ""
        if value is None or not (module.partition(".")[0] == "triton" or arg.kind == "function"):
            raise Unsupported(
                f"a launch of {self.base.fn.__name__} with {name} = {arg.describe()} is not traced",
                remedy="pass tensors, numbers, dtypes and tuples of them, or " + REMEDY,
            )
        self.tx.guard(arg.source, Is(value))
        return Baked(value, f"{type(value).__qualname__} {value!r}" if module == "triton.language.core" else None)

    def _is_fixed(self, name: str) -> bool:
        """True for a parameter that is part of the machine code: tl.constexpr."""
        return "constexpr" in str(self.parameters[name].annotation)

    # -- what is written -------------------------------------------------------------------------------------------

    def _parameters_written(self) -> frozenset[str] | None:
        """Names of the parameters that are written through; None for all."""
        try:
            found = written_parameters(self.base.fn)
        except UnknownWrites as error:
            raise Unsupported(
                f"what {self.base.fn.__name__} writes to is not known: {error}",
                remedy="call it in a function of torch.library.custom_op that names what it writes to (mutates_args)",
            ) from error
        hooks = list(getattr(self.base, "pre_run_hooks", ()))
        for tuner in self.layers[:-1]:
            hooks += [config.pre_hook for config in getattr(tuner, "configs", ()) if config.pre_hook is not None]
            if getattr(tuner, "user_defined_pre_hook", False) or getattr(tuner, "user_defined_post_hook", False):
                hooks.append(tuner)
            found = found.union(*(getattr(tuner, part, ()) for part in ("reset_to_zero", "restore_value")))
        return None if hooks else found

    def _is_written(self, name: str) -> bool:
        return self._written is None or name in self._written

    def _check_history(self) -> None:
        """Autograd knows nothing of the write: a gradient that needs the tensor would have the number before it."""
        if not torch.is_grad_enabled():
            return
        keys = set()
        for operand, kind in zip(self.operands, self.types):
            if kind != "Tensor!":
                continue
            fake = operand.value.fake  # type: ignore[attr-defined]
            if fake.requires_grad:
                raise _unseen_write("requires a gradient")
            if has_storage(fake):
                keys.add(storage_key(fake))
        if any(_saves(call, keys) for call in self.tx.builder.recorded_calls):
            raise _unseen_write("an operation before it may have kept for its gradient")

    # -- the grid --------------------------------------------------------------------------------------------------

    def _grids(self, grid: VT) -> Grids:
        if issubclass(grid.python_type(), (tuple, list)):
            return Grids((), (((), self._numbers(grid)),))
        names: list[str] | None = None
        cases: dict[tuple[Any, ...], VT] = {}
        for chosen, meta in self._forms():
            names = list(chosen) if names is None else names
            if list(chosen) != names:
                raise Unsupported("the configurations of a kernel name different parameters", remedy=REMEDY)
            values = tuple(chosen.values())
            if values not in cases:
                arguments = self.tx.new_dict([(self.tx.constant(name), value) for name, value in meta.items()])
                cases[values] = self.tx.call_function(grid, [arguments]).realize(self.tx)
        if len(cases) == 1:
            return Grids((), tuple(((), self._numbers(result)) for result in cases.values()))
        sizes = tuple((values, self._numbers(result)) for values, result in cases.items())
        return Grids(tuple(names or ()), sizes)

    def _numbers(self, grid: VT) -> int:
        """Operands for the numbers of a grid; how many they are."""
        items = [item.realize(self.tx) for item in grid.unpack(self.tx)]
        if not 1 <= len(items) <= 3 or any(item.python_type() is not int for item in items):
            raise Unsupported("a grid that is not one to three whole numbers is not traced", remedy=REMEDY)
        for item in items:
            self._operand(item, "SymInt")
        return len(items)

    def _forms(self) -> Iterator[tuple[dict[str, Any], dict[str, VT]]]:
        """For each choice of configurations: what it sets, and the arguments as a function that gives a grid sees
        them."""
        tuners = [layer for layer in self.layers[:-1] if hasattr(layer, "configs")]
        given = {**dict(zip(self.parameters, self.args)), **self.kwargs}
        for configs in itertools.product(*(tuner.configs for tuner in tuners)):
            values = dict(given)
            order = iter(configs)
            for layer in self.layers[:-1]:
                if hasattr(layer, "configs"):
                    for name, value in next(order).all_kwargs().items():
                        values[name] = self.tx.wrap(value, None, constant=True)
                    continue
                for name, function in layer.values.items():
                    arguments = [(self.tx.constant(key), value) for key, value in values.items()]
                    called = self.tx.wrap(function, None, constant=True)
                    values[name] = self.tx.call_function(called, [self.tx.new_dict(arguments)])
            chosen = {name: value for config in configs for name, value in config.kwargs.items()}
            yield chosen, {name: self._bound(name, values) for name in self.parameters}

    def _bound(self, name: str, values: dict[str, VT]) -> VT:
        if name in values:
            return values[name]
        default = self.parameters[name].default
        if default is inspect.Parameter.empty:
            raise Unsupported(f"a launch without the kernel's argument {name} fails", remedy=REMEDY)
        return self.tx.wrap(default, None, constant=True)


def _layers(kernel: Any) -> list[Any]:
    """The kernel and what it wraps, to the one that is compiled."""
    found = [kernel]
    while is_kernel(getattr(found[-1], "fn", None)):
        found.append(found[-1].fn)
    known = ("Autotuner", "Heuristics")
    for layer in found[:-1]:
        if type(layer).__name__ not in known or not type(layer).__module__.startswith("triton."):
            raise Unsupported(f"a kernel of class {type(layer).__qualname__} is not traced", remedy=REMEDY)
    if not inspect.isfunction(getattr(found[-1], "fn", None)) or not type(found[-1]).__module__.startswith("triton."):
        raise Unsupported(f"a kernel of class {type(found[-1]).__qualname__} is not traced", remedy=REMEDY)
    return found


def _is_interpreted(base: Any) -> bool:
    return type(base).__name__ == "InterpretedFunction"


def _saves(call: Any, keys: set[Any]) -> bool:
    """Whether a recorded call, which autograd follows, read memory that is one of `keys`."""
    return any(tensor.requires_grad for tensor in _tensors(call.result)) and any(
        has_storage(tensor) and storage_key(tensor) in keys for tensor in _tensors((call.args, call.kwargs))
    )


def _tensors(tree: Any) -> Iterable[Any]:
    return (leaf for leaf in leaves(tree) if isinstance(leaf, torch.Tensor))


def _unseen_write(why: str) -> Unsupported:
    return Unsupported(
        f"a kernel writes to a tensor that {why}: autograd does not see the write",
        remedy="launch it under torch.no_grad(), or in a torch.autograd.Function",
    )
