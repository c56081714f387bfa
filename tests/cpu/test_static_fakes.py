"""Fakes by rule: what a rule gives is what the operation gives on real tensors; where it is unsure, torch decides."""

from __future__ import annotations

import inspect
import itertools
import subprocess
import sys

import pytest
import torch

import core
from core import torch_compat
from core.graph import static_fakes
from core.graph.recorder import AtenRecord, new_recorder
from core.graph.tree import map_tree
from core.torch_compat import fakes

aten = torch.ops.aten
X, Y, Z = torch.randn(3, 4), torch.randn(3, 4), torch.randn(2, 3, 4)
WEIGHT, WIDE = torch.randn(4, 5), torch.randn(2, 4, 5)
INDICES = torch.tensor([[0, 2], [1, 1]])
FLAGS = X > 0
QUERY, KEY = (torch.randn(2, length, 3, 8).transpose(1, 2) for length in (5, 7))
FLAT = torch.randn(2, 3, 5, 8)
OPTIONS = {
    "_to_copy": {"dtype": torch.float64},
    "full": {"dtype": torch.float32},
    "scalar_tensor": {"dtype": torch.int64},
    "clone": {"memory_format": torch.contiguous_format},
}

UNARY = (
    "cos cosh erf erfc exp expm1 log log1p log2 reciprocal rsqrt sigmoid sin sinh sqrt tan tanh gelu silu relu "
    "leaky_relu hardtanh hardswish hardsigmoid neg abs floor ceil round trunc"
).split()
CALLS = {
    **{name: [(X,), (Z,), (X.double(),), (X.bfloat16(),), (torch.randn(0, 3),)] for name in UNARY},
    **{
        name: [
            *((X, Y), (Z, X), (X, Y[:1]), (X, torch.randn(())), (torch.randn(1), torch.randn(2, 1, 1))),
            *((INDICES, INDICES), (INDICES, INDICES.int()), (INDICES, X[:2, :2].contiguous()), (FLAGS, FLAGS)),
        ][: 5 if name in ("div.Tensor", "sub.Tensor") else None]
        for name in "add.Tensor sub.Tensor mul.Tensor div.Tensor maximum minimum".split()
    },
    "pow.Tensor_Scalar": [(X, 2), (X, 0.5)],
    "rsub.Scalar": [(X, 2), (X, 2.5)],
    **{f"{name}.Tensor": [(X, Y), (Z, X), (INDICES, INDICES)] for name in "eq ne lt le gt ge".split()},
    **{f"{name}.Scalar": [(X, 1), (INDICES, 1.5)] for name in "eq ne lt le gt ge".split()},
    **{f"{name}.Tensor": [(FLAGS, FLAGS), (INDICES, INDICES[:1])] for name in ("bitwise_and", "bitwise_or")},
    **{name: [(X, Y)] for name in "gelu_backward silu_backward sigmoid_backward tanh_backward".split()},
    "threshold_backward": [(X, Y, 0)],
    "mm": [(X, WEIGHT), (X, WEIGHT.t().contiguous().t()), (X.t(), Y)],
    "bmm": [(Z, WIDE), (Z.transpose(1, 2), Z)],
    "addmm": [(torch.randn(5), X, WEIGHT), (torch.randn(3, 5), X, WEIGHT), (torch.randn(3, 1), X, WEIGHT)],
    "baddbmm": [(torch.randn(5), Z, WIDE), (torch.randn(2, 3, 5), Z, WIDE)],
    "_softmax": [(X, -1, False), (Z, 0, False)],
    "_log_softmax": [(X, 1, False), (X.bfloat16(), 1, False)],
    "_softmax_backward_data": [(X, Y, 1, torch.float32)],
    "_log_softmax_backward_data": [(X, Y, 1, torch.float32)],
    **{
        name: [(Z, [1]), (Z, [0, -1]), (Z, [1], True), (X, [0, 1])]
        for name in "sum.dim_IntList mean.dim amax amin".split()
    },
    "native_layer_norm": [(X, [4], torch.randn(4), torch.randn(4), 1e-5), (Z, [3, 4], None, None, 1e-5)],
    "embedding": [(WEIGHT, INDICES), (WEIGHT, INDICES.int(), 1), (WEIGHT, torch.tensor(2))],
    "where.self": [(FLAGS, X, Y), (FLAGS[:1], X, torch.zeros(()))],
    "gather": [(X, 1, torch.zeros(3, 2, dtype=torch.int64)), (X, 0, torch.zeros(5, 4, dtype=torch.int64))],
    "index.Tensor": [(Z, [torch.tensor([0, 1, 1])]), (Z, [torch.tensor([[0], [1]]), torch.tensor([0, 2])])],
    "cat": [([X, Y],), ([X, torch.randn(3, 2)], -1), ([Z, Z, Z], 1)],
    "_to_copy": [(X,), (INDICES,)],
    "clone": [(X,), (Z,)],
    **{name: [(X,), (INDICES,)] for name in ("zeros_like", "ones_like", "empty_like")},
    "full_like": [(X, 2)],
    **{name: [(X, [2, 3]), (X.t(), []), (INDICES, [0])] for name in ("new_zeros", "new_ones", "new_empty")},
    "new_full": [(X, [2], 1)],
    **{name: [([2, 3],), ([],)] for name in ("zeros", "ones", "empty.memory_format")},
    "full": [([2, 3], 1.5)],
    "scalar_tensor": [(2.5,), (1,)],
    "arange": [(5,), (0,), (2.5,)],
    "arange.start": [(2, 7), (3, 3), (0.5, 4)],
    "_scaled_dot_product_flash_attention_for_cpu": [
        (QUERY, KEY, KEY),
        (QUERY, KEY, KEY, 0.0, True),
        (FLAT, FLAT, FLAT),
    ],
    "view": [(Z, [6, 4]), (Z, [-1])],
    "t": [(X,)],
    "transpose.int": [(Z, 0, 2)],
    "permute": [(Z, [2, 0, 1]), (Z.transpose(0, 1), [0, 2, 1])],
    "expand": [(X, [2, 3, 4]), (X[:1], [5, 4])],
    "unsqueeze": [(X, 1), (X.t(), -1)],
    "squeeze.dim": [(X[:1], 0)],
    "squeeze.dims": [(X[:1], [0, 1])],
    "alias": [(Z[1:],)],
    "detach": [(X.t(),)],
    "slice.Tensor": [(X, 1, 1, 4, 2)],
    "select.int": [(Z, 1, -1)],
    "split.Tensor": [(Z, 2, 1)],
    "split_with_sizes": [(Z, [1, 3], 2)],
    "unbind.int": [(Z, 1)],
    "diagonal": [(X,), (Z, 1, 0, 2)],
}


def operator(name):
    base, _, overload = name.partition(".")
    return getattr(getattr(aten, base), overload or "default")


def fakes_of(mode, args):
    return map_tree(lambda arg: torch_compat.fake_of(mode, arg, None) if isinstance(arg, torch.Tensor) else arg, args)


def geometry(tensor):
    return tuple(tensor.shape), tensor.stride(), tensor.storage_offset(), tensor.dtype, tensor.device


def test_every_rule_has_a_call_here():
    assert sorted(f"aten::{name}" for name in CALLS) == list(static_fakes.operators())


@pytest.mark.parametrize("name", CALLS)
def test_a_rule_gives_what_the_operation_gives(name):
    taken = 0
    for args in CALLS[name]:
        mode = torch_compat.fake_tensor_mode(None)
        given = fakes_of(mode, args)
        options = OPTIONS.get(name, {})
        found = static_fakes.run(mode, operator(name), tuple(given), options)
        if found is NotImplemented:  # left to torch, which is never wrong
            continue
        taken += 1
        wanted = operator(name)(*args, **options)
        assert type(found) is type(wanted) or isinstance(found, torch.Tensor)
        found, wanted = ((each,) if isinstance(each, torch.Tensor) else each for each in (found, wanted))
        assert [geometry(tensor) for tensor in found] == [geometry(tensor) for tensor in wanted]
        if isinstance(args[0], torch.Tensor) and args[0].numel():
            shares = [tensor.untyped_storage().data_ptr() == args[0].untyped_storage().data_ptr() for tensor in wanted]
            assert shares == [tensor.untyped_storage()._cdata == given[0].untyped_storage()._cdata for tensor in found]
    assert taken


@pytest.mark.parametrize("name", ["_to_copy", "zeros_like", "new_zeros", "full", "arange", "scalar_tensor"])
def test_the_device_that_a_call_asks_for(name):
    mode = torch_compat.fake_tensor_mode(None)
    args = CALLS[name][0]
    options = {"dtype": torch.float32, "device": torch.device("cpu"), "pin_memory": False}
    found = static_fakes.run(mode, operator(name), fakes_of(mode, args), options)
    assert geometry(found) == geometry(operator(name)(*args, **options))
    elsewhere = {**options, "device": torch.device("meta")}
    assert static_fakes.run(mode, operator(name), fakes_of(mode, args), elsewhere) is NotImplemented


ODD = {
    "transposed": lambda: X.t(),
    "integers": lambda: INDICES,
    "half precision beside single": lambda: X.half(),
    "complex": lambda: X.to(torch.complex64),
    "conjugated": lambda: X.to(torch.complex64).conj(),
    "of other sizes": lambda: torch.randn(7, 2),
    "on another device": lambda: torch.randn(3, 4, device="meta"),
    "sparse": lambda: X.to_sparse(),
}


@pytest.mark.parametrize(("name", "odd"), itertools.product(("add.Tensor", "mm", "exp", "gelu_backward"), ODD))
def test_what_a_rule_is_not_sure_of_is_left_to_torch(name, odd):
    mode = torch_compat.fake_tensor_mode(None)
    unary = name == "exp"
    real = (ODD[odd](),) if unary else (X, ODD[odd]())
    given = tuple(torch_compat.fake_of(mode, tensor, None) for tensor in real)
    found = static_fakes.run(mode, operator(name), given, {})
    if found is not NotImplemented:
        assert geometry(found) == geometry(operator(name)(*real))
        assert unary or name == "mm" or odd == "of other sizes"


def test_results_of_errors_and_symbols_are_torchs():
    mode = torch_compat.fake_tensor_mode(None)
    x, y = (torch_compat.fake_of(mode, tensor, None) for tensor in (X, torch.randn(5, 6)))
    for call in ((aten.mm.default, (x, y)), (aten.sum.dim_IntList, (x, [7])), (aten.add.Tensor, (x, y))):
        assert static_fakes.run(mode, *call, {}) is NotImplemented
    symbolic = torch_compat.fake_tensor_mode(torch_compat.shape_env(scalar_outputs=False))
    x = torch_compat.fake_of(symbolic, X, None)
    assert static_fakes.run(symbolic, aten.add.Tensor, (x, x), {}) is NotImplemented


LEAVES = {
    "a tensor": lambda: torch.randn(3, 4),
    "a transposed tensor of its own": lambda: torch.empty_strided((3, 4), (1, 3)),
    "a leaf with gradients": lambda: torch.randn(3, requires_grad=True),
    "a parameter": lambda: torch.nn.Parameter(torch.randn(2, 2)),
    "a frozen parameter": lambda: torch.nn.Parameter(torch.randn(2, 2), requires_grad=False),
    "a buffer": lambda: torch.nn.Buffer(torch.arange(4), persistent=False),
    "a part of a memory": lambda: torch.randn(8).data[2:6].detach(),
    "a tensor without elements": lambda: torch.randn(0, 2),
}


@pytest.mark.parametrize("name", LEAVES)
def test_a_fake_made_directly_is_the_one_that_torch_makes(name):
    real = LEAVES[name]()
    ours_mode, theirs_mode = torch_compat.fake_tensor_mode(None), torch_compat.fake_tensor_mode(None)
    assert fakes.is_plain_leaf(real)
    ours, theirs = fakes.plain_fake(ours_mode, real), torch_compat.fake_of(theirs_mode, real, None)
    assert geometry(ours) == geometry(theirs)
    assert type(ours) is type(theirs)
    assert isinstance(ours, torch.nn.Parameter) == isinstance(theirs, torch.nn.Parameter)
    assert isinstance(ours, torch.nn.Buffer) == isinstance(theirs, torch.nn.Buffer)
    assert (ours.requires_grad, ours.is_leaf, ours._is_view()) == (
        theirs.requires_grad,
        theirs.is_leaf,
        theirs._is_view(),
    )
    assert ours.untyped_storage().nbytes() == theirs.untyped_storage().nbytes()
    assert fakes.plain_fake(ours_mode, real) is ours and torch_compat.fake_of(ours_mode, real, None) is ours


def test_fakes_of_tensors_on_one_memory_share_theirs_whichever_way_they_are_made():
    real = torch.randn(4, 4)
    view, other = real[1:], real.data
    for order in itertools.permutations((real, view, other)):
        mode = torch_compat.fake_tensor_mode(None)
        made = [
            fakes.plain_fake(mode, tensor) if fakes.is_plain_leaf(tensor) else torch_compat.fake_of(mode, tensor, None)
            for tensor in order
        ]
        assert len({fake.untyped_storage()._cdata for fake in made}) == 1


PROGRAM = """
import sys, torch, core
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.LayerNorm(8), torch.nn.GELU(), torch.nn.Linear(8, 2)).eval()
x = torch.randn(3, 4)
with torch.no_grad():
    compiled = core.compile(net, fullgraph=True)
    assert torch.allclose(compiled(x), net(x), atol=1e-5)
    assert core.stats()["graphs"] == 1
    unwanted = {"sympy", "torch.fx.experimental.symbolic_shapes", "torch.distributed.tensor", "torch._dynamo"}
    assert not unwanted & set(sys.modules), unwanted & set(sys.modules)
    assert compiled(torch.randn(5, 4)).shape == (5, 2)
    assert "sympy" in sys.modules and core.stats()["recompiles"] == 1  # the second size made it a symbol
print("fine")
"""


def test_a_program_without_symbols_does_not_import_sympy():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0 and done.stdout.strip() == "fine", done.stderr[-3000:]


def test_the_recorder_notes_the_same_calls_by_rule_and_by_torch(monkeypatch):
    def recorded():
        mode = torch_compat.fake_tensor_mode(None)
        record = AtenRecord(mode, None)
        fake = torch_compat.fake_of(mode, X, None)
        record.add_input(fake)
        with mode, new_recorder(record):
            result = torch.nn.functional.layer_norm(fake @ fake.t(), (3,)).relu().sum(1)
        return [str(call.op) for call in record.calls], geometry(result)

    by_rule = recorded()
    taken = []
    original = static_fakes.run
    monkeypatch.setattr(static_fakes, "run", lambda *call: taken.append(original(*call)) or NotImplemented)
    assert recorded() == by_rule
    assert sum(result is not NotImplemented for result in taken) >= 5


def test_every_rule_takes_every_argument_that_its_operator_has():
    for name, rule in static_fakes._RULES.items():
        packet, _, overload = name.removeprefix("aten::").partition(".")
        schema = getattr(getattr(aten, packet), overload or "default")._schema
        given = [None for argument in schema.arguments if not argument.kwarg_only]
        named = {argument.name: None for argument in schema.arguments if argument.kwarg_only}
        inspect.signature(rule).bind(None, *given, **named)


def test_a_number_less_a_multiple_of_a_tensor_and_a_sparse_gradient():
    def fn(x, index):
        return torch.rsub(x, 2, alpha=3), torch.gather(x, 1, index, sparse_grad=True)

    index = torch.zeros(3, 1, dtype=torch.int64)
    for x in (X, INDICES.repeat(2, 2)[:3]):
        for backend in ("eager", "aot_eager"):
            got = core.compile(fn, backend=backend, fullgraph=True)(x, index)
            assert all(map(torch.equal, got, fn(x, index)))
