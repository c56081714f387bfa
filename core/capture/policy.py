"""What tracing does with a callable it meets: rules as data.

Enters: a function, class or C callable. Leaves: a Verdict. The first rule that matches decides. This file must not
know trackers or the interpreter.
"""

from __future__ import annotations

import builtins
import collections
import functools
import importlib
import itertools
import math
import operator
import sys
import types
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch

from ..bytecode.decode import decode
from ..errors import Unsupported


class Verdict(Enum):
    """inline: trace into it; graph: one node; builtin: a tracker answers; skip: plain Python runs it (a break)."""

    INLINE = "inline"
    GRAPH = "graph"
    BUILTIN = "builtin"
    SKIP = "skip"


@dataclass(frozen=True)
class Rule:
    """Modules that start with one of `prefixes` get `verdict`."""

    verdict: Verdict
    prefixes: tuple[str, ...]


# Python functions of torch. Longer prefixes stand before shorter ones.
TORCH_RULES = (
    Rule(
        Verdict.INLINE,
        (
            "torch.nn.modules",
            "torch.nn.parameter",
            "torch.nn.utils",
            "torch.nn.attention",
            "torch.backends",
            "torch.utils._pytree",
            "torch.utils._contextlib",
            "torch.utils._python_dispatch",
            "torch.utils.hooks",
            "torch.utils.data.dataset",
            "torch.utils.data.sampler",
            "torch._jit_internal",
            "torch.distributions",
            "torch.nn.init",
            "torch.ao.nn",
            "torch.amp.autocast_mode",
            "torch.backends",
            "torch.utils.checkpoint",
            "torch._functorch.functional_call",
            "torch.autograd.functional",
            "torch._higher_order_ops.map",
            "torch._higher_order_ops.scan",
            "torch.optim",
            "torch.utils._foreach_utils",
            "torch.testing._comparison",
            "torch.amp.grad_scaler",
            "torch.distributed._functional_collectives",
            "torch._dynamo.external_utils",  # what graphs of compiled autograd call
            "torch._dynamo.polyfills",
        ),
    ),
    Rule(
        Verdict.SKIP,
        (
            "torch._dynamo.eval_frame",
            "torch._dynamo.decorators",
            "torch.compiler",
            "torch._inductor",
            "torch.fx",
            "torch.jit",
            "torch.utils.data",
            "torch.profiler",
            "torch.distributed",
            "torch.multiprocessing",
            "torch.export",
            "torch.package",
            "torch.serialization",
            "torch.testing",
            "torch._functorch",
            "torch.func",
            "torch.autograd",
        ),
    ),
    Rule(Verdict.GRAPH, ("torch",)),
)

# Python functions that are unlike the rest of their module: what they do with a value is plain Python.
INLINED_FUNCTIONS = frozenset(
    (
        "torch.distributed.distributed_c10d._WorldMeta.WORLD",
        "torch.distributed.distributed_c10d._World.default_pg",
        "torch.distributed.distributed_c10d._get_default_group",
        "torch.distributed.distributed_c10d._World.pg_group_ranks",
        "torch.distributed.distributed_c10d._get_group_size",
        "torch.distributed.distributed_c10d._get_group_size_by_name",
        "torch.distributed.distributed_c10d.get_process_group_ranks",
        "torch.distributed.distributed_c10d._rank_not_in_group",
        "torch.distributed.distributed_c10d.get_rank",
        "torch.distributed.distributed_c10d.get_world_size",
        "torch.distributed.distributed_c10d.get_group_rank",
        "torch.distributed.distributed_c10d.is_initialized",
        "core.graph.hook_region.hooked.<locals>.run",  # a hook that an earlier capture has traced
        "torch.autograd.function.FunctionCtx.mark_dirty",
        "torch.autograd.function.FunctionCtx.mark_non_differentiable",
        "torch.autograd.function.FunctionCtx.save_for_backward",
        "torch.autograd.function.FunctionCtx.set_materialize_grads",
        "torch.jit.annotate",
        "torch.jit._script._unwrap_optional",
        "torch.distributed.fsdp._flat_param._same_storage_size",
        "torch.jit._trace._script_if_tracing.<locals>.wrapper",
        "torch._dynamo.eval_frame.OptimizedModule.__getattr__",
        "torch.fx.experimental.symbolic_shapes.guard_size_oblivious",
        "torch.fx.experimental.symbolic_shapes.guard_or_false",
        "torch.fx.experimental.symbolic_shapes.guard_or_true",
        "torch.fx.experimental.symbolic_shapes.statically_known_true",
    )
)

# Standard-library modules whose Python code tracing enters like user code.
INLINED_STDLIB = frozenset(
    "os posixpath genericpath contextlib inspect functools collections collections.abc copy dataclasses enum typing "
    "types abc operator numbers _collections_abc _py_abc bisect heapq string statistics fractions keyword "
    "reprlib pathlib textwrap argparse unittest.case unittest.util".split()
)
TRACED_BUILTIN_MODULES = (builtins, operator, math, itertools, functools, collections)
POLYFILLS = "core.capture.polyfills"
SKIPPED_PACKAGES = (
    "core",
    "core_inductor",
    "typing_extensions",
    "numpy",
    "pluggy",
    "sympy",
    "tqdm",
    "triton",
    "pytest",
    "_pytest",
    "unittest",
)


OPERATORS = (torch._ops.OpOverload, torch._ops.OpOverloadPacket, torch._ops.HigherOrderOperator)


PEER_NAMES = ("__compiled_fn_", "__resume_at_")  # what the code that torch.compile makes calls


PEER_FRAMES = "torch._dynamo.eval_frame"
PEER_REGION = "__marked_compile_region_fn__"  # set by torch.compiler.nested_compile_region


OWN_OF_MODULES = ("torch.nn.modules.module", "torch.nn.modules._functions")  # the latter: what autograd calls


# Whatever an import runs (module bodies, finders, decorators at the top of a module) happens once and is left alone.
QUIET_CODE = tuple(
    getattr(importlib._bootstrap, name).__code__ for name in ("_find_and_load", "_handle_fromlist", "_gcd_import")
)


COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>")


DEPRECATIONS = ("typing_extensions", "warnings")  # their wrapper of a function: a warning, and the function


def is_stdlib(module: str) -> bool:
    """True for modules of the standard library."""
    return module.partition(".")[0] in sys.stdlib_module_names


def is_trusted(module: str) -> bool:
    """True for modules of torch, of the standard library and of core's own: what importing them does is no secret."""
    root = module.partition(".")[0]
    return root == "torch" or module.startswith(POLYFILLS) or root in sys.stdlib_module_names and module != "__main__"


def disabled_reason(fn: types.FunctionType) -> str | None:
    """Why the program keeps a function out of graphs (core.disable, torch.compiler.disable); None when it does not."""
    marks = fn.__dict__
    if marks.get("_core_disable"):
        return str(marks["_core_disable"])
    if marks.get("_torchdynamo_disable"):
        return str(marks.get("_torchdynamo_disable_msg") or "disabled by torch.compiler.disable")
    return None


def marked_by_peer(fn: types.FunctionType) -> bool:
    """True for a part of torch's optimizers that torch's own compiler, once used, keeps out of its graphs."""
    reason = str(fn.__dict__.get("_torchdynamo_disable_msg"))
    return fn.__module__.startswith("torch.optim.") and reason.startswith("optimizer <class 'torch.optim.")


def keeps_out_only_itself(fn: types.FunctionType) -> bool:
    """True for a disabled function whose callees may be captured (recursive=False)."""
    marks = fn.__dict__
    return marks.get("_torchdynamo_disable_recursive") is False or bool(marks.get("_core_disable_alone"))


def is_disabling_wrapper(code: types.CodeType, globals_dict: dict[str, Any]) -> bool:
    """True for the wrapper that torch.compiler.disable makes: what it calls is not captured either."""
    return globals_dict.get("__name__") == PEER_FRAMES and code.co_qualname.startswith("DisableContext.")


def is_compiled_module_call(fn: types.FunctionType) -> bool:
    """True for the method through which what torch.compile made of a module is called."""
    return fn.__module__ == PEER_FRAMES and fn.__qualname__ == "OptimizedModule.__call__"


def function_verdict(fn: types.FunctionType) -> Verdict:
    """What to do with a Python function."""
    if "_core_entry" in fn.__dict__:
        return Verdict.INLINE  # through which a compiled module is entered
    if disabled_reason(fn) is not None or PEER_REGION in fn.__dict__:
        return Verdict.SKIP
    module = fn.__module__ or ""
    owner = fn.__globals__.get("__name__", module) or module
    if owner == "torch._compile" and hasattr(fn, "__wrapped__"):
        return function_verdict(fn.__wrapped__)  # a function of torch that torch.compile is kept out of
    root = owner.partition(".")[0]
    if root in ("torch", "core") and f"{owner}.{fn.__code__.co_qualname}" in INLINED_FUNCTIONS:
        return Verdict.INLINE
    if root == "torch":
        return _torch_verdict(owner)
    if owner in INLINED_STDLIB or owner in DEPRECATIONS and "__deprecated__" in fn.__dict__:
        return Verdict.INLINE
    if owner == "triton":  # arithmetic for grids; kernels are no functions
        return Verdict.INLINE
    if root in SKIPPED_PACKAGES and not owner.startswith(POLYFILLS):
        return Verdict.SKIP
    if root in sys.stdlib_module_names and owner != "__main__":
        return Verdict.INLINE if owner in INLINED_STDLIB else Verdict.SKIP
    return Verdict.INLINE


def _torch_verdict(module: str) -> Verdict:
    for rule in TORCH_RULES:
        if any(module == prefix or module.startswith(prefix + ".") for prefix in rule.prefixes):
            return rule.verdict
    return Verdict.GRAPH


def code_is_skipped(code: types.CodeType, globals_dict: dict[str, Any]) -> str | None:
    """Why a frame that the hook met runs in plain Python, None when it may be captured."""
    module = globals_dict.get("__name__", "") or ""
    root = module.partition(".")[0]
    if root == "torch" and (not module.startswith("torch.nn.modules") or module in OWN_OF_MODULES):
        return "torch's own code"  # Module.__call__ too: all modules share its code, and each would want entries there
    if root in SKIPPED_PACKAGES or not root and _is_made_by_triton(globals_dict):
        return f"code of {root or 'triton'}"
    if root in sys.stdlib_module_names and module != "__main__":
        return "standard library"
    if root in ("importlib", "_frozen_importlib", "_distutils_hack"):
        return "the import system"
    if any(name.startswith(PEER_NAMES) for name in code.co_names):
        return "made by torch.compile"
    if module.startswith("namedtuple_"):
        return "made by collections.namedtuple"
    if code.co_name in ("<module>", "__del__") or code.co_filename.startswith("<frozen"):
        return "module or finaliser code"
    return None


def _is_made_by_triton(namespace: dict[str, Any]) -> bool:
    """True for the namespace, which names no module, of the code that binds the arguments of a launch."""
    return any((getattr(value, "__module__", None) or "").startswith("triton.") for value in namespace.values())


def is_comprehension(code: types.CodeType) -> bool:
    """True for the code of a comprehension that CPython calls as a function (before 3.12)."""
    return code.co_name in COMPREHENSIONS


def is_torch_callable(value: Any) -> bool:
    """True for C callables of torch: builtin functions, method descriptors, op overloads."""
    if issubclass(type(value), OPERATORS):  # isinstance() would ask the object for its class
        return True
    if isinstance(value, types.BuiltinFunctionType):
        module = value.__module__ or ""
        owner = type(value.__self__).__module__ if value.__self__ is not None else ""
        return module.startswith("torch") or owner.startswith("torch") or value.__self__ in TORCH_NAMESPACES
    if isinstance(value, (types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType)):
        owner = value.__objclass__
        return issubclass(owner, torch._C.TensorBase) or owner.__module__.startswith("torch")
    return False


TORCH_NAMESPACES = (torch._C._nn, torch._C._fft, torch._C._linalg, torch._C._special, torch._C._VariableFunctions)


def refuse_code(code: types.CodeType) -> None:
    """Raise Unsupported for code whose frames can't be split: `except*` keeps the group being handled in the frame."""
    if any(instruction.opname == "CHECK_EG_MATCH" for instruction in decode(code).instructions):
        raise Unsupported("except* is not traced", remedy="use except, or call the function outside the compiled one")
