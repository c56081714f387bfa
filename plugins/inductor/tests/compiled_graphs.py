"""For the tests of the compiler: trace a function to ATen, compile it, run it, compare with eager and float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from core_inductor.artifact import bind
from core_inductor.compile import compile_fx
from core_inductor.runtime.build import build_library
from core_inductor.runtime.load import make_kernels
from core_inductor.wrapper import CompiledProgram
from torch.fx.experimental.proxy_tensor import make_fx


@dataclass
class Compiled:
    """A compiled function: what was printed, and the callable (flat tensors in, tuple out)."""

    program: CompiledProgram
    call: Callable[..., tuple]

    @property
    def counts(self) -> tuple[int, int]:
        """(kernel calls, extern calls) of one run."""
        return self.program.kernel_calls, self.program.extern_calls


def trace(f: Callable[..., Any], *args: Any, dynamic: bool = False, functional: bool = True) -> torch.fx.GraphModule:
    """The functional ATen graph of a function; `functional=False` for functions that call autograd themselves."""
    traced = torch.func.functionalize(f, remove="mutations") if functional else f
    module = make_fx(traced, tracing_mode="symbolic" if dynamic else "fake")(*args)
    (output,) = (n for n in module.graph.nodes if n.op == "output")
    if not isinstance(output.args[0], (list, tuple)):
        output.args = ((output.args[0],),)
    module.graph.eliminate_dead_code()
    module.recompile()
    return module


def compiled(f: Callable[..., Any], *args: Any, dynamic: bool = False, functional: bool = True) -> Compiled:
    """Trace, compile and load a function for example arguments."""
    with torch.no_grad():
        module = trace(f, *args, dynamic=dynamic, functional=functional)
    program = compile_fx(module)
    kernels = make_kernels(build_library(program.cpp_source), program.kernels) if program.kernels else []
    return Compiled(program, bind(program, kernels, "test"))


def as_tuple(value: Any) -> tuple:
    """A function's result as the tuple its graph returns."""
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def check(
    f: Callable[..., Any],
    *args: Any,
    kernels: int | None = None,
    externs: int | None = None,
    tolerance: float | None = None,
    others: tuple = (),
    **options: Any,
) -> Compiled:
    """Compile `f`, run it on the arguments (and on `others`, for dynamic sizes), compare with eager.

    Without a tolerance floating results may differ from eager by what rounding explains: their error against float64 is
    at most twice eager's plus a few units in the last place.
    """
    built = compiled(f, *args, **options)
    for given in (args, *others):
        with torch.no_grad():
            got = built.call(*given)
            expected = as_tuple(f(*given))
        assert len(got) == len(expected)
        exact = None if tolerance is not None else reference(f, given)
        for position, (a, b) in enumerate(zip(got, expected)):
            compare(a, b, tolerance, None if exact is None else exact[position])
    if kernels is not None or externs is not None:
        assert built.counts == (kernels, externs if externs is not None else 0)
    return built


def reference(f: Callable[..., Any], args: tuple) -> tuple | None:
    """The results in float64, None where the function can't be run in it."""
    wide = [a.double() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args]
    with torch.no_grad():
        try:
            return as_tuple(f(*wide))
        except (RuntimeError, TypeError):
            return None


def compare(got: Any, expected: Any, tolerance: float | None, exact: Any) -> None:
    """Equality of dtype, shape, strides and values."""
    if not isinstance(expected, torch.Tensor):
        assert got == expected
        return
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    if expected.numel():
        assert all(n == 1 or a == b for n, a, b in zip(expected.shape, got.stride(), expected.stride()))
    if not expected.dtype.is_floating_point:
        assert torch.equal(got, expected)
        return
    if tolerance is not None or not isinstance(exact, torch.Tensor) or exact.shape != expected.shape:
        bound = 1e-5 if tolerance is None else tolerance
        torch.testing.assert_close(got, expected, rtol=bound, atol=bound, equal_nan=True)
        return
    special = ~torch.isfinite(expected)
    assert torch.equal(got[special].nan_to_num(123.0), expected[special].nan_to_num(123.0))
    ordinary = ~special
    ours = (got.double() - exact.double())[ordinary].abs()
    theirs = (expected.double() - exact.double())[ordinary].abs()
    scale = exact.double()[ordinary].abs().max() if ordinary.any() else torch.tensor(0.0)
    floor = 4 * torch.finfo(expected.dtype).eps * max(float(scale), torch.finfo(expected.dtype).tiny)
    assert (ours.max() if ours.numel() else 0) <= 2 * (theirs.max() if theirs.numel() else 0) + floor
