"""TensorVariable: a tensor in the graph. What its metadata decides while tracing, and what becomes a node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ..errors import Unsupported
from ..graph.refusals import NeedsSymbols
from ..guards.checks import Equals, Is, MissingInstanceAttr, Predicate
from ..guards.source import AttrSource, CallSource, ConstSource, InstanceAttrSource, TypeAttrSource
from . import array, function_mode, tensor_scalar, tensor_truth
from .base import BuiltinMethodVariable, VariableTracker, has_special, store_attributes, write_attributes
from .class_attribute import bound_attribute, is_of_the_program, own_attribute
from .picked import picked
from .storage import StorageVariable

if TYPE_CHECKING:
    from .protocols import Emitter, Tracer

VT = VariableTracker

# attributes whose value is fixed by what the guards hold
METADATA = frozenset(
    "dtype device layout is_cuda is_cpu is_meta is_xpu is_mps is_sparse is_sparse_csr is_quantized is_mkldnn is_nested "
    "is_vulkan is_xla is_maia is_mtia is_ipu is_hpu names itemsize".split()
)
# metadata that the graph's own result carries
STATE = frozenset(("requires_grad", "is_leaf", "retains_grad", "ndim", "nbytes", "output_nr"))
# attributes that are views or functions of the tensor: nodes of the graph
DERIVED = frozenset(("T", "mT", "H", "mH", "real", "imag"))
# methods that give a Python value known from metadata
METADATA_METHODS = frozenset(
    "dim ndimension is_floating_point is_complex is_contiguous is_signed is_conj is_neg is_inference get_device "
    "element_size numel nelement size stride storage_offset has_names is_set_to is_same_size __len__ is_shared "
    "is_pinned is_coalesced dense_dim sparse_dim type_as_string dim_order".split()
)
LAYOUT_METHODS = frozenset(("stride", "is_contiguous", "storage_offset", "dim_order"))
BREAKS = {
    "item": "return the tensor itself, or set capture_scalar_outputs=True",
    "tolist": "keep the values in a tensor, or set capture_scalar_outputs=True",
    "numpy": "use torch functions in place of NumPy's, or call it outside the compiled function",
    "data_ptr": "an address is no part of a graph; take it outside the compiled function",
    "storage": "take the storage outside the compiled function",
    "_typed_storage": "take the storage outside the compiled function",
    "retain_grad": "call retain_grad() outside the compiled function",
    "set_": "give the tensor new storage outside the compiled function",
    "resize_": "make a tensor of the new size",
    "share_memory_": "share memory outside the compiled function",
    "nonzero": "the result's size depends on the data; use torch.where with three arguments or a mask",
    "__dlpack__": "exchange memory outside the compiled function",
    "__array__": "use torch functions in place of NumPy's",
    "__reduce_ex__": "copy or pickle outside the compiled function",
}


@dataclass(frozen=True)
class Lacks:
    """A class has no attribute of this name."""

    name: str

    def __call__(self, cls: type) -> bool:
        return not has_special(cls, self.name)


class TensorVariable(VariableTracker):
    """A tensor. `value` is the GraphValue: the node that makes it and the fake tensor with its metadata."""

    kind = "tensor"
    mutable = True

    def __init__(self, value: Any, cls: type = torch.Tensor, source: Any = None, real: Any = None) -> None:
        super().__init__(source)
        self.value = value
        self.cls = cls
        self.real = real  # the input tensor itself, for graph inputs
        self.known = False  # an input whose number is part of the entry
        self.attributes: dict[str, VT] = {}
        self.hooks: list[VT] = []  # registered by the traced code, on a tensor from outside

    @property
    def fake(self) -> Any:
        return self.value.fake

    def python_type(self) -> type:
        return self.cls

    def as_proxy(self) -> Any:
        return self.value

    def known_value(self) -> Any:
        """The numbers of a tensor made of literals, as tolist() gives them; None where only a run can tell."""
        constant = getattr(self.fake, "constant", None)
        return None if constant is None or self.source is not None and not self.known else constant.tolist()

    def known_number(self) -> Any:
        """The one number of a tensor made of a literal; None where only a run can tell."""
        return self.known_value() if self.fake.ndim == 0 else None

    def needed_number(self, tx: Tracer) -> Any:
        """As known_number, where a decision depends on it."""
        number = self.known_number()
        if number is None and self.fake.ndim == 0:
            tx.learn([self])
        return number

    def truth(self, tx: Tracer) -> bool:
        function_mode.refuse(tx, "the truth of a tensor")
        number = self.needed_number(tx)
        if number is not None:
            return bool(number)
        decided = tx.decision(self)
        if decided is not None:
            return decided
        raise Unsupported(
            "a branch depends on the value of a tensor",
            remedy="use torch.where or torch.cond, or make the decision outside the compiled function",
        )

    # -- attributes ------------------------------------------------------------------------------------------------

    def get_attr(self, tx: Tracer, name: str) -> VT:
        if tx.trace.function_modes and function_mode.is_asked(tx):
            asked = function_mode.read(tx, self, name)
            if asked is not None:
                return asked
        if name in self.attributes and name != "data":  # each read of .data gives another tensor
            return self.attributes[name]
        if name == "shape":
            return self.shape(tx)
        if name in METADATA or name in STATE:
            return tx.graph_result(getattr(self.fake, name), derived=True)
        if name in DERIVED or name == "data":  # unlike those of detach(), writes to .data are not counted
            return tx.graph_call(getattr, [self, tx.constant(name)], {})
        if name == "grad":
            return self._grad(tx)
        if name == "__class__":
            return tx.wrap(self.cls, None)
        if name in ("grad_fn", "_version", "_backward_hooks", "_base", "_cdata", "__array_interface__"):
            return self._hidden(tx, name)
        if name == "__dict__":
            raise self.refuse("reading __dict__")
        if has_special(self.cls, name):
            raw = own_attribute(self.cls, name, ())
            if is_of_the_program(raw):
                bound = bound_attribute(tx, self, self.cls, name, raw)
                if bound is not None:
                    return bound
            label = f"{self.cls.__module__}.{self.cls.__qualname__}"
            tx.guard(TypeAttrSource(ConstSource(self.cls, label), name), Is(raw))
            return BuiltinMethodVariable(self, name)
        tx.guard(ConstSource(self.cls), Predicate((ConstSource(self.cls),), Lacks(name)))
        if self.real is not None and self.source is not None:
            if name in self.real.__dict__:
                return tx.wrap(self.real.__dict__[name], InstanceAttrSource(self.source, name))
            tx.guard(self.source, MissingInstanceAttr(name))
        tx.raise_exception(AttributeError, f"'{self.cls.__name__}' object has no attribute '{name}'")

    def _hidden(self, tx: Tracer, name: str) -> VT:
        if name == "grad_fn" and self.fake.is_leaf:
            return tx.constant(None)
        if name == "_backward_hooks" and (self.real is None or self.real._backward_hooks is None):
            return tx.constant(None)
        raise self.refuse(f"reading attribute {name!r}")

    def _grad(self, tx: Tracer) -> VT:
        if self.real is None or self.source is None:
            return tx.constant(None)  # a backward in the graph would have put it among the attributes
        return tx.wrap(self.real.grad, AttrSource(self.source, "grad"))

    def shape(self, tx: Tracer) -> VT:
        """The size, as a tracker of torch.Size."""
        items = [tx.graph_result(size, derived=True) for size in self.size_values(tx)]
        return tx.new_tuple(items, torch.Size)

    def size_values(self, tx: Tracer) -> list[Any]:
        """Per dimension an int, or the GraphValue of the symbolic size."""
        return [
            tx.builder.call_method("size", [self.value, dim], {}, line=tx.line) if not isinstance(size, int) else size
            for dim, size in enumerate(self.fake.shape)
        ]

    def set_attr(self, tx: Tracer, name: str, value: VT) -> None:
        function_mode.refuse(tx, "setting an attribute of a tensor")
        if name == "requires_grad":
            self.call_method(tx, "requires_grad_", [value], {})
            return
        if name == "grad" and self.source is not None and self._fits_as_grad(value.realize(tx)):
            tx.side_effects.mutated(self)
            self.attributes[name] = value
            return
        if name == "data":
            self._assign_data(tx, value.realize(tx))
            return
        if name in ("grad", "__class__", "names"):
            raise Unsupported(
                f"assigning .{name} of a tensor is not traced",
                remedy=f"assign .{name} outside the compiled function, or use copy_()",
            )
        if hasattr(self.cls, name):
            raise self.refuse(f"setting attribute {name!r}")
        if self.source is None and tx.builder.in_region:  # outside of it another tensor stands for this one
            raise Unsupported(
                f"setting attribute {name!r} of a tensor made in a part of the graph is not traced",
                remedy="set attributes of tensors outside the compiled function",
            )
        tx.side_effects.mutated(self)
        self.attributes[name] = value

    def _assign_data(self, tx: Tracer, value: VT) -> None:
        """The tensor takes over the memory of another; it stays the object, and the leaf of autograd, that it is."""
        ours = self.fake
        if not isinstance(value, TensorVariable) or self.hooks or tx.builder.in_region or not self._has_only_copies(tx):
            raise self.refuse("assigning .data", "assign .data outside the compiled function, or use copy_()")
        theirs = value.fake
        if (ours.dtype, ours.device, ours.layout) != (theirs.dtype, theirs.device, theirs.layout):
            raise self.refuse("assigning .data of another dtype or device", "convert it first")
        if ours.requires_grad and (self.source is None or not ours.is_leaf):
            raise self.refuse("assigning .data of a tensor with a gradient history", "detach() it first")
        taken = tx.graph_method("detach", [value], {})
        if self.source is not None:
            tx.side_effects.mutated(self)
            self.attributes["data"] = TensorVariable(taken.as_proxy())
        if ours.requires_grad:
            self.value = TakenOver(self)
        else:
            self.value = taken.as_proxy()
            tx.stands_for(self.value, self)

    def _has_only_copies(self, tx: Tracer) -> bool:
        """True when no backward can need what the tensor holds: nobody has used it, or nothing takes gradients."""
        used = any(not _only_detaches(node) for node in self.value.node.users)
        return not used or not any(item.requires_grad for item in tx.builder.inputs)

    def assign_grad(self, tx: Tracer, value: VT) -> None:
        """A first gradient arrived, or one that takes the place of the last."""
        if self.source is not None:
            tx.side_effects.mutated(self)
        self.attributes["grad"] = value

    def _fits_as_grad(self, value: VT) -> bool:
        """True for what autograd takes as the gradient of an input: None, or a tensor like it."""
        if value.is_constant() and value.as_constant() is None:
            return True
        if not isinstance(value, TensorVariable) or value is self:
            return False
        ours, theirs = self.fake, value.fake
        return ours.shape == theirs.shape and ours.dtype == theirs.dtype and ours.device == theirs.device

    # -- calls -----------------------------------------------------------------------------------------------------

    def call_method(self, tx: Tracer, name: str, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        if tx.trace.function_modes and function_mode.is_asked(tx):
            return function_mode.method(tx, self, name, args, kwargs)
        handler = self._handler(name) if name not in BREAKS else None
        if handler is not None:
            result = handler(tx, *args, **kwargs)
            if result is not None:
                return result
        if name in ("item", "tolist", "__int__", "__float__", "__index__") and not args and not kwargs:
            number = self.needed_number(tx) if name != "tolist" else self.known_value()
            if number is not None:
                return tx.constant(number)
        if name == "tolist" and not args and not kwargs and tx.builder.scalar_outputs:
            listed = tensor_scalar.listed(tx, self)
            if listed is not None:
                return listed
        if name == "numpy" and not args and not kwargs:
            return array.of_tensor(tx, self)
        if name == "item" and self.fake.dtype is torch.bool and not tx.options.capture_scalar_outputs and not args:
            truth = tensor_truth.truth_of(tx, self)
            if truth is not None:
                return truth
        if name in METADATA_METHODS:
            return self._metadata_call(tx, name, args, kwargs)
        if name in BREAKS and not (name in ("item", "nonzero") and tx.builder.scalar_outputs):
            kind = NeedsSymbols if name in ("item", "tolist", "nonzero") else Unsupported
            raise kind(f"Tensor.{name}() needs the real tensor", remedy=BREAKS[name])
        if not hasattr(self.cls, name):
            tx.raise_exception(AttributeError, f"'{self.cls.__name__}' object has no attribute '{name}'")
        if name in ("requires_grad_", "detach_") and self.source is not None and not self._is_noop(name, args):
            raise Unsupported(
                f"Tensor.{name}() on an input changes how autograd sees it",
                remedy="set requires_grad outside the compiled function",
            )
        if tensor_scalar.takes_number(name, kwargs):
            rewritten = tensor_scalar.rewrite(tx, name, [self, *args], kwargs)
            if rewritten is not None:
                return rewritten
        return tx.graph_method(name, [self, *args], kwargs)

    def _handler(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            return getattr(self, "op_" + name[2:-2], None)
        return getattr(self, "method_" + name, None)

    def _is_noop(self, name: str, args: Sequence[VT]) -> bool:
        wanted = args[0].as_constant() if args else True
        return name == "requires_grad_" and self.fake.requires_grad == wanted

    def _metadata_call(self, tx: Tracer, name: str, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        if name in LAYOUT_METHODS and tx.builder.layout_is_open(self.value):
            raise Unsupported(
                f"Tensor.{name}() of an incoming gradient differs from call to call",
                remedy="call contiguous() on the gradient, or call the Function outside the compiled function",
            )
        if name == "storage_offset" and self.fake.layout is torch.strided:
            self._guard_offset(tx)
        symbolic = any(not isinstance(size, int) for size in self.fake.shape)
        if symbolic and name in ("size", "numel", "nelement", "stride", "storage_offset", "__len__"):
            if name == "size" and not args and not kwargs:
                return self.shape(tx)
            if name == "__len__":
                return tx.graph_method("size", [self, tx.constant(0)], {})
            return tx.graph_method(name, [self, *args], kwargs)
        values = [arg.value.fake if arg.kind == "tensor" else self._known(tx, arg) for arg in args]  # type: ignore[attr-defined]
        keywords = {key: self._known(tx, value) for key, value in kwargs.items()}
        result = tx.run_on_fakes(getattr(type(self.fake), name), [self.fake, *values], keywords)
        if isinstance(result, torch.Size):
            return self.shape(tx)
        return tx.graph_result(result, derived=True)

    def _guard_offset(self, tx: Tracer) -> None:
        """Kernels take any offset, so that no guard of an input looks at it unless the program does."""
        memory = self.fake.untyped_storage()._cdata
        for item in tx.builder.inputs:
            if item.is_tensor and item.source is not None and item.fake.layout is torch.strided:
                offset = item.fake.storage_offset()
                if type(offset) is int and item.fake.untyped_storage()._cdata == memory:
                    tx.guard(CallSource(item.source, torch.Tensor.storage_offset), Equals(offset))

    @staticmethod
    def _known(tx: Tracer, argument: VT) -> Any:
        argument = argument.realize(tx)
        return (argument.specialize(tx) if argument.kind == "symbolic" else argument.look_inside(tx)).as_constant()  # type: ignore[attr-defined]

    def method_untyped_storage(self, tx: Tracer) -> VT:
        return StorageVariable(self)

    def method_backward(self, tx: Tracer, *args: VT, **kwargs: VT) -> VT | None:
        return tx.inline(torch.Tensor.backward, [self, *args], kwargs)

    def method_new(self, tx: Tracer, *args: VT, **kwargs: VT) -> VT | None:
        """The old constructor: sizes or a torch.Size give memory as it is, a list or tuple gives its numbers."""
        given = [arg.realize(tx) for arg in args]
        device = {key: value for key, value in kwargs.items() if key == "device"}
        if len(device) == len(kwargs):
            if all(arg.kind in ("constant", "symbolic") and arg.python_type() is int for arg in given):
                return tx.graph_method("new_empty", [self, tx.new_tuple(given or [tx.constant(0)])], device)
            if len(given) == 1 and given[0].python_type() is torch.Size:
                return tx.graph_method("new_empty", [self, given[0]], device)
            if len(given) == 1 and given[0].kind in ("list", "tuple"):
                return tx.graph_method("new_tensor", [self, given[0]], device)
        raise self.refuse("Tensor.new", remedy="use new_empty, new_zeros or new_tensor")

    def method_as_subclass(self, tx: Tracer, cls: VT) -> VT | None:
        from .tensor_subclass import as_subclass

        return as_subclass(tx, self, cls)

    def method_type(self, tx: Tracer, *args: VT, **kwargs: VT) -> VT | None:
        if args or kwargs:
            return None
        return tx.constant(self.real.type() if self.real is not None else self.fake.type())

    def method_register_hook(self, tx: Tracer, hook: VT) -> VT | None:
        return tx.register_hook(self, "register_hook", hook)

    def method_register_post_accumulate_grad_hook(self, tx: Tracer, hook: VT) -> VT | None:
        return tx.register_hook(self, "register_post_accumulate_grad_hook", hook)

    def op_hash(self, tx: Tracer) -> VT | None:
        raise self.refuse("hash()")

    def op_iter(self, tx: Tracer) -> VT | None:
        return self.iterate(tx)

    def op_getitem(self, tx: Tracer, key: VT) -> VT | None:
        return self.get_item(tx, key)

    def op_setitem(self, tx: Tracer, key: VT, value: VT) -> VT | None:
        self.set_item(tx, key, value)
        return tx.constant(None)

    def op_len(self, tx: Tracer) -> VT | None:
        return self.length(tx)

    def op_bool(self, tx: Tracer) -> VT | None:
        unknown = tensor_truth.truth_of(tx, self) if self.needed_number(tx) is None else None
        return unknown if unknown is not None else tx.constant(self.truth(tx))

    def op_contains(self, tx: Tracer, item: VT) -> VT | None:
        raise Unsupported("`in` on a tensor needs its values", remedy="use torch.isin(...).any() and torch.where")

    def iterate(self, tx: Tracer) -> VT:
        function_mode.refuse(tx, "iterating over a tensor")
        if self.fake.ndim == 0:
            tx.raise_exception(TypeError, "iteration over a 0-d tensor")
        parts = tx.graph_method("unbind", [self, tx.constant(0)], {})
        return parts.iterate(tx)

    def length(self, tx: Tracer) -> VT:
        if function_mode.is_asked(tx):
            return self.call_method(tx, "__len__", [], {})
        if self.fake.ndim == 0:
            tx.raise_exception(TypeError, "len() of a 0-d tensor")
        return self.call_method(tx, "size", [tx.constant(0)], {})

    def get_item(self, tx: Tracer, key: VT) -> VT:
        import operator

        if function_mode.is_asked(tx):
            return self.call_method(tx, "__getitem__", [key], {})
        places = None if self.fake.requires_grad else _places(tx, key.realize(tx))
        if places is not None:
            return tx.graph_call(torch.ops.aten.index.Tensor, [self, tx.new_list(places)], {})
        found = picked(tx, self, key.realize(tx))
        return found if found is not None else tx.graph_call(operator.getitem, [self, key], {})

    def set_item(self, tx: Tracer, key: VT, value: VT) -> None:
        import operator

        if function_mode.is_asked(tx):
            self.call_method(tx, "__setitem__", [key, value], {})
            return
        key, value = key.realize(tx), value.realize(tx)
        if isinstance(key, TensorVariable) and isinstance(value, TensorVariable) and self._stores_by_choice(key, value):
            behind = [tx.constant(None)] * (self.fake.ndim - key.fake.ndim)
            mask = key.get_item(tx, tx.new_tuple([tx.constant(...), *behind]))
            tx.graph_method("copy_", [self, tx.graph_call(torch.where, [mask, value, self], {})], {})
            return
        place = picked(tx, self, key)
        given = [self, key, value] if place is None else [place, tx.constant(...), value]
        tx.graph_call(operator.setitem, given, {})

    def _stores_by_choice(self, mask: TensorVariable, value: TensorVariable) -> bool:
        """True for `self[mask] = value` where each element's value is known without counting the mask's.

        The gradient of a store by mask asks where the mask is true, which no graph can hold; that of a choice for each
        element is the same numbers without the question.
        """
        rest = self.fake.shape[mask.fake.ndim :]
        trailing = value.fake.shape
        same = mask.fake.ndim and mask.fake.shape == self.fake.shape[: mask.fake.ndim]
        fits = len(trailing) <= len(rest) and all(a in (1, b) for a, b in zip(trailing[::-1], rest[::-1]))
        alike = value.fake.dtype == self.fake.dtype and value.fake.device == self.fake.device == mask.fake.device
        wanted = torch.is_grad_enabled() and value.fake.requires_grad and mask.fake.dtype is torch.bool
        return bool(wanted and same and fits and alike)

    def contains(self, tx: Tracer, item: VT) -> bool:
        self.op_contains(tx, item)
        raise AssertionError("unreachable")

    # -- coming back -----------------------------------------------------------------------------------------------

    def reconstruct(self, emit: Emitter) -> None:
        emit.load_graph_output(self.value)
        store_attributes(emit, self)

    def write_back(self, emit: Emitter) -> None:
        write_attributes(emit, self)


def _only_detaches(node: Any) -> bool:
    return node.target in ("detach", torch.Tensor.detach) or node.target is getattr and node.args[1] == "data"


class TakenOver:
    """In place of the graph value of a leaf whose .data was assigned: from here on only Python may use it."""

    region = None

    def __init__(self, tensor: TensorVariable) -> None:
        self.name = tensor.describe()

    @property
    def fake(self) -> Any:
        raise self.refusal()

    node = fake

    def refusal(self) -> Unsupported:
        """The graph break for a use of the tensor."""
        return Unsupported(
            f"{self.name} is used in the graph after its .data was assigned",
            remedy="assign .data outside the compiled function, or use copy_()",
        )


def _places(tx: Tracer, key: VT) -> list[VT] | None:
    """The tensors of one integer that pick an element, in code that runs for many places at once; else None."""
    parts = [part.realize(tx) for part in key.unpack(tx)] if key.kind == "tuple" else [key]
    for part in parts:
        region = part.value.region if isinstance(part, TensorVariable) and not part.fake.ndim else None
        if region is None or not region.inside_elementwise() or part.fake.dtype is torch.bool:  # type: ignore[attr-defined]
            return None
    return parts
