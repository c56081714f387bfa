"""Datasets, samplers and loaders of torch.utils.data in captured functions: what is traced, and what a loop keeps."""

from __future__ import annotations

import torch
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler, TensorDataset

import core

DATA = TensorDataset(torch.arange(24.0).reshape(8, 3), torch.arange(8.0))
WEIGHT = torch.ones(3)


def agree(fn, *args, calls=2):
    core.reset()
    fast = core.compile(fn, backend="eager")
    for _ in range(calls):
        torch.manual_seed(0)
        want, state = fn(*args), torch.get_rng_state()
        torch.manual_seed(0)
        assert torch.equal(fast(*args), want)
        assert torch.equal(torch.get_rng_state(), state)
    return core.stats()


def test_items_of_a_dataset_are_part_of_the_graph():
    def fn(weight):
        total = torch.zeros(())
        for index in range(len(DATA)):
            x, y = DATA[index]
            total = total + x @ weight + y
        return total

    stats = agree(fn, WEIGHT)
    assert (stats["breaks"], stats["graphs"]) == (0, 1)


def test_batches_of_indices_are_part_of_the_graph():
    def fn(weight):
        for indices in BatchSampler(SequentialSampler(range(7)), 3, False):
            weight = weight + sum(indices) * len(indices)
        return weight

    stats = agree(fn, WEIGHT)
    assert (stats["breaks"], stats["graphs"]) == (0, 1)


def test_a_loop_over_a_loader_has_one_graph_for_its_turns():
    loader = DataLoader(DATA, batch_size=2)

    def fn(weight):
        total = torch.zeros(())
        for x, y in loader:
            total = total + (x @ weight).sum() + y.sum()
        return total

    stats = agree(fn, WEIGHT)
    # Python begins the loop and takes its steps; the first turn and the others start from different totals
    assert (stats["breaks"], stats["graphs"], stats["recompiles"]) == (2, 2, 0)


def test_a_training_loop_of_epochs_over_a_loader():
    loader = DataLoader(DATA, batch_size=4)

    def train(epochs):
        torch.manual_seed(1)
        model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
        losses = []
        for _ in range(epochs):
            for x, y in loader:
                optimizer.zero_grad()
                loss = ((model(x).squeeze(-1) - y) ** 2).mean()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        return torch.tensor(losses)

    agree(train, 3)
