"""Kinds of differences that random programs of tensors found, each in its smallest form."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import core

BACKENDS = ["eager", "aot_eager", "inductor"]


def seen(fn, make):
    """What a caller sees: results, inputs, their memory relative to each other, and gradients."""
    torch.manual_seed(0)
    inputs = make()
    results = fn(*inputs)
    tensors = [*inputs, *(results if isinstance(results, (tuple, list)) else [] if results is None else [results])]
    places: dict[int, int] = {}
    found = []
    for tensor in tensors:
        place = places.setdefault(tensor.untyped_storage().data_ptr(), len(places))
        found.append((place, tensor.stride(), tensor.requires_grad, tensor.detach().clone()))
    carrying = [tensor for tensor in tensors[len(inputs) :] if tensor.requires_grad]
    if carrying:
        try:
            sum(tensor.double().sin().sum() for tensor in carrying).backward()
        except RuntimeError as error:
            found.append(str(error))
        else:
            found += [tensor.grad for tensor in inputs if tensor.is_leaf]
    return found


def equal(ours, theirs):
    if isinstance(ours, torch.Tensor):
        return isinstance(theirs, torch.Tensor) and torch.allclose(ours, theirs, equal_nan=True)
    if isinstance(ours, (tuple, list)):
        return len(ours) == len(theirs) and all(map(equal, ours, theirs))
    return ours == theirs


def same_as_eager(fn, make, backend, graphs=1):
    core.reset()
    compiled = core.compile(fn, backend=backend)
    for _ in range(2):
        ours, theirs = seen(compiled, make), seen(fn, make)
        assert equal(ours, theirs), (ours, theirs)
    assert (core.stats()["graphs"], core.stats()["breaks"]) == (graphs, 0)


def splits_an_input(x):
    return x.unsafe_split(2)


def chunks_what_is_written_to(x):
    y = x * 2
    first, second = y.unsafe_chunk(2, -1)
    y.add_(1)
    return first * 1, second + 1


def writes_to_a_chunk(x):
    y = x * 2
    first, _ = y.unsafe_chunk(2, -1)
    first.mul_(3)
    return y * 1


def writes_to_a_chunk_of_an_input(x):
    x.unsafe_split_with_sizes([1, 3], -1)[1].zero_()


def returns_base_and_chunk(x):
    y = x.sin()
    return y, y.unsafe_split(1)[0]


def uses_chunks_alone(x):
    first, second = (x * 2).unsafe_chunk(2, -1)
    return first.sigmoid_() * second.tanh_()


@pytest.mark.parametrize("trained", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize(
    "fn",
    [
        splits_an_input,
        chunks_what_is_written_to,
        writes_to_a_chunk,
        writes_to_a_chunk_of_an_input,
        returns_base_and_chunk,
        uses_chunks_alone,
    ],
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_unsafe_splits_share_memory_where_it_shows(fn, trained, backend):
    if trained and fn is writes_to_a_chunk_of_an_input:
        pytest.skip("eager writes past autograd to a leaf")
    same_as_eager(fn, lambda: (torch.randn(4, 4, requires_grad=trained),), backend)


def images():
    return (torch.randn(2, 4, 3, 4).contiguous(memory_format=torch.channels_last),)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_random_relu_gives_elements_in_order(training, backend):
    same_as_eager(lambda x: F.rrelu(x, training=training), images, backend)


def overwrites_what_a_gradient_needs(x):
    y = x.sin()
    z = y.exp()
    part = y[:, None]
    z2 = y.logcumsumexp(0)
    part.add_(1)
    return z, z2


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_backward_that_needs_what_was_overwritten_raises_as_in_eager(backend, monkeypatch):
    monkeypatch.setenv("CORE_STRICT", "0")
    same_as_eager(overwrites_what_a_gradient_needs, lambda: (torch.randn(3, 4, requires_grad=True),), backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_loss_of_nothing_has_a_backward(backend, monkeypatch):
    monkeypatch.setenv("CORE_STRICT", "0")
    same_as_eager(lambda x: F.mse_loss(x, x.detach()), lambda: (torch.randn(0, requires_grad=True),), backend)


def looks_at_a_leaf_without_gradients(x):
    with torch.no_grad():
        windows = x.unfold(-2, 2, 2)
    return windows, x[1:]


@pytest.mark.parametrize("make", [lambda: torch.randn(1, 4).expand(4, 4), lambda: torch.randn(4, 4)])
@pytest.mark.parametrize("backend", BACKENDS)
def test_views_taken_without_gradients_require_them_where_eager_says_so(make, backend):
    same_as_eager(looks_at_a_leaf_without_gradients, lambda: (make().requires_grad_(),), backend)


@pytest.mark.parametrize("take", [lambda y: y.chunk(2)[0], lambda y: y.split(1)[1], lambda y: y.unbind()[0][1:]])
@pytest.mark.parametrize("backend", BACKENDS)
def test_one_of_several_views_is_still_one_behind_a_break(take, backend):
    def fn(x):
        part = take(x * 2)
        print(end="")
        part.mul_(2)
        return part

    core.reset()
    compiled = core.compile(fn, backend=backend)
    for _ in range(2):
        words = []
        for subject in (fn, compiled):
            with pytest.raises(RuntimeError, match="is a view and is being modified inplace") as raised:
                subject(torch.ones(4, 4, requires_grad=True))
            words.append(str(raised.value))
        assert words[0] == words[1]
    assert core.stats()["breaks"] == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_part_that_was_made_without_gradients_is_written_to_behind_a_break(backend):
    def fn(x):
        part = (x * 2).chunk(2)[0]
        print(end="")
        part.mul_(2)
        return part

    core.reset()
    assert torch.equal(core.compile(fn, backend=backend)(torch.ones(4)), fn(torch.ones(4)))
    assert core.stats()["breaks"] == 1


def writes_to_one_of_two(x, y):
    z = torch.tanh(x)
    with torch.no_grad():
        y[y > 0] = 0.5
    return y.shape[0], z.shape[0]


def reads_between_the_elements(x):
    with torch.no_grad():
        x.add_(3)
        windows = x.as_strided((2, 3), (1, 2), 1)
    return windows % 2, x.view_as(x)


def grows_a_view_in_place(y):
    spread = y.expand(2, *y.shape).std(0, correction=0)
    with torch.no_grad():
        flat = spread.view(-1)
    again = flat.abs().sqrt()[...]
    again.unsqueeze_(0)
    return again, flat, flat.detach()


def related():
    x = torch.randn(3, 4, 2)[..., 0].requires_grad_() * 1.0
    return x, x[:]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize(
    ("fn", "make"),
    [
        (writes_to_one_of_two, related),
        (reads_between_the_elements, lambda: (torch.randn(4, 6)[..., 1:5],)),
        (grows_a_view_in_place, lambda: (torch.randn(3, requires_grad=True),)),
    ],
)
def test_what_is_refused_and_no_second_tracer_does_right_runs_as_captured(fn, make, backend, monkeypatch):
    monkeypatch.setenv("CORE_STRICT", "0")
    core.reset()
    compiled = core.compile(fn, backend=backend)
    for _ in range(2):
        torch.manual_seed(0)
        ours, inputs = compiled(*(given := make())), given
        torch.manual_seed(0)
        theirs, expected = fn(*(given := make())), given
        for got, want in zip((*ours, *inputs), (*theirs, *expected)):
            if isinstance(want, torch.Tensor):
                assert torch.equal(got.detach(), want.detach())
                assert (got.requires_grad, got.is_leaf) == (want.requires_grad, want.is_leaf)
            else:
                assert got == want
    assert (core.stats()["graphs"], core.stats()["breaks"]) == (1, 0)


def normalised_by_group(x, weight, bias):
    return torch.ops.aten.native_group_norm(x, weight, bias, 1, 6, 3, 2, 0.5)


def groups():
    return torch.randn(1, 6, 3, requires_grad=True), torch.randn(6, requires_grad=True), torch.randn(6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_backward_that_changes_shapes_in_place(backend):
    same_as_eager(normalised_by_group, groups, backend)


def follows_statistics(x, weight, bias, mean, variance):
    return torch.ops.aten._batch_norm_with_update(x, weight, bias, mean, variance, 0.5, 0.6)[0]


def statistics():
    x, *rest = torch.randn(5, 5, 5), *(torch.rand(5) + 1 for _ in range(4))
    return tuple(tensor.to(torch.bfloat16) for tensor in (x, *rest))


@pytest.mark.parametrize("backend", BACKENDS)
def test_statistics_of_sixteen_bits_are_written_as_such(backend):
    same_as_eager(follows_statistics, statistics, backend)


def taken_before_several_writes(x):
    with torch.no_grad():
        part = x.view(-1)
    torch._foreach_add_([x], 1)
    return part


@pytest.mark.parametrize("backend", BACKENDS)
def test_writes_to_several_at_once_are_counted(backend, monkeypatch):
    monkeypatch.setenv("CORE_STRICT", "0")
    core.reset()
    compiled = core.compile(taken_before_several_writes, backend=backend, fullgraph=True)
    for subject in (taken_before_several_writes, compiled):
        x = torch.ones(3, 4)
        subject(x)
        assert x._version == 1 and x.sum() == 24
        part = subject(torch.ones(3, 4, requires_grad=True) * 1)
        assert part.requires_grad
        with pytest.raises(RuntimeError, match="view was created in no_grad mode"):
            part.is_leaf  # noqa: B018
    assert core.stats()["graphs"] == 2


def pads_without_gradients(x):
    with torch.no_grad():
        padded = F.pad(x, (1, -1), value=2.0)
    return padded * 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_padding_of_open_sizes_carries_no_gradients_where_they_are_off(backend):
    core.reset()
    compiled = core.compile(pads_without_gradients, backend=backend, dynamic=True)
    for size in (2, 5):
        x = torch.randn(size, requires_grad=True)
        assert torch.equal(compiled(x), pads_without_gradients(x)) and not compiled(x).requires_grad
    assert core.stats()["graphs"] == 1


def differentiates_a_view_of_another_input(x, y):
    loss = F.mse_loss(x, torch.ones_like(x))
    (y * y).double().sum().backward(retain_graph=True)
    return loss


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_what_aot_autograd_keeps_serves_a_backward_that_keeps_the_graph(backend, monkeypatch):
    monkeypatch.setenv("CORE_STRICT", "0")
    core.reset()
    compiled = core.compile(differentiates_a_view_of_another_input, backend=backend)
    for size in (3, 3, 5):
        gradients = []
        for subject in (compiled, differentiates_a_view_of_another_input):
            torch.manual_seed(size)
            leaf = torch.randn(2, size, 4, requires_grad=True)
            x = leaf * 1
            subject(x, x[...]).backward(retain_graph=True)
            gradients.append(leaf.grad)
        assert torch.allclose(*gradients)


def detaches_and_looks(x):
    detached = (x * 2).detach()
    part = detached[1:]
    of_input = x.detach()
    return detached, part, of_input[:1], of_input, x.detach()


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
def test_views_of_one_detached_tensor_have_one_base(backend, trained):
    core.reset()
    compiled = core.compile(detaches_and_looks, backend=backend)
    for subject in (detaches_and_looks, compiled):
        detached, part, inner, of_input, again = subject(torch.ones(3, requires_grad=trained))
        for base, view in ((detached, part), (of_input, inner)):
            base.requires_grad_()
            assert view.requires_grad
        assert not again.requires_grad and again.data_ptr() == of_input.data_ptr()
    assert core.stats()["graphs"] == 1


def squeezes_nothing(x, y):
    x.squeeze_()
    y.t_()
    return x * 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_change_of_shape_that_changes_nothing_is_counted(backend):
    core.reset()
    compiled = core.compile(squeezes_nothing, backend=backend, fullgraph=True)
    for subject in (squeezes_nothing, compiled):
        x, y = torch.randn(3, 4), torch.randn(3)
        assert torch.equal(subject(x, y), x * 2)
        assert (x._version, y._version) == (1, 1)
    assert core.stats()["graphs"] == 1


def differences_and_a_product(x):
    return x.diff(dim=0), x * 0.25


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_of_two_gradients_arrives_at_other_sizes(backend):
    core.reset()
    compiled = core.compile(differences_and_a_product, backend=backend)
    for size in (3, 5, 4):
        x = torch.randn(2, 4, size, requires_grad=True)
        for at in range(2):
            compiled(x)[at].sum().backward()
            ours, x.grad = x.grad, None
            differences_and_a_product(x)[at].sum().backward()
            assert torch.equal(ours, x.grad)
            x.grad = None
    assert core.stats()["graphs"] == 2


def writes_truths(x, y):
    x.gt_(0)
    y.logical_not_().eq_(1)
    return x + 1, y * 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])
@pytest.mark.parametrize("backend", BACKENDS)
def test_truths_are_written_to_tensors_of_numbers(backend, dtype):
    same_as_eager(writes_truths, lambda: (torch.randn(3, 4).to(dtype), torch.arange(3).to(dtype)), backend)


def writes_twice_to_one(x, y):
    z = x * 1
    torch._foreach_add_([z, z.view(-1)], 1)
    torch._foreach_mul_([y, y, z], [2.0, 3.0, 4.0])
    torch._foreach_sub_([y, z], [z, y], alpha=2)
    return z


@pytest.mark.parametrize("backend", BACKENDS)
def test_writes_to_several_are_done_one_after_the_other(backend):
    same_as_eager(writes_twice_to_one, lambda: (torch.randn(3, 4), torch.randn(3, 4)), backend)


def looks_too_far_without_gradients(x, y):
    y.div_(2)
    z = torch.heaviside(x, torch.ones_like(x))
    with torch.no_grad():
        part = z.as_strided((3,), (1,))
    return part, z


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_error_without_gradients_leaves_them_on_where_the_graph_runs_as_captured(backend, monkeypatch):
    monkeypatch.setenv("CORE_STRICT", "0")
    core.reset()
    compiled = core.compile(looks_too_far_without_gradients, backend=backend)
    for size in (3, 5, 2):
        x, y = torch.randn(size, 1, requires_grad=True), torch.randn(size, 6)
        if size > 2:
            assert compiled(x, y)[1].requires_grad
            continue
        with pytest.raises(RuntimeError, match="out of bounds"):
            compiled(x, y)
        assert torch.is_grad_enabled()


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_a_leaf_made_inside_takes_gradients_beside_inputs_that_do(backend, monkeypatch):
    monkeypatch.setenv("CORE_STRICT", "0")

    def fn(x, z):
        own = z.sum()
        own.requires_grad_()
        return own.frac(), x * 2

    compiled = core.compile(fn, backend=backend)
    results = [run(torch.ones(3, requires_grad=True), torch.ones(1)) for run in (fn, compiled)]
    assert [[r.requires_grad for r in each] for each in results] == [[True, True]] * 2
    for own, doubled in results:
        (own + doubled.sum()).backward()


DROPPING_NOTHING = {
    "in evaluation": lambda x: F.dropout(x, 0.5, training=False),
    "with probability zero": lambda x: torch.dropout(x, 0.0, True),
    "a module in evaluation": torch.nn.Dropout().eval(),
    "of nothing": lambda x: F.dropout(x[9:])[None],
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", DROPPING_NOTHING)
def test_a_dropout_that_drops_nothing_is_its_operand_at_open_sizes_too(name, backend):
    def fn(x):
        y = DROPPING_NOTHING[name](x)
        y.mul_(2)
        return y

    core.reset()
    compiled = core.compile(fn, backend=backend, dynamic=True)
    for size in (3, 5, 4):
        x, y = torch.ones(size, 4), torch.ones(size, 4)
        ours, theirs = compiled(x), fn(y)
        assert torch.equal(x, y) and torch.equal(ours, theirs)
        assert (ours is x) == (theirs is y)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_part_of_a_copy_by_strides_is_no_part_of_the_input(backend):
    def fn(x):
        return x.clone().narrow(1, 0, 1).as_strided((3,), (1,))

    core.reset()
    compiled = core.compile(fn, backend=backend)
    for size in (4, 3, 5):
        x = torch.randn(size, 1)
        result = compiled(x)
        assert torch.equal(result, fn(x))
        assert result.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("size", [(1, 1), (3, 1), (1, 3), (2, 2)], ids=str)
def test_sums_of_negative_zeros_are_positive(size, backend):
    def fn(x):
        return x.sum(), x.sum(0), x.mean(1), (x * 1).half().sum(1), x.sum(1, dtype=torch.float64)

    core.reset()
    x = torch.full(size, -0.0)
    for ours, theirs in zip(core.compile(fn, backend=backend)(x), fn(x), strict=True):
        assert torch.equal(ours.signbit(), theirs.signbit()) and not theirs.signbit().any()


def test_constants_are_read_as_they_are_where_aot_autograd_has_traced_the_graph(monkeypatch):
    monkeypatch.setenv("CORE_STRICT", "0")

    def fn(x):
        return torch.fft.fft(x[:, None]) * torch.tensor(2, dtype=torch.int8)

    core.reset()
    compiled = core.compile(fn, backend="inductor")
    for size in (3, 5):
        x = torch.randn(size, 4, requires_grad=True)
        assert torch.allclose(compiled(x), fn(x))
        (ours,), (theirs,) = (torch.autograd.grad(each(x).abs().sum(), x) for each in (compiled, fn))
        assert torch.allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("squared", [True, False], ids=["beside a square", "alone"])
def test_a_backward_that_needs_a_size_does_not_need_the_tensor(squared, backend):
    def fn(x):
        part = x[0].clone()
        if squared:
            (x * x).sum().backward(retain_graph=True)
        print(end="")
        x.add_(1)
        return x, part

    core.reset()
    compiled = core.compile(fn, backend=backend, dynamic=True)
    for size in (3, 5):
        gradients = []
        for each in (fn, compiled):
            leaf = torch.ones(size, 4, requires_grad=True)
            sum(result.sum() for result in each(leaf * 1)).backward()
            gradients.append(leaf.grad)
        assert torch.equal(*gradients)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_view_of_one_of_two_inputs_of_one_memory_keeps_its_history(backend, monkeypatch):
    monkeypatch.setenv("CORE_STRICT", "0")

    def fn(x):
        total = x.sum()
        turned = total.T
        with torch.no_grad():
            torch.mul(total, 2, out=torch.empty(0))  # breaks the graph
        torch._foreach_sub([turned], [total])
        return turned.view_as(turned), turned

    core.reset()
    compiled = core.compile(fn, backend=backend)
    gradients = []
    for each in (fn, compiled):
        x = torch.ones(2, 3, requires_grad=True)
        view, _ = each(x)
        assert not view.is_leaf
        (view * 3).backward()
        gradients.append(x.grad)
    assert torch.equal(*gradients)
    assert core.stats()["breaks"] == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_error_that_the_program_handles_comes_before_a_backward_too(backend):
    def fn(x):
        try:
            x[[0]]
        except IndexError:
            x = x * 2
        y = x @ x.mT
        y.sum().backward()
        return y

    core.reset()
    compiled = core.compile(fn, backend=backend)
    for size in (0, 2):
        x, z = torch.ones(size, 3, requires_grad=True), torch.ones(size, 3, requires_grad=True)
        assert torch.equal(compiled(x), fn(z)) and torch.equal(x.grad, z.grad)
