"""Functions decorated while tracing: functools.wraps, torch's context managers, and readings of torch's switches."""

from __future__ import annotations

import functools

import torch
from compare import check

import core

X = torch.arange(6.0).reshape(2, 3)


def outside(y):
    """Said outside."""
    return y * 2


outside.shade = "blue"


def scaled(function):
    @functools.wraps(function)
    def inner(*args, times=3, **keywords):
        return function(*args, **keywords) * times

    inner.kind = "scaled"
    return inner


def test_wraps_copies_the_names_the_attributes_and_the_wrapped_function():
    def fn(x):
        @scaled
        def local(y, *, z: int = 2) -> int:
            """Said inside."""
            return y + z

        wrapped = functools.wraps(outside)(lambda y: outside(y) + 1)
        names = [(f.__name__, f.__qualname__, f.__doc__, sorted(f.__dict__)) for f in (local, wrapped)]
        return local(x, z=1, times=2), wrapped(x), names, local.__annotations__, wrapped.shade, local.kind

    check(fn, X)


def test_a_decorated_function_comes_back_with_what_wraps_copied():
    def fn(x):
        @scaled
        def local(y, *, z: int = 2) -> int:
            return y + z

        return local, x + 1

    core.reset()
    local, _ = core.compile(fn, backend="eager", fullgraph=True)(X)
    assert torch.equal(local(X), (X + 2) * 3)
    assert local.__name__ == "local" and local.kind == "scaled" and local.__wrapped__.__kwdefaults__ == {"z": 2}
    assert local.__annotations__ == local.__wrapped__.__annotations__ and set(local.__annotations__) == {"z", "return"}


def test_attributes_that_the_wrapped_function_gets_later_recompile():
    def target(y):
        return y

    def fn(x):
        return functools.wraps(target)(lambda y: y + 1)(x) + len(target.__dict__)

    fast = core.compile(fn, backend="eager", fullgraph=True)
    assert torch.equal(fast(X), X + 1)
    target.shade = 1
    assert torch.equal(fast(X), X + 2)


def test_grad_modes_decorate_functions_lambdas_and_generators():
    def fn(x):
        @torch.no_grad()
        def quiet(y):
            return y * 2

        @torch.no_grad
        def bare(y):
            return torch.enable_grad()(lambda t: t + 1)(y), y * 3

        @torch.no_grad()
        def steps(y):
            yield y * 2
            yield y * 3

        off = torch.set_grad_enabled(False)(lambda t: t * 5)
        return quiet(x), bare(x), list(steps(x)), off(x), x + 1

    check(fn, X.clone().requires_grad_())


def test_autocast_decorates_a_function():
    def fn(x):
        @torch.autocast("cpu", dtype=torch.bfloat16)
        def low(y):
            return y @ y.t()

        return low(x), x @ x.t()

    check(fn, X)


def test_a_function_under_no_grad_comes_back_and_still_runs_without_gradients():
    def fn(x):
        return torch.no_grad()(lambda y: y * 2), x + 1

    core.reset()
    quiet, _ = core.compile(fn, backend="eager", fullgraph=True)(X)
    assert not quiet(X.clone().requires_grad_()).requires_grad


def test_errors_of_calls_give_the_qualified_name():
    def fn(x):
        def needs(a, b):
            return a

        try:
            needs(x)
        except TypeError as error:
            return x + 1, str(error)

    check(fn, X)


def test_switches_of_backends_are_read_and_a_change_recompiles():
    def fn(x):
        return x.sin() if torch.backends.cuda.matmul.allow_tf32 or torch.backends.cudnn.benchmark else x.cos()

    fast = core.compile(fn, backend="eager", fullgraph=True)
    assert torch.equal(fast(X), X.cos())
    before = torch.backends.cuda.matmul.allow_tf32
    try:
        torch.backends.cuda.matmul.allow_tf32 = True
        assert torch.equal(fast(X), X.sin())
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


@torch.jit.script_if_tracing
def scripted_when_traced(y, scale: float = 2.0):
    return y * scale


def test_annotations_for_torchscript_are_plain_python():
    def fn(x):
        kept = torch.jit.annotate(torch.Tensor, x + 1)
        return scripted_when_traced(torch.jit._unwrap_optional(kept))

    check(fn, X)
