"""Tensor classes with a __torch_dispatch__ that say what they are made of: one graph, eager's results and gradients."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
import torch.utils._pytree as pytree
from torch.utils._python_dispatch import return_and_correct_aliasing

import core

BACKENDS = ("eager", "aot_eager")


class Pair(torch.Tensor):
    """Two tensors of one shape; each operator runs on both."""

    @staticmethod
    def __new__(cls, first, second, size=None, stride=None):
        return torch.Tensor._make_wrapper_subclass(
            cls,
            first.shape if size is None else size,
            strides=first.stride() if stride is None else stride,
            dtype=first.dtype,
            device=first.device,
            requires_grad=first.requires_grad,
        )

    def __init__(self, first, second, size=None, stride=None):
        self.first = first
        self.second = second

    def __tensor_flatten__(self):
        return ["first", "second"], None

    @staticmethod
    def __tensor_unflatten__(inner, meta, size, stride):
        return Pair(inner["first"], inner["second"], size, stride)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        one = pytree.tree_map_only(Pair, lambda pair: pair.first, (args, kwargs))
        two = pytree.tree_map_only(Pair, lambda pair: pair.second, (args, kwargs))
        first, second = func(*one[0], **one[1]), func(*two[0], **two[1])
        flat, spec = pytree.tree_flatten(first)
        pairs = zip(flat, pytree.tree_leaves(second))
        made = [Pair(a, b) if isinstance(a, torch.Tensor) else a for a, b in pairs]
        return return_and_correct_aliasing(func, args, kwargs, pytree.tree_unflatten(made, spec))

    def total(self):
        return self.first + self.second

    @property
    def half(self):
        return self * 0.5


class Scaled(torch.Tensor):
    """A matrix of small integers with one factor; every operator gets the product."""

    @staticmethod
    def __new__(cls, numbers, factor, dtype=torch.float32, label="weight"):
        return torch.Tensor._make_wrapper_subclass(cls, numbers.shape, dtype=dtype, device=numbers.device)

    def __init__(self, numbers, factor, dtype=torch.float32, label="weight"):
        self.numbers = numbers
        self.factor = factor
        self.label = label

    def __tensor_flatten__(self):
        return ["numbers", "factor"], (self.dtype, self.label)

    @classmethod
    def __tensor_unflatten__(cls, inner, meta, size, stride):
        return cls(inner["numbers"], inner["factor"], *meta)

    def product(self):
        return self.numbers.to(self.dtype) * self.factor

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.detach.default:
            return cls(args[0].numbers, args[0].factor, args[0].dtype, args[0].label)
        args, kwargs = pytree.tree_map_only(cls, lambda one: one.product(), (args, kwargs or {}))
        return func(*args, **kwargs)


def pair(*size, grad=False):
    return Pair(torch.randn(*size or (4, 4)), torch.randn(*size or (4, 4))).requires_grad_(grad)


def scaled(label="weight"):
    return Scaled(torch.randint(-5, 5, (4, 4), dtype=torch.int8), torch.tensor(0.1), label=label)


def plain(*size, grad=False):
    return torch.randn(*size or (4, 4), requires_grad=grad)


def parts(value):
    """What a result is, down to the plain tensors."""
    if not isinstance(value, torch.Tensor):
        return [value]
    found = [type(value), tuple(value.shape), value.stride(), value.dtype, value.requires_grad]
    if hasattr(value, "__tensor_flatten__"):
        names, meta = value.__tensor_flatten__()
        return found + [names, meta] + [fact for name in names for fact in parts(getattr(value, name))]
    return [*found, value.detach().double().round(decimals=4).tolist()]


def described(tree):
    leaves = [leaf for leaf in pytree.tree_leaves(tree) if not isinstance(leaf, torch.nn.Module)]
    return [fact for leaf in leaves for fact in parts(leaf)]


def outcome(program, make):
    """Results, inputs afterwards, and the gradients of a backward from all results."""
    torch.manual_seed(0)
    given = make()
    result = program(*given)
    tensors = [leaf for leaf in pytree.tree_leaves(given) if isinstance(leaf, torch.Tensor)]
    for module in given:
        tensors += list(module.parameters()) if isinstance(module, torch.nn.Module) else []
    for leaf in pytree.tree_leaves(result):
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
            leaf.backward(torch.ones_like(leaf), retain_graph=True)
    gradients = [tensor.grad for tensor in tensors if tensor.is_leaf]
    return described(result), described(given), described(gradients)


class Layer(torch.nn.Module):
    def __init__(self, weight, trained):
        super().__init__()
        self.weight = torch.nn.Parameter(weight, requires_grad=trained)

    def forward(self, x):
        return F.linear(x, self.weight).relu()


class Holder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", pair(4))

    def forward(self, x):
        self.mean.mul_(0.5).add_(1)
        return x + self.mean


def twice(x):
    y = x * 2
    return y, y, y.first


def write_and_read(x, y):
    x.copy_(y)
    x[0] = 5.0
    return x + 1


def inner_write(x):
    x.first.add_(1)
    return x * 2


PROGRAMS = {
    "pointwise": (lambda x: (x * 2 + 1).sin(), lambda: (pair(),)),
    "with a plain tensor": (lambda x, y: x @ y - y, lambda: (pair(), plain())),
    "an inner tensor": (lambda x: x.first + 1, lambda: (pair(),)),
    "a method and a property": (lambda x: (x.total(), x.half), lambda: (pair(),)),
    "made inside": (lambda a, b: Pair(a, b) * 2, lambda: (plain(), plain())),
    "made and used inside": (lambda a, b: (Pair(a, b) * 2).second, lambda: (plain(), plain())),
    "made by its own class": (lambda x: type(x)(x.second, x.first), lambda: (pair(),)),
    "views": (lambda x: (x.view(16), x.t(), x[0], x.unbind(0)[1]), lambda: (pair(),)),
    "other dtypes": (lambda x: (x > 0, x.to(torch.float64), x.sum()), lambda: (pair(),)),
    "one result twice": (twice, lambda: (pair(),)),
    "several": (lambda x, y: torch.cat([x, y]).split(2), lambda: (pair(), pair())),
    "one tensor for both parts": (lambda x: x * 2 + x.first, lambda: (Pair(*[plain()] * 2),)),
    "shape": (lambda x: torch.ones(x.shape[0]) + x.sum(0), lambda: (pair(),)),
    "class": (lambda x: x + 1 if isinstance(x, Pair) else x, lambda: (pair(),)),
    "nested": (lambda x: (x * 2).cos(), lambda: (Pair(pair(), pair()),)),
    "written in place": (lambda x: x.add_(1), lambda: (pair(),)),
    "written and read": (write_and_read, lambda: (pair(), pair())),
    "an inner tensor written": (inner_write, lambda: (pair(),)),
    "a weight": (F.linear, lambda: (plain(2, 4), scaled())),
    "its product": (lambda x, w: x @ w.product(), lambda: (plain(2, 4), scaled())),
    "its label": (lambda w: w.sum() if w.label == "weight" else w.label, lambda: (scaled(),)),
    "without gradients": (torch.no_grad()(lambda x: x * 2), lambda: (pair(grad=True),)),
    "gradient": (lambda x: (x * 2).sin(), lambda: (pair(grad=True),)),
    "gradient of several": (lambda x, y: (x * y, y + 1, (x + y).sum()), lambda: (pair(grad=True), plain(grad=True))),
    "gradient through a weight": (F.linear, lambda: (plain(2, 4, grad=True), scaled())),
    "gradient of a view": (lambda x: ((x * 2).view(16), x * 3), lambda: (pair(grad=True),)),
    "gradient of what is no leaf": (lambda x: (x * 2).sin(), lambda: (pair(grad=True) * 1,)),
    "gradient of nested": (lambda x: (x * 2).cos(), lambda: (Pair(pair(), pair()).requires_grad_(),)),
    "detached": (lambda x: (x.detach() * 2, x * 3), lambda: (pair(grad=True),)),
    "inner tensors carry none": (lambda x: (x * 2, x.first * 3), lambda: (pair(grad=True),)),
    "a parameter": (lambda m, x: m(x), lambda: (Layer(pair(), True), plain(2, 4, grad=True))),
    "a parameter that rests": (lambda m, x: m(x), lambda: (Layer(scaled(), False), plain(2, 4, grad=True))),
    "a buffer": (lambda m, x: m(x), lambda: (Holder(), plain(4, grad=True))),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_on_wrapper_tensors_is_one_graph_with_the_results_of_eager(name, backend):
    program, make = PROGRAMS[name]
    expected = outcome(program, make)
    compiled = core.compile(program, backend=backend)
    assert outcome(compiled, make) == expected
    assert (core.stats()["graphs"], core.stats()["breaks"]) == (1, 0)
    assert outcome(compiled, make) == expected
    assert core.stats()["recompiles"] == 0
