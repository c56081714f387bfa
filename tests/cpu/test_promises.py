"""torch._check and its kin, and numbers of the data under fullgraph."""

from __future__ import annotations

import pytest
import torch

import core


@pytest.fixture(autouse=True)
def fresh():
    core.reset()


def compiled(fn, **options):
    return core.compile(fn, backend="eager", fullgraph=True, **options)


def test_a_check_of_known_sizes_is_decided_while_capturing_and_raises_what_the_program_says():
    def fn(x, least):
        torch._check(x.shape[0] > least, lambda: f"fewer than {least}")
        return x + 1

    fast = compiled(fn)
    assert torch.equal(fast(torch.ones(3), 2), torch.full((3,), 2.0))
    with pytest.raises(RuntimeError, match="fewer than 4"):
        fast(torch.ones(3), 4)


@pytest.mark.parametrize(
    "check, error",
    [
        (torch._check_value, ValueError),
        (torch._check_index, IndexError),
        (torch._check_type, TypeError),
        (torch._check_not_implemented, NotImplementedError),
    ],
)
def test_each_check_raises_its_own_error(check, error):
    def fn(x, good):
        check(good, lambda: "not so")
        return x + 1

    fast = compiled(fn)
    assert torch.equal(fast(torch.ones(2), True), torch.full((2,), 2.0))
    with pytest.raises(error, match="not so"):
        fast(torch.ones(2), False)


def test_a_failed_check_without_words_has_torchs_words():
    def fn(x):
        torch._check(x.ndim == 3)
        return x

    with pytest.raises(RuntimeError) as eager:
        fn(torch.ones(2))
    with pytest.raises(RuntimeError) as ours:
        compiled(fn)(torch.ones(2))
    assert str(ours.value) == str(eager.value)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_a_promise_about_the_data_is_asserted_at_each_call_and_decides_what_follows(backend):
    def fn(x, y):
        count = x.item()
        torch._check(count >= 1, lambda: "nothing counted")
        return y * 2 if count > 0 else y * 3

    fast = core.compile(fn, backend=backend, fullgraph=True)
    y = torch.ones(2)
    assert torch.equal(fast(torch.tensor(3), y), y * 2)
    assert torch.equal(fast(torch.tensor(7), y), y * 2)
    with pytest.raises(RuntimeError, match="nothing counted"):
        fast(torch.tensor(0), y)
    assert core.stats()["graphs"] == 1


def test_all_elements_of_a_tensor_may_be_promised():
    def fn(x):
        torch._check_tensor_all(x > 0, lambda: "not positive")
        return x + 1

    fast = compiled(fn)
    assert torch.equal(fast(torch.ones(2)), torch.full((2,), 2.0))
    with pytest.raises(RuntimeError, match="not positive"):
        fast(torch.zeros(2))


def test_fullgraph_records_numbers_lists_and_sizes_of_the_data():
    def fn(x, sizes):
        a, b = torch.split_with_sizes(x, sizes.tolist())
        return a * 2, b + x.sum().item(), x[x > 0].sin()

    fast = compiled(fn)
    for x, sizes in ((torch.randn(8), [3, 5]), (torch.randn(8), [7, 1])):
        torch.testing.assert_close(fast(x, torch.tensor(sizes)), fn(x, torch.tensor(sizes)))
    assert (core.stats()["graphs"], core.stats()["recompiles"]) == (1, 0)


def test_tolist_keeps_the_nesting():
    x = torch.tensor([[1, 2], [3, 4]])
    assert compiled(lambda x: (x + 1).tolist())(x) == [[2, 3], [4, 5]]
    assert compiled(lambda x: (x + 1).tolist())(x[0, 0]) == 2


def test_fullgraph_without_scalar_outputs_raises():
    with pytest.raises(core.Unsupported, match="item"):
        compiled(lambda x: x.sum().item() + 1, capture_scalar_outputs=False)(torch.ones(2))


def test_a_backend_that_fails_on_numbers_of_the_data_leaves_the_break_that_there_was():
    def failing(gm, inputs):
        raise NotImplementedError("no numbers of the data")

    with pytest.raises(core.Unsupported, match="item") as caught:
        core.compile(lambda x: x * x.sum().item(), backend=failing, fullgraph=True)(torch.ones(2))
    assert isinstance(caught.value.__cause__, core.BackendError)
