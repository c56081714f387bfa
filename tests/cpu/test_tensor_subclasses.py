"""Subclasses of Tensor and classes with a __torch_function__: one graph, eager's results, classes and calls."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
import torch.utils._pytree as pytree

import core

asked: list[str] = []


class Asked(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        asked.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})


class WithMethods(Asked):
    factor = 2

    def doubled(self):
        return self * self.factor

    @property
    def half(self):
        return self / 2


class Plain(torch.Tensor):
    pass


class Off(torch.Tensor):
    __torch_function__ = torch._C._disabled_torch_function_impl


linear = torch.nn.Linear(4, 4)


def arithmetic(x, y):
    return x + 1, 1 + x, x - y, 2 - x, y * x, x / 3, 3 / x, x // 2, x % 2, x**2, 2**x, -x, abs(x), x @ x.t()


def comparisons(x, y):
    return x > y, x == y, 1 <= x, x != 0, (x > 0) & (y > 0), ~(x > 0), (x > 0) | True


def metadata(x, y):
    sizes = x.shape, x.size(), x.dim(), x.numel(), x.stride(), len(x), x.ndim
    return sizes, x.dtype, x.T, x.mT, x.device.type, x.requires_grad, x.real, x.data, x.is_contiguous()


def places(x, y):
    return x[0], x[:, 1:], [row.sum() for row in x], x.unbind(0)[1], x[torch.tensor([0, 1])]


def in_place(x, y):
    z = x * 1
    z += 1
    z.mul_(y)
    z[0] = 7
    w = z
    w.sub_(1)
    return z, w is z, type(z).__name__


def writes_its_input(x, y):
    x.add_(1)
    x[0, 0] = 5.0
    return x


def functions(x, y):
    made = torch.zeros_like(x), torch.empty_like(x).shape, torch.is_tensor(x), torch.is_floating_point(x)
    joined = torch.cat([x, y]), torch.stack([y, x], 0), torch.where(x > 0, x, y)
    return torch.sin(x), *joined, torch.max(x, 1), torch.sum(x), torch.split(x, 1), *made


def layers(x, y):
    normal = F.relu(x), F.softmax(x, -1), F.layer_norm(x, (4,)), F.gelu(y)
    return *normal, F.linear(x, linear.weight), linear(x), F.dropout(x, 0.5, False), F.pad(x, (1, 1))


def classes(x, y):
    return type(x).__name__, type(x + y).__name__, x.as_subclass(torch.Tensor) + 1, isinstance(x, Asked)


def conversions(x, y):
    same = x.contiguous() is x
    return x.to(torch.float64), x.float(), x.clone(), x.detach(), x.view(-1), x.expand(2, 2, 4), same


def unpacking(x, y):
    first, second = x
    values, at = x.max(-1)
    return first, second, values, at, x.topk(2).values


def attributes(x, y):
    x.note = 3
    z = x + 1
    return x.note, z, hasattr(x, "nothing"), getattr(z, "note", None)


def gradients(x, y):
    weight = torch.ones(4, requires_grad=True)
    loss = (x * weight).sum()
    (gradient,) = torch.autograd.grad(loss, weight)
    return gradient, loss.requires_grad, loss.detach()


PROGRAMS = (
    *(arithmetic, comparisons, metadata, places, in_place, writes_its_input, functions, layers, classes, conversions),
    *(unpacking, attributes, gradients),
)


def described(result):
    found = []
    for item in pytree.tree_leaves(result):
        if isinstance(item, torch.Tensor):
            bare = item.as_subclass(torch.Tensor)
            numbers = [round(value, 4) for value in bare.detach().double().flatten().tolist()]
            found.append((type(item), bare.dtype, bare.stride(), bare.requires_grad, numbers, vars(item)))
        else:
            found.append(item)
    return found


def outcome(program, first, second):
    """Results, what became of the inputs, and which functions the classes were asked about."""
    torch.manual_seed(0)
    x, y = torch.randn(2, 4).as_subclass(first), torch.randn(2, 4)
    y = y if second is torch.Tensor else y.as_subclass(second)
    asked.clear()
    result = described(program(x, y))
    questions = list(asked)
    return result, described((x, y)), questions


@pytest.mark.parametrize("other", ["its own class", "a plain tensor"])
@pytest.mark.parametrize("cls", [WithMethods, Plain, Off])
@pytest.mark.parametrize("program", PROGRAMS)
def test_results_classes_and_questions_are_those_of_eager(program, cls, other):
    second = torch.Tensor if other == "a plain tensor" else cls
    expected = outcome(program, cls, second)
    compiled = core.compile(program, backend="eager", fullgraph=True)
    for _ in range(2):
        assert outcome(compiled, cls, second) == expected
    assert (core.stats()["graphs"], core.stats()["breaks"]) == (1, 0)


def test_methods_and_properties_of_the_class_are_traced():
    def program(x):
        return x.doubled() + x.half, WithMethods.doubled(x)

    compiled = core.compile(program, backend="eager", fullgraph=True)
    x = torch.randn(3).as_subclass(WithMethods)
    assert described(compiled(x)) == described(program(x))
    assert core.stats()["graphs"] == 1


class Swapped(torch.Tensor):
    """sin is cos, and every result counts how many operations made it."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.sin:
            func = torch.cos
        result = super().__torch_function__(func, types, args, kwargs or {})
        if isinstance(result, cls):
            result.depth = 1 + max(getattr(argument, "depth", 0) for argument in args)
        return result


def test_a_class_changes_functions_and_keeps_attributes():
    def program(x):
        return torch.sin(x) + 1, (x * 2).depth

    compiled = core.compile(program, backend="eager", fullgraph=True)
    for depth in (0, 3):
        x = torch.arange(4.0).as_subclass(Swapped)
        x.depth = depth
        assert described(compiled(x)) == described(program(x))
    assert core.stats()["graphs"] == 2  # the attribute is read: its value is guarded


class Boxed:
    """No tensor: it holds one."""

    def __init__(self, held):
        self.held = held

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.neg:
            return NotImplemented
        given = [argument.held if isinstance(argument, Boxed) else argument for argument in args]
        return Boxed(func(*given, **(kwargs or {})))


def test_an_object_that_is_no_tensor_takes_functions_over():
    def program(x):
        box = Boxed(x)
        total = torch.add(box, 1, alpha=2).held + torch.add(x, box).held
        try:
            torch.neg(box)
        except TypeError as error:
            return total, type(error).__name__

    compiled = core.compile(program, backend="eager", fullgraph=True)
    x = torch.randn(3)
    assert described(compiled(x)) == described(program(x))
    assert core.stats()["graphs"] == 1


class SwitchedOff(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **(kwargs or {}))
            plain = F.relu(args[0]) * 2 if func is torch.sin else None
        return (result, plain) if func is torch.sin else result


def test_a_region_in_which_no_class_is_asked_is_traced():
    def program(x):
        with torch._C.DisableTorchFunctionSubclass():
            y = x + 1
        return torch.sin(x), torch.cos(x), y, x.add_(1), x[0]

    compiled = core.compile(program, backend="eager", fullgraph=True)
    for _ in range(2):
        x, twin = (torch.arange(3.0).as_subclass(SwitchedOff) for _ in range(2))
        assert described(compiled(x)) == described(program(twin))
    assert core.stats()["graphs"] == 1


def test_a_region_around_the_call_is_another_capture():
    def program(x):
        return torch.sin(x) + 1

    compiled = core.compile(program, backend="eager")
    x = torch.arange(3.0).as_subclass(Swapped)
    for _ in range(2):
        assert described(compiled(x)) == described(program(x))
        with torch._C.DisableTorchFunctionSubclass():
            assert described(compiled(x)) == described(program(x))


def test_a_break_inside_such_a_region_keeps_it():
    def program(x):
        with torch._C.DisableTorchFunctionSubclass():
            y = x + 1
            core.disable(lambda: None)()
            z = x * 2
        return torch.sin(y), torch.sin(z), torch.sin(x)

    compiled = core.compile(program, backend="eager")
    x = torch.arange(3.0).as_subclass(Swapped)
    for _ in range(2):
        assert described(compiled(x)) == described(program(x))


class First(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        asked.append((cls.__name__, [kind.__name__ for kind in types]))
        return NotImplemented if cls is First else super().__torch_function__(func, types, args, kwargs or {})


class Second(First):
    pass


class Stranger(torch.Tensor):
    pass


def test_subclasses_are_asked_before_the_classes_that_they_extend():
    def program(x, y):
        try:
            return type(torch.add(x, y)).__name__
        except TypeError:
            return "refused"

    compiled = core.compile(program, backend="eager")
    for first, second in ((First, Second), (Second, First), (First, Stranger), (First, First)):
        x, y = torch.ones(2).as_subclass(first), torch.ones(2).as_subclass(second)
        asked.clear()
        expected, questions = program(x, y), list(asked)
        asked.clear()
        assert compiled(x, y) == expected and asked == questions


def test_gradients_flow_to_a_leaf_of_a_subclass():
    def program(x):
        return (x.sin() * 2).sum()

    found = []
    for run in (program, core.compile(program, backend="aot_eager", fullgraph=True)):
        x = torch.arange(4.0).as_subclass(Plain).requires_grad_()
        run(x).backward()
        found.append(described(x.grad))
    assert found[0] == found[1] and core.stats()["graphs"] == 1


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_backends_get_plain_tensors(backend):
    def program(x, y):
        return torch.softmax(x @ y.t(), -1) + 1, x.add_(1)

    compiled = core.compile(program, backend=backend, fullgraph=True)
    for _ in range(2):
        x, y = torch.randn(3, 4).as_subclass(Plain), torch.randn(3, 4).as_subclass(Plain)
        twin = x.clone()
        found, expected = compiled(x, y), program(twin, y)
        assert [type(item) for item in found] == [Plain, Plain] and found[1] is x
        torch.testing.assert_close(found[0].as_subclass(torch.Tensor), expected[0].as_subclass(torch.Tensor))
        torch.testing.assert_close(x.as_subclass(torch.Tensor), twin.as_subclass(torch.Tensor))


def test_another_class_and_another_function_of_the_class_are_captured_again():
    class Changing(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return super().__torch_function__(func, types, args, kwargs or {})

    def program(x):
        return torch.sin(x)

    def wrong_way(cls, func, types, args=(), kwargs=None):
        return torch.cos(args[0].as_subclass(torch.Tensor))

    compiled = core.compile(program, backend="eager")
    x = torch.arange(3.0)
    for cls in (Changing, Plain, Changing):
        assert described(compiled(x.as_subclass(cls))) == described(program(x.as_subclass(cls)))
    assert core.stats()["graphs"] == 2
    Changing.__torch_function__ = classmethod(wrong_way)
    assert described(compiled(x.as_subclass(Changing))) == described(torch.cos(x))


def test_what_belongs_to_the_object_breaks_the_graph():
    def program(x):
        return x.is_leaf, x.grad_fn is None, x * 2

    compiled = core.compile(program, backend="eager")
    x = torch.randn(3).as_subclass(Plain).requires_grad_()
    assert described(compiled(x)) == described(program(x))
    assert core.stats()["breaks"] > 0


class Pair(torch.Tensor):
    """Two tensors behind one, which answers below autograd."""

    @staticmethod
    def __new__(cls, left, right):
        return torch.Tensor._make_wrapper_subclass(cls, left.shape, dtype=left.dtype, device=left.device)

    def __init__(self, left, right):
        self.left, self.right = left, right

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        halves = (
            func(*[getattr(argument, side) if isinstance(argument, Pair) else argument for argument in args])
            for side in ("left", "right")
        )
        return Pair(*halves)


def test_a_class_that_answers_below_autograd_runs_in_python():
    def program(x, pair):
        return x.sin() + 1, pair + 1

    compiled = core.compile(program, backend="eager")
    x, pair = torch.randn(3), Pair(torch.ones(3), torch.zeros(3))
    found, expected = compiled(x, pair), program(x, pair)
    torch.testing.assert_close(found[0], expected[0])
    assert type(found[1]) is Pair and torch.equal(found[1].left, expected[1].left)
    assert core.stats()["graphs"] >= 1 and core.stats()["breaks"] > 0


def test_a_method_that_the_class_or_the_object_is_given_later_is_seen():
    class Own(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            return super().__torch_function__(function, types, args, kwargs or {})

    call = core.compile(lambda x: x.sigmoid(), backend="eager")
    x = torch.zeros(2).as_subclass(Own)
    assert call(x).tolist() == call(x).tolist() == [0.5, 0.5]
    Own.sigmoid = lambda self: 7
    assert call(x) == 7
    Own.sigmoid = False
    with pytest.raises(TypeError):
        call(x)
    del Own.sigmoid
    assert call(x).tolist() == [0.5, 0.5]
    x.sigmoid = lambda: 5
    assert call(x) == 5


class Calls(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return super().__torch_function__(function, types, args, kwargs or {})


def test_calling_the_class_makes_a_tensor_of_it_on_the_same_memory():
    call = core.compile(lambda x: (Calls(torch.add(x, 1.0)), Calls(x) * 2), backend="eager", fullgraph=True)
    x = torch.ones(2, requires_grad=True)
    first, second = call(x)
    assert type(first) is type(second) is Calls
    (first.sum() + second.sum()).backward()
    assert x.grad.tolist() == [3.0, 3.0]
    y = torch.ones(2)
    core.compile(lambda y: Calls(y), backend="eager", fullgraph=True)(y).add_(1)
    assert y.tolist() == [2.0, 2.0]
    assert core.stats()["graphs"] == 2


class Deep(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function == torch.Tensor.ndim.__get__:
            return 10
        if function in {torch.Tensor.shape.__get__: None}:
            return (3,)
        return super().__torch_function__(function, types, args, kwargs or {})


def test_a_class_tells_the_attributes_apart_that_are_read():
    def fn(x):
        return x + x.ndim + x.shape[0], x.dtype, torch.Tensor.ndim.__get__ == torch.Tensor.ndim.__get__

    x = torch.ones(2).as_subclass(Deep)
    found, expected = core.compile(fn, backend="eager", fullgraph=True)(x), fn(x)
    assert found[0].tolist() == expected[0].tolist() == [14.0, 14.0]
    assert found[1:] == expected[1:]
