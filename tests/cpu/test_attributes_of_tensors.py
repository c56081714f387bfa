"""What a program sets on tensors, and the addresses that it asks of them."""

from __future__ import annotations

import copy

import pytest
import torch

import core


def on_what_the_graph_makes(x):
    y = x + 1
    y.tag, y.parts = 3, [x]
    same, other = y.contiguous(), y.detach()
    same.more = y.tag + 2
    y.mul_(2)
    return {"kept": y}, y.more, hasattr(other, "tag"), y.view(-1), y.parts[0] is x


def across_a_break(x):
    y = x.clone()
    y.tag = x * 2
    print(end="")
    return y.tag + y, y


def in_a_part_of_the_graph(x):
    def inner(x):
        y = x * 2
        y.tag = 4
        return y

    z = torch.utils.checkpoint.checkpoint(inner, x, use_reentrant=False)
    return z, getattr(z, "tag", None)


def copied(x):
    return copy.deepcopy(x), x + 1


def addresses(x):
    y = x
    seen = {id(x): 1}
    return x + (id(x) == id(y)), id(x) == id(x + 1), seen[id(y)], id(x + 2) in seen


def shown(value):
    """Tensors with what is set on them."""
    if isinstance(value, torch.Tensor):
        own = {name: shown(item) for name, item in value.__dict__.items()}
        return value.detach().tolist(), value.requires_grad, own
    if isinstance(value, (tuple, list)):
        return [shown(item) for item in value]
    return {key: shown(item) for key, item in value.items()} if isinstance(value, dict) else value


@pytest.mark.parametrize(
    "fn, breaks",
    [(on_what_the_graph_makes, 0), (across_a_break, 1), (in_a_part_of_the_graph, 1), (addresses, 0)],
)
@pytest.mark.parametrize("gradients", [False, True])
def test_tensors_keep_what_is_set_on_them(fn, breaks, gradients):
    core.reset()
    compiled = core.compile(fn, backend="eager")
    for _ in range(2):
        x = torch.ones(2, requires_grad=gradients)
        assert shown(compiled(x)) == shown(fn(x))
    assert (core.stats()["breaks"], core.stats()["skipped"]) == (breaks, 0)


def test_a_deep_copy_of_a_tensor_has_its_attributes():
    compiled, x = core.compile(copied, backend="eager"), torch.ones(2)
    for tag in (None, None, "set", None):
        x.__dict__.clear()
        if tag is not None:
            x.tag = tag
        assert shown(compiled(x)) == shown(copied(x))


def test_an_address_that_is_given_back_is_the_tensors_own():
    compiled, x = core.compile(lambda x: (id(x), x + 1), backend="eager", fullgraph=True), torch.ones(2)
    assert compiled(x)[0] == id(x)
