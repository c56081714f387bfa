"""Random numbers of Python and NumPy in traced code: drawn on each call, from the program's generators, in order."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from compare import same

import core

X = torch.arange(6.0).reshape(2, 3)


def seed_all() -> None:
    random.seed(7)
    np.random.seed(7)
    torch.manual_seed(7)


def follow(fn, *args, graphs=1, breaks=0, calls=4):
    """Results of eager and compiled agree call by call, and so does what the generators give afterwards."""
    ends = []
    core.reset()
    for runner in (fn, core.compile(fn, backend="eager")):
        seed_all()
        results = [runner(*args) for _ in range(calls)]
        ends.append([*results, random.random(), float(np.random.rand()), torch.rand(2)])
    assert same(ends[0], ends[1]), ends
    stats = core.stats()
    assert (stats["graphs"], stats["breaks"]) == (graphs, breaks), stats
    return stats


@pytest.mark.parametrize(
    "draw",
    [
        random.random,
        lambda: random.uniform(-2, 3),
        lambda: random.randint(1, 9),
        lambda: random.randrange(0, 10, 2),
        lambda: random.gauss(0, 1),
        lambda: random.betavariate(0.4, 0.4),
        lambda: random.getrandbits(5),
        lambda: np.random.rand(),
        lambda: np.random.uniform(1, 2),
        lambda: np.random.randint(0, 5),
        lambda: np.random.beta(0.2, 0.2),
    ],
)
def test_a_number_is_drawn_anew_on_each_call_of_one_graph(draw):
    def fn(x):
        number = draw()
        return x * number + 1, number

    assert follow(fn, X)["recompiles"] == 0


def test_an_array_is_drawn_anew_on_each_call():
    def fn(x):
        noise = np.random.normal(size=(2, 3))
        return x + torch.from_numpy(noise), np.random.randint(0, 4, size=2).sum() + 1

    follow(fn, X)


def test_a_number_that_nobody_reads_is_drawn_all_the_same():
    def fn(x):
        for _ in range(3):
            chance = random.uniform(0, 1)
            if x.requires_grad and chance < 0.5:
                continue
            x = x + 1
        return x

    follow(fn, X)


def test_a_decision_by_a_random_number_is_one_break():
    def fn(x):
        x = x * 2
        if random.random() < 0.5:
            x = x + 1
        return x * 3

    follow(fn, X, graphs=3, breaks=1, calls=6)


def test_a_decision_that_the_range_settles_is_no_break():
    def fn(x):
        return x + 1 if random.random() >= 0 and random.randint(2, 4) > 1 else x

    follow(fn, X)


def test_a_random_place_cuts_a_piece_of_fixed_size():
    def fn(x):
        top, left = random.randint(0, 8), random.randint(0, 8)
        return x[:, top : top + 8, left : left + 8] * 2

    follow(fn, torch.randn(2, 16, 16))


def test_a_random_number_of_rounds_is_one_break_and_counts_right():
    def fn(x):
        for _ in range(random.randint(1, 3)):
            x = x + 1
        return x

    core.reset()
    compiled = core.compile(fn, backend="eager")
    random.seed(3)
    want = [fn(X) for _ in range(6)]
    random.seed(3)
    assert same([compiled(X) for _ in range(6)], want)
    assert core.stats()["breaks"] == 1


def test_tensors_are_made_of_random_numbers():
    def fn(x):
        share, place = random.random(), random.randint(0, 9)
        return (
            torch.tensor(share) + torch.tensor([share, 1.0, place]),
            torch.tensor(place),
            torch.full((2,), share),
            torch.where(x > 2, share, 0.0),
            x.masked_fill(x > 2, share),
        )

    follow(fn, X)


def test_mixing_up_a_batch_is_one_graph():
    def fn(x):
        share = np.random.beta(0.2, 0.2)
        order = torch.randperm(x.size(0))
        return share * x + (1 - share) * x[order], share

    follow(fn, X)


def test_what_a_seed_in_the_traced_code_leads_to_is_known():
    def fn(x):
        before = random.random()
        random.seed(5)
        items = list(range(5))
        random.shuffle(items)
        picked = random.sample(items, 2), random.choice(items), random.choices(items, weights=[1, 2, 3, 4, 5], k=2)
        if random.random() < 0.5:
            x = x + 1
        return x * before, items, picked

    follow(fn, X)


def test_the_seed_of_numpy_in_the_traced_code():
    def fn(x):
        np.random.seed(4)
        return x * np.random.rand() + torch.from_numpy(np.random.randn(3))

    follow(fn, X)


def test_a_generator_that_the_traced_code_makes_with_a_seed():
    def fn(x):
        generator = random.Random(3)
        other = np.random.default_rng(4)
        order = [1, 2, 3, 4]
        generator.shuffle(order)
        return x * generator.random() + other.random(), order, torch.from_numpy(other.normal(size=3))

    follow(fn, X)


def test_a_generator_made_by_the_traced_code_comes_back_in_its_state():
    def fn(x):
        generator = random.Random(3)
        return x * generator.random(), generator

    core.reset()
    compiled = core.compile(fn, backend="eager")
    for _ in range(2):
        assert [compiled(X)[1].random() for _ in range(2)] == [fn(X)[1].random() for _ in range(2)]
    assert core.stats()["breaks"] == 0


def test_a_generator_that_a_module_holds():
    class Noisy(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.python, self.numpy = random.Random(1), np.random.default_rng(2)

        def forward(self, x):
            return x * self.python.uniform(0, 1) + self.numpy.normal()

    core.reset()
    eager, compiled = Noisy(), core.compile(Noisy(), backend="eager")
    for _ in range(3):
        assert same(compiled(X), eager(X))
    stats = core.stats()
    assert (stats["graphs"], stats["breaks"], stats["recompiles"]) == (1, 0, 0)


def test_a_graph_that_raises_puts_the_generators_back_before_the_program_runs_as_written():
    def fn(x, place):
        scale = random.random()
        try:
            return x[place] * scale
        except IndexError:
            return x * random.random()

    follow(fn, X, torch.tensor([7]))


def test_numbers_drawn_before_a_break_are_not_drawn_again():
    def fn(x):
        first = random.random()
        x = x * first
        print(end="", flush=bool(x.sum() > 1e9))
        return x + random.random(), first

    core.reset()
    compiled = core.compile(fn, backend="eager")
    seed_all()
    want = [fn(X) for _ in range(3)], random.random()
    seed_all()
    assert same(([compiled(X) for _ in range(3)], random.random()), want)


def test_capture_itself_draws_nothing():
    def fn(x):
        return x * random.random() + np.random.rand()

    core.reset()
    compiled = core.compile(fn, backend="eager")
    seed_all()
    compiled(X)
    compiled(torch.randn(5))
    after = random.random(), np.random.rand()
    seed_all()
    for _ in range(2):
        random.random(), np.random.rand()
    assert after == (random.random(), np.random.rand())


def test_gradients_of_a_loss_scaled_by_a_random_number():
    weight = torch.ones(3, requires_grad=True)

    def fn(x):
        (weight * x * random.random()).sum().backward()
        found = weight.grad.clone()
        weight.grad = None
        return found

    follow(fn, X)


def test_drawing_in_a_checkpointed_region_is_left_to_python():
    from torch.utils.checkpoint import checkpoint

    def fn(x):
        return checkpoint(lambda y: y * random.random(), x, use_reentrant=False)

    core.reset()
    compiled = core.compile(fn, backend="eager")
    seed_all()
    want = fn(X)
    seed_all()
    assert same(compiled(X), want)


def test_a_range_from_outside_is_guarded_by_its_numbers():
    def fn(x, turns):
        for _ in turns:
            x = x + 1
        return x

    core.reset()
    compiled = core.compile(fn, backend="eager")
    for count in (2, 3, 2, 0):
        assert same(compiled(X, range(count)), fn(X, range(count)))
    assert core.stats()["breaks"] == 0


def test_tensors_of_numbers_that_change_need_no_third_graph():
    def fn(x, scale, count):
        return x * torch.tensor(scale) + torch.tensor([scale, count, 2.0]), torch.tensor([count, 2])

    core.reset()
    compiled = core.compile(fn, backend="eager")
    for turn in range(1, 5):
        assert same(compiled(X, turn / 2, turn), fn(X, turn / 2, turn))
    assert core.stats()["graphs"] == 2


def test_which_function_of_a_generator_an_argument_is():
    generator = random.Random(2)
    core.reset()
    compiled = core.compile(lambda x, draw: x + draw(1, 5), backend="eager")
    want = random.Random(2)
    for name in ("uniform", "randint", "uniform"):
        assert same(compiled(X, getattr(generator, name)), X + getattr(want, name)(1, 5))
    assert core.stats()["breaks"] == 0


def test_a_known_state_is_kept_and_put_back():
    def fn(x):
        own = random.Random(3)
        own.random()
        state = own.getstate()
        first = own.random()
        own.setstate(state)
        random.setstate(state)
        return x + own.random() - first + random.random(), own.getstate() == random.getstate()

    follow(fn, X)


def test_a_state_that_only_a_run_can_tell_breaks_the_graph():
    def fn(x):
        state = random.getstate()
        first = random.random()
        random.setstate(state)
        return x + first - random.random()

    ends = []
    for runner in (fn, core.compile(fn, backend="eager")):
        seed_all()
        ends.append((runner(X), random.random()))
    assert same(ends[0], ends[1]) and core.stats()["breaks"] > 0
    with pytest.raises(ValueError, match="state with version"):
        core.compile(lambda x: random.Random(1).setstate((9, (), None)), backend="eager")(X)
