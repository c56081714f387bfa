"""Tensor guards: each fact of a tensor that a spec holds is compared, in both ways of reading a tensor."""

import builtins
import gc
import sys

import pytest
import torch

from core import _C, torch_compat
from core.guards import (
    Binding,
    Guard,
    GuardSet,
    ListItemSource,
    LocalSource,
    NoOverlap,
    ShapeHolds,
    TensorMatch,
    TensorSpec,
)
from core.guards.failure import describe_failure
from core.guards.tree import build_program
from core.torch_compat import calibration

X = LocalSource("x", 0)


class Subclass(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return super().__torch_function__(function, types, args, kwargs or {})


class Wrapper(torch.Tensor):
    """A tensor that handles dispatch itself."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        raise AssertionError("user code ran")


@pytest.fixture(params=["A", "B"])
def tier(request):
    """Reads tensors by offsets (A) or through torch's exported functions (B)."""
    torch_compat.calibrate_tensor_guards()
    samples = [(tensor, torch_compat.dispatch_key_bits(tensor)) for tensor in calibration._sample_tensors()]
    got = _C.tensor_abi.calibrate(torch, samples, torch._C._dispatch_keys, request.param)
    yield got
    _C.tensor_abi.calibrate(torch, samples, torch._C._dispatch_keys)


def hits(program, *args):
    return program.check(args, globals(), vars(builtins), None) == -1


def spec_program(spec):
    return build_program(GuardSet([Guard(X, TensorMatch(spec))]))


def inference():
    with torch.inference_mode():
        return torch.ones(2, 3)


def base():
    return torch.arange(24, dtype=torch.float32)


TENSORS = {
    "plain": lambda: torch.ones(2, 3),
    "other size": lambda: torch.ones(2, 4),
    "other rank": lambda: torch.ones(6),
    "scalar": lambda: torch.ones(()),
    "empty": lambda: torch.ones(0, 3),
    "double": lambda: torch.ones(2, 3, dtype=torch.float64),
    "int": lambda: torch.ones(2, 3, dtype=torch.int32),
    "uint16": lambda: torch.ones(2, 3, dtype=torch.uint16),
    "bool": lambda: torch.ones(2, 3, dtype=torch.bool),
    "bfloat16": lambda: torch.ones(2, 3, dtype=torch.bfloat16),
    "float8": lambda: torch.ones(2, 3).to(torch.float8_e4m3fn),
    "complex": lambda: torch.ones(2, 3, dtype=torch.complex64),
    "transposed": lambda: torch.ones(3, 2).t(),
    "strided": lambda: torch.ones(2, 6)[:, ::2],
    "expanded": lambda: torch.ones(1, 3).expand(2, 3),
    "requires grad": lambda: torch.ones(2, 3, requires_grad=True),
    "non-leaf without storage of its own": lambda: torch.ones(2, 6, requires_grad=True)[:, ::2],
    "parameter": lambda: torch.nn.Parameter(torch.ones(2, 3)),
    "frozen parameter": lambda: torch.nn.Parameter(torch.ones(2, 3), requires_grad=False),
    "meta": lambda: torch.ones(2, 3, device="meta"),
    "conj": lambda: torch.ones(2, 3, dtype=torch.complex64).conj(),
    "neg": lambda: torch.ones(2, 3, dtype=torch.complex64).conj().imag.contiguous().reshape(2, 3)._neg_view(),
    "sparse": lambda: torch.ones(2, 3).to_sparse(),
    "sparse csr": lambda: torch.ones(2, 3).to_sparse_csr(),
    "inference": inference,
    "six dims": lambda: torch.ones(1, 2, 3, 4, 5, 6),
    "six dims, other last": lambda: torch.ones(1, 2, 3, 4, 5, 7),
    "six dims, permuted": lambda: torch.ones(2, 1, 3, 4, 5, 6).transpose(0, 1),
    "subclass": lambda: torch.ones(2, 3).as_subclass(Subclass),
    "wrapper subclass": lambda: Wrapper(torch.ones(2, 3)),
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(2, 3), 0.5, 0, torch.quint8),
    "zero tensor": lambda: torch._efficientzerotensor(2, 3),
}


@pytest.mark.filterwarnings("ignore")
def test_every_kind_of_tensor_matches_itself_and_no_other(tier):
    programs = {name: spec_program(TensorSpec.of(make()))[0] for name, make in TENSORS.items()}
    values = {name: make() for name, make in TENSORS.items()}
    for spec_name, program in programs.items():
        accepted = {name for name, value in values.items() if hits(program, value)}
        assert accepted == {spec_name}


def test_a_non_leaf_that_requires_grad_is_told_from_one_that_does_not(tier):
    weight = torch.ones(2, 3, requires_grad=True)
    program, _ = spec_program(TensorSpec.of(torch.ones(2, 3) * 2))
    grad_program, _ = spec_program(TensorSpec.of(weight * 2))
    assert hits(grad_program, weight * 3) and hits(grad_program, weight.detach().requires_grad_())
    assert not hits(program, weight * 3)
    assert hits(program, (weight * 3).detach())
    with torch.no_grad():
        assert hits(program, weight * 3)


def test_switching_requires_grad_in_place_is_seen(tier):
    value = torch.ones(2, 3)
    program, _ = spec_program(TensorSpec.of(value))
    assert hits(program, value)
    assert not hits(program, value.requires_grad_())
    assert hits(program, value.requires_grad_(False))


def test_in_place_changes_of_metadata_are_seen(tier):
    value = torch.ones(2, 3)
    program, _ = spec_program(TensorSpec.of(value))
    for change, undo in [
        (lambda: value.resize_(3, 3), lambda: value.resize_(2, 3)),
        (lambda: value.t_(), lambda: value.t_()),
        (lambda: value.unsqueeze_(0), lambda: value.squeeze_(0)),
        (lambda: value.set_(torch.ones(5)), lambda: value.set_(torch.ones(2, 3))),
    ]:
        assert hits(program, value)
        change()
        assert not hits(program, value)
        undo()
    assert hits(program, value)


def test_new_data_of_another_dtype_is_seen_though_the_object_stays(tier):
    module = torch.nn.Linear(3, 2)
    weight = module.weight
    program, _ = spec_program(TensorSpec.of(weight))
    assert hits(program, weight)
    module.half()
    assert module.weight is weight and not hits(program, weight)
    module.float()
    assert hits(program, weight)


def test_free_dimensions_accept_any_size_and_dependent_strides(tier):
    program, _ = spec_program(TensorSpec.of(torch.ones(4, 5, 6), free_sizes=(1,)))
    assert hits(program, torch.ones(4, 9, 6)) and hits(program, torch.ones(4, 1, 6))
    assert not hits(program, torch.ones(3, 5, 6)) and not hits(program, torch.ones(4, 5, 7))
    wide = TensorSpec.of(torch.ones(1, 2, 3, 4, 5, 6), free_sizes=(5,))
    program, _ = spec_program(wide)
    assert hits(program, torch.ones(1, 2, 3, 4, 5, 8)) and not hits(program, torch.ones(1, 2, 3, 4, 4, 6))


def test_what_is_no_tensor_misses(tier):
    program, _ = spec_program(TensorSpec.of(torch.ones(2, 3)))
    assert not any(hits(program, value) for value in (None, 1, "x", [torch.ones(2, 3)], torch.Tensor, object()))


def test_strides_of_broken_up_tensors_matter_only_where_they_are_fixed(tier):
    spec = TensorSpec.of(torch.ones(2, 3), free_strides=(0, 1))
    program, _ = spec_program(spec)
    assert hits(program, torch.ones(3, 2).t()) and hits(program, torch.ones(2, 6)[:, ::2])


def test_relations_of_sizes_strides_and_offsets(tier):
    import sympy

    s, t = sympy.symbols("s t", integer=True)
    y = LocalSource("y", 1)
    guards = GuardSet(
        [
            Guard(X, TensorMatch(TensorSpec.of(torch.ones(4, 6), free_sizes=(0, 1)))),
            Guard(y, TensorMatch(TensorSpec.of(torch.ones(6), free_sizes=(0,)))),
            Guard(
                None,
                ShapeHolds(
                    sympy.Eq(s * 2, t, evaluate=False), (("s", Binding(X, "size", 1)), ("t", Binding(y, "size", 0)))
                ),
            ),
            Guard(None, ShapeHolds(sympy.Eq(s, 3, evaluate=False), (("s", Binding(X, "offset")),))),
        ]
    )
    program, owners = build_program(guards)
    assert hits(program, torch.ones(100)[3:23].view(4, 5), torch.ones(10))
    assert not hits(program, torch.ones(100)[4:24].view(4, 5), torch.ones(10))
    bad = (torch.ones(100)[3:23].view(4, 5), torch.ones(11))
    assert not hits(program, *bad)
    text = describe_failure(owners, program, bad, globals(), vars(builtins), None)
    assert "L['x'].shape[1] is 5" in text and "L['y'].shape[0] is 11" in text


def test_overlap_is_judged_by_bytes(tier):
    sources = tuple(LocalSource(name, slot) for slot, name in enumerate("abc"))
    program, _ = build_program(GuardSet([Guard(None, NoOverlap(sources))]))
    whole = base()
    assert hits(program, whole[:8], whole[8:16], whole[16:])
    assert not hits(program, whole[:9], whole[8:16], whole[16:])
    assert not hits(program, whole[:1].expand(3), whole[8:16], whole[0])
    assert hits(program, whole[:0], whole, torch.ones(3, device="meta"))
    assert not hits(program, whole, whole.view(torch.int32)[:1], torch.ones(1))
    assert not hits(program, whole, torch.ones(2, 2).to_sparse(), torch.ones(1))


@pytest.mark.parametrize("way", ["A", "B"])
def test_layouts_are_told_by_keys_where_torch_exports_no_function_for_them(way):
    torch_compat.calibrate_tensor_guards()
    samples = [(tensor, torch_compat.dispatch_key_bits(tensor)) for tensor in calibration._sample_tensors()]
    unstrided = [torch.empty(2, 2, layout=kind) for kind in (torch.sparse_coo, torch.sparse_csc, torch._mkldnn)]
    try:
        assert _C.tensor_abi.calibrate(torch, samples, torch._C._dispatch_keys, way + "k") == way
        program, _ = build_program(GuardSet([Guard(None, NoOverlap((X, LocalSource("y", 1))))]))
        for tensor in (base(), base().conj(), torch.ones(2, requires_grad=True) * 2, inference(), Subclass(base())):
            assert hits(program, tensor, torch.ones(3))
            assert not hits(program, tensor, tensor[:1])
        for tensor in unstrided:
            assert not hits(program, tensor, torch.ones(3))
            with pytest.raises(TypeError, match="has no version or no memory"):
                _C.FrozenWeights((tensor,))
        assert not hits(program, Wrapper(torch.ones(2)), torch.ones(3))
    finally:
        _C.tensor_abi.calibrate(torch, samples, torch._C._dispatch_keys)


def test_the_reason_of_a_miss_names_the_fact_and_both_values():
    program, owners = spec_program(TensorSpec.of(torch.ones(4, 3)))

    def reason(value):
        return describe_failure(owners, program, (value,), globals(), vars(builtins), None)

    assert reason(torch.ones(5, 3)) == "L['x'].shape[0] was 4, now 5"
    assert reason(torch.ones(3, 4).t()) == "L['x'].stride(0) was 3, now 1"
    assert reason(torch.ones(4, 3, dtype=torch.float64)) == "L['x'].dtype was torch.float32, now torch.float64"
    assert reason(torch.ones(4, 3, device="meta")) == "L['x'].device was cpu, now meta"
    assert reason(torch.ones(4)) == "L['x'].ndim was 2, now 1"
    assert reason(torch.ones(4, 3, requires_grad=True)) == "L['x'].requires_grad was False, now True"
    assert reason(torch.nn.Parameter(torch.ones(4, 3))) == "type(L['x']) was Tensor, now Parameter"
    with torch.inference_mode():
        assert reason(torch.ones(4, 3)) == "L['x'].is_inference() was False, now True"
    assert reason(None) == "type(L['x']) was Tensor, now NoneType"
    assert reason(torch.ones(4, 3)) == "every guard holds (again) now"


def test_the_offsets_are_used_with_this_torch():
    assert torch_compat.calibrate_tensor_guards() == "A"


def test_a_million_tensor_checks_change_no_reference_count(tier):
    if tier == "B":
        times = 20_000
    else:
        times = 1_000_000
    weight = torch.ones(2, 3, requires_grad=True)
    value = weight * 2
    items = [value, weight]
    guards = GuardSet(Guard(ListItemSource(X, i), TensorMatch(TensorSpec.of(item))) for i, item in enumerate(items))
    program, _ = build_program(guards)
    bad = [value, weight.detach()]
    assert hits(program, items) and not hits(program, bad)
    frame = (globals(), vars(builtins), None)
    gc.collect()
    before = [sys.getrefcount(v) for v in (value, weight, items, torch.Tensor, program)]
    assert program._repeat(times // 2, (items,), *frame) == times // 2
    assert program._repeat(times // 2, (bad,), *frame) == 0
    assert [sys.getrefcount(v) for v in (value, weight, items, torch.Tensor, program)] == before


def test_a_dropped_program_gives_its_class_of_tensors_back():
    class Local(torch.Tensor):
        pass

    value = torch.ones(2).as_subclass(Local)
    spec_program(TensorSpec.of(value))
    gc.collect()
    before = sys.getrefcount(Local)
    for _ in range(100):
        program, owners = spec_program(TensorSpec.of(value))
        assert hits(program, value)
    del program, owners
    gc.collect()
    assert sys.getrefcount(Local) == before
