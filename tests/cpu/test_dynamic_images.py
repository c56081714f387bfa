"""Images and sequences of any size are one graph under dynamic=True; a batch of one takes one more."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import core

IMAGES = ((2, 3, 32, 32), (3, 3, 40, 48), (4, 3, 16, 64))
SEQUENCES = ((2, 5, 16), (3, 9, 16), (7, 2, 16))
PROGRAMS = {
    "convolution": lambda x: F.conv2d(x, torch.ones(4, 3, 3, 3), padding="same"),
    "strided convolution": lambda x: F.conv2d(x, torch.ones(4, 3, 3, 3), stride=2, padding=1),
    "transposed convolution": lambda x: F.conv_transpose2d(x, torch.ones(3, 2, 2, 2), stride=2),
    "max pool": lambda x: F.max_pool2d(x, 2),
    "average pool": lambda x: F.avg_pool2d(x, 2),
    "adaptive pool": lambda x: F.adaptive_avg_pool2d(x, 7),
    "nearest": lambda x: F.interpolate(x, scale_factor=2),
    "nearest of a size": lambda x: F.interpolate(x, size=(x.shape[2] * 2, x.shape[3] // 2)),
    "nearest exact": lambda x: F.interpolate(x, scale_factor=2, mode="nearest-exact"),
    "bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "bicubic": lambda x: F.interpolate(x, scale_factor=0.5, mode="bicubic"),
    "unfold": lambda x: F.unfold(x, 3),
    "fold": lambda x: F.fold(F.unfold(x, 2, stride=2), x.shape[2:], 2, stride=2),
    "Fourier transform": lambda x: torch.fft.rfft2(x).abs(),
    "windows": lambda x: x.view(len(x), 3, x.shape[2] // 4, 4, x.shape[3] // 4, 4).transpose(3, 4).reshape(-1, 16, 3),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x),
    "matrix product": lambda x: x @ x.mT,
    "group norm": lambda x: F.group_norm(x, 3),
    "reflected": lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"),
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_images_of_any_size_are_one_graph(program):
    function = PROGRAMS[program]
    run = core.compile(function, backend="aot_eager", dynamic=True, fullgraph=True)
    for size in IMAGES:
        x = torch.randn(size)
        torch.testing.assert_close(run(x), function(x), rtol=1e-4, atol=1e-4)
    assert core.stats()["graphs"] == 1


MODULES = {
    "conv net": (
        lambda: nn.Sequential(
            *(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Upsample(scale_factor=2)),
            *(nn.Conv2d(4, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)),
        ).eval(),
        IMAGES,
    ),
    "encoder layer": (lambda: nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True), SEQUENCES),
}


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("name", MODULES)
def test_modules_train_on_any_size_with_one_graph_and_one_more_for_a_batch_of_one(name, backend):
    make, sizes = MODULES[name]
    module = make()
    run = core.compile(module, backend=backend, dynamic=True, fullgraph=True)
    wanted = list(module.parameters())
    for turn, size in enumerate((*sizes, (1, *sizes[0][1:]))):
        x = torch.randn(size)
        found, expected = run(x), module(x)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(
            torch.autograd.grad(found.sum(), wanted),
            torch.autograd.grad(expected.sum(), wanted),
            rtol=1e-3,
            atol=1e-3,
        )
        assert core.stats()["graphs"] == (1 if turn < len(sizes) else 2)
