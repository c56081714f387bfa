"""Calls: what to do with each kind of callable, and running a Python function in an interpreter of its own."""

from __future__ import annotations

import inspect
import types
from typing import TYPE_CHECKING, Any

from .. import torch_compat
from ..errors import Unsupported
from ..guards.checks import Is
from ..guards.source import AttrSource, ConstSource, FunctionPartSource, InstanceDictSource, ModuleSource
from ..torch_compat import peer
from ..variables.base import VariableTracker
from ..variables.builtin import BuiltinVariable
from ..variables.class_ import ClassVariable
from ..variables.function import FunctionVariable, NestedFunctionVariable, UserFunctionVariable
from ..variables.torch_function import TorchFunctionVariable
from ..variables.transform import TransformVariable
from ..variables.user_kernel import launch_of
from . import (  # noqa: F401
    associative_scan,
    attention_kernels,
    autograd_function,
    checkpoint,
    control_flow,
    copying,
    custom_ops,
    decoration,
    flex_attention,
    frames,
    host_calls,
    lazy_modules,
    library_calls,
    made_in_c,
    marked_calls,
    named_tuple_class,
    one_hot,
    optimizers,
    policy,
    promises,
    seeds,
    special_calls,
    traceback_text,
    transforms,
    weak_containers,
    wrapped_bodies,
)
from .breaks import TooDeep
from .policy import Verdict

if TYPE_CHECKING:
    from .interpreter import Interpreter

VT = VariableTracker

OPERATORS = (torch_compat.OpOverload, torch_compat.OpOverloadPacket)
MAX_DEPTH = 90  # each traced call takes about eight frames of Python's own stack
ASYNC = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def call_function(tx: Any, fn: VT, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """fn(*args, **kwargs) in the traced program."""
    marked = marked_calls.call(tx, fn, args, kwargs)
    if marked is not None:
        return marked
    if isinstance(fn, UserFunctionVariable):
        handler = special_calls.FUNCTIONS.get(fn.fn)
        if handler is not None:
            return handler(tx, args, kwargs)
        wrapper = special_calls.WRAPPERS.get(fn.code)
        if wrapper is not None:
            return wrapper(tx, fn, args, kwargs)
        answered = TorchFunctionVariable(fn.fn)
        if fn.fn.__module__ is not None and fn.fn.__module__.startswith("torch") and answered.is_answered():
            return answered.call(tx, args, kwargs)
        verdict = policy.function_verdict(fn.fn)
        if verdict is Verdict.GRAPH and (counted := peer.counted(fn.fn)) is not None:
            return call_function(tx, tx.wrap(counted, None, constant=True), args, kwargs)
        if verdict is Verdict.GRAPH:
            return TorchFunctionVariable(fn.fn).call(tx, args, kwargs)
        if verdict is Verdict.SKIP:
            transform = transforms.from_wrapper(tx, fn)
            if transform is not None:
                return transforms.apply(tx, transform, args, kwargs)
            launch = launch_of(tx, fn)
            if launch is not None:
                return launch.call(tx, args, kwargs)
            body = marked_calls.region_body(tx, fn)
            if body is not None:
                return call_function(tx, body, args, kwargs)
            original = getattr(fn.fn, "_torchdynamo_orig_callable", None)
            disabled = getattr(fn.fn, "_torchdynamo_disable", False) and not policy.marked_by_peer(fn.fn)
            if isinstance(original, (types.FunctionType, types.MethodType)) and not disabled:
                # what torch.compile made of a function: its own compiler has no place in a graph of ours
                return call_function(tx, fn.get_attr(tx, "_torchdynamo_orig_callable").realize(tx), args, kwargs)
            if policy.is_compiled_module_call(fn.fn):
                return call_function(tx, args[0].realize(tx).get_attr(tx, "_orig_mod").realize(tx), args[1:], kwargs)
            refuse_disabled(fn.fn)
            raise Unsupported(
                f"{fn.fn.__module__}.{fn.fn.__qualname__}() is not traced",
                remedy="call it outside the compiled function, or use what torch offers instead",
            )
    if isinstance(fn, TransformVariable):
        return transforms.apply(tx, fn, args, kwargs)
    if isinstance(fn, FunctionVariable):
        return run_function(tx, fn, args, kwargs)
    if isinstance(fn, (BuiltinVariable, ClassVariable, TorchFunctionVariable)):
        handler = special_calls.lookup(fn)
        if handler is not None:
            return handler(tx, args, kwargs)
    if isinstance(fn, TorchFunctionVariable) and isinstance(fn.fn, torch_compat.HigherOrderOperator):
        return control_flow.call(tx, fn.fn, args, kwargs)
    if isinstance(fn, TorchFunctionVariable) and isinstance(fn.fn, OPERATORS):
        result = custom_ops.call(tx, fn.fn, args, kwargs)
        if result is not None:
            return result
    return fn.call(tx, args, kwargs)


def is_run(fn: VT) -> bool:
    """Whether a call runs the function's own code, rather than what stands for it."""
    if not isinstance(fn, UserFunctionVariable):
        return isinstance(fn, FunctionVariable)
    if fn.fn in special_calls.FUNCTIONS or fn.code in special_calls.WRAPPERS:
        return False
    return policy.function_verdict(fn.fn) is Verdict.INLINE and not TorchFunctionVariable(fn.fn).is_answered()


def refuse_disabled(fn: types.FunctionType) -> None:
    """Raise Unsupported for a function that the program keeps out of graphs, with the reason that it gave."""
    reason = policy.disabled_reason(fn)
    if reason is not None:
        raise Unsupported(
            f"{fn.__qualname__}() is kept out of graphs: {reason}",
            remedy="remove the mark, or call it outside the compiled function",
        )


def run_function(tx: Any, fn: FunctionVariable, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """Run a Python function's code; a generator function gives a generator that has not started."""
    if fn.code.co_flags & ASYNC:
        raise Unsupported("async code is not traced", remedy="compile the functions it calls")
    bound = fn.bind(tx, args, kwargs)
    trace = tx.trace
    if trace.depth >= MAX_DEPTH:
        raise TooDeep(
            f"calls are nested more than {MAX_DEPTH} deep", remedy="compile a function further down the call chain"
        )
    child = make_interpreter(tx, fn, bound)
    if isinstance(fn, UserFunctionVariable) and not policy.is_trusted(fn.fn.__module__ or ""):
        source = fn.source if fn.source is not None else ConstSource(fn.fn)
        tx.guard(FunctionPartSource(source, "code"), Is(fn.code))
    trace.inlined.add(fn.code)
    if fn.code.co_flags & inspect.CO_GENERATOR:
        from .generators import GeneratorVariable

        return GeneratorVariable(child)
    trace.depth += 1
    try:
        return child.run()
    finally:
        trace.depth -= 1


def make_interpreter(tx: Any, fn: FunctionVariable, bound: dict[str, VT]) -> Interpreter:
    """An interpreter at the start of the function."""
    namespace = fn.globals_dict()
    root = tx.root()
    source = (
        None if namespace is root.globals_dict and root.globals_source is None else globals_source(tx, fn, namespace)
    )
    return tx.new_interpreter(tx.trace, fn.code, namespace, source, bound, fn.closure_cells(tx), function=fn)


def globals_source(tx: Any, fn: FunctionVariable, namespace: dict[str, Any]) -> Any:
    """How the frame reaches the globals of a function from another module."""
    import sys

    if isinstance(fn, NestedFunctionVariable):
        return fn.load_globals
    module = sys.modules.get(namespace.get("__name__", ""))
    if isinstance(module, types.ModuleType) and module.__dict__ is namespace:
        return InstanceDictSource(ModuleSource(module.__name__))
    if fn.source is not None:
        return AttrSource(fn.source, "__globals__")
    return special_calls.constant_source(namespace)
