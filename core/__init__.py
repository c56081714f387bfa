"""core makes unmodified PyTorch programs faster. Names are loaded on first use: importing core imports no torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_EXPORTS = {
    **dict.fromkeys(
        "compile optimize disable reset explain stats list_backends set_default_backend get_default_backend "
        "compile_module_ capture_program unload_backend refresh save_cache_artifacts load_cache_artifacts "
        "load_compiled_function set_enable_guard_collectives".split(),
        "api",
    ),
    **dict.fromkeys(("is_compiling", "is_dynamo_compiling", "is_exporting"), "options"),
    **dict.fromkeys(
        "mark_dynamic maybe_mark_dynamic mark_static mark_unbacked assume_constant_result allow_in_graph "
        "substitute_in_graph nested_compile_region".split(),
        "marks",
    ),
    **dict.fromkeys(
        "skip_all_guards_unsafe skip_guard_on_globals_unsafe skip_guard_on_inbuilt_nn_modules_unsafe "
        "skip_guard_on_all_nn_modules_unsafe keep_tensor_guards_unsafe keep_portable_guards_unsafe".split(),
        "guards.filter",
    ),
    "wrap_numpy": "capture.polyfills.numpy_function",
    "config": "settings",
    "set_stance": "stance",
    "cudagraph_mark_step_begin": "step",
    "CompileOptions": "options",
    "CoreError": "errors",
    "Unsupported": "errors",
    "RecompileLimit": "errors",
    "RecompileRefused": "errors",
    "ConstraintViolated": "errors",
    "UnknownSetting": "errors",
    "InvalidOption": "errors",
    "BackendError": "errors",
    "BackendNotInstalled": "errors",
    "AmbiguousBackend": "errors",
    "BackendIncompatible": "errors",
    "BackendUnavailable": "errors",
    "BackendBroken": "errors",
    "BackendFailed": "errors",
    "BackendMisbehaved": "errors",
}

if TYPE_CHECKING:
    from .api import capture_program as capture_program
    from .api import compile as compile
    from .api import compile_module_ as compile_module_
    from .api import disable as disable
    from .api import explain as explain
    from .api import get_default_backend as get_default_backend
    from .api import list_backends as list_backends
    from .api import load_cache_artifacts as load_cache_artifacts
    from .api import load_compiled_function as load_compiled_function
    from .api import optimize as optimize
    from .api import refresh as refresh
    from .api import reset as reset
    from .api import save_cache_artifacts as save_cache_artifacts
    from .api import set_default_backend as set_default_backend
    from .api import set_enable_guard_collectives as set_enable_guard_collectives
    from .api import stats as stats
    from .api import unload_backend as unload_backend
    from .capture.polyfills.numpy_function import wrap_numpy as wrap_numpy
    from .errors import BackendError as BackendError
    from .errors import CoreError as CoreError
    from .errors import Unsupported as Unsupported
    from .guards.filter import keep_portable_guards_unsafe as keep_portable_guards_unsafe
    from .guards.filter import keep_tensor_guards_unsafe as keep_tensor_guards_unsafe
    from .guards.filter import skip_all_guards_unsafe as skip_all_guards_unsafe
    from .guards.filter import skip_guard_on_all_nn_modules_unsafe as skip_guard_on_all_nn_modules_unsafe
    from .guards.filter import skip_guard_on_globals_unsafe as skip_guard_on_globals_unsafe
    from .guards.filter import skip_guard_on_inbuilt_nn_modules_unsafe as skip_guard_on_inbuilt_nn_modules_unsafe
    from .marks import allow_in_graph as allow_in_graph
    from .marks import assume_constant_result as assume_constant_result
    from .marks import mark_dynamic as mark_dynamic
    from .marks import mark_static as mark_static
    from .marks import mark_unbacked as mark_unbacked
    from .marks import maybe_mark_dynamic as maybe_mark_dynamic
    from .marks import nested_compile_region as nested_compile_region
    from .marks import substitute_in_graph as substitute_in_graph
    from .options import CompileOptions as CompileOptions
    from .options import is_compiling as is_compiling
    from .options import is_dynamo_compiling as is_dynamo_compiling
    from .options import is_exporting as is_exporting
    from .settings import config as config
    from .stance import set_stance as set_stance
    from .step import cudagraph_mark_step_begin as cudagraph_mark_step_begin


def __getattr__(name: str) -> Any:
    if name == "capture":
        return import_module(".capture", __name__)  # a package that can be called
    module = _EXPORTS.get(name)
    if module is None:
        raise AttributeError(f"module 'core' has no attribute {name!r}")
    value = getattr(import_module(f".{module}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS, "capture"})
