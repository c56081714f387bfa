"""Guards of a real nn.Module tree, and relations of symbolic sizes as torch's ShapeEnv writes them."""

import builtins
import random

import pytest
import sympy
import torch
from torch.utils._sympy.functions import CeilToInt, FloorDiv, IntTrueDiv, Max, Min, Mod, PowByNatural

from core import torch_compat
from core.guards import (
    Binding,
    DictItemSource,
    DictKeys,
    Equals,
    Guard,
    GuardSet,
    InstanceAttrSource,
    Is,
    Length,
    LocalSource,
    MissingInstanceAttr,
    ShapeHolds,
    TensorMatch,
    TensorSpec,
    TypeIs,
)
from core.guards.shapes import ShapeNotExpressible
from core.guards.tree import build_program

SELF = LocalSource("self", 0)
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


@pytest.fixture(autouse=True)
def calibrated():
    torch_compat.calibrate_tensor_guards()


def guards_of(module, source):
    """What a capture that inlines a module assumes about it."""
    yield Guard(source, TypeIs(type(module)))
    yield Guard(source, MissingInstanceAttr("forward"))
    yield Guard(InstanceAttrSource(source, "training"), Equals(module.training))
    for name in HOOKS:
        yield Guard(InstanceAttrSource(source, name), Length(0))
    for kind in ("_parameters", "_buffers"):
        for name, value in getattr(module, kind).items():
            entry = DictItemSource(InstanceAttrSource(source, kind), name)
            yield Guard(entry, TensorMatch(TensorSpec.of(value)) if value is not None else Is(None))
    children = InstanceAttrSource(source, "_modules")
    yield Guard(children, DictKeys(tuple(module._modules)))
    for name, child in module._modules.items():
        yield Guard(DictItemSource(children, name), Is(child))
        yield from guards_of(child, DictItemSource(children, name))


def net(count=5):
    return torch.nn.Sequential(*[torch.nn.Linear(3, 3) for _ in range(count)], torch.nn.BatchNorm1d(3))


def verdict(program, module):
    return program.check((module,), globals(), vars(builtins), None) == -1


def test_each_way_of_changing_a_module_misses_and_restoring_it_hits():
    module = net()
    program, _ = build_program(GuardSet(guards_of(module, SELF)))
    layer = module[2]
    weight, bias = layer.weight, layer.bias

    def hook():
        handle.append(layer.register_forward_hook(lambda *args: None))

    handle = []
    changes = [
        (lambda: module.eval(), lambda: module.train()),
        (lambda: layer.eval(), lambda: layer.train()),
        (hook, lambda: handle.pop().remove()),
        (lambda: module.half(), lambda: module.float()),
        (lambda: layer.requires_grad_(False), lambda: layer.requires_grad_(True)),
        (lambda: setattr(layer, "bias", None), lambda: setattr(layer, "bias", bias)),
        (
            lambda: setattr(layer, "weight", torch.nn.Parameter(torch.ones(3, 4))),
            lambda: setattr(layer, "weight", weight),
        ),
        (lambda: setattr(weight, "data", torch.ones(4, 4)), lambda: setattr(weight, "data", torch.ones(3, 3))),
        (lambda: module.__setitem__(2, torch.nn.Linear(3, 3)), lambda: module.__setitem__(2, layer)),
        (lambda: module.append(torch.nn.ReLU()), lambda: module.__delitem__(6)),
        (lambda: setattr(layer, "forward", print), lambda: delattr(layer, "forward")),
    ]
    for number, (change, undo) in enumerate(changes * 2):
        assert verdict(program, module) and verdict(program, module), number
        change()
        assert not verdict(program, module) and not verdict(program, module), number
        undo()
    assert verdict(program, module)


def test_training_steps_and_unrelated_attributes_keep_the_hit():
    module = net()
    program, _ = build_program(GuardSet(guards_of(module, SELF)))
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    assert verdict(program, module)
    for step in range(20):
        module.step = step
        module[1].calls = step
        module(torch.ones(4, 3)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        module.load_state_dict(module.state_dict())
        assert verdict(program, module)
    assert program._armed()["ready"] and program._armed()["credit"] > 180


def test_the_armed_part_covers_all_but_the_tensors():
    module = net(100)
    program, _ = build_program(GuardSet(guards_of(module, SELF)))
    assert verdict(program, module) and verdict(program, module)
    armed = program._armed()
    assert armed["residual"] == 200 + 5
    assert armed["records"] < 12 * 103


def test_an_equal_module_is_told_apart_by_identity_of_its_children():
    one, two = net(), net()
    program, _ = build_program(GuardSet(guards_of(one, SELF)))
    assert verdict(program, one) and not verdict(program, two) and verdict(program, one)


def test_a_dropped_module_is_freed_and_its_program_says_so():
    import gc
    import weakref

    module = net()
    program, owners = build_program(GuardSet(guards_of(module, SELF)))
    assert verdict(program, module) and verdict(program, module)
    gone = weakref.ref(module[0])
    del module
    gc.collect()
    assert gone() is None and program.invalid


S, T = sympy.Symbol("s0", integer=True, positive=True), sympy.Symbol("s1", integer=True, positive=True)
X, Y = LocalSource("x", 0), LocalSource("y", 1)
BINDINGS = (("s0", Binding(X, "size", 0)), ("s1", Binding(Y)))


def holds(expr, size, number):
    program, _ = build_program(GuardSet([Guard(None, ShapeHolds(expr, BINDINGS))]))
    return program.check((torch.empty(size, 2), number), {}, vars(builtins), None) == -1


def expressions(rng, depth):
    """A random integer expression of the two symbols."""
    if depth == 0:
        return rng.choice([S, T, sympy.Integer(rng.randint(1, 9))])
    left, right = expressions(rng, depth - 1), expressions(rng, depth - 1)
    kind = rng.randrange(8)
    return [
        lambda: left + right,
        lambda: left - right,
        lambda: left * right,
        lambda: FloorDiv(left, right),
        lambda: Mod(left, right),
        lambda: Min(left, right),
        lambda: Max(left, right),
        lambda: left - 2 * right + 1,
    ][kind]()


def test_random_relations_hold_exactly_when_sympy_says_so():
    rng = random.Random(11)
    compared = 0
    for _ in range(400):
        try:
            relation = rng.choice([sympy.Eq, sympy.Ne, sympy.Lt, sympy.Le, sympy.Gt, sympy.Ge])(
                expressions(rng, 2), expressions(rng, 2)
            )
        except (ZeroDivisionError, AssertionError):
            continue
        for _ in range(3):
            size, number = rng.randint(1, 12), rng.randint(1, 12)
            try:
                expected = bool(relation.subs({S: size, T: number}))
            except (ZeroDivisionError, TypeError, AssertionError):
                continue  # a division by zero or a negative modulus: no statement
            assert holds(relation, size, number) == expected, (relation, size, number)
            compared += 1
    assert compared > 600


def test_powers_true_division_and_ceilings():
    assert holds(sympy.Eq(PowByNatural(S, sympy.Integer(3)), 27, evaluate=False), 3, 1)
    assert holds(sympy.Eq(S**2, 9, evaluate=False), 3, 1) and not holds(sympy.Eq(S**2, 9, evaluate=False), 4, 1)
    assert holds(sympy.Eq(CeilToInt(IntTrueDiv(S, T)), 3, evaluate=False), 5, 2)
    assert not holds(sympy.Eq(CeilToInt(IntTrueDiv(S, T)), 3, evaluate=False), 7, 2)
    assert holds(sympy.And(S > 2, sympy.Or(T < 3, sympy.Eq(S, 9))), 3, 1)
    assert not holds(sympy.And(S > 2, sympy.Or(T < 3, sympy.Eq(S, 9))), 3, 4)
    assert holds(sympy.Not(sympy.And(S > 2, T > 2)), 3, 1)
    assert holds(sympy.S.true, 1, 1) and not holds(sympy.S.false, 1, 1)


def test_what_has_no_token_is_refused_by_name():
    with pytest.raises(ShapeNotExpressible, match="sin"):
        holds(sympy.Lt(sympy.sin(S), 1), 1, 1)
    with pytest.raises(ShapeNotExpressible, match="stands for no input"):
        holds(sympy.Lt(sympy.Symbol("u0"), 1), 1, 1)
    with pytest.raises(ShapeNotExpressible, match="beyond 64 bits"):
        holds(sympy.Lt(S, 2**70), 1, 1)


def test_relations_read_as_python():
    check = ShapeHolds(sympy.Lt(S * 2, T, evaluate=False), BINDINGS)
    assert check.describe("") == "2*L['x'].shape[0] < L['y']"
