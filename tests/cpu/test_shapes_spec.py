"""shapes_spec: what a program declares of the sizes of its arguments."""

import pytest
import torch

import core

specs = pytest.importorskip("torch.fx.experimental.dynamic_spec", reason="torch has it from 2.13 on")
IntVar, ShapeVar, TensorSpec = specs.IntVar, specs.ShapeVar, specs.TensorSpec
BACKENDS = pytest.mark.parametrize("backend", ["eager", "inductor"])


def compiled(fn, spec, backend="eager", **options):
    core.reset()
    return core.compile(fn, backend=backend, fullgraph=True, shapes_spec=spec, **options)


def agree(fast, fn, *calls, graphs=1):
    for args in calls:
        got, want = fast(*args), fn(*args)
        assert torch.equal(got, want) and got.stride() == want.stride()
    assert core.stats()["graphs"] == graphs


@BACKENDS
def test_a_declared_size_is_one_graph_for_all_and_others_are_fixed(backend):
    def fn(x, y):
        return x * 2 + y.sum()

    fast = compiled(fn, {"x": TensorSpec([ShapeVar("batch"), None])}, backend)
    agree(fast, fn, *((torch.ones(size, 3), torch.ones(2)) for size in (4, 1, 0, 7)))
    agree(fast, fn, (torch.ones(4, 5), torch.ones(2)), (torch.ones(4, 5), torch.ones(6)), graphs=3)


def test_forms_of_a_spec_and_of_what_is_compiled():
    class Twice(torch.nn.Module):
        def forward(self, x, *, y=None):
            return x * 2 if y is None else x * y

    class Callable:
        def __call__(self, x):
            return x + 1

        def method(self, x):
            return x - 1

    dims = TensorSpec([ShapeVar("n")])
    in_place = Twice()
    for form in ({"x": dims}, specs.ParamsSpec({"x": dims}), specs.ShapesSpec({"x": dims})):
        for target in (Twice(), Callable(), Callable().method):
            agree(compiled(target, form), target, (torch.ones(3),), (torch.ones(5),))
    core.reset()
    core.compile_module_(in_place, backend="eager", shapes_spec={"x": dims})
    agree(in_place, lambda x: x * 2, (torch.ones(3),), (torch.ones(5),))
    module = compiled(Twice(), {"x": dims, "y": dims})
    for size in (3, 4):
        assert torch.equal(module(torch.ones(size), y=torch.ones(size)), torch.ones(size))
    assert core.stats()["graphs"] == 1
    with pytest.raises(core.ConstraintViolated, match="y'.*n"):
        module(torch.ones(3), y=torch.ones(4))


def test_declared_numbers_lists_dicts_and_attributes():
    class Config:
        def __init__(self, scale):
            self.scale, self.other = scale, 1

    def fn(parts, named, config, n, *rest, **more):
        return parts[0] + n + named["t"].sum() + config.scale * config.other + rest[0].sum() + more["k"].sum()

    size = TensorSpec([ShapeVar()])
    spec = {
        "parts": specs.SeqSpec([size]),
        "named": specs.DictSpec({"t": TensorSpec([ShapeVar()])}),
        "config": specs.ObjectSpec({"scale": IntVar()}),
        "n": IntVar("n", min=2),
        "*args": [size],
        "**kwargs": {"k": size},
    }
    fast = compiled(fn, spec)
    for size in (2, 3, 9):
        ones = torch.ones(size)
        args = ([ones, 1], {"t": torch.ones(size + 1)}, Config(size), size, ones)
        assert torch.equal(fast(*args, k=ones), fn(*args, k=ones))
    assert core.stats()["graphs"] == 1
    with pytest.raises(core.ConstraintViolated, match="n'.* is 1, which is not between 2 and None"):
        fast(*args[:3], 1, ones, k=ones)
    fast(*args[:3], 9, ones, 8, k=ones)  # one argument more: it is fixed
    fast(*args[:3], 9, ones, 7, k=ones)
    assert core.stats()["graphs"] <= 3


@BACKENDS
def test_relations_between_sizes_decide_and_are_checked(backend):
    a, b = ShapeVar("a", min=2, max=8), ShapeVar("b")

    def fn(x, y, z):
        if x.shape[0] * 2 == y.shape[0] and z.shape[0] > 1:
            return x + z + y[: x.shape[0]]
        return x - z

    spec = specs.ShapesSpec(
        {"x": TensorSpec([a]), "y": TensorSpec([a * 2]), "z": TensorSpec([a])}, assumptions=[a + 1 > 2]
    )
    fast = compiled(fn, spec, backend)

    def args(*sizes):
        return tuple(map(torch.ones, sizes))

    agree(fast, fn, *(args(size, size * 2, size) for size in (3, 2, 8)))
    for sizes, why in (((9, 18, 9), "9, which is not"), ((3, 7, 3), "is 7"), ((3, 6, 4), "is 4")):
        with pytest.raises(core.ConstraintViolated, match=why):
            fast(*args(*sizes))
    fast = compiled(fn, specs.ShapesSpec({"x": TensorSpec([b])}, assumptions=[b > 4]))
    with pytest.raises(core.ConstraintViolated, match="b > 4 has to hold.*b=3"):
        fast(*args(3, 3, 3))


def test_what_does_not_fit_is_an_error():
    def fn(x):
        return x + 1

    for spec, why in (
        ({"x": TensorSpec([4])}, r"shape\[0\] is declared to be 4, and is 3"),
        ({"x": TensorSpec([None, None])}, "2 dimensions, and has 1"),
        ({"x": IntVar()}, "declared as a number"),
        ({"x": specs.DictSpec({"a": 1})}, "declared as a dict"),
        ({"x": TensorSpec([ShapeVar("n") + 1])}, "no argument is declared as n"),
    ):
        with pytest.raises(core.ConstraintViolated, match=why) as raised:
            compiled(fn, spec)(torch.ones(3))
        assert raised.value.where.function.endswith("fn")
    for options, why in (
        ({"shapes_spec": 3}, "not right"),
        ({"shapes_spec": {}, "dynamic": True}, "dynamic=True does too"),
        ({"shapes_spec": {"*other": 1}}, "not right"),
    ):
        with pytest.raises(core.InvalidOption, match=why):
            core.compile(fn, backend="eager", **options)


def test_code_that_has_to_decide_by_a_declared_size_breaks_the_graph():
    def fn(x):
        return x + 1 if x.shape[0] > 4 else x - 1

    spec = {"x": TensorSpec([ShapeVar("n")])}
    with pytest.raises(core.Unsupported):
        compiled(fn, spec)(torch.ones(3))
    fast = core.compile(fn, backend="eager", shapes_spec=spec)
    for size in (3, 6):
        assert torch.equal(fast(torch.ones(size)), fn(torch.ones(size)))
