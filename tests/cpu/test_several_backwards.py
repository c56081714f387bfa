"""Backwards through some results of a graph, one after the other, do what they do through eager's many nodes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from compare import check_close

import core
from core.events import ArtifactBuilt, subscribe


@pytest.fixture(autouse=True)
def fresh():
    core.reset()


def leaves(count=1, *size):
    torch.manual_seed(0)
    return [torch.randn(size or (3, 4), requires_grad=True) for _ in range(count)]


def both(program, caller, count=1, graphs=1):
    """What `caller(results, inputs)` notes, compiled and in eager."""
    notes = []
    for run in (core.compile(program, backend="aot_eager"), program):
        inputs = leaves(count)
        notes.append(caller(run(*inputs), inputs))
    assert core.stats()["graphs"] == graphs
    assert core.stats()["breaks"] == 0
    check_close(notes[0], notes[1])
    return notes[1]


def tried(step):
    """The outcome of a step: its result, or the word that tells autograd's refusals apart."""
    try:
        return step()
    except RuntimeError as error:
        return next((word for word in ("a second time", "inplace operation") if word in str(error)), str(error))


def test_a_result_without_gradient_adds_nothing_where_its_derivative_is_infinite():
    def program(x):
        return x.log(), x * 2

    for run in (core.compile(program, backend="aot_eager"), program):
        x = torch.zeros(3, requires_grad=True)
        run(x)[1].sum().backward()
        assert x.grad.tolist() == [2.0, 2.0, 2.0]


def test_results_that_share_no_saved_tensor_are_differentiated_one_after_the_other():
    def program(x, y):
        return x.sin(), y.cos(), (x * 2 + y).exp()

    def caller(results, inputs):
        notes = []
        for result in (results[1], results[0], results[1], results[2], results[0]):
            notes.append(tried(lambda r=result: r.sum().backward()))
            notes.append([item.grad.clone() for item in inputs if item.grad is not None])
        return notes

    notes = both(program, caller, 2)
    assert [note for note in notes if isinstance(note, str)] == ["a second time", "a second time"]


def test_results_that_share_a_saved_tensor_are_not():
    def program(x):
        shared = x.exp()
        return shared * 2, shared + 1

    def caller(results, inputs):
        first = tried(lambda: results[0].sum().backward(retain_graph=True))
        second = tried(lambda: results[1].sum().backward())
        return [first or "fine", second or "fine", tried(lambda: results[0].sum().backward()), inputs[0].grad]

    assert both(program, caller)[:3] == ["fine", "fine", "a second time"]


def test_a_result_on_whose_way_nothing_is_saved_is_differentiated_as_often_as_wanted():
    def program(x):
        return (x + 1).sum(0), x.sigmoid()

    def caller(results, inputs):
        for _ in range(3):
            results[0].sum().backward()
        results[1].sum().backward()
        results[0].sum().backward()
        return [inputs[0].grad, tried(lambda: (results[0].sum() + results[1].sum()).backward())]

    assert both(program, caller)[1] == "a second time"


def test_a_backward_for_all_results_comes_after_one_that_freed_nothing():
    def program(x):
        return x * x, x.t()

    def caller(results, inputs):
        results[1].sum().backward()
        (results[0].sum() + (results[1] * 3).sum()).backward()
        return inputs[0].grad

    both(program, caller)


def test_a_write_to_what_eager_keeps_raises_although_the_graph_keeps_something_else():
    def program(x):
        inner = x - x.mean()
        return torch.hypot(inner, x), inner

    def caller(results, inputs):
        results[1].detach().zero_()
        return [tried(lambda: results[0].sum().backward()), tried(lambda: results[1].sum().backward()) or "fine"]

    assert both(program, caller) == ["inplace operation", "fine"]


def test_a_write_to_what_another_result_needs_is_no_error():
    def program(x, y):
        return x.exp(), y.exp()

    def caller(results, inputs):
        results[0].detach().zero_()
        results[1].sum().backward()
        return [inputs[1].grad, tried(lambda: results[0].sum().backward())]

    assert both(program, caller, 2)[1] == "inplace operation"


def test_what_is_kept_for_a_later_backward_may_not_be_written_to():
    def program(x, y):
        return x.exp(), y.exp()

    def caller(results, inputs):
        results[1].sum().backward()
        results[0].detach().zero_()
        return [inputs[1].grad, tried(lambda: results[0].sum().backward())]

    assert both(program, caller, 2)[1] == "inplace operation"


def test_a_used_up_result_asked_for_an_input_that_it_does_not_reach_gives_none():
    def program(x, y):
        return x.exp(), y.exp()

    def caller(results, inputs):
        results[0].sum().backward()
        found = torch.autograd.grad(results[0].sum(), inputs[1], allow_unused=True)
        return [found == (None,), tried(lambda: torch.autograd.grad(results[0].sum(), inputs[0]))]

    assert both(program, caller, 2) == [True, "a second time"]


def test_a_hook_inside_runs_only_where_a_gradient_comes_by():
    def program(x):
        hidden = x * 2
        hidden.register_hook(lambda gradient: gradient + 1)
        return hidden.sin(), x * 3

    def caller(results, inputs):
        results[1].sum().backward(retain_graph=True)
        first = inputs[0].grad.clone()
        results[0].sum().backward()
        return [first, inputs[0].grad]

    assert both(program, caller)[0].unique().tolist() == [3.0]


def test_gradients_of_gradients_after_a_backward_through_another_result():
    def program(x, y):
        return (x**3).sum(), (y**2).sum()

    def caller(results, inputs):
        results[1].backward()
        (first,) = torch.autograd.grad(results[0], inputs[0], create_graph=True)
        first.sum().backward()
        return [inputs[0].grad, inputs[1].grad]

    both(program, caller, 2)


def test_a_normalised_batch_of_which_one_chunk_gets_a_gradient():
    def program(x, weight):
        first, second, third = (F.layer_norm(x, (4,)) * weight.sigmoid()).unbind(0)
        return first.exp(), second.sin(), torch.stack([third, first]).cumsum(0)

    def caller(results, inputs):
        notes = []
        for kept, picked in ((True, (0,)), (True, (1, 2)), (True, (2,)), (False, (0, 1, 2))):
            for item in inputs:
                item.grad = None
            sum((results[at] * (at + 1)).sum() for at in picked).backward(retain_graph=kept)
            notes += [item.grad for item in inputs]
        return notes

    both(program, caller, 2)


def test_each_set_of_incoming_gradients_is_compiled_once():
    built = []

    def program(x):
        return x.sin(), x.cos()

    run = core.compile(program, backend="aot_eager")
    (x,) = leaves()
    stop = subscribe(lambda event: built.append(event.mode) if isinstance(event, ArtifactBuilt) else None)
    try:
        for _ in range(3):
            first, second = run(x)
            first.sum().backward()
            second.sum().backward()
            (run(x)[0] + run(x)[1]).sum().backward()
    finally:
        stop()
    assert built == ["forward", "backward", "backward"]
    assert core.stats()["graphs"] == 1


def test_what_a_later_backward_needs_is_freed_with_the_last_one():
    import gc
    import weakref

    def program(x, y):
        return (x.exp() * x.sigmoid()).sum(), (y.exp() * y.sigmoid()).sum()

    run = core.compile(program, backend="aot_eager")
    x, y = leaves(2)
    first, second = run(x + 1, y + 1)
    kept = [weakref.ref(t) for t in first.grad_fn.saved_tensors]
    first.backward()
    second.backward()
    gc.collect()
    assert first.grad_fn is not None and second.grad_fn is not None
    assert [ref for ref in kept if ref() is not None] == []


def test_a_gradient_with_respect_to_a_result_that_another_one_is_made_of():
    def program(x, weight):
        hidden = (x @ weight.t()).sin()
        return (hidden * hidden).exp(), hidden, hidden * 2

    def caller(results, inputs):
        loss, hidden, double = results
        hidden.retain_grad()
        seen = []
        hidden.register_hook(lambda gradient: seen.append(gradient.clone()))
        inner = torch.autograd.grad(loss.sum(), hidden, retain_graph=True)[0]
        (loss.sum() + hidden.sum() + double.sum()).backward()
        return [inner, hidden.grad, seen, *(item.grad for item in inputs)]

    both(program, caller, 2)


def test_a_hook_on_such_a_result_changes_what_goes_on():
    def program(x):
        hidden = x.exp()
        return hidden.sin().sum(), hidden

    def caller(results, inputs):
        results[1].register_hook(lambda gradient: gradient * 3 + 1)
        results[0].backward()
        return inputs[0].grad

    both(program, caller)


def test_gradients_of_gradients_go_through_such_a_result_once():
    def program(x, weight):
        hidden = (x * weight).tanh()
        return (hidden**3).sum(), hidden

    def caller(results, inputs):
        first = torch.autograd.grad(results[0] + results[1].sum(), inputs, create_graph=True)
        sum(item.pow(2).sum() for item in first).backward()
        return [*first, *(item.grad for item in inputs)]

    both(program, caller, 2)


def test_a_backward_leaves_the_history_of_inputs_alone_that_its_result_is_not_made_of():
    def program(x, y, unread):
        return x.sin(), y.cos(), (unread * 2).detach()

    for run in (core.compile(program, backend="aot_eager"), program):
        roots = leaves(3)
        inputs = [root.exp() for root in roots]
        results = run(*inputs)
        results[0].sum().backward()
        results[1].sum().backward()
        inputs[2].sum().backward()
        assert all(root.grad is not None for root in roots)


def test_the_history_of_an_input_is_left_alone_although_the_results_share_a_way():
    def program(x, y):
        shared = -y
        return torch.maximum(x, shared).sum(), (shared + 1).sin()

    for dynamic in (False, True):
        core.reset()
        compiled = core.compile(program, backend="aot_eager", dynamic=dynamic)
        found = []
        for run in (compiled, program):
            inner, y = leaves(2)
            first, second = run(inner * inner, y)
            second.sum().backward()
            first.backward()
            found.append([inner.grad, y.grad])
        check_close(*found)


@pytest.mark.parametrize("hooked", [0, 2])
def test_a_hook_inside_runs_once_where_ways_meet(hooked):
    def program(x):
        flipped = x.flip(1)
        other = torch.stack([x, flipped]).unbind(0)[1]
        seen = (flipped, other, torch.maximum(other, flipped))
        seen[hooked].register_hook(lambda gradient: gradient + 1)
        return seen[2], seen[1], other.sin()

    def caller(results, inputs):
        sum(result.sum() for result in results).backward()
        return [inputs[0].grad]

    both(program, caller)


def test_results_on_each_others_way_both_ways_stay_together():
    def program(x):
        first = x.exp()
        shared = first.sin()
        second = shared.cos()
        return shared * second * first, first, second, shared + x

    def caller(results, inputs):
        first = torch.autograd.grad(sum(result.sum() for result in results), inputs, retain_graph=True)
        (results[0] * results[2]).sum().backward(retain_graph=True)
        results[1].sum().backward()
        return [*first, inputs[0].grad]

    both(program, caller)


def test_hidden_results_of_layers_with_sizes_that_change():
    def program(x, weight):
        hidden = [x]
        for _ in range(3):
            hidden.append(F.layer_norm(hidden[-1] + (hidden[-1] @ weight.t()).relu(), (4,)))
        return hidden[-1].sum(), hidden[1:]

    run = core.compile(program, backend="aot_eager", dynamic=True)
    for size in (3, 5, 2):
        notes = []
        for function in (run, program):
            x, weight = leaves(2, size, 4)
            weight = torch.eye(4, requires_grad=True)
            loss, hidden = function(x, weight)
            for each in hidden:
                each.retain_grad()
            (loss + hidden[0].pow(2).sum()).backward()
            notes.append([*(each.grad for each in hidden), x.grad, weight.grad])
        check_close(*notes)
    assert core.stats()["graphs"] == 1


def test_where_the_backward_cannot_be_told_apart_one_node_serves(monkeypatch):
    from core.backends import grouped_training

    def program(x):
        hidden = x.exp()
        return hidden.sin() * 2, hidden

    def caller(results, inputs):
        (results[0].sum() + results[1].sum()).backward(retain_graph=True)
        results[0].sum().backward()
        return inputs[0].grad

    monkeypatch.setattr(grouped_training, "group_partitions", lambda joint, parts: None)
    both(program, caller)


def test_a_number_among_the_results_and_a_written_input_with_nodes_of_their_own():
    def program(x, y, state):
        state.add_(1)
        hidden = x.sigmoid() + state
        return hidden.log(), x.shape[0], hidden, y.round(), (y * 2).detach()

    notes = []
    for run in (core.compile(program, backend="aot_eager"), program):
        x, y, state = *leaves(2), torch.ones(3, 4)
        result, number, hidden, rounded, detached = run(x, y, state)
        (gradient,) = torch.autograd.grad(result.sum(), hidden, retain_graph=True)
        result.sum().backward()
        rounded.sum().backward()
        notes.append([gradient, x.grad, y.grad, state, number, rounded.requires_grad, detached.requires_grad])
    check_close(*notes)


def test_anomaly_mode_is_on_for_the_compiled_backward():
    def program(x):
        return (x.sqrt() * 0).sum()

    for run in (core.compile(program, backend="aot_eager"), program):
        for value, fine in ((1.0, True), (0.0, False)):
            with torch.autograd.detect_anomaly():
                x = torch.full((3,), value, requires_grad=True)
                result = run(x)
                if fine:
                    result.backward()
                    assert x.grad.tolist() == [0.0, 0.0, 0.0]
                else:
                    with pytest.raises(RuntimeError, match="returned nan values in its 0th output"):
                        result.backward()
    assert core.stats()["graphs"] == 1


@pytest.mark.parametrize(
    "program",
    [
        lambda x, y: torch.stack([x, y]).sum(0),
        lambda x, y: (x.t() + y.view(-1).view(3, 4).t()).t(),
        lambda x, y: torch.cat([x, y]),
        lambda x, y: (torch.stack([x, y], 1).unbind(1)[0] * 2, torch.stack([y, x]).transpose(0, 1)),
    ],
)
def test_gradients_that_are_added_up_share_no_memory(program):
    inputs = leaves(2)
    run = core.compile(program, backend="aot_eager")
    for _ in range(3):
        results = run(*inputs)
        sum(result.sum() for result in (results if isinstance(results, tuple) else (results,))).backward()
    expected = leaves(2)
    for _ in range(3):
        results = program(*expected)
        sum(result.sum() for result in (results if isinstance(results, tuple) else (results,))).backward()
    check_close([item.grad for item in inputs], [item.grad for item in expected])


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_what_the_graph_writes_to_through_another_input_was_not_written_to_since(backend):
    def program(x, y, weight):
        x *= 2
        return y @ weight

    notes = []
    for run in (core.compile(program, backend=backend), program):
        x, weight = torch.arange(4.0), torch.eye(4).requires_grad_()
        result = run(x, x[None], weight)
        result.sum().backward()
        notes.append([result, weight.grad, x])
    check_close(*notes)


def test_a_hook_on_a_result_without_gradient_is_not_called():
    def caller(results, inputs):
        seen = []
        for at, result in enumerate(results[:2]):
            result.register_hook(lambda gradient, at=at: seen.append((at, gradient.sum().item())) or gradient * 2)
        handle = results[0].register_hook(lambda gradient: seen.append((2, 0)))
        handle.remove()
        results[1].sum().backward(retain_graph=True)
        results[2].sum().backward(retain_graph=True)
        (results[0] + results[1]).sum().backward(retain_graph=True)
        results[0].retain_grad()
        (results[0] * 3).sum().backward()
        return [*(value for item in sorted(seen) for value in item), inputs[0].grad, results[0].grad]

    both(lambda x: (x * 2, x.sin(), x.cos()), caller)


def test_results_that_are_one_node_in_eager_are_all_told():
    def caller(results, inputs):
        seen = []
        for result in results:
            result.register_hook(lambda gradient: seen.append(gradient is None))
        results[1].sum().backward()
        return [*seen, inputs[0].grad]

    both(lambda x: tuple(torch.unbind_copy(x * 2)), caller)


def test_a_hook_for_several_results_runs_once_all_have_come():
    def caller(results, inputs):
        seen = []
        torch.autograd.graph.register_multi_grad_hook(results, lambda gradients: seen.append(len(gradients)))
        results[1].sum().backward(retain_graph=True)
        (results[0] + results[1]).sum().backward()
        return [*seen, inputs[0].grad]

    both(lambda x: (x * 2, x.sin()), caller)


def test_a_used_up_result_asked_for_another_one_that_it_is_made_of_raises():
    def caller(results, inputs):
        results[0].sum().backward()
        found = [tried(lambda: torch.autograd.grad(results[0].sum(), [results[1]], retain_graph=True))]
        return [*found, tried(lambda: torch.autograd.grad(results[1].sum(), inputs)[0])]

    def program(x):
        second = x * 3
        return second.exp().sin(), second

    assert both(program, caller)[0] == "a second time"


def test_a_result_that_was_written_to_is_no_way_to_itself():
    def caller(results, inputs):
        with torch.no_grad():
            results[1].mul_(2)
        return [tried(lambda: torch.autograd.grad(results[0].sum(), [results[1]]))]

    def program(x):
        second = x * 3
        return second.sin(), second

    assert both(program, caller) == ["inplace operation"]


def test_gradients_of_gradients_of_what_a_written_input_does_not_reach():
    def caller(results, inputs):
        with torch.no_grad():
            inputs[1].mul_(2)
        (first,) = torch.autograd.grad(results[0].exp().sum(), inputs[:1], create_graph=True)
        found = [tried(lambda: torch.autograd.grad(results[1].sum(), inputs[1:]))]
        return [*found, *torch.autograd.grad(first.sum(), inputs[:1])]

    assert both(lambda x, y: (x.sin(), y.cos()), caller, count=2)[0] == "inplace operation"


@pytest.mark.parametrize("again", [False, True])
def test_a_result_below_others_is_usable_after_a_backward_that_leads_past_it(again):
    def fn(x):
        own, below = x.sin(), x.pow(3)
        return below + own, own * 2, below

    ends = []
    for run in (fn, core.compile(fn, backend="aot_eager")):
        x = torch.tensor([0.5, 2.0], requires_grad=True)
        _, past, below = run(x)
        past.sum().backward(retain_graph=again)
        if again:
            past.sum().backward()
        gradients = torch.autograd.grad(below.sum(), x)
        with pytest.raises(RuntimeError, match="second time"):
            torch.autograd.grad(below.sum(), x)
        ends.append((x.grad, *gradients))
    assert all(map(torch.allclose, *ends))
