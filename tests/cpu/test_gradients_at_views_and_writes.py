"""Results that are views, and inputs that the graph writes to, are on the way of gradients as in eager."""

from __future__ import annotations

import pytest
import torch
from compare import check_close

import core

BACKENDS = ("eager", "aot_eager", "inductor")


def written_and_its_view(y, q, z):
    y.mul_(3)
    view = y.view(-1)
    return y, view, view.sin()


def written_and_read_before(y, q, z):
    before = (y * 2).tanh()
    y.mul_(3)
    q.add_(y)
    return y, q, before + y * q


def first_history_of_a_buffer(y, q, z):
    z.copy_(y.sin())
    return z, z.t(), z.exp() * q


def view_of_an_input(y, q, z):
    view = y.view(-1)
    return view, view.sin() * 2


def view_of_a_result(y, q, z):
    made = y.sin()
    view = made.t()
    return made, view, view.exp().t() + y


def view_of_a_view(y, q, z):
    view = y.unsqueeze(0)
    return view, view.squeeze(0), view.squeeze(0).cos() * q


def one_of_several_views(y, q, z):
    first, second = y.split(2, 1)
    return first, second, (first * second).cos()


def way_around_a_view(y, q, z):
    flat = y.view(-1)
    part = flat[2:5]
    return part, part.exp(), flat.sin() + part.exp().sum()


def result_around_its_own_view(y, q, z):
    made = y.sin()
    twice = made * 2
    view = twice.t()
    return twice, view, view.exp().t() + made


def view_after_a_write_without_gradients(y, q, z):
    with torch.no_grad():
        q.mul_(3)
    view = q.t()
    return view, view.sin()


PROGRAMS = (
    written_and_its_view,
    written_and_read_before,
    first_history_of_a_buffer,
    view_of_an_input,
    view_of_a_result,
    view_of_a_view,
    one_of_several_views,
    way_around_a_view,
    result_around_its_own_view,
    view_after_a_write_without_gradients,
)


def inputs():
    torch.manual_seed(0)
    leaves = [torch.randn(3, 4, requires_grad=True) for _ in range(2)]
    return leaves, [leaves[0] * 2, leaves[1] * 1.5, torch.zeros(3, 4)]


def tried(step):
    try:
        return step()
    except RuntimeError as error:
        return next((word for word in ("a second time", "inplace operation") if word in str(error)), str(error))


def loss(tensors):
    return sum(each.sin().sum() for each in tensors)


def facts(results, arguments):
    known = {id(each): at for at, each in enumerate([*arguments, *results])}
    every = [*results, *arguments]
    return [(t.requires_grad, t.is_leaf, t._is_view(), known.get(id(t._base)), known[id(t)]) for t in every]


def gradients(results, leaves, arguments):
    ends = [each for each in (*results, *arguments, *leaves) if each.requires_grad]
    last, every = loss(results[-1:]), loss(results)
    return [torch.autograd.grad(each, ends, allow_unused=True, retain_graph=True) for each in (last, every)]


def hooks(results, leaves, arguments):
    seen = {}
    for at, each in enumerate((*results, *arguments)):
        if each.requires_grad:
            each.register_hook(lambda gradient, at=at: seen.__setitem__(at, gradient) or gradient * 2)
            each.retain_grad()
    loss(results).backward()
    return [sorted(seen.items()), [each.grad for each in (*results, *arguments, *leaves)]]


def one_after_the_other(results, leaves, arguments):
    found = []
    for each in results:
        found += [tried(loss([each]).backward), [leaf.grad is not None and leaf.grad.clone() for leaf in leaves]]
    return found


def agree(program, backend, *callers):
    """What each caller notes of the results, compiled and in eager."""
    core.reset()
    compiled = core.compile(program, backend=backend)
    for caller in callers:
        notes = []
        for run in (compiled, program):
            leaves, arguments = inputs()
            results = run(*arguments)
            notes.append([facts(results, arguments), caller(results, leaves, arguments)])
        check_close(*notes)
    assert core.stats()["graphs"] == 1
    assert core.stats()["breaks"] == 0


@pytest.mark.filterwarnings("ignore:The .grad attribute")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_gradients_hooks_and_facts_are_eagers(program, backend):
    agree(program, backend, gradients, hooks, one_after_the_other)


def test_gradients_of_gradients_go_through_a_view():
    def caller(results, leaves, arguments):
        ends = [results[0], *leaves[:1]]
        first = torch.autograd.grad(loss(results[-1:]), ends, create_graph=True)
        return [first, torch.autograd.grad(loss(first), leaves[0])]

    for program in (view_of_an_input, view_of_a_result, view_of_a_view, way_around_a_view):
        agree(program, "aot_eager", caller)


def test_a_write_to_what_eager_saved_after_the_graph_wrote_to_it_is_an_error():
    def caller(results, leaves, arguments):
        arguments[0].mul_(2)
        return [tried(loss(results[-1:]).backward), tried(loss(results[:1]).backward)]

    def saved(y, q, z):
        y.mul_(3)
        return y * 2, y.sin()

    def saved_beside_the_history(y, q, z):
        y.mul_(3)
        return y * 2, y.detach() * q

    def saved_without_history(y, q, z):
        with torch.no_grad():
            y.mul_(3)
        return y * 2, y.sin()

    for program in (saved, saved_beside_the_history, saved_without_history, written_and_its_view):
        for backend in BACKENDS[1:]:
            agree(program, backend, caller, gradients)


def test_a_written_input_whose_sizes_are_symbols():
    compiled = core.compile(written_and_its_view, backend="aot_eager", dynamic=True)
    for rows in (3, 5):
        notes = []
        for run in (compiled, written_and_its_view):
            leaf = torch.arange(4.0 * rows).view(rows, 4).requires_grad_()
            y = leaf * 2
            results = run(y, y, y)
            notes.append([torch.autograd.grad(loss(results), [*results, leaf])])
        check_close(*notes)
    assert core.stats()["breaks"] == 0


def kept_for_the_other_result(y, q, z):
    return (y * 2).sin() * q, y.sin()


def view_kept_for_the_other_result(y, q, z):
    return y.view(-1)[2:5].exp() * q[0, :3], y.t() @ q


def result_kept_for_the_other_result(y, q, z):
    made = y + 1
    return made, (made * 2).tanh() * q, made.cos()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_write_to_what_eager_keeps_for_another_result_is_no_error(backend):
    def caller(results, leaves, arguments):
        with torch.no_grad():
            results[0].mul_(0.5) if len(results) == 3 else arguments[0].mul_(0.5)
        return one_after_the_other(results[-2:], leaves, arguments)

    for program in (kept_for_the_other_result, view_kept_for_the_other_result, result_kept_for_the_other_result):
        agree(program, backend, caller)
