"""ArrayVariable: a NumPy array (or a NumPy scalar) as a tensor of the graph over the same memory.

A call is a node made of torch's layer of NumPy functions, where that is proven to give what NumPy gives (array_proof);
any other use breaks the graph. An array comes back to Python as a real one over the memory of the graph's tensor.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..errors import Unsupported
from ..graph.array_call import array_call
from ..graph.geometry import hint
from ..graph.symbols import plain
from ..graph.tree import map_tree
from ..guards.checks import Equals, Is, TypeIs
from ..guards.source import AttrSource, CallSource
from . import array_functions
from .array_class import ArrayNumberVariable, is_number_class
from .array_proof import REMEDY, Trial
from .base import BuiltinMethodVariable, KnownVariable, ObservedException, VariableTracker
from .constant import ConstantVariable
from .container import SequenceCursor, as_index
from .immutable import ImmutableVariable
from .literal import from_result, run
from .python_module import OpaqueVariable
from .range import SliceVariable

if TYPE_CHECKING:
    from .protocols import Emitter, Tracer

VT = VariableTracker


class ArrayVariable(VariableTracker):
    """An array, or with `scalar` one number of a NumPy type. tensor: the tracker of the tensor over its memory."""

    kind = "ndarray"

    def __init__(
        self,
        tensor: VT,
        scalar: bool = False,
        source: Any = None,
        value: Any = None,
        read_only: bool = False,
        strided: bool = True,
    ) -> None:
        super().__init__(source)
        self.tensor = tensor
        self.scalar = scalar
        self.value = value
        self.read_only = read_only
        self.strided = strided  # the tensor's strides are those that NumPy gives the array
        self.mutable = not scalar  # type: ignore[misc]

    @property
    def fake(self) -> Any:
        return self.tensor.fake  # type: ignore[attr-defined]

    @property
    def dtype(self) -> Any:
        """NumPy's dtype."""
        return torch.empty(0, dtype=self.fake.dtype).numpy().dtype

    def python_type(self) -> type:
        import numpy

        return self.dtype.type if self.scalar else numpy.ndarray

    def as_proxy(self) -> Any:
        raise Unsupported(
            "a NumPy array in a call that takes tensors is not traced", remedy="convert it with torch.from_numpy"
        )

    def truth(self, tx: Tracer) -> bool:
        raise Unsupported(
            "a branch depends on the values of a NumPy array", remedy="decide outside the compiled function"
        )

    # -- attributes ------------------------------------------------------------------------------------------------

    def get_attr(self, tx: Tracer, name: str) -> VT:
        fake = self.fake
        if name == "dtype":
            return DtypeVariable(self.dtype)
        if name == "shape":
            return tx.new_tuple(self.tensor.get_attr(tx, "shape").unpack(tx))
        if name == "size":
            return self.tensor.call_method(tx, "numel", [], {})
        if name in ("ndim", "itemsize", "nbytes"):
            return self.tensor.get_attr(tx, name)
        if name == "T":
            return self.call_method(tx, "transpose", [], {})
        if name in ("real", "imag") and not self.scalar:
            if fake.dtype.is_complex or name == "real":
                part = tx.graph_call(getattr, [self.tensor, tx.constant(name)], {})
                return ArrayVariable(part, read_only=self.read_only, strided=self.strided)
            return ArrayVariable(tx.graph_call(torch.zeros_like, [self.tensor], {}), read_only=True, strided=False)
        if name == "strides" and self.strided and all(type(plain(stride)) is int for stride in fake.stride()):
            return tx.new_tuple([tx.constant(plain(stride) * fake.element_size()) for stride in fake.stride()])
        if name == "__class__":
            return tx.wrap(self.python_type(), None, constant=True)
        if not hasattr(self.python_type(), name):
            tx.raise_exception(AttributeError, f"'{self._class_name()}' object has no attribute '{name}'")
        if callable(getattr(self.python_type(), name)):
            return BuiltinMethodVariable(self, name)
        raise self.refuse(f"reading attribute {name!r}", REMEDY)

    def _class_name(self) -> str:
        cls = self.python_type()
        return f"{cls.__module__}.{cls.__name__}"

    def lookup_special(self, tx: Tracer, name: str) -> VT | None:
        if self.scalar and name.startswith("__i") and name in array_functions.IN_PLACE:
            return None
        return BuiltinMethodVariable(self, name) if hasattr(self.python_type(), name) else None

    # -- calls -----------------------------------------------------------------------------------------------------

    def call_method(self, tx: Tracer, name: str, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        what = f"{'a NumPy scalar' if self.scalar else 'ndarray'}.{name}()"
        if name == "__len__" and not args:
            return self.length(tx)
        if name in array_functions.IN_PLACE and not self.scalar:
            call(tx, what, name, [self, *args], kwargs, method=True, in_place=True)
            return self if name.startswith("__i") else tx.constant(None)
        if name not in array_functions.METHODS:
            if name in ("tolist", "item", "__int__", "__float__", "__index__", "__bool__"):
                raise Unsupported(f"{what} needs the numbers themselves", remedy="keep them in an array or tensor")
            raise Unsupported(f"{what} is not traced", remedy=REMEDY)
        return call(tx, what, name, [self, *args], kwargs, method=True)

    def length(self, tx: Tracer) -> VT:
        if not self.fake.ndim:
            tx.raise_exception(TypeError, "len() of unsized object")
        return self.tensor.length(tx)

    def get_item(self, tx: Tracer, key: VT) -> VT:
        return self.call_method(tx, "__getitem__", [key], {})

    def set_item(self, tx: Tracer, key: VT, value: VT) -> None:
        self.call_method(tx, "__setitem__", [key, value], {})

    def iterate(self, tx: Tracer) -> VT:
        if not self.fake.ndim:
            tx.raise_exception(TypeError, "iteration over a 0-d array")
        import numpy

        def take(tx: Tracer, index: int) -> VT | None:
            return self.get_item(tx, tx.constant(index)) if index < count else None

        count = as_index(tx, self.tensor.length(tx))
        return tx.new_iterator(SequenceCursor(self, take), type(iter(numpy.empty(0))))

    # -- coming back -----------------------------------------------------------------------------------------------

    def reconstruct(self, emit: Emitter) -> None:
        emit.load(self.tensor)
        emit.load_attr("numpy")
        emit.call(0)
        if self.scalar:
            emit.load_const(())
            emit.binary_subscr()
        elif self.read_only:
            emit.copy_top()
            emit.load_attr("setflags")
            emit.load_const(False)
            emit.call(1)
            emit.pop_top()


class DtypeVariable(ConstantVariable):
    """A dtype of NumPy. It equals what names it: np.float32, "float32", float."""

    def equals(self, tx: Tracer, other: VT) -> VT | None:
        return tx.constant(self.value == other.as_constant()) if other.is_constant() else None


class ArrayFunctionVariable(KnownVariable):
    """A function of NumPy."""

    kind = "array_function"

    def call(self, tx: Tracer, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        name = array_functions.name_of(self.value)
        if name is None:
            raise Unsupported(f"numpy.{self._name()}() is not traced", remedy=REMEDY)
        first = args[0].realize(tx) if args else None
        if name in ("array", "asarray") and first is not None and len(args) == 1 and not kwargs:
            if first.kind == "tensor":
                first = of_tensor(tx, first)
                return first if name == "asarray" else first.call_method(tx, "copy", [], {})
            if isinstance(first, ArrayVariable) and not first.scalar:
                return first if name == "asarray" else first.call_method(tx, "copy", [], {})
            if first.kind in ("list", "tuple") and first.unpack(tx):
                if all(isinstance(item.realize(tx), ArrayVariable) for item in first.unpack(tx)):
                    return call(tx, f"numpy.{name}()", "stack", args, kwargs)
        values = [arg.look_inside(tx) for arg in args]
        if name in array_functions.OF_DTYPES and not kwargs and all(arg.is_constant() for arg in values):
            return from_result(tx, run(tx, self.value, [arg.as_constant() for arg in values]))
        if values and not kwargs and all(arg.is_constant() and _of_numbers(arg.as_constant()) for arg in values):
            found = self._of_known(tx, f"numpy.{name}()", [arg.as_constant() for arg in values])
            if found is not None:
                return found
        if name not in array_functions.FUNCTIONS:
            raise Unsupported(f"numpy.{name}() of numbers that only a run can tell is not traced", remedy=REMEDY)
        return call(tx, f"numpy.{name}()", name, args, kwargs)

    def _of_known(self, tx: Tracer, what: str, values: list[Any]) -> VT | None:
        """The number that NumPy gives for known numbers, or None where that is an array."""
        import numpy

        result = Trial().run(what, lambda: self.value(*values), errors="raise")  # what warns is left to Python
        return tx.wrap(result, None, constant=True) if isinstance(result, numpy.generic) else None

    def _name(self) -> str:
        random = type(getattr(self.value, "__self__", None)).__module__.startswith("numpy.random")
        return ("random." if random else "") + getattr(self.value, "__name__", type(self.value).__name__)

    def reconstruct(self, emit: Emitter) -> None:
        emit.load_global_object(self.value)


def _of_numbers(value: Any) -> bool:
    if type(value) in (tuple, list, torch.Size):
        return all(map(_of_numbers, value))
    return isinstance(value, (int, float, complex)) or is_number_class(type(value))


# -- calls ---------------------------------------------------------------------------------------------------------


def call(
    tx: Tracer,
    what: str,
    name: str,
    args: Sequence[VT],
    kwargs: dict[str, VT],
    method: bool = False,
    in_place: bool = False,
) -> VT:
    """A call of NumPy as a node, its results compared with what NumPy gives. Raises Unsupported for anything else."""
    if torch.is_autocast_enabled("cpu"):
        raise Unsupported(f"{what} under autocast, which NumPy does not know, is not traced", remedy=REMEDY)
    trial = Trial()
    trial.takes_numbers = not any(isinstance(arg.realize(tx), ArrayVariable) for arg in (*args, *kwargs.values()))
    ours = [_operand(tx, what, arg, trial) for arg in args]
    named = {key: _operand(tx, what, value, trial) for key, value in kwargs.items()}
    if method and any(arg.realize(tx).kind == "tensor" for arg in args):
        raise Unsupported(f"{what} of a tensor is not traced", remedy="convert one of the two to the kind of the other")
    real = [one for _, one in ours]
    keywords = {key: one for key, (_, one) in named.items()}
    if "out" in keywords or "where" in keywords or "order" in keywords or "subok" in keywords:
        raise Unsupported(f"{what} with these arguments is not traced", remedy=REMEDY)
    kinds = {part.dtype.kind for part in _arrays(real)}
    expected = trial.run(what, lambda: _run(name, method, real, keywords))
    kinds |= {part.dtype.kind for part in _arrays(expected)}
    refusal = array_functions.refuses(name, kinds, tuple(real), keywords)
    if refusal is not None:
        raise Unsupported(f"{what} {refusal}", remedy=REMEDY)
    if name in array_functions.OF_METADATA:
        receiver = args[0].realize(tx)
        if len(args) > 1 or kwargs or not isinstance(receiver, ArrayVariable):
            raise Unsupported(f"{what} with these arguments is not traced", remedy=REMEDY)
        return receiver.get_attr(tx, name)
    if not in_place and not list(_arrays(expected)):
        raise Unsupported(f"{what} depends on the values of an array", remedy=REMEDY)
    function = array_call(name, method, False)
    if not in_place:  # for real as well: not every kernel that there is for fakes exists
        theirs = _tensors(trial, real), _tensors(trial, keywords)
        layer = trial.run(f"{what} in torch's layer of NumPy", lambda: function(*theirs[0], **theirs[1]))
        if trial.shares(layer) and not trial.shares(expected):
            function = array_call(name, method, True)
    try:
        found = tx.graph_call(function, [arg for arg, _ in ours], {key: arg for key, (arg, _) in named.items()})
    except ObservedException as raised:
        kind = raised.value.python_type().__name__
        raise Unsupported(f"{what} raises {kind} in torch's layer of NumPy", remedy=REMEDY) from None
    return found if in_place else _checked(tx, what, expected, found.realize(tx), trial)


def _run(name: str, method: bool, args: list[Any], kwargs: dict[str, Any]) -> Any:
    import numpy

    function = getattr(args[0], name) if method else operator.attrgetter(name)(numpy)
    return function(*args[method:], **kwargs)


def _tensors(trial: Trial, tree: Any) -> Any:
    """The operands of the trial with tensors for arrays."""
    import numpy

    def tensor(leaf: Any) -> Any:
        if isinstance(leaf, numpy.generic):
            return trial.number(leaf)
        return trial.of_array(leaf) if isinstance(leaf, numpy.ndarray) else leaf

    return map_tree(tensor, tree)


def _arrays(tree: Any) -> Any:
    import numpy

    if isinstance(tree, (numpy.ndarray, numpy.generic)):
        yield tree
    elif isinstance(tree, torch.Tensor):
        yield tree.numpy()
    elif isinstance(tree, (tuple, list)):
        for item in tree:
            yield from _arrays(item)


def _checked(tx: Tracer, what: str, expected: Any, found: VT, trial: Trial) -> VT:
    import numpy

    if isinstance(expected, (numpy.ndarray, numpy.generic)):
        scalar = isinstance(expected, numpy.generic)
        if found.kind == "tensor" and (scalar or type(expected) is numpy.ndarray):
            trial.check(what, expected, found.fake, scalar)  # type: ignore[attr-defined]
            strides = tuple(stride * expected.itemsize for stride in found.fake.stride())  # type: ignore[attr-defined]
            strided = tuple(map(hint, strides)) == expected.strides
            return ArrayVariable(found, scalar, read_only=not scalar and not expected.flags.writeable, strided=strided)
    elif type(expected) in (tuple, list) and found.kind in ("tuple", "list"):
        parts = found.unpack(tx)
        if len(parts) == len(expected):
            made = [_checked(tx, what, one, part.realize(tx), trial) for one, part in zip(expected, parts)]
            return tx.new_tuple(made) if type(expected) is tuple else tx.new_list(made)
    raise Unsupported(f"{what} gives something else in torch's layer of NumPy", remedy=REMEDY)


def _operand(tx: Tracer, what: str, arg: VT, trial: Trial) -> tuple[VT, Any]:
    """(what the node takes, what NumPy takes in the trial)."""
    arg = arg.realize(tx)
    if isinstance(arg, ArrayVariable):
        return arg.tensor, trial.ones(arg.fake, arg.scalar, arg.read_only)
    if arg.kind == "tensor":
        return of_tensor(tx, arg).tensor, trial.tensor(arg.fake)  # type: ignore[attr-defined]
    if arg.kind == "symbolic":
        arg = arg.specialize(tx)  # type: ignore[attr-defined]
    if arg.kind in ("tuple", "list") and arg.python_type() in (tuple, list, torch.Size):
        parts = [_operand(tx, what, item, trial) for item in arg.unpack(tx)]
        items = [item for item, _ in parts]
        real = [one for _, one in parts]
        return (tx.new_list(items), real) if arg.kind == "list" else (tx.new_tuple(items), tuple(real))
    if arg.python_type() is slice:
        names = ("start", "stop", "step")
        parts = [_operand(tx, what, arg.get_attr(tx, name), trial) for name in names]
        (start, a), (stop, b), (step, c) = parts
        return SliceVariable(start, stop, step), slice(a, b, c)
    value = arg.as_constant() if arg.is_constant() else arg
    dtype = _dtype_name(value)
    if dtype is not None:
        return tx.constant(dtype), dtype
    if arg.kind == "constant" and type(value) in PLAIN:
        return arg, value
    if trial.takes_numbers and isinstance(arg, ArrayNumberVariable) and type(value.item()) in PLAIN:
        return tx.constant(value.item()), value
    raise Unsupported(f"{what} of {arg.describe()} is not traced", remedy=REMEDY)


PLAIN = (int, float, complex, bool, str, type(None), type(Ellipsis))


def _dtype_name(value: Any) -> str | None:
    import numpy

    if isinstance(value, numpy.dtype):
        return value.name
    if isinstance(value, type) and (issubclass(value, numpy.generic) or value in (float, int, bool, complex)):
        return numpy.dtype(value).name
    return None


# -- between tensors and arrays --------------------------------------------------------------------------------------


def of_tensor(tx: Tracer, tensor: VT) -> VT:
    """tensor.numpy(): an array over the tensor's memory."""
    fake = tensor.fake  # type: ignore[attr-defined]
    if fake.requires_grad or fake.device.type != "cpu" or fake.is_conj() or fake.is_neg() or not _has_array(fake.dtype):
        raise Unsupported(
            "Tensor.numpy() of a tensor with gradients, of another device or of a type that NumPy has not",
            remedy="detach() it and bring it to the CPU, or keep it a tensor",
        )
    return ArrayVariable(tensor)


def _has_array(dtype: torch.dtype) -> bool:
    try:
        torch.empty(0, dtype=dtype).numpy()
    except TypeError:
        return False
    return True


def to_tensor(tx: Tracer, fn: Callable[..., Any], args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
    """torch.from_numpy and its kin: a tensor over the array's memory, or for torch.tensor a copy."""
    array = args[0].realize(tx)
    dtype = _converted_to(tx, fn, kwargs)
    if not isinstance(array, ArrayVariable) or array.scalar or len(args) > 1 or kwargs and dtype is None:
        raise Unsupported(
            f"torch.{fn.__name__}() with these arguments is not traced", remedy="pass one array and nothing else"
        )
    if array.read_only:
        fn(Trial().ones(array.fake, False, True))  # warns, as the program would
    if dtype is not None:
        return tx.graph_method("to", [array.tensor, dtype], {"copy": tx.constant(True)})
    return tx.graph_method("clone" if fn is torch.tensor else "detach", [array.tensor], {})


def _converted_to(tx: Tracer, fn: Callable[..., Any], kwargs: dict[str, VT]) -> VT | None:
    """The dtype of the copy, for torch.tensor(array, dtype=...) that stays on the CPU."""
    if fn is not torch.tensor or not {"dtype"} <= kwargs.keys() <= {"dtype", "device"}:
        return None
    dtype, device = (kwargs[key].realize(tx) if key in kwargs else None for key in ("dtype", "device"))
    if dtype is None or not dtype.is_constant() or not isinstance(dtype.as_constant(), torch.dtype):
        return None
    here = device is None or device.is_constant() and device.as_constant() in (None, "cpu", torch.device("cpu"))
    return dtype if here else None


def of_numbers(tx: Tracer, fn: Any, args: Sequence[VT], kwargs: dict[str, VT]) -> VT | None:
    """torch.tensor or torch.LongTensor of a list of NumPy's numbers that only a run can tell, torch.tensor of one of
    arrays; None for other calls."""
    given = args[0].realize(tx) if len(args) == 1 and not kwargs else None
    if given is None or given.kind not in ("list", "tuple"):
        return None
    numbers = [item.realize(tx) for item in given.unpack(tx)]
    if not numbers or not all(isinstance(item, ArrayVariable) for item in numbers):
        return None
    if fn is not torch.tensor and not all(item.scalar for item in numbers):  # type: ignore[attr-defined]
        return None
    if len({tuple(item.fake.shape) for item in numbers}) > 1:  # type: ignore[attr-defined]
        raise Unsupported("torch.tensor() of arrays of several shapes is not traced", remedy="pass equal shapes")
    kinds = {item.fake.dtype for item in numbers}  # type: ignore[attr-defined]
    if fn is not torch.tensor and kinds != {fn.dtype} or len(kinds) > 1:
        raise Unsupported(f"{fn.__name__}() of numbers of other types is not traced", remedy="make an array of them")
    return tx.graph_call(torch.stack, [tx.new_list([item.tensor for item in numbers])], {})  # type: ignore[attr-defined]


CONVERTERS = (torch.from_numpy, torch.as_tensor, torch.tensor, torch.asarray)


# -- from outside ------------------------------------------------------------------------------------------------------


def is_of_numpy(value: Any) -> bool:
    """True for objects that this file answers for: arrays, dtypes, functions of NumPy."""
    module = type(value).__module__
    if module == "numpy" or module == "numpy.dtypes":
        return not isinstance(value, type)
    return callable(value) and not isinstance(value, type) and str(getattr(value, "__module__", "")) == "numpy"


def from_value(tx: Tracer, value: Any, source: Any) -> VT:
    """The tracker of an object of NumPy."""
    import numpy

    if isinstance(value, numpy.dtype):
        tx.guard(source, Is(value))
        return DtypeVariable(value, source)
    if isinstance(value, numpy.ndarray):
        return _from_array(tx, value, source)
    if is_number_class(type(value)):
        tx.guard(source, Equals(value))
        return ArrayNumberVariable(value, source)
    if source is None and isinstance(value, (numpy.finfo, numpy.iinfo)):
        return ImmutableVariable(value)
    if callable(value):
        tx.guard(source, TypeIs(type(value)) if isinstance(value, types.MethodType) else Is(value))
        return ArrayFunctionVariable(value, source)
    tx.guard(source, TypeIs(type(value)))
    return OpaqueVariable(value, f"an object of class {type(value).__name__} of NumPy is not traced", REMEDY, source)


def _from_array(tx: Tracer, value: Any, source: Any) -> VT:
    tx.guard(source, TypeIs(type(value)))
    refusal = _refusal(value)
    if refusal is not None or source is None:
        return OpaqueVariable(value, f"a NumPy array {refusal or 'of the code itself'} is not traced", REMEDY, source)
    tx.guard(AttrSource(AttrSource(source, "flags"), "writeable"), Equals(True))
    return ArrayVariable(
        tx.wrap(torch.from_numpy(value), CallSource(source, torch.from_numpy)), source=source, value=value
    )


def _refusal(value: Any) -> str | None:
    import numpy

    if type(value) is not numpy.ndarray:
        return f"of class {type(value).__name__}"
    if not value.flags.writeable:
        return "that can't be written to"
    try:
        torch.from_numpy(value)
    except (TypeError, ValueError):
        return f"of dtype {value.dtype} or with these strides"
    return None
