"""Names, the process and torch's own state changed between calls: a program that reads them is compiled anew."""

from __future__ import annotations

import builtins
import locale
import os
import random
import sys
import time
import types

import pytest
import torch
from mutations import check_mutation, wishes

X = torch.arange(6.0).reshape(2, 3) - 2


def args():
    return (X.clone(),)


def world(text, **names):
    """The names of a text that was run as a module of its own, with its program."""
    space = {"__name__": "world_of_its_own", "torch": torch, **names}
    exec(text, space)  # noqa: S102
    return space, space["program"]


def global_rebound_and_deleted(later):
    space, program = world("K = 2.0\ndef program(x):\n    return x * K")
    return program, args, lambda: space.update(K=3.0), lambda: space.update(K=X), lambda: space.pop("K")


def global_appears(later):
    space, program = world(
        "def program(x):\n    try:\n        return x * K\n    except NameError:\n        return x - 1"
    )
    return program, args, lambda: space.update(K=3.0)


def global_counted_up(later):
    text = "N = 0\ndef program(x):\n    global N\n    N += 1\n    return x * N"
    space, program = world(text)
    return program, args, lambda: space.update(N=100)


def global_function_replaced(later):
    space, program = world("def helper(x):\n    return x + 1\ndef program(x):\n    return helper(x)")
    return program, args, lambda: space.update(helper=torch.relu), lambda: space.update(helper=lambda x: x * 4)


def builtin_shadowed_by_a_global(later):
    space, program = world("def program(x):\n    return x * len([1, 2]) + sum([1, 2])")
    return program, args, lambda: space.update(len=lambda v: 9), lambda: space.pop("len"), lambda: space.update(sum=max)


def builtin_replaced_everywhere(later):
    space, program = world("def program(x):\n    return x * own_builtin(3)")
    later.callback(lambda: builtins.__dict__.pop("own_builtin", None))
    builtins.own_builtin = lambda k: k
    return (
        program,
        args,
        lambda: setattr(builtins, "own_builtin", lambda k: k * 2),
        lambda: delattr(builtins, "own_builtin"),
    )


def own_builtins_of_a_namespace_changed(later):
    own = dict(vars(builtins))
    space, program = world("def program(x):\n    return x * len([1, 2])", __builtins__=own)
    return program, args, lambda: own.update(len=lambda v: 5)


def global_of_another_module_changed(later):
    module = types.ModuleType("another_module")
    module.K = 2.0
    module.inner = types.ModuleType("another_module.inner")
    module.inner.table = {"k": 1.0}
    space, program = world("def program(x):\n    return x * m.K + m.inner.table['k']", m=module)
    return (
        program,
        args,
        lambda: setattr(module, "K", 3.0),
        lambda: module.inner.table.update(k=5.0),
        lambda: setattr(module, "inner", types.SimpleNamespace(table={"k": 9.0})),
        lambda: space.update(m=types.SimpleNamespace(K=1.0, inner=module.inner)),
        lambda: delattr(module, "K"),
    )


def function_of_another_module_uses_its_globals(later):
    other, helper = world("K = 2.0\ndef program(x):\n    return x * K")
    return (lambda x: helper(x)), args, lambda: other.update(K=6.0)


def builtin_shadowed_in_another_module(later):
    other, helper = world("def program(x):\n    return x * len([1, 2])")
    return (lambda x: helper(x)), args, lambda: other.update(len=lambda v: 9), lambda: other.pop("len")


def module_replaced_in_the_table(later):
    later.callback(lambda: sys.modules.pop("a_module_of_the_table", None))

    def put(k):
        sys.modules["a_module_of_the_table"] = module = types.ModuleType("a_module_of_the_table")
        module.K = k

    put(2.0)

    def program(x):
        import a_module_of_the_table
        from a_module_of_the_table import K

        return x * K + a_module_of_the_table.K

    return program, args, lambda: put(5.0), lambda: setattr(sys.modules["a_module_of_the_table"], "K", 7.0)


def module_known_by_the_table_read(later):
    later.callback(lambda: sys.modules.pop("a_module_that_comes", None))

    def program(x):
        return x * (2 if "a_module_that_comes" in sys.modules else 3)

    return program, args, lambda: sys.modules.__setitem__("a_module_that_comes", types.ModuleType("m"))


def getattr_of_a_module_replaced(later):
    module = types.ModuleType("lazy_module")
    module.__getattr__ = lambda name: 4.0
    return (
        (lambda x: x * module.some),
        args,
        lambda: setattr(module, "__getattr__", lambda name: 5.0),
        lambda: setattr(module, "some", 6.0),
    )


def function_of_torch_replaced(later):
    patch = pytest.MonkeyPatch()
    later.callback(patch.undo)
    return (
        (lambda x: torch.relu(x) + torch.nn.functional.softplus(x)),
        args,
        lambda: patch.setattr(torch, "relu", lambda x: x * 5),
        lambda: patch.setattr(torch.nn.functional, "softplus", lambda x: x * 7),
    )


def method_of_tensor_replaced(later):
    patch = pytest.MonkeyPatch()
    later.callback(patch.undo)
    return (
        (lambda x: x.own_method() if hasattr(x, "own_method") else x + 1),
        args,
        lambda: patch.setattr(torch.Tensor, "own_method", lambda self: self * 5, raising=False),
        lambda: patch.setattr(torch.Tensor, "own_method", lambda self: self * 6, raising=False),
    )


def math_function_replaced(later):
    patch = pytest.MonkeyPatch()
    later.callback(patch.undo)
    import math

    return (
        (lambda x: x * math.sqrt(4.0) + math.pi),
        args,
        lambda: patch.setattr(math, "pi", 3.0),
        lambda: patch.setattr(math, "sqrt", lambda k: k),
    )


def environment_changed(later):
    patch = pytest.MonkeyPatch()
    later.callback(patch.undo)
    patch.delenv("MUTATION_FLAG", raising=False)

    def program(x):
        k = 2 if os.environ.get("MUTATION_FLAG") else 3
        if "MUTATION_FLAG" in os.environ:
            k += int(os.environ["MUTATION_FLAG"])
        return x * k + (os.getenv("MUTATION_FLAG") == "5")

    return (
        program,
        args,
        lambda: patch.setenv("MUTATION_FLAG", "5"),
        lambda: patch.setenv("MUTATION_FLAG", "6"),
        lambda: patch.delenv("MUTATION_FLAG"),
    )


@wishes(captured=False)
def working_directory_changed(later):
    later.callback(os.chdir, os.getcwd())
    return (lambda x: x * len(os.getcwd())), args, lambda: os.chdir("/"), lambda: os.chdir("/usr/lib")


@wishes(captured=False)
def clock_patched(later):
    patch = pytest.MonkeyPatch()
    later.callback(patch.undo)
    patch.setattr(time, "time", lambda: 4.0)
    return (lambda x: x * time.time()), args, lambda: patch.setattr(time, "time", lambda: 6.0)


@wishes(captured=False, settles=False)
def random_numbers_of_python_seeded(later):
    random.seed(1)
    return (
        (lambda x: x * random.random() + random.randint(0, 100)),  # noqa: S311
        args,
        lambda: random.seed(2),
        lambda: random.seed(1),
    )


@wishes(captured=False, settles=False)
def random_generator_of_the_user(later):
    generator = random.Random(3)  # noqa: S311
    return (lambda x: x * generator.random()), args, lambda: generator.seed(5)


@wishes(captured=False, settles=False)
def numpy_random_numbers_seeded(later):
    import numpy

    numpy.random.seed(1)
    return (lambda x: x * numpy.random.rand()), args, lambda: numpy.random.seed(2)


@wishes(captured=False, settles=False)
def random_numbers_of_torch_seeded(later):
    def program(x):
        return x + torch.rand(3) + torch.nn.functional.dropout(x, 0.5)

    return program, args, lambda: torch.manual_seed(3), lambda: torch.manual_seed(0)


@wishes(captured=False, settles=False)
def generator_of_torch_given(later):
    generator = torch.Generator()
    generator.manual_seed(3)
    return (lambda x: x + torch.rand(3, generator=generator)), args, lambda: generator.manual_seed(9)


@wishes(captured=False)
def arguments_of_the_process_changed(later):
    patch = pytest.MonkeyPatch()
    later.callback(patch.undo)
    patch.setattr(sys, "argv", ["a"])
    return (
        (lambda x: x * len(sys.argv)),
        args,
        lambda: patch.setattr(sys, "argv", ["a", "b"]),
        lambda: sys.argv.append("c"),
    )


@wishes(captured=False)
def recursion_limit_read(later):
    later.callback(sys.setrecursionlimit, sys.getrecursionlimit())
    return (lambda x: x * sys.getrecursionlimit()), args, lambda: sys.setrecursionlimit(3000)


@wishes(captured=False)
def locale_read(later):
    patch = pytest.MonkeyPatch()
    later.callback(patch.undo)
    patch.setattr(locale, "getlocale", lambda: ("a", "b"))
    return (
        (lambda x: x * len(locale.getlocale()[0])),
        args,
        lambda: patch.setattr(locale, "getlocale", lambda: ("abc", "b")),
    )


def torch_state(read, *changes, undo=()):
    """A mutation of torch's own state: the program multiplies by what `read` gives."""

    def mutation(later):
        for call in undo:
            later.callback(call)
        return (lambda x: read(x)), args, *changes

    return mutation


def setter(owner, name, value):
    return lambda: setattr(owner, name, value)


class Around:
    """A context that changes between calls and stays entered until the world ends."""

    def __init__(self, later, *managers):
        self.later, self.managers = later, list(managers)

    def change(self):
        self.later.enter_context(self.managers.pop(0))


def grad_mode_changed(later):
    weight = torch.ones(3, requires_grad=True)
    around = Around(later, torch.no_grad(), torch.enable_grad(), torch.inference_mode())

    def program(x):
        y = x * weight
        return y.detach() + y.requires_grad + 2 * torch.is_grad_enabled() + 4 * torch.is_inference_mode_enabled()

    return program, args, around.change, around.change, around.change


def autocast_changed(later):
    around = Around(
        later,
        torch.autocast("cpu", torch.bfloat16),
        torch.autocast("cpu", torch.float16),
        torch.autocast("cpu", enabled=False),
        torch.autocast("cpu", torch.bfloat16, cache_enabled=False),
    )

    def program(x):
        return x @ x.t(), torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")

    return program, args, *[around.change] * 4


def autocast_cache_read(later):
    around = Around(later, torch.autocast("cpu", torch.bfloat16, cache_enabled=False))
    return (lambda x: x + torch.is_autocast_cache_enabled()), args, around.change


@wishes(captured=False)
def default_device_changed(later):
    around = Around(later, torch.device("meta"), torch.device("cpu"))
    return (lambda x: torch.ones(3).device.type), args, around.change, around.change


def saved_tensor_hooks_entered(later):
    seen = []
    around = Around(later, torch.autograd.graph.saved_tensors_hooks(lambda t: seen.append(1) or t, lambda t: t * 2))

    def program(x):
        weight = torch.full((3,), 2.0, requires_grad=True)
        (x * weight.exp()).sum().backward()
        return weight.grad

    return program, args, around.change


def function_mode_entered(later):
    class Doubles(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            return result * 2 if func is torch.relu else result

    around = Around(later, Doubles())
    return (lambda x: torch.relu(x)), args, around.change


def dispatch_mode_entered(later):
    from torch.utils._python_dispatch import TorchDispatchMode

    class Doubles(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            return result * 2 if func is torch.ops.aten.relu.default else result

    around = Around(later, Doubles())
    return (lambda x: torch.relu(x)), args, around.change


def deterministic_filling(later):
    around = [torch.utils.deterministic.fill_uninitialized_memory]
    later.callback(setattr, torch.utils.deterministic, "fill_uninitialized_memory", around[0])
    return (
        (lambda x: x + torch.utils.deterministic.fill_uninitialized_memory),
        args,
        setter(torch.utils.deterministic, "fill_uninitialized_memory", not around[0]),
    )


def flag(read, change, undo):
    return torch_state(read, change, undo=(undo,))


def checking_of_distributions(later):
    owner = torch.distributions.Distribution
    later.callback(owner.set_default_validate_args, owner._validate_args)  # torch.compile turns it off
    owner.set_default_validate_args(True)

    def read(x):
        return torch.distributions.Normal(x, 1.0 + x.abs())._validate_args * x

    return read, args, lambda: owner.set_default_validate_args(False)


THREADS = torch.get_num_threads()
FLAGS = {
    "default dtype": flag(
        lambda x: x.to(torch.get_default_dtype()) + torch.ones(3) / 3,
        lambda: torch.set_default_dtype(torch.float64),
        lambda: torch.set_default_dtype(torch.float32),
    ),
    "deterministic algorithms": flag(
        lambda x: x * (2 if torch.are_deterministic_algorithms_enabled() else 3),
        lambda: torch.use_deterministic_algorithms(True),
        lambda: torch.use_deterministic_algorithms(False),
    ),
    "only warning of nondeterminism": flag(
        lambda x: x * (2 if torch.is_deterministic_algorithms_warn_only_enabled() else 3),
        lambda: torch.use_deterministic_algorithms(True, warn_only=True),
        lambda: torch.use_deterministic_algorithms(False),
    ),
    "debug mode of determinism": flag(
        lambda x: x * (torch.get_deterministic_debug_mode() + 2),
        lambda: torch.set_deterministic_debug_mode("warn"),
        lambda: torch.set_deterministic_debug_mode("default"),
    ),
    "matmul precision": flag(
        lambda x: x * len(torch.get_float32_matmul_precision()),
        lambda: torch.set_float32_matmul_precision("medium"),
        lambda: torch.set_float32_matmul_precision("highest"),
    ),
    "number of threads": flag(
        lambda x: x * torch.get_num_threads(),
        lambda: torch.set_num_threads(THREADS + 2),
        lambda: torch.set_num_threads(THREADS),
    ),
    "cudnn enabled": flag(
        lambda x: x * (2 if torch.backends.cudnn.enabled else 3),
        setter(torch.backends.cudnn, "enabled", False),
        setter(torch.backends.cudnn, "enabled", True),
    ),
    "cudnn benchmark": flag(
        lambda x: x * (2 if torch.backends.cudnn.benchmark else 3),
        setter(torch.backends.cudnn, "benchmark", True),
        setter(torch.backends.cudnn, "benchmark", False),
    ),
    "cudnn deterministic": flag(
        lambda x: x * (2 if torch.backends.cudnn.deterministic else 3),
        setter(torch.backends.cudnn, "deterministic", True),
        setter(torch.backends.cudnn, "deterministic", False),
    ),
    "allowing tf32": flag(
        lambda x: x * (2 if torch.backends.cuda.matmul.allow_tf32 else 3),
        setter(torch.backends.cuda.matmul, "allow_tf32", True),
        setter(torch.backends.cuda.matmul, "allow_tf32", False),
    ),
    "reduced precision reduction": flag(
        lambda x: x * (2 if torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction else 3),
        setter(torch.backends.cuda.matmul, "allow_fp16_reduced_precision_reduction", False),
        setter(torch.backends.cuda.matmul, "allow_fp16_reduced_precision_reduction", True),
    ),
    "mkldnn enabled": flag(
        lambda x: x * (2 if torch.backends.mkldnn.enabled else 3),
        setter(torch.backends.mkldnn, "enabled", False),
        setter(torch.backends.mkldnn, "enabled", True),
    ),
    "flash attention": flag(
        lambda x: x * (2 if torch.backends.cuda.flash_sdp_enabled() else 3),
        lambda: torch.backends.cuda.enable_flash_sdp(False),
        lambda: torch.backends.cuda.enable_flash_sdp(True),
    ),
    "math attention": flag(
        lambda x: x * (2 if torch.backends.cuda.math_sdp_enabled() else 3),
        lambda: torch.backends.cuda.enable_math_sdp(False),
        lambda: torch.backends.cuda.enable_math_sdp(True),
    ),
    "anomaly mode": flag(
        lambda x: x * (2 if torch.is_anomaly_enabled() else 3),
        lambda: torch.autograd.set_detect_anomaly(True),
        lambda: torch.autograd.set_detect_anomaly(False),
    ),
    "checking of arguments of distributions": checking_of_distributions,
    "swapping of parameters": flag(
        lambda x: x * (2 if torch.__future__.get_swap_module_params_on_conversion() else 3),
        lambda: torch.__future__.set_swap_module_params_on_conversion(True),
        lambda: torch.__future__.set_swap_module_params_on_conversion(False),
    ),
    "warning always": flag(
        lambda x: x * (2 if torch.is_warn_always_enabled() else 3),
        lambda: torch.set_warn_always(True),
        lambda: torch.set_warn_always(False),
    ),
    "flushing of denormals": flag(
        lambda x: x * 1e-39 * 1e30,
        lambda: torch.set_flush_denormal(True),
        lambda: torch.set_flush_denormal(False),
    ),
    "fast path of transformers": flag(
        lambda x: x * (2 if torch.backends.mha.get_fastpath_enabled() else 3),
        lambda: torch.backends.mha.set_fastpath_enabled(False),
        lambda: torch.backends.mha.set_fastpath_enabled(True),
    ),
    "gradient layouts of multithreading": flag(
        lambda x: (
            x * (2 if torch.autograd.is_multithreading_enabled() else 3)
            if hasattr(torch.autograd, "is_multithreading_enabled")
            else x * torch._C._is_multithreading_enabled()
        ),
        lambda: torch._C._set_multithreading_enabled(False),
        lambda: torch._C._set_multithreading_enabled(True),
    ),
}
MUTATIONS = [
    value
    for value in list(globals().values())
    if isinstance(value, types.FunctionType) and value.__code__.co_varnames[:1] == ("later",)
]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_what_a_program_reads_of_its_surroundings_is_followed(mutation):
    check_mutation(mutation)


@pytest.mark.parametrize("name", FLAGS)
def test_what_a_program_reads_of_torch_is_followed(name):
    check_mutation(wishes(captured=False)(FLAGS[name]))
