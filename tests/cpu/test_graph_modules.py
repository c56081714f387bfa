"""Whole modules through builder, functionalisation and joint graph: results, gradients, buffers, generator state."""

from __future__ import annotations

import copy

import graph_drive
import graph_replay as replay
import pytest
import torch
from torch import nn

from core.graph.finish import functional_graph
from core.graph.joint import joint_graph
from core.graph.tree import leaves

MODULES = {
    "convolutions": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 4, 3),
            nn.GroupNorm(2, 4),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(4, 3),
        ),
        (2, 3, 16, 16),
    ),
    "encoder layer with dropout": (lambda: nn.TransformerEncoderLayer(16, 2, 32), (5, 2, 16)),
    "encoder layer, norm first": (lambda: nn.TransformerEncoderLayer(16, 2, 32, norm_first=True), (5, 2, 16)),
    "recurrent with gates": (lambda: nn.GRU(8, 8), (5, 2, 8)),
    "recurrent with memory": (lambda: nn.LSTM(8, 8), (5, 2, 8)),
    "layers with dropout": (
        lambda: nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.PReLU(), nn.LayerNorm(8)),
        (3, 4),
    ),
}


@pytest.mark.parametrize("train", [False, True], ids=["evaluated", "trained"])
@pytest.mark.parametrize("name", MODULES)
def test_module_equals_eager(name, train):
    make, shape = MODULES[name]
    torch.manual_seed(0)
    module, x = make(), torch.randn(shape)
    module.train(train).requires_grad_(train)
    reference = copy.deepcopy(module)
    start = torch.get_rng_state()
    captured, names = graph_drive.capture_module(module, [x])
    assert torch.equal(torch.get_rng_state(), start)
    assert captured.needs_grad is train
    graph = joint_graph(captured) if train else functional_graph(captured)
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    arguments = replay.actual_inputs(captured, [*(state[name] for name in names), x])
    found = replay.run_joint(graph, arguments) if train else replay.run_functional(graph, arguments)
    after = torch.get_rng_state()
    torch.set_rng_state(start)
    expected = [leaf for leaf in leaves(reference(x)) if isinstance(leaf, torch.Tensor)]
    assert torch.equal(after, torch.get_rng_state())
    for left, right in zip(found, expected, strict=True):
        torch.testing.assert_close(left.detach(), right.detach())
        assert left.stride() == right.stride()
    for left, right in zip(module.buffers(), reference.buffers(), strict=True):
        torch.testing.assert_close(left, right)
    if train:
        sum(item.cos().sum() for item in found).backward()
        sum(item.cos().sum() for item in expected).backward()
        for left, right in zip(module.parameters(), reference.parameters(), strict=True):
            torch.testing.assert_close(left.grad, right.grad)
