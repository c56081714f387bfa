"""Random programs over images in odd layouts: results, strides, offsets and shared memory are those of eager."""

from __future__ import annotations

import os
import random

import pytest
import torch
import torch.nn.functional as F

import core

COUNT = int(os.environ.get("CORE_FUZZ_PROGRAMS", "25"))
STEPS = {
    "conv": lambda x, w: F.conv2d(x, w[: x.shape[1] * 3].view(3, x.shape[1], 1, 1)),
    "strided conv": lambda x, w: F.conv2d(x, w[: x.shape[1] * 8].view(2, x.shape[1], 2, 2), stride=2, padding=1),
    "transposed conv": lambda x, w: F.conv_transpose2d(x, w[: x.shape[1] * 8].view(x.shape[1], 2, 2, 2)),
    "max pool": lambda x, w: F.max_pool2d(x, 2, padding=1),
    "average pool": lambda x, w: F.avg_pool2d(x, 2),
    "adaptive pool": lambda x, w: F.adaptive_avg_pool2d(x, 2),
    "batch norm": lambda x, w: F.batch_norm(x, None, None, training=True),
    "fixed batch norm": lambda x, w: F.batch_norm(x, *w.detach()[None, : x.shape[1]].abs().expand(2, -1)),
    "group norm": lambda x, w: F.group_norm(x, 1),
    "layer norm": lambda x, w: F.layer_norm(x, x.shape[-1:]),
    "pointwise": lambda x, w: x.sin() * 2 + 1,
    "log sigmoid": lambda x, w: F.logsigmoid(x),
    "clamp": lambda x, w: x.clamp(-1, 1),
    "sum with rows": lambda x, w: x + w[: x.shape[-1]],
    "sum with its mean": lambda x, w: x - x.mean(1, keepdim=True),
    "where": lambda x, w: torch.where(x > 0, x, x.exp()),
    "masked fill": lambda x, w: x.masked_fill(x > 1, 0.5),
    "cat": lambda x, w: torch.cat([x, x.relu()], 1),
    "stack": lambda x, w: torch.stack([x, x], 2).flatten(1, 2),
    "transpose": lambda x, w: x.transpose(2, 3),
    "permute": lambda x, w: x.permute(0, 3, 1, 2),
    "slice": lambda x, w: x[:, :, ::2],
    "expand": lambda x, w: x[:1].expand(3, -1, -1, -1),
    "reshape": lambda x, w: x.reshape(x.shape[0], -1, 1, x.shape[3]),
    "contiguous": lambda x, w: x.contiguous(),
    "channels last": lambda x, w: x.to(memory_format=torch.channels_last),
    "interpolate": lambda x, w: F.interpolate(x, scale_factor=2, mode="nearest"),
    "bilinear": lambda x, w: F.interpolate(x, size=(3, 5), mode="bilinear"),
    "pad": lambda x, w: F.pad(x, (1, 0, 0, 1)),
    "reflect": lambda x, w: F.pad(x, (1, 0, 0, 1), mode="reflect"),
    "softmax": lambda x, w: x.softmax(1),
    "log softmax": lambda x, w: x.log_softmax(-1),
    "largest": lambda x, w: x.amax((2, 3), keepdim=True) + x,
    "flip": lambda x, w: x.flip(3),
    "unpool": lambda x, w: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2),
    "cumulated": lambda x, w: x.cumsum(2),
    "matmul": lambda x, w: x @ x.mT,
}


def image(draw):
    size = [draw.choice(choices) for choices in ((1, 2, 3), (1, 2, 3, 4), (1, 4, 5), (1, 4, 6))]
    n, c, h, w = size
    return draw.choice(
        (
            lambda: torch.randn(size),
            lambda: torch.randn(size).to(memory_format=torch.channels_last),
            lambda: torch.randn(n, c, w, h).transpose(2, 3),
            lambda: torch.randn(w, h, n, c).permute(2, 3, 1, 0),
            lambda: torch.randn(n, 1, h, w).expand(size),
            lambda: torch.randn(n, c, 2 * h, 2 * w)[:, :, ::2, ::2],
            lambda: torch.randn(n + 1, c + 1, h, w)[1:, 1:],
            lambda: torch.randn(n, h, w, c + 2).permute(0, 3, 1, 2)[:, 1 : c + 1],
        )
    )()


def program_of(seed):
    """A function that runs some steps, those that its image allows, and its arguments."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    x, w = image(draw), torch.randn(4096)
    steps, value = [], x
    while len(steps) < 1 + seed % 5:
        step = STEPS[draw.choice(list(STEPS))]
        try:
            result = step(value, w)
        except (RuntimeError, ValueError):
            continue
        if result.dim() == 4 and 0 < result.numel() < 4000 and result.shape[1] <= 64:
            steps.append(step)
            value = result

    def program(x, w):
        results, seen = [], []
        for step in steps:
            x = step(x, w)
            results.append(x)
            seen.append((x.stride(), x.storage_offset(), x.is_contiguous()))
            seen.append(x.is_contiguous(memory_format=torch.channels_last))
        return results, seen

    return program, (x, w)


def geometry(tensor):
    return [stride for stride, length in zip(tensor.stride(), tensor.shape) if length > 1], tensor.storage_offset()


def sharing(tensors):
    addresses = [tensor.untyped_storage().data_ptr() for tensor in tensors]
    return [addresses.index(address) for address in addresses]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_programs_over_images_are_as_eager(backend):
    for seed in range(COUNT):
        program, args = program_of(seed)
        core.reset()
        run = core.compile(program, backend=backend, fullgraph=True)
        expected, seen = program(*args)
        for _ in range(2):
            found, seen_here = run(*args)
            assert seen_here == seen, seed
            for ours, theirs in zip(found, expected, strict=True):
                torch.testing.assert_close(ours, theirs, equal_nan=True, rtol=1e-4, atol=1e-4)
                assert geometry(ours) == geometry(theirs), seed
            assert sharing([*found, *args]) == sharing([*expected, *args]), seed
        assert core.stats()["graphs"] == 1


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_gradients_of_programs_over_images_are_as_eager(backend):
    for seed in range(COUNT // 2):
        program, args = program_of(seed)
        core.reset()
        run = core.compile(program, backend=backend, fullgraph=True)
        leaves = [arg.detach().requires_grad_() for arg in args]
        wanted = []
        for call in (program, run):
            results = [result for result in call(*leaves)[0] if result.requires_grad]
            total = sum((result * (at + 1.5)).sin().sum() for at, result in enumerate(results))
            wanted.append(torch.autograd.grad(total, leaves, allow_unused=True) if results else ())
        for theirs, ours in zip(*wanted, strict=True):
            if theirs is not None:
                torch.testing.assert_close(ours, theirs, equal_nan=True, rtol=1e-3, atol=1e-3)
                if backend == "aot_eager":
                    assert geometry(ours) == geometry(theirs), seed
