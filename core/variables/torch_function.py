"""TorchFunctionVariable: a callable of torch. Most calls become one node of the graph; some are answered at once."""

from __future__ import annotations

import types
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from .. import torch_compat
from ..errors import Unsupported
from . import array, function_mode, number_tensor, tensor_scalar, tensor_subclass, tensor_truth, wrapper_class
from .answers import guard_state
from .base import InheritedMethodVariable, VariableTracker

if TYPE_CHECKING:
    from .protocols import Emitter, Tracer

VT = VariableTracker


def resolve(names: str) -> frozenset[Any]:
    """The objects behind dotted names of torch; names that this torch lacks are left out."""
    found = []
    for name in names.split():
        value: Any = torch
        for part in name.split(".")[1:]:
            value = getattr(value, part, None)
            if value is None:
                break
        if value is not None and callable(value):
            found.append(value)
    return frozenset(found)


# Answered while tracing, from constants and from state that the global-state guard holds.
ANSWERED = resolve(
    "torch.is_grad_enabled torch.is_inference_mode_enabled torch.get_default_dtype torch.get_default_device "
    "torch.is_autocast_enabled torch.get_autocast_dtype torch.is_autocast_cache_enabled torch.get_autocast_gpu_dtype "
    "torch.get_autocast_cpu_dtype torch.is_autocast_cpu_enabled torch.are_deterministic_algorithms_enabled "
    "torch.is_deterministic_algorithms_warn_only_enabled torch.get_num_threads torch.get_float32_matmul_precision "
    "torch.cuda.is_available torch.cuda.device_count torch.cuda.is_initialized torch.cuda.current_device "
    "torch.cuda.get_device_capability torch.cuda.get_device_properties torch.xpu.is_available torch.mps.is_available "
    "torch.backends.cuda.flash_sdp_enabled torch.backends.cuda.math_sdp_enabled torch.backends.mps.is_available "
    "torch.backends.cuda.mem_efficient_sdp_enabled torch.backends.mkldnn.is_available torch.backends.mps.is_built "
    "torch.backends.cudnn.is_available torch.backends.cudnn.is_acceptable torch.distributed.is_available "
    "torch.distributed.is_initialized torch.finfo torch.iinfo torch.device torch.promote_types torch.can_cast "
    "torch.broadcast_shapes torch.typename torch.is_warn_always_enabled torch.accelerator.is_available "
    "torch.is_anomaly_enabled torch.is_anomaly_check_nan_enabled torch.get_num_interop_threads "
    "torch._C._is_multithreading_enabled "
    "torch.accelerator.current_accelerator torch.accelerator.device_count torch.memory_format "
    "torch.overrides.is_tensor_like torch.autograd._is_checkpoint_valid "
    "torch._C._get_cublas_allow_tf32 torch._C._get_cublas_allow_fp16_accumulation torch._C._get_cudnn_allow_tf32 "
    "torch._C._get_cublas_allow_fp16_reduced_precision_reduction torch._C._get_cudnn_benchmark "
    "torch._C._get_cublas_allow_bf16_reduced_precision_reduction torch._C._get_cudnn_deterministic "
    "torch._C._get_cudnn_enabled torch._C._get_cudnn_sdp_enabled torch._C._get_flash_sdp_enabled "
    "torch._C._get_math_sdp_enabled torch._C._get_mem_efficient_sdp_enabled torch._C._get_deterministic_algorithms "
    "torch._C._get_mkldnn_enabled torch._C._get_mkldnn_deterministic torch._C._get_nnpack_enabled "
    "torch._C._get_float32_matmul_precision torch._C._get_fp32_precision_getter"
)
# Of these: what no global-state guard holds.
PROCESS_STATE = resolve(
    "torch.get_num_threads torch.is_warn_always_enabled torch.is_anomaly_enabled torch.is_anomaly_check_nan_enabled "
    "torch.cuda.is_initialized torch.cuda.current_device torch.distributed.is_initialized "
    "torch._C._is_multithreading_enabled torch.autograd.is_multithreading_enabled torch.get_num_interop_threads"
)
QUESTIONS = ("get", "is_", "are_", "has")  # how the names of functions begin that tell a setting and change none
# Metadata questions: answered from the fake tensor.
METADATA = resolve(
    "torch.is_tensor torch.is_floating_point torch.is_complex torch.is_signed torch.is_conj torch.is_neg "
    "torch.is_inference torch.is_storage torch.result_type torch.is_same_size "
    "torch.overrides.is_tensor_method_or_property"
)
TRUE = resolve("torch.compiler.is_compiling torch.compiler.is_dynamo_compiling torch._utils.is_compiling")
FALSE = resolve(
    "torch.jit.is_scripting torch.jit.is_tracing torch._C._get_tracing_state torch.onnx.is_in_onnx_export "
    "torch.compiler.is_exporting torch._C._is_tracing torch.jit._trace.is_tracing torch._jit_internal.is_scripting "
    "torch.fx._symbolic_trace.is_fx_tracing torch.fx._symbolic_trace.is_fx_symbolic_tracing"
)
# True where an operand's class takes over torch's functions. The first takes one iterable, the others the operands.
OVERRIDDEN = resolve(
    "torch.overrides.has_torch_function torch.overrides.has_torch_function_unary "
    "torch.overrides.has_torch_function_variadic torch._C._has_torch_function torch._C._has_torch_function_unary "
    "torch._C._has_torch_function_variadic"
)
OVERRIDDEN_OF_ITERABLE = resolve("torch.overrides.has_torch_function torch._C._has_torch_function")
SETTERS = ("set_", "reset_", "clear_", "enable_", "disable_", "use_")
"""How the names begin of functions that change a setting."""
NOTHING = resolve("torch._C._log_api_usage_once torch.compiler.cudagraph_mark_step_begin")
# Functions of the peer that user code calls, and of modules that few programs import; known by name, so that nothing
# of them is imported.
NAMED_TRUE = frozenset(
    (
        "torch._dynamo.external_utils.is_compiling",
        "torch._dynamo.eval_frame.is_compiling",
        "torch.distributed._functional_collectives._are_we_tracing",
    )
)
NAMED_NOTHING = frozenset(
    f"torch._dynamo.decorators.{name}"
    for name in "mark_static_address mark_static mark_dynamic maybe_mark_dynamic mark_unbacked".split()
)
NAMED_BREAKS = frozenset(("torch._dynamo.decorators.graph_break",))
BREAKS: dict[Any, tuple[str, str]] = {
    fn: (f"{name}() is not part of a graph", remedy)
    for names, remedy in (
        (
            "torch.manual_seed torch.seed torch.set_rng_state torch.get_rng_state torch.initial_seed "
            "torch.cuda.manual_seed torch.cuda.manual_seed_all torch.random.manual_seed torch.random.fork_rng",
            "change the generator outside the compiled function",
        ),
        (
            "torch.save torch.load torch.compile torch.jit.script torch.jit.trace torch.set_num_threads "
            "torch.set_default_device torch.use_deterministic_algorithms "
            "torch.set_float32_matmul_precision torch.set_printoptions torch.from_numpy torch.frombuffer "
            "torch.from_file "
            "torch.quantize_per_tensor torch.quantize_per_channel "
            "torch.quantize_per_tensor_dynamic torch.cuda.synchronize "
            "torch.cuda.empty_cache "
            "torch.utils.data.get_worker_info",
            "call it outside the compiled function",
        ),
    )
    for name in names.split()
    for fn in resolve(name)
}


# Given the batch first they turn their result in place, which a gradient can't be recorded through.
TURNED_IN_PLACE = resolve("torch.gru torch.rnn_tanh torch.rnn_relu")


# Kernels made of other operations, to which autocast applies when they run.
CASTING_INSIDE = resolve("torch._transformer_encoder_layer_fwd torch._native_multi_head_attention")


class TorchFunctionVariable(VariableTracker):
    """A function, method descriptor or operator of torch."""

    kind = "torch_function"

    def __init__(self, fn: Callable[..., Any], source: Any = None) -> None:
        super().__init__(source)
        self.fn = fn

    def python_type(self) -> type:
        return type(self.fn)

    def as_python_object(self) -> Any:
        return self.fn

    def truth(self, tx: Tracer) -> bool:
        return True

    def hash_key(self, tx: Tracer) -> Hashable:
        return self.fn

    def describe(self) -> str:
        module = getattr(self.fn, "__module__", None) or "torch"
        return f"{module}.{getattr(self.fn, '__name__', type(self.fn).__name__)}"

    def get_attr(self, tx: Tracer, name: str) -> VT:
        if not hasattr(self.fn, name):
            tx.raise_exception(AttributeError, f"'{type(self.fn).__name__}' object has no attribute '{name}'")
        value = getattr(self.fn, name)
        if name in ("__name__", "__qualname__", "__module__", "__doc__"):
            return tx.constant(value)
        if isinstance(value, types.BuiltinFunctionType) and value.__self__ is self.fn:
            return InheritedMethodVariable(self, name)
        return tx.wrap(value, None, constant=True)

    def call(self, tx: Tracer, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        fn = self.fn
        if tx.trace.function_modes and (function_mode.parses_arguments(fn) or not self._ignores_classes()):
            return function_mode.dispatch(tx, self, args, kwargs)
        if any(arg.kind == "tensor_subclass" for arg in (*args, *kwargs.values())) and not self._ignores_classes():
            return tensor_subclass.dispatch(tx, self, args, kwargs)
        if fn in array.CONVERTERS and args and args[0].realize(tx).kind == "ndarray":
            return array.to_tensor(tx, fn, args, kwargs)
        if fn in number_tensor.MAKERS and args:
            made = number_tensor.of_numbers(tx, args, kwargs)
            if made is not None:
                return made
        if fn is torch.tensor or self.kind == "class":
            made = array.of_numbers(tx, fn, args, kwargs)
            if made is not None:
                return made
        if not isinstance(fn, types.MethodType) and fn in BREAKS:
            reason, remedy = BREAKS[fn]
            raise Unsupported(reason, remedy=remedy)
        if not isinstance(fn, types.MethodType) and fn in CASTING_INSIDE and _autocast_is_on():
            raise Unsupported(
                f"{self.describe()} calls operations that autocast casts, out of sight of the record",
                remedy="run the module in training mode, or leave autocast for the call",
            )
        answer = self._answer(tx, args, kwargs)
        if answer is not None:
            return answer
        if isinstance(fn, (types.MethodDescriptorType, types.WrapperDescriptorType)) and args:
            receiver = args[0].realize(tx)
            if receiver.kind == "tensor":
                return receiver.call_method(tx, fn.__name__, list(args[1:]), kwargs)
        if isinstance(fn, types.GetSetDescriptorType):
            raise self.refuse("a call")
        if fn in TURNED_IN_PLACE and len(args) == 9 and not kwargs and args[2].realize(tx).kind != "tensor":
            return self._time_first(tx, list(args))
        if isinstance(fn, types.BuiltinFunctionType) and tensor_scalar.takes_number(fn.__name__, kwargs):
            rewritten = tensor_scalar.rewrite(tx, fn.__name__, args, kwargs)
            if rewritten is not None:
                return rewritten
        if self._sets_state(tx, args, kwargs):
            raise Unsupported(
                f"{self.describe()}() changes a setting of the process", remedy="call it outside the compiled function"
            )
        result = tx.graph_call(fn, args, kwargs)
        if result.is_constant() and getattr(fn, "__name__", "").lstrip("_").startswith(QUESTIONS):
            self._guard_state(tx, args, kwargs, result)
        return result

    def _sets_state(self, tx: Tracer, args: Sequence[VT], kwargs: dict[str, VT]) -> bool:
        """True for a function that, by its name, changes what is not among its arguments: no graph repeats that."""
        fn = self.fn
        if not isinstance(fn, (types.FunctionType, types.BuiltinFunctionType)):
            return False
        if not fn.__name__.lstrip("_").startswith(SETTERS):
            return False
        given = [arg.realize(tx) for arg in (*args, *kwargs.values())]
        return all(arg.is_constant() or arg.kind == "user_object" for arg in given)

    def _guard_state(self, tx: Tracer, args: Sequence[VT], kwargs: dict[str, VT], result: VT) -> None:
        """A question without tensors is one about a setting."""
        values = [arg.realize(tx) for arg in args]
        if not kwargs and all(value.is_constant() for value in values):
            guard_state(tx, self.fn, [value.as_constant() for value in values], result.as_constant())

    def _time_first(self, tx: Tracer, args: list[VT]) -> VT:
        """A recurrent layer on [batch, time, ...] as one on [time, batch, ...] between two transpositions."""
        batch_first = args.pop().realize(tx)
        if not (batch_first.is_constant() and batch_first.as_constant()):
            return tx.graph_call(self.fn, [*args, tx.constant(False)], {})
        swap = [tx.constant(0), tx.constant(1)]
        turned = tx.graph_method("transpose", [args[0].realize(tx), *swap], {})
        output, state = tx.graph_call(self.fn, [turned, *args[1:], tx.constant(False)], {}).unpack(tx)
        return tx.new_tuple([tx.graph_method("transpose", [output, *swap], {}), state])

    def _ignores_classes(self) -> bool:
        """True for a function that no class with a __torch_function__ is asked about."""
        fn = self.fn
        return fn in torch.overrides.get_ignored_functions() or any(
            fn in group for group in (ANSWERED, TRUE, FALSE, OVERRIDDEN, NOTHING, BREAKS)
        )

    def is_answered(self) -> bool:
        """True for functions that have an answer or a reason to break of their own, whatever module they stand in."""
        fn = self.fn
        name = f"{fn.__module__}.{fn.__name__}"
        named = name in NAMED_TRUE or name in NAMED_NOTHING or name in NAMED_BREAKS
        return named or any(fn in group for group in (ANSWERED, METADATA, TRUE, FALSE, OVERRIDDEN, NOTHING, BREAKS))

    def _answer(self, tx: Tracer, args: Sequence[VT], kwargs: dict[str, VT]) -> VT | None:
        fn = self.fn
        try:
            hash(fn)
        except TypeError:
            return None
        name = f"{getattr(fn, '__module__', '')}.{getattr(fn, '__name__', '')}"
        if name in NAMED_BREAKS:
            raise Unsupported("the program asks for a graph break here", remedy="remove the call to keep one graph")
        if fn in TRUE or name in NAMED_TRUE:
            # an optimizer has another way of computing its step for compilers, and a module does without the hooks that
            # are always called; eager's way is traced
            return tx.constant(not tx.module_name.startswith(("torch.optim", "torch.nn.modules.module")))
        if fn in FALSE:
            return tx.constant(None if fn is torch._C._get_tracing_state else False)
        if fn is torch._C._is_torch_function_enabled and tx.trace.functions_off:
            return tx.constant(False)
        if fn is torch_compat.dispatch_stack_length:
            return tx.constant(0)  # frames under a mode of the user's are not captured, so none of theirs stands
        if fn in OVERRIDDEN:
            operands = args[0].unpack(tx) if fn in OVERRIDDEN_OF_ITERABLE else args
            return tx.constant(
                function_mode.is_asked(tx)
                or not tx.trace.functions_off
                and any(tensor_subclass.class_takes_over(operand.realize(tx).python_type()) for operand in operands)
            )
        if fn is torch.get_default_device and function_mode.default_device(tx) is not None:
            return function_mode.default_device(tx)
        if fn in NOTHING or name in NAMED_NOTHING:
            return tx.constant(None)
        if fn in tensor_truth.QUESTIONS:
            return tensor_truth.ask(tx, fn, args, kwargs)
        if fn in METADATA:
            return self._metadata(tx, args, kwargs)
        if fn in ANSWERED and all(arg.is_constant() for arg in (*args, *kwargs.values())):
            values = [arg.look_inside(tx).as_constant() for arg in args]
            keywords = {key: value.look_inside(tx).as_constant() for key, value in kwargs.items()}
            answer = tx.answer(fn, values, keywords)
            if fn in PROCESS_STATE and not keywords:
                guard_state(tx, fn, values, answer)
            return tx.wrap(answer, None, constant=True)
        if fn is torch.numel and args and args[0].realize(tx).kind == "tensor":
            return args[0].realize(tx).call_method(tx, "numel", [], {})
        return None

    def _metadata(self, tx: Tracer, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        def known(arg: VT) -> Any:
            arg = arg.realize(tx)
            return arg.value.fake if arg.kind == "tensor" else arg.look_inside(tx).as_constant()  # type: ignore[attr-defined]

        if self.fn is torch.is_tensor:
            return tx.constant(issubclass(args[0].realize(tx).python_type(), torch.Tensor))
        values, keywords = [known(arg) for arg in args], {key: known(value) for key, value in kwargs.items()}
        return tx.graph_result(tx.run_on_fakes(self.fn, values, keywords), derived=True)

    def reconstruct(self, emit: Emitter) -> None:
        emit.load_global_object(self.fn)


class TorchClassVariable(TorchFunctionVariable):
    """A class of torch whose objects a graph can make: Tensor, Size, device, dtype."""

    kind = "class"

    def __init__(self, cls: type, source: Any = None) -> None:
        super().__init__(cls, source)
        self.cls = cls

    def as_constant(self) -> Any:
        return self.cls

    def call(self, tx: Tracer, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        if self.cls is torch.Size and len(args) == 1 and not kwargs:
            sizes = [item.realize(tx) for item in args[0].realize(tx).unpack(tx)]
            if all(size.kind == "symbolic" or size.python_type() is int for size in sizes):
                return tx.new_tuple(sizes, torch.Size)
        if issubclass(self.cls, torch.Tensor) and wrapper_class.has_own_dispatch(self.cls):
            wrapper_class.check_class(tx, self.cls)
        elif issubclass(self.cls, torch.Tensor) and not self.cls.__module__.startswith("torch."):
            made = tensor_subclass.made_of(tx, self, args, kwargs)
            if made is not None:
                return made
        return super().call(tx, args, kwargs)


class CustomOperatorVariable(TorchFunctionVariable):
    """What torch.library.custom_op made of a function: a call runs its operator."""

    def __init__(self, definition: Any, operator: Any, source: Any = None) -> None:
        super().__init__(operator, source)
        self.definition = definition

    def python_type(self) -> type:
        return type(self.definition)

    def reconstruct(self, emit: Emitter) -> None:
        emit.load_global_object(self.definition)


def _autocast_is_on() -> bool:
    return torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")
