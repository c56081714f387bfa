"""What the interpreter traces of Python, one behaviour a test; each gives one graph unless it says otherwise."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import enum
import functools
import itertools
import math

import pytest
import torch
from compare import check

X = torch.arange(6.0).reshape(2, 3)


def test_arithmetic_and_comparison_of_tensors():
    def fn(x, y):
        z = (x + y) * 2 - x / 3 + x**2 // 2 - (-x) % 5
        return z, x < y, x == y, ~(x > 1), x @ y.t()

    check(fn, X, X + 1)


def test_default_keyword_and_variadic_arguments():
    def inner(a, /, b=2, *rest, scale=1.0, **named):
        return a * b * scale + sum(rest) + named.get("shift", 0)

    def fn(x):
        return inner(x), inner(x, 3, 4, 5), inner(x, b=4, scale=0.5, shift=7)

    check(fn, X)


def test_closures_read_and_write_cells():
    def fn(x):
        total = x

        def add(n):
            nonlocal total
            total = total + n
            return total

        add(1)
        add(2)
        return total

    check(fn, X)


def test_a_for_loop_over_a_range_a_list_and_a_zip():
    def fn(x):
        out = []
        for i in range(3):
            out.append(x * i)
        for a, b in zip(out, [1, 2, 3]):
            x = x + a * b
        for i, item in enumerate(reversed(out)):
            x = x - i * item
        else:
            x = x + 100
        return x

    check(fn, X)


def test_while_break_and_continue():
    def fn(x):
        n = 0
        while True:
            n += 1
            if n == 2:
                continue
            if n > 5:
                break
            x = x + n
        return x

    check(fn, X)


def test_branches_on_python_values_shapes_and_dtypes():
    def fn(x, flag):
        if flag and x.dim() == 2 and x.shape[0] < x.shape[-1] and x.dtype is torch.float32:
            return x.sum(0)
        return x if x.numel() > 100 else x * 0

    check(fn, X, True)
    check(fn, X, False)


def test_lists_dicts_sets_and_slices():
    def fn(x):
        items = [x, x + 1, x + 2]
        items[1:] = [x * 2]
        items.insert(0, x - 1)
        table = {"a": x, **{"b": items[-1]}}
        table["c"] = table.pop("a") + table.get("missing", 1)
        names = {"p", "q"} | {"q"}
        return items, table, sorted(names), len(items)

    check(fn, X)


def test_comprehensions_and_generator_expressions():
    def fn(x):
        squares = [x * i for i in range(4) if i % 2]
        by_name = {str(i): t for i, t in enumerate(squares)}
        return sum(t.sum() for t in squares), by_name, {i for i in range(3)}

    check(fn, X)


def test_generators_run_lazily():
    def produce(x, log):
        for i in range(10):
            log.append(i)
            yield x + i

    def fn(x):
        log = []
        values = produce(x, log)
        first = next(values)
        second = next(values)
        return first, second, log

    check(fn, X)


def test_yield_from_and_send():
    def inner(x):
        got = yield x
        yield x * got
        return x + 100

    def outer(x):
        result = yield from inner(x)
        yield result

    def fn(x):
        gen = outer(x)
        a = next(gen)
        b = gen.send(3)
        c = next(gen)
        return a, b, c

    check(fn, X)


def test_exceptions_are_caught_where_python_catches_them():
    def fn(x):
        out = []
        try:
            {}["missing"]
        except KeyError as error:
            out.append(error.args[0])
        try:
            raise ValueError("no")
        except (TypeError, ValueError):
            x = x + 1
        finally:
            x = x * 2
        try:
            [][3]
        except IndexError:
            x = x + 3
        else:
            x = x - 1000
        return x, out

    check(fn, X)


def test_an_exception_passes_through_frames():
    def deep(x):
        if x.dim() == 2:
            raise RuntimeError("deep")
        return x

    def middle(x):
        try:
            return deep(x)
        finally:
            x.add_(1)

    def fn(x):
        try:
            middle(x)
        except RuntimeError as error:
            return x * 2, str(error)

    check(fn, X)


def test_user_context_managers():
    class Scale:
        def __init__(self, log):
            self.log = log

        def __enter__(self):
            self.log.append("in")
            return 3

        def __exit__(self, kind, value, trace):
            self.log.append(kind.__name__ if kind else "out")
            return kind is ValueError

    def fn(x):
        log = []
        with Scale(log) as factor:
            x = x * factor
        with Scale(log):
            raise ValueError
        return x, log

    check(fn, X)


def test_contextlib_managers():
    @contextlib.contextmanager
    def added(log):
        log.append(1)
        try:
            yield 5
        finally:
            log.append(2)

    def fn(x):
        log = []
        with added(log) as n, contextlib.nullcontext(2) as m:
            x = x * n + m
        return x, log

    check(fn, X)


def test_classes_properties_and_inheritance():
    class Base:
        scale = 2

        def __init__(self, n):
            self.n = n

        @property
        def double(self):
            return self.n * 2

        @classmethod
        def make(cls, n):
            return cls(n + 1)

        @staticmethod
        def shift(x):
            return x + 1

        def run(self, x):
            return x * self.n * self.scale

    class Child(Base):
        scale = 3

        def __init__(self, n):
            super().__init__(n)
            self.extra = n + 1

        def run(self, x):
            return super().run(x) + self.extra

        def __call__(self, x):
            return self.shift(self.run(x))

        def __add__(self, other):
            return self.n + other

    def fn(x):
        child = Child.make(1)
        return child(x), child.double, child + 5, isinstance(child, Base)

    check(fn, X)


def test_new_objects_are_returned_with_their_attributes():
    class Point:
        def __init__(self, x, y):
            self.x = x
            self.y = y

    def fn(x):
        p = Point(x, x + 1)
        p.z = [p.x, p.y]
        return p

    check(fn, X)


@dataclasses.dataclass
class Pair:
    left: torch.Tensor
    right: torch.Tensor
    name: str = "pair"
    items: list = dataclasses.field(default_factory=list)


def test_dataclasses():
    def fn(x):
        pair = Pair(x, x + 1)
        pair.items.append(pair.left + pair.right)
        return dataclasses.replace(pair, name="other")

    check(fn, X)


Named = collections.namedtuple("Named", "a b")


class Color(enum.Enum):
    RED = 1
    BLUE = 2


def test_namedtuples_enums_and_ordered_dicts():
    def fn(x, color):
        pair = Named(x, b=x + 1)
        table = collections.OrderedDict(a=pair.a)
        table["b"] = pair.b
        a, b = pair
        return pair._replace(a=b), table, a if color is Color.RED else b, color.value, Color.BLUE.name

    check(fn, X, Color.RED)


def test_partial_reduce_and_itertools():
    def scale(x, factor, shift=0):
        return x * factor + shift

    def fn(x):
        half = functools.partial(scale, factor=0.5)
        total = functools.reduce(lambda a, b: a + b, [half(x), half(x, shift=1)])
        chained = list(itertools.chain([x], [total]))
        return total, chained, list(itertools.islice(itertools.count(3), 2)), math.sqrt(16)

    check(fn, X)


def test_string_formatting_with_python_values():
    def fn(x, n):
        key = f"{n:03d}-{x.shape[0]}-{'a' * 2}-%s" % n
        return x * len(key), key, "{}|{}".format(n, "b"), key.split("-")

    check(fn, X, 7)


def test_star_unpacking():
    def fn(x):
        first, *middle, last = [x, x + 1, x + 2, x + 3]
        (a, b), c = (first, last), middle
        return a, b, c, [*c, first], (*c, last)

    check(fn, X)


def test_global_and_attribute_writes_are_replayed():
    class Box:
        pass

    box = Box()
    box.count = 0

    def fn(x):
        box.count = box.count + 1
        box.last = x * 2
        return x + 1

    import core

    compiled = core.compile(fn, backend="eager")
    for expected in (1, 2, 3):
        assert torch.equal(compiled(X), X + 1)
        assert box.count == expected
        assert torch.equal(box.last, X * 2)


def test_swapping_attributes_reads_before_it_writes():
    class Box:
        pass

    import core

    box = Box()
    box.a, box.b = torch.ones(1), torch.zeros(1)

    def fn(x, box):
        box.a, box.b = box.b, box.a
        return x + box.a

    compiled = core.compile(fn, backend="eager")
    out = compiled(torch.zeros(1), box)
    assert float(out) == 0 and float(box.a) == 0 and float(box.b) == 1


def test_match_statement():
    def fn(x, command):
        match command:
            case ["scale", factor]:
                return x * factor
            case {"shift": amount}:
                return x + amount
            case str():
                return x - 1
            case _:
                return x

    check(fn, X, ["scale", 3])
    check(fn, X, {"shift": 2})
    check(fn, X, "text")


def test_no_grad_and_enable_grad_regions():
    def fn(x):
        with torch.no_grad():
            y = x * 2
            with torch.enable_grad():
                z = x * 3
        return y, z, torch.is_grad_enabled()

    x = torch.ones(2, requires_grad=True)
    import core

    y, z, on = core.compile(fn, backend="eager", fullgraph=True)(x)
    assert not y.requires_grad and z.requires_grad and on


def test_autocast_region():
    def fn(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x.t()
        return y, y.float() + 1

    check(fn, X)


def test_in_place_operations_change_the_arguments():
    def fn(x, y):
        x.add_(1)
        y[0] = 5
        x[:, 1] *= 2
        return x + y

    check(fn, X.clone(), X.clone())


def test_tensor_attributes_and_views():
    def fn(x):
        return x.T.shape, x.view(-1)[1:].size(0), x.mT, x.dtype, x.device, x.requires_grad, x.ndim, x.is_contiguous()

    check(fn, X)


def test_torch_functions_with_several_results():
    def fn(x):
        values, indices = x.max(dim=1)
        top = torch.topk(x, 2)
        a, b = torch.split(x, [1, 2], dim=1)
        return values, indices, top.values, a, b, torch.stack(x.unbind(0))

    check(fn, X)


def test_sorted_with_a_key_and_lambdas():
    def fn(x):
        order = sorted([3, 1, 2], key=lambda n: -n)
        return [x * n for n in order], max([1, 5, 2]), min(4, 2), any([0, 1]), all([1, 1])

    check(fn, X)


def test_recursion():
    def power(x, n):
        return x if n == 0 else power(x, n - 1) * 2

    def fn(x):
        return power(x, 5)

    check(fn, X)


@pytest.mark.parametrize("value", [None, 3, 2.5, "text", (1, 2), [1, 2], {"k": 1}, True])
def test_python_arguments_of_many_kinds_return_unchanged(value):
    def fn(x, value):
        return x + 1, value

    check(fn, X, value)
