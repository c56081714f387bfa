"""Tensor classes with a __torch_dispatch__ that say what they are made of: one graph, eager's results and gradients."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
import torch.utils._pytree as pytree
from torch.utils._python_dispatch import return_and_correct_aliasing

import core
from core.events import FellBack, subscribe

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


class Tagged(torch.nn.Parameter):
    """A parameter with an attribute and a method; torch's functions take it for a plain one."""

    def __new__(cls, data, tag="kept"):
        made = super().__new__(cls, data)
        made.tag = tag
        return made

    def doubled(self):
        return self * 2


class ToPair(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return Pair(x.detach(), x.detach() * 2)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.first + gradient.second


class FromPair(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.first + x.second

    @staticmethod
    def backward(ctx, gradient):
        return Pair(gradient, gradient * 2)


class Tag(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = Tagged(plain())

    def forward(self, x):
        return self.weight.doubled() @ x if self.weight.tag == "kept" else x


def tensor_with_views(x):
    y = x * 2
    return x.view(16), y, y.t(), y.detach(), y.second


def knows_parameters(layer, x):
    return x * 2 if isinstance(layer.weight, torch.nn.Parameter) else x


MORE = {
    "a tensor and its views": (tensor_with_views, lambda: (pair(grad=True),)),
    "a parameter's class": (lambda m, x: m(x), lambda: (Tag(), plain())),
    "is a parameter": (knows_parameters, lambda: (Layer(pair(), True), plain())),
    "made by a Function": (lambda x: ToPair.apply(x) * 2, lambda: (plain(grad=True),)),
    "used up by a Function": (lambda x: FromPair.apply(x) * 2, lambda: (pair(grad=True),)),
    "a backward inside": (lambda x: ((x * x).sum().backward(), x * 2)[1], lambda: (pair(grad=True),)),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", MORE)
def test_more_of_a_wrapper_tensor_is_in_the_graph(name, backend):
    program, make = MORE[name]
    expected = outcome(program, make)
    assert outcome(core.compile(program, backend=backend), make) == expected
    assert core.stats()["breaks"] == 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_sizes_of_inner_tensors_become_symbols(backend):
    def program(x):
        return (x * 2).sin().t() + x.first.shape[0]

    compiled = core.compile(program, backend=backend)
    for size in (3, 4, 5, 6):
        assert outcome(compiled, lambda size=size: (pair(size, 4, grad=True),)) == outcome(
            program, lambda size=size: (pair(size, 4, grad=True),)
        )
    assert (core.stats()["graphs"], core.stats()["recompiles"]) == (2, 1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_marked_dimension_of_a_wrapper_is_one_of_its_inner_tensors(backend):
    def program(x):
        return (x * 2).sin().sum(1)

    compiled = core.compile(program, backend=backend)
    for size in (3, 5, 4):
        value = pair(size, 6)
        core.mark_dynamic(value, 0)
        assert described(compiled(value)) == described(program(value))
    assert core.stats()["graphs"] == 1


def test_class_inner_tensors_and_metadata_are_guarded():
    def program(x):
        return x * 2

    compiled = core.compile(program, backend="eager")
    kinds = (
        *(pair(), Pair(plain().double(), plain().double()), Pair(pair(), pair()), Pair(plain().t(), plain().t())),
        *(plain(), scaled(), scaled("other"), Scaled(torch.ones(4, 4, dtype=torch.int32), torch.tensor(0.5))),
    )
    for value in (*kinds, *kinds):
        assert described(compiled(value)) == described(program(value))
    assert core.stats()["graphs"] == len(kinds)


def test_an_inner_tensor_put_in_anothers_place_is_read():
    compiled = core.compile(lambda x: x * 2, backend="aot_eager")
    value = pair()
    compiled(value)
    value.first = torch.ones(4, 4)
    assert compiled(value).first.eq(2).all()


FACTOR = 2.0
calls: list[str] = []


class Read(torch.Tensor):
    """What its class does depends on a global and on an attribute of the class."""

    power = 1

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    def __tensor_flatten__(self):
        return ["inner"], None

    @classmethod
    def __tensor_unflatten__(cls, inner, meta, size, stride):
        return cls(inner["inner"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        args, kwargs = pytree.tree_map_only(Read, lambda one: one.inner, (args, kwargs or {}))
        return pytree.tree_map_only(torch.Tensor, cls, func(*args, **kwargs) * FACTOR**cls.power)


class Noted(Read):
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        calls.append(str(func))
        return super().__torch_dispatch__(func, types, args, kwargs)


class Closed(torch.Tensor):
    """It does not say what it is made of."""

    @staticmethod
    def __new__(cls, inner):
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        args, kwargs = pytree.tree_map_only(Closed, lambda one: one.inner, (args, kwargs or {}))
        return func(*args, **kwargs)


def test_what_the_code_of_the_class_reads_is_guarded(monkeypatch):
    compiled = core.compile(lambda x: x + 1, backend="aot_eager")
    value = Read(torch.ones(2))
    assert compiled(value).inner.tolist() == [4.0, 4.0]
    monkeypatch.setitem(globals(), "FACTOR", 3.0)
    assert compiled(value).inner.tolist() == [6.0, 6.0]
    monkeypatch.setattr(Read, "power", 2)
    assert compiled(value).inner.tolist() == [18.0, 18.0]
    assert (core.stats()["graphs"], core.stats()["breaks"]) == (3, 0)


def test_a_class_whose_code_has_side_effects_breaks_the_graph_and_keeps_them():
    compiled = core.compile(lambda x: x + 1, backend="eager")
    calls.clear()
    for _ in range(3):
        assert compiled(Noted(torch.ones(2))).inner.tolist() == [4.0, 4.0]
    assert calls == ["aten.add.Tensor"] * 3
    with pytest.raises(
        core.Unsupported, match=r"(?s)Noted, whose __torch_dispatch__ calls calls.append\(\).*remedy: give"
    ):
        core.compile(lambda x: x + 1, backend="eager", fullgraph=True)(Noted(torch.ones(2)))
    with pytest.raises(core.Unsupported, match="calls calls.append"):
        core.compile(lambda x: Noted(x) + 1, backend="eager", fullgraph=True)(torch.ones(2))


def test_a_class_that_can_not_be_taken_apart_breaks_the_graph():
    program = core.compile(lambda x, y: (x + 1, y * 2), backend="eager")
    first, second = program(Closed(torch.ones(2)), torch.ones(2))
    assert (first.tolist(), second.tolist()) == ([2.0, 2.0], [2.0, 2.0])
    assert core.stats()["breaks"] > 0  # there and in the class's own code, which Python calls
    with pytest.raises(core.Unsupported, match="has no __tensor_flatten__"):
        core.compile(lambda x: x + 1, backend="eager", fullgraph=True)(Closed(torch.ones(2)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_of_gradients_and_of_other_classes_are_those_of_eager(backend):
    def program(x, y):
        return (x * y).sin()

    def run(function):
        torch.manual_seed(0)
        x, y, other = pair(grad=True), plain(grad=True), pair()
        (once,) = torch.autograd.grad(function(x, y).sum(), x, create_graph=True)
        (again,) = torch.autograd.grad((once * once).sum(), x)
        ((function(x, y) * other).sum() + (y * 2).sum()).backward()
        return described((once, again, x.grad, y.grad))

    assert run(core.compile(program, backend=backend)) == run(program)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_write_to_a_wrapper_that_a_backward_needs_is_found(backend):
    compiled = core.compile(lambda x: x.add_(1), backend=backend)
    weight, x = pair(grad=True), pair()
    loss = (weight * x).sum()
    compiled(x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("backend", BACKENDS)
def test_wrappers_that_share_memory_are_told_apart_from_those_that_do_not(backend):
    def program(x, y):
        return x.add_(1), y * 2

    def run(function):
        torch.manual_seed(0)
        shared = plain()
        first = function(pair(), pair())
        second = function(shared, Pair(shared, plain()))
        same = pair()
        return described((first, second, function(same, same)))

    assert run(core.compile(program, backend=backend)) == run(program)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_module_of_wrapper_parameters_is_trained_as_in_eager(backend):
    def train(compiled):
        torch.manual_seed(0)
        layer, x = Layer(pair(), True), plain(2, 4)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        run = core.compile(layer, backend=backend) if compiled else layer
        for _ in range(3):
            optimizer.zero_grad()
            run(x).sum().backward()
            optimizer.step()
        return described(layer.weight)

    assert train(True) == train(False)
    assert (core.stats()["graphs"], core.stats()["breaks"], core.stats()["recompiles"]) == (1, 0, 0)


def test_a_break_carries_wrapper_tensors_over():
    def program(x):
        y = x * 2
        print(end="")
        return y + x

    make = lambda: (pair(grad=True),)  # noqa: E731
    assert outcome(core.compile(program, backend="aot_eager"), make) == outcome(program, make)
    assert (core.stats()["graphs"], core.stats()["breaks"]) == (2, 1)


def write_with_gradients(x, y):
    x.mul_(y)
    return x.sin(), x


REFUSED = {
    "a wrapper with gradients is written to": (write_with_gradients, lambda: (pair(grad=True) * 1, plain())),
    "one without them gets some": (write_with_gradients, lambda: (pair(), plain(grad=True))),
    "a parameter is made": (lambda x: torch.nn.Parameter(x) * 2, lambda: (pair(),)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_can_not_be_said_of_plain_tensors_runs_as_captured(name, monkeypatch):
    monkeypatch.delenv("CORE_STRICT", raising=False)
    program, make = REFUSED[name]
    reasons: list[str] = []
    stop = subscribe(lambda event: reasons.append(event.reason) if isinstance(event, FellBack) else None)
    try:
        assert outcome(core.compile(program, backend="aot_eager"), make) == outcome(program, make)
    finally:
        stop()
    assert ["the graph runs as captured" in reason for reason in reasons] == [True]
    assert (core.stats()["graphs"], core.stats()["breaks"]) == (1, 0)
