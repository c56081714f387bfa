"""Nested tensors of the jagged layout: inputs, made inside, results; one graph for all lengths of their components."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
import torch.utils._pytree as pytree

import core

BACKENDS = ("eager", "aot_eager")


def jagged(lengths=(2, 3, 4), grad=False, width=4):
    parts = [torch.randn(length, width) for length in lengths]
    return torch.nested.nested_tensor(parts, layout=torch.jagged).requires_grad_(grad)


def plain(*size, grad=False):
    return torch.randn(*size or (4, 4), requires_grad=grad)


def offsets():
    return torch.tensor([0, 2, 5, 9])


def described(tree):
    found = []
    for leaf in pytree.tree_leaves(tree):
        if not isinstance(leaf, torch.Tensor):
            found.append(leaf)
            continue
        found += [type(leaf), leaf.requires_grad, leaf.dtype, leaf.is_nested]
        dense = [leaf.values(), leaf.offsets()] if leaf.is_nested else [leaf]
        found += [(tuple(part.shape), part.detach().double().round(decimals=4).tolist()) for part in dense]
    return found


def outcome(program, make):
    torch.manual_seed(0)
    given = make()
    result = program(*given)
    for leaf in pytree.tree_leaves(result):
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
            leaf.backward(torch.ones_like(leaf), retain_graph=True)
    leaves = [leaf for leaf in given if isinstance(leaf, torch.Tensor)]
    return described(result), described(leaves), described([leaf.grad for leaf in leaves if leaf.is_leaf])


def made_inside(values, ends):
    return torch.nested.nested_tensor_from_jagged(values, ends) * 2


def made_of(first, second):
    return torch.nested.as_nested_tensor([first, second], layout=torch.jagged) * 2


PROGRAMS = {
    "pointwise": (lambda x: (x * 2 + 1).sin().relu(), lambda: (jagged(),)),
    "of one structure": (lambda x, y: x + y, lambda: (lambda x: (x, x * 2))(jagged())),
    "linear": (F.linear, lambda: (jagged(), plain())),
    "matmul": (lambda x, y: x @ y, lambda: (jagged(), plain())),
    "a bias": (lambda x, y: x * y, lambda: (jagged(), plain(4))),
    "sum": (lambda x: (x.sum(-1), x.sum(1)), lambda: (jagged(),)),
    "softmax": (lambda x: torch.softmax(x, -1), lambda: (jagged(),)),
    "padded": (lambda x: torch.nested.to_padded_tensor(x, 0.0), lambda: (jagged(),)),
    "transposed": (lambda x: x.transpose(1, 2) * 2, lambda: (jagged(),)),
    "reshaped": (lambda x: x.reshape(x.shape[0], x.shape[1], 2, 2) * 1, lambda: (jagged(),)),
    "what it is made of": (lambda x: (x.values() + 1, x.offsets() + 1), lambda: (jagged(),)),
    "sizes": (lambda x: torch.zeros(x.size(0), x.size(2)) + x.dim(), lambda: (jagged(),)),
    "layout": (lambda x: x * 2 if x.is_nested and x.layout is torch.jagged else x, lambda: (jagged(),)),
    "written": (lambda x: x.mul_(2), lambda: (jagged(),)),
    "made of values": (made_inside, lambda: (plain(9, 4), offsets())),
    "made of tensors": (
        lambda *xs: torch.nested.as_nested_tensor([*xs], layout=torch.jagged) * 2,
        lambda: [plain()] * 2,
    ),
    "gradient": (lambda x: (x * 2).sin(), lambda: (jagged(grad=True),)),
    "gradient of linear": (F.linear, lambda: (jagged(grad=True), plain(grad=True))),
    "gradient of norm": (lambda x: F.layer_norm(x, (4,)), lambda: (jagged(grad=True),)),
    "gradient of mean": (lambda x: x.mean(dim=-1, keepdim=True), lambda: (jagged(grad=True),)),
    "gradient of values": (lambda x: (x * 2).values(), lambda: (jagged(grad=True),)),
    "gradient through one made": (made_inside, lambda: (plain(9, 4, grad=True), offsets())),
    "gradient to plain": (lambda *xs: made_inside(*xs).sin().values(), lambda: (plain(9, 4, grad=True), offsets())),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_on_jagged_tensors_is_one_graph_with_the_results_of_eager(name, backend):
    program, make = PROGRAMS[name]
    expected = outcome(program, make)
    assert outcome(core.compile(program, backend=backend), make) == expected
    assert (core.stats()["graphs"], core.stats()["breaks"]) == (1, 0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_ragged_size_is_a_symbol_from_the_first_call_on(backend):
    layer = torch.nn.Linear(4, 4)

    def program(x):
        return (layer(x) * 2).sin()

    compiled = core.compile(program, backend=backend)
    for lengths in ((2, 3, 4), (1, 2, 9), (4, 4, 1), (7, 1, 1)):
        make = lambda lengths=lengths: (jagged(lengths, grad=True),)  # noqa: E731
        assert outcome(compiled, make) == outcome(program, make)
    assert (core.stats()["graphs"], core.stats()["recompiles"]) == (1, 0)
    for lengths in ((2, 3), (1, 2, 3, 4, 5), (6,)):
        make = lambda lengths=lengths: (jagged(lengths, grad=True),)  # noqa: E731
        assert outcome(compiled, make) == outcome(program, make)
    assert (core.stats()["graphs"], core.stats()["recompiles"]) == (2, 1)


def test_the_result_has_the_ragged_size_of_its_input():
    x = jagged()
    made = core.compile(lambda x: x * 2, backend="aot_eager")(x)
    assert made.shape == x.shape
    assert torch.equal((made + x).values(), x.values() * 3)


def test_whether_two_tensors_have_one_structure_is_guarded():
    compiled = core.compile(lambda x, y: (x * 2, x.shape == y.shape), backend="eager")
    x, other = jagged(), jagged()
    assert [compiled(*given)[1] for given in ((x, x + 1), (x, other), (other, other))] == [True, False, True]


def test_tensors_of_different_structure_raise_what_eager_raises():
    x, other = jagged(), jagged()
    with pytest.raises(RuntimeError, match="cannot call binary pointwise function"):
        core.compile(lambda x, y: x + y, backend="aot_eager")(x, other)


def test_attention_over_components_breaks_where_it_reads_their_lengths():
    def attend(x):
        heads = x.unflatten(-1, [2, 2]).transpose(1, 2)
        return F.scaled_dot_product_attention(heads, heads, heads).transpose(1, 2).flatten(-2)

    make = lambda: (jagged(),)  # noqa: E731
    assert outcome(core.compile(attend, backend="aot_eager"), make) == outcome(attend, make)
    assert core.stats()["breaks"] == 1
