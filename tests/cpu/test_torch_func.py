"""torch.func inside captured code: transforms become one node, or the graph breaks."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from observed import BACKENDS, agrees
from torch.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    stack_module_state,
    vjp,
    vmap,
)


def leaf(*shape):
    return torch.randn(*shape, requires_grad=True)


def cube(t):
    return (t**3).sum()


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


PROGRAMS = {
    "grad of a function": lambda: (lambda x: grad(cube)(x), (torch.randn(4),)),
    "grad at several arguments": lambda: (
        lambda a, b: grad(lambda a, b: (a * b).sum(), argnums=(0, 1))(a, b),
        (torch.randn(3), torch.randn(3)),
    ),
    "grad at a dict": lambda: (
        lambda p, x: grad(lambda p, x: (p["w"] * x + p["b"]).sum())(p, x),
        ({"w": torch.randn(3), "b": torch.randn(3)}, torch.randn(3)),
    ),
    "grad_and_value with auxiliary result": lambda: (
        lambda a: grad_and_value(lambda a: ((a**2).sum(), {"k": a * 2}), has_aux=True)(a),
        (torch.randn(3),),
    ),
    "grad of grad": lambda: (lambda a: grad(lambda t: grad(cube)(t).sum())(a), (torch.randn(4),)),
    "a gradient through grad": lambda: (lambda a: grad(cube)(a), (leaf(4),)),
    "grad under no_grad": lambda: (torch.no_grad()(lambda a: grad(cube)(a)), (leaf(4),)),
    "detach inside grad": lambda: (lambda a: grad(lambda t: (t.detach() * t).sum())(a), (torch.randn(4),)),
    "vmap": lambda: (lambda x, y: vmap(torch.dot)(x, y), (torch.randn(3, 4), torch.randn(3, 4))),
    "vmap over a tensor and numbers": lambda: (
        lambda x: (vmap(torch.mul, in_dims=(0, None))(x, 3.14), vmap(torch.mul, in_dims=(0, None))(x, 314)),
        (torch.randn(3),),
    ),
    "vmap over one argument": lambda: (
        lambda x, y: vmap(lambda a, b: a * b + a.sum(), in_dims=(0, None))(x, y),
        (leaf(3, 4), torch.randn(4)),
    ),
    "vmap's dimensions of results": lambda: (
        lambda a: vmap(lambda a: (a * 2, a.sum()), out_dims=(1, 0))(a),
        (torch.randn(3, 4),),
    ),
    "vmap over a dict": lambda: (
        lambda d, x: vmap(lambda d, x: d["a"] * x + d["b"], in_dims=({"a": 0, "b": None}, 0))(d, x),
        ({"a": torch.randn(3), "b": torch.randn(2)}, torch.randn(3, 2)),
    ),
    "vmap leaves keywords alone": lambda: (
        lambda a, b: vmap(lambda a, b: a * b)(a, b=b),
        (torch.randn(3, 4), torch.randn(3, 4)),
    ),
    "vmap shows one example": lambda: (lambda a: vmap(lambda a: a * a.shape[0] + a.dim())(a), (torch.randn(3, 4),)),
    "vmap in vmap": lambda: (
        lambda a, b: vmap(lambda x: vmap(lambda y: (x * y).sum())(b))(a),
        (leaf(3, 4), torch.randn(5, 4)),
    ),
    "vmap with different random numbers": lambda: (
        lambda x: vmap(lambda t: F.dropout(t, 0.5), randomness="different")(x),
        (torch.randn(3, 40),),
    ),
    "vmap with the same random numbers": lambda: (
        lambda a: vmap(lambda x: x + torch.rand(4), randomness="same")(a),
        (torch.randn(3, 4),),
    ),
    "vmap of grad": lambda: (lambda a: vmap(grad(cube))(a), (leaf(3, 4),)),
    "jvp": lambda: (lambda x: jvp(torch.sin, (x,), (torch.ones_like(x),)), (torch.randn(4),)),
    "jvp of two arguments with auxiliary result": lambda: (
        lambda a, b: jvp(lambda a, b: (a * b, a), (a, b), (b, a), has_aux=True),
        (torch.randn(3), torch.randn(3)),
    ),
    "jacrev": lambda: (lambda x: jacrev(lambda t: t.sin() * t)(x), (torch.randn(4),)),
    "jacrev of a tree at two arguments": lambda: (
        lambda a, b: jacrev(lambda a, b: (a * b, {"s": a.sin()}), argnums=(0, 1))(a, b),
        (torch.randn(3), torch.randn(3)),
    ),
    "jacfwd": lambda: (lambda x: jacfwd(lambda t: t.sin() * t)(x), (torch.randn(4),)),
    "hessian": lambda: (lambda x: hessian(lambda t: (t.sin() ** 2).sum())(x), (torch.randn(4),)),
}


# Up to torch 2.11 its jacrev keeps the places of several results in tensors and reads them: no fake tensor tells them.
READS_VALUES = ("jacrev of a tree at two arguments",) if torch.__version__ < "2.12" else ()


@pytest.mark.parametrize("name", PROGRAMS)
def test_transform(name, backend):
    broken = name in READS_VALUES
    agrees(PROGRAMS[name], backend, graphs=0 if broken else 1, breaks=1 if broken else 0)


def test_vjp_and_its_function(backend):
    def fn(a, b):
        out, pull = vjp(lambda a, b: (a * b, a + b), a, b)
        return out, pull((torch.ones(3), torch.ones(3)))

    agrees(lambda: (fn, (torch.randn(3), torch.randn(3))), backend)
    agrees(lambda: (lambda a: vmap(vjp(torch.sin, a)[1])(torch.eye(3)), (torch.randn(3),)), backend)


def test_transforms_made_outside_and_decorators(backend):
    def build():
        per_example = vmap(grad(lambda w, x: (w * x).sum().pow(2)), in_dims=(None, 0))

        @vmap
        def scaled(a, b):
            return a * b.sum()

        return lambda w, x: (per_example(w, x), scaled(x, x)), (torch.randn(4), torch.randn(3, 4))

    agrees(build, backend)


TRANSFORMED = {
    "vmap": lambda f: vmap(f),
    "grad": lambda f: grad(f),
    "grad_and_value": lambda f: torch.func.grad_and_value(f),
    "jacrev": lambda f: jacrev(f),
    "jacfwd": lambda f: jacfwd(f),
    "hessian": lambda f: hessian(f),
    "vmap of grad": lambda f: vmap(grad(f)),
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_a_transformed_function_is_compiled_itself(name, backend):
    def build():
        def square(x):
            return (x.sin() * x).sum()

        return TRANSFORMED[name](square), (torch.randn(2, 3) if "vmap" in name else torch.randn(3),)

    agrees(build, backend)


def test_functional_call_and_gradients_per_example(backend):
    def build():
        module = nn.Linear(4, 1)
        parameters = {name: p.detach() for name, p in module.named_parameters()}

        def loss(p, x):
            return functional_call(module, p, (x[None],)).pow(2).mean()

        def fn(x, w):
            return vmap(grad(loss), in_dims=(None, 0))(parameters, x), functional_call(module, {"weight": w}, x)

        return fn, (torch.randn(2, 4), leaf(1, 4)), lambda: list(module.parameters())

    agrees(build, backend)


def test_an_ensemble_of_modules(backend):
    def build():
        modules = [nn.Linear(4, 2) for _ in range(3)]
        parameters, buffers = stack_module_state(modules)
        base = copy.deepcopy(modules[0]).to("meta")

        def fn(x):
            def one(p, b, x):
                return functional_call(base, (p, b), (x,))

            return vmap(one, in_dims=(0, 0, None))(parameters, buffers, x)

        return fn, (torch.randn(5, 4),)

    agrees(build, backend)


def test_a_step_of_meta_learning(backend):
    def build():
        module = nn.Linear(3, 1)
        parameters = {name: p.detach().clone() for name, p in module.named_parameters()}

        def inner(p, x):
            return functional_call(module, p, x).pow(2).mean()

        def fn(x):
            def outer(p):
                step = grad(inner)(p, x)
                return inner({name: p[name] - 0.1 * step[name] for name in p}, x)

            return grad_and_value(outer)(parameters)

        return fn, (torch.randn(4, 3),)

    agrees(build, backend)


def test_side_effects_of_the_function_run_once(backend):
    def build():
        log = []
        return (
            lambda a: vmap(lambda x: (log.append(x.shape[0]), x * 2)[1])(a),
            (torch.randn(3, 4),),
            lambda: list(log),
        )

    agrees(build, backend)


BREAKING = {
    "a branch on values": lambda: (lambda a: vmap(lambda x: x * 2 if x.sum() > 0 else x)(a), (torch.randn(3, 4),)),
    "chunks": lambda: (lambda a: vmap(lambda x: x * 2, chunk_size=2)(a), (torch.randn(3, 4),)),
    "random numbers in error mode": lambda: (lambda a: vmap(lambda x: x + torch.rand(4))(a), (torch.randn(3, 4),)),
    "a write to an outer tensor": lambda: (lambda a, b: vmap(b.add_)(a), (torch.randn(3, 4), torch.zeros(4))),
    "auxiliary results that are no tensors": lambda: (
        lambda a: grad(lambda a: ((a**2).sum(), 3), has_aux=True)(a),
        (torch.randn(3),),
    ),
    "vmap of a hessian, which fake tensors can't run": lambda: (
        lambda a: vmap(hessian(lambda t: (t.sin() ** 2).sum()))(a),
        (torch.randn(2, 3),),
    ),
}


@pytest.mark.parametrize("name", BREAKING)
def test_breaks(name):
    agrees(BREAKING[name], graphs=None, breaks=None)
