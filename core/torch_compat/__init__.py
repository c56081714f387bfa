"""Every private torch name that core uses, in one package, with the torch versions it was checked with.

Checked with torch 2.8, 2.11 and 2.13. Names that are costly to import are reached through functions.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import traceback
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from . import newer
from .active_modes import (  # noqa: F401 - names of this package
    beside_dispatch_modes,
    beside_modes,
    beside_transforms,
    default_device,
    dispatch_stack_length,
    unknown_active_mode,
)
from .bare_peer import put_bare_package, take_bare_package, without_peer_package
from .expressions import calculated, in_its_order, write_expression  # noqa: F401 - names of this package
from .sums import check_beliefs
from .training import (  # noqa: F401 - names of this package
    delayed_error,
    inference_mode_functions,
    inference_mode_guard,
    kept_out_wrapper,
    optimizer_functions,
    optimizer_step_wrapper,
    symbolic_math,
)

# -- graph: fake tensors, symbolic shapes, dispatch modes -----------------------------------------------------------
#
# torch._subclasses and torch.fx.experimental.symbolic_shapes bring sympy and more than a thousand modules: each is
# imported by the first capture, not by `import core`.


def fake_tensor_mode(shape_env: Any, environment: Callable[[], Any] = lambda: None) -> Any:
    """A FakeTensorMode that refuses real tensors among the operands of a call.

    environment: gives a method that makes a ShapeEnv, for the sizes of nested tensors made under a mode without one. A
    weak reference: what owns the mode is freed with it.
    """
    with without_peer_package():
        mode = _fake_mode_class()(shape_env=shape_env, allow_non_fake_inputs=False)
    mode.environment = environment
    return mode


@functools.cache
def _fake_mode_class() -> type:
    """FakeTensorMode with its handler as it was written, for the reason that dispatch_mode_class gives."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    handler = inspect.unwrap(FakeTensorMode.__torch_dispatch__)

    class UnwrappedFakeTensorMode(FakeTensorMode):
        __torch_dispatch__ = handler if newer.VIEWS_TAKE_SYMBOLS else newer.taking_symbols(handler)

        def __enter__(self) -> Any:
            self.__dict__.setdefault("_bare", []).append(put_bare_package())
            return super().__enter__()

        def __exit__(self, *raised: Any) -> None:
            try:
                super().__exit__(*raised)
            finally:
                if self.__dict__["_bare"].pop():
                    take_bare_package()

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False

        def create_symbolic_nested_int(self, *, nt_tensor_id: int | None = None) -> Any:
            from . import nested

            return nested.ragged_symbol(self, nt_tensor_id)

    return UnwrappedFakeTensorMode


def fakes_take_higher_order_operators() -> None:
    """Have torch's higher-order operators find their rule for fake tensors under our mode too."""
    from . import higher_order

    higher_order.teach(_fake_mode_class())


def fake_of(mode: Any, example: torch.Tensor, source: Any, symbolic_context: Any = None) -> Any:
    """The fake of a real tensor; static unless a symbolic context is given.

    A source of ours is passed even where no symbol needs a name: without one, torch imports its own kinds. No trace:
    torch would look up a traceback for each tensor and hand it to a log.
    """
    fresh = contextlib.nullcontext() if symbolic_context is None else mode.shape_env.ignore_fresh_unbacked_symbols()
    with without_peer_package(), fresh:  # 2.11 asks of a view's base where the symbols of the view are
        return mode.from_tensor(
            example,
            static_shapes=symbolic_context is None,
            source=source,
            symbolic_context=symbolic_context,
            trace=False,
        )


def attach_shape_env(mode: Any, env: Any) -> None:
    """Give a FakeTensorMode that was made without symbols a ShapeEnv. Checked with torch 2.11 and 2.13."""
    mode.shape_env = env
    mode.static_shapes = False


def fake_tensor_class() -> type:
    """The class of fake tensors."""
    from torch._subclasses.fake_tensor import FakeTensor

    return FakeTensor


def shape_env(*, scalar_outputs: bool) -> Any:
    """A ShapeEnv in which no size is special: equal sizes get symbols of their own, 0 and 1 stay symbolic."""
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    check_beliefs()
    return ShapeEnv(
        specialize_zero_one=False,
        duck_shape=False,
        allow_scalar_outputs=scalar_outputs,
        allow_dynamic_output_shape_ops=scalar_outputs,
    )


def symbolic_dims(kinds: Sequence[str]) -> Any:
    """A symbolic context: a dimension is "static" (a number), "dynamic" (a symbol) or "unbacked" (one without a value).

    Older versions have another name for the last.
    """
    from torch.fx.experimental.symbolic_shapes import DimDynamic, StatelessSymbolicContext

    unbacked = getattr(DimDynamic, "UNBACKED", None) or DimDynamic.SIZE_LIKE_UNBACKED
    named = {"static": DimDynamic.STATIC, "dynamic": DimDynamic.DYNAMIC, "unbacked": unbacked}
    return StatelessSymbolicContext(dynamic_sizes=[named[kind] for kind in kinds])


def bounds_of(value: Any) -> tuple[Any, Any]:
    """The lowest and highest number that a SymInt may be by what was assumed; sympy numbers, infinities among them."""
    bounds = value.node.shape_env.bound_sympy(value.node.expr)
    return bounds.lower, bounds.upper


def deferred_assertions(env: Any) -> list[Any]:
    """The sympy Booleans about sizes without a value that the program promised (torch._check)."""
    return [item.expr for items in env.deferred_runtime_asserts.values() for item in items]


def symbolic_scalar(env: Any, value: int | float, source: Any) -> Any:
    """A SymInt or SymFloat of `value` whose symbol is named by `source`; no range is assumed."""
    from torch.fx.experimental.symbolic_shapes import DimDynamic

    symbol = env.create_unspecified_symbol(value, source, dynamic_dim=DimDynamic.DYNAMIC)
    make = env.create_symfloatnode if isinstance(value, float) else env.create_symintnode
    return make(symbol, hint=value, source=source)


@functools.cache
def input_source_class() -> type:
    """A torch._guards.Source that names a graph input by number.

    `name` is a property in torch 2.13 and a method in older versions; both forms are answered.
    """
    import torch._guards as guards

    class InputSource(guards.Source):
        def __init__(self, index: int) -> None:
            self.index = index

        def __eq__(self, other: object) -> bool:
            return isinstance(other, InputSource) and other.index == self.index

        def __hash__(self) -> int:
            return hash(("graph input", self.index))

        @property
        def guard_source(self) -> Any:
            return guards.GuardSource.LOCAL

        @property
        def _name_template(self) -> str:
            return f"input{self.index}"

    if not isinstance(vars(guards.Source).get("name"), (property, functools.cached_property)):
        InputSource.name = lambda self: self._name_template  # type: ignore[attr-defined]
    return InputSource


@functools.cache
def data_dependent_errors() -> tuple[type[BaseException], ...]:
    """What a fake run raises when its result would depend on the values in a tensor."""
    from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, PendingUnbackedSymbolNotFound

    return (
        DataDependentOutputException,
        DynamicOutputShapeException,
        GuardOnDataDependentSymNode,
        PendingUnbackedSymbolNotFound,
    )


@functools.cache
def missing_fake_errors() -> tuple[type[BaseException], ...]:
    """What a fake run raises for an operator that has no fake kernel or can't have one."""
    from torch._subclasses.fake_tensor import (
        MetadataMismatchError,
        UnsupportedFakeTensorException,
        UnsupportedMutationAliasingException,
        UnsupportedOperatorException,
    )

    return (
        UnsupportedFakeTensorException,
        UnsupportedOperatorException,
        UnsupportedMutationAliasingException,
        MetadataMismatchError,
        NotImplementedError,
    )


FAKE_TENSOR_LOGGER = "torch._subclasses.fake_tensor"
"""Logs each failing fake kernel as an error with a traceback, although the exception is the answer we asked for."""


def set_grad_enabled_function() -> Any:
    """torch._C._set_grad_enabled(mode), the call that graphs record for a change of grad mode."""
    return torch._C._set_grad_enabled


def enter_autocast_function() -> Any:
    """_enter_autocast(device_type, dtype, enabled, cache_enabled) -> token."""
    return torch.amp.autocast_mode._enter_autocast


def exit_autocast_function() -> Any:
    """_exit_autocast(token)."""
    return torch.amp.autocast_mode._exit_autocast


def gradient_sequence_number() -> int:
    """The number that the next autograd node made by this thread gets."""
    return torch._C._autograd._get_sequence_nr()


def current_gradient_node_number() -> int | None:
    """The sequence number of the autograd node that the engine is running in this thread, None outside."""
    node = torch._C._current_autograd_node()
    return None if node is None else node._sequence_nr()


def without_autocast() -> Any:
    """A context manager that turns autocast off for every device."""
    return torch._C._DisableAutocast()


@functools.cache
def dispatch_mode_class() -> type:
    """TorchDispatchMode, without the wrapper that keeps torch.compile out of its handler: the wrapper loads the peer's
    package on the first call and costs time on each. No frame of ours is ever compiled by the peer."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class UnwrappedDispatchMode(TorchDispatchMode):
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False

    return UnwrappedDispatchMode


def dispatch_key_bits(tensor: Any) -> int:
    """The tensor's own dispatch key set as its 64-bit number. Checked with torch 2.13."""
    return torch._C._dispatch_keys(tensor).raw_repr()


def has_plain_layout(tensor: Any) -> bool:
    """True when the tensor is strided: only then do its strides mean anything."""
    return tensor.layout is torch.strided and not tensor.is_nested


@functools.cache
def is_composite(op: Any) -> bool:
    """True for an operator that is defined by other operators and has no gradient formula of its own."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd")


def hint_of(value: Any) -> Any:
    """The number that a SymInt, SymFloat or SymBool stands for in this call, without a guard.

    A size that depends on data has none; it counts as 8192, for decisions where a guess does no harm.
    """
    known = _numbers_of_symbols(value.node.shape_env)
    expr = value.node.expr
    if not expr.free_symbols:  # its symbols have become numbers since it was made
        return value.node.pytype(expr)
    if all(symbol in known for symbol in expr.free_symbols):
        return value.node.hint
    import sympy

    return int(expr.xreplace({symbol: known.get(symbol, sympy.Integer(8192)) for symbol in expr.free_symbols}))


def _numbers_of_symbols(env: Any) -> Any:
    return env.backed_var_to_val if hasattr(env, "backed_var_to_val") else env.var_to_val


def has_number(env: Any, symbol: Any) -> bool:
    """False for the symbol of a size that capture does not know."""
    return symbol in _numbers_of_symbols(env)


def original_expression(value: Any) -> Any:
    """The sympy expression a symbolic number was made with, before equalities found later replaced its symbols.

    `node.expr` applies the ShapeEnv's replacements; `node._expr` doesn't.
    """
    return value.node._expr if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)) else value


def shape_guards(env: Any) -> list[Any]:
    """The sympy Booleans that the ShapeEnv assumed, in order."""
    return [guard.expr for guard in env.guards]


def pad_decomposition() -> Any:
    """constant_pad_nd in Python, which keeps symbolic sizes."""
    from torch._refs import constant_pad_nd

    return constant_pad_nd


# -- context managers as decorators ------------------------------------------------------------------------------------


def context_decorator(manager: type) -> Any:
    """The function that wraps a function with a torch context manager, and whether it is given the manager itself
    (True) or what makes a fresh one (False)."""
    if issubclass(manager, torch.autocast):
        return torch.amp.autocast_mode.autocast_decorator, True
    from torch.utils._contextlib import context_decorator as decorator

    return decorator, False


# -- backends: what runs around a compiled graph ----------------------------------------------------------------------


def below_autograd_guard() -> Any:
    """The class of a context manager beneath which no call is seen by autograd, nor tracked as a view."""
    return torch._C._AutoDispatchBelowADInplaceOrView


def without_autocast_guard() -> Any:
    """The class of the context manager that without_autocast() returns an instance of."""
    return torch._C._DisableAutocast


def functorch_level_function() -> Any:
    """() -> the level of the innermost active torch.func transform, None outside of any."""
    return torch._C._functorch.maybe_current_level


def function_apply(function: type) -> Any:
    """`apply` of an autograd.Function subclass as the C function beneath, without the Python method above it.

    That method only adds the case of an active torch.func transform, which guards exclude.
    """
    return super(torch.autograd.Function, function).apply  # type: ignore[misc]


def tensor_version(tensor: Any) -> int:
    """The version counter, which every write in place raises."""
    return tensor._version


def view_base(tensor: Any) -> Any:
    """The tensor that a view is a view of as autograd sees it, None for a tensor that is no view."""
    return tensor._base


# Registries of hooks for all modules, in torch.nn.modules.module (2.11 and 2.13).
GLOBAL_MODULE_HOOKS = (
    "_global_backward_hooks",
    "_global_backward_pre_hooks",
    "_global_forward_hooks",
    "_global_forward_pre_hooks",
)


def call_is_overridden(module: torch.nn.Module) -> bool:
    """True for a module whose class calls something else than torch's own chain of hooks and forward."""
    return type(module).__call__ is not torch.nn.Module.__call__


def set_compiled_call(module: torch.nn.Module, compile_call: Any) -> None:
    """Set what Module.__call__ runs in place of hooks and forward as written; None puts those back.

    Module.compile of torch uses the same attribute; copies and pickles leave it out. Checked with torch 2.11 and 2.13.
    """
    if compile_call is None:
        module._compiled_call_impl = None
        return
    enter = type(module)._call_impl

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return enter(self, *args, **kwargs)

    call.__name__ = call.__qualname__ = f"{type(module).__qualname__}.__call__"
    call._core_entry = True  # type: ignore[attr-defined]
    module._compiled_call_impl = types.MethodType(compile_call(call), module)  # type: ignore[assignment]


@functools.cache
def function_apply_refuses_keywords() -> str | None:
    """What autograd.Function.apply says to keywords: 2.11 raises a TypeError with this text, 2.13 takes them."""

    class Probe(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, value: int) -> int:
            return value

    try:
        Probe.apply(value=0)
    except TypeError as error:
        return str(error)
    return None


def aot_module_simplified() -> Any:
    """torch's AOTAutograd for one graph module and flat inputs; only its first parameters are used, by keyword.

    Checked with 2.8, 2.11 and 2.13: mod, args, fw_compiler, bw_compiler, inference_compiler. Nothing that the forward
    keeps is given away to the backward, which may run again: that it is never asked to can't be known.
    """
    from torch._functorch.aot_autograd import aot_module_simplified as function

    try:
        from torch._functorch._aot_autograd import graph_compile as compiling
    except ImportError:  # torch 2.8
        from torch._functorch._aot_autograd import jit_compile_runtime_wrappers as compiling

    def traced(**how: Any) -> Any:
        name = "collect_bw_donated_buffer_idxs"  # the setting of that name is looked at in each backward as well
        before = getattr(compiling, name)
        setattr(compiling, name, lambda *args, **kwargs: [])
        try:
            return function(**how)
        finally:
            setattr(compiling, name, before)

    return traced


def core_decompositions() -> Any:
    """torch's table that takes ATen apart to the core operator set: OpOverload -> function."""
    from torch._decomp import core_aten_decompositions

    return core_aten_decompositions()


@contextlib.contextmanager
def without_onednn() -> Iterator[None]:
    """Composite functions choose their paths as if oneDNN were absent."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


@functools.cache
def calibrate_tensor_guards() -> str:
    """Let the guard evaluator learn how this torch's tensors and global state are read; once a process.

    Returns 'A' (offsets) or 'B' (exported functions) for tensors.
    """
    from . import calibration

    with beside_transforms():
        return calibration.calibrate()


OpOverload = torch._ops.OpOverload
"""The class of torch.ops.<namespace>.<operator>.<overload>."""

OpOverloadPacket = torch._ops.OpOverloadPacket
"""The class of torch.ops.<namespace>.<operator>, which picks an overload by the arguments."""

associative_scan = torch._higher_order_ops.associative_scan
"""The function that combines the elements of a dimension pairwise, from the first to each."""

HigherOrderOperator = torch._ops.HigherOrderOperator
"""The class of torch.ops.higher_order.<operator>: operators that take functions."""


CustomOperator = torch._library.custom_ops.CustomOpDef
"""What torch.library.custom_op makes of a function."""


def operator_of(definition: Any) -> Any:
    """The operator that a call of a CustomOperator runs."""
    return definition._opoverload


def python_gradient(op: Any) -> tuple[Any, Any] | None:
    """(setup_context, backward) of an operator whose gradient formula is Python code; None when it is not.

    Both are None for a formula that was registered in a way that keeps the functions out of reach.
    """
    name = f"{op._namespace}::{op._opname}"
    definition = torch._library.custom_ops.OPDEFS.get(name)
    if definition is not None:
        setup, backward = definition._setup_context_fn, definition._backward_fn
        return (setup, backward) if backward is not None else None
    overload = "" if op._overloadname == "default" else f".{op._overloadname}"
    registered = f"{op._namespace}/{op._opname}{overload}/Autograd"
    return (None, None) if registered in torch.library._impls else None


def traceable_body(op: Any, devices: Iterable[str]) -> Any:
    """The Python function of an operator of torch.library.triton_op, which compilers may look into; None for others,
    and where one of the devices (their types) has a function of its own."""
    definition = torch._library.custom_ops.OPDEFS.get(f"{op._namespace}::{op._opname}")
    modes = getattr(definition, "_torch_dispatch_fns", {})
    if not any(mode.__name__ == "FunctionalTensorMode" for mode in modes):
        return None
    if any(device in definition._backend_fns for device in devices):
        return None
    outer = definition._init_fn  # newer versions of torch put a function around the program's
    own = outer.__module__ != "torch._library.triton"
    return outer if own else inspect.getclosurevars(outer).nonlocals["fn"]


@contextlib.contextmanager
def dispatch_state_kept() -> Iterator[None]:
    """Brings back this thread's dispatch key sets after an error.

    torch's transforms hold guards of those sets in local variables; the frames of an error's traceback keep the guards
    alive, which then put back what they saved, long after it was right (torch 2.13). Here the frames are cleared first.
    """
    include, exclude = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
    handled = sys.exc_info()[1]  # the program's: it is the context of what is raised here
    with torch._C._ForceDispatchKeyGuard(include, exclude):
        try:
            yield
        except Exception as error:
            link: BaseException | None = error
            while link is not None and link is not handled:
                traceback.clear_frames(link.__traceback__)
                link.__traceback__, link = None, link.__cause__ or link.__context__
            raise


profiler_enabled = torch.autograd._profiler_enabled


def attention_kernel_flags() -> list[tuple[Callable[[], bool], Callable[[bool], None]]]:
    """(reads, sets) for each kind of kernel that attention may use."""
    kinds = ("flash", "mem_efficient", "math", "cudnn", "overrideable")
    pairs = [
        (getattr(torch._C, f"_get_{k}_sdp_enabled", None), getattr(torch._C, f"_set_sdp_use_{k}", None)) for k in kinds
    ]
    return [(reads, sets) for reads, sets in pairs if reads is not None and sets is not None]
