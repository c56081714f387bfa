"""flex_attention inside captured code: its functions of scores and masks are traced, the attention is one node."""

from __future__ import annotations

import pytest
import torch
from observed import BACKENDS, agrees
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

DOCUMENTS = torch.tensor([0] * 8 + [1] * 8)


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


def operands(heads=2):
    return torch.randn(1, 4, 16, 8), *(torch.randn(1, heads, 16, 8) for _ in range(2))


def masked(mask, **options):
    blocks = create_block_mask(mask, None, None, 16, 16, device="cpu")
    return lambda q, k, v: flex_attention(q, k, v, block_mask=blocks, **options), operands(4)


def biased():
    bias = torch.randn(4)

    def score(s, b, h, i, j):
        return s + bias[h] * (i - j)

    return lambda q, k, v: flex_attention(q, k, v, score_mod=score) * 2, operands(4)


PROGRAMS = {
    "without functions, keys shared by heads": lambda: (
        lambda q, k, v: flex_attention(q, k, v, enable_gqa=True),
        operands(),
    ),
    "a score that reads a tensor by head": biased,
    "a causal mask": lambda: masked(lambda b, h, i, j: i >= j),
    "a mask that reads a tensor by place": lambda: masked(lambda b, h, i, j: DOCUMENTS[i] == DOCUMENTS[j], scale=0.3),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph(name, backend):
    agrees(PROGRAMS[name], backend)


@pytest.mark.filterwarnings("ignore")
def test_what_torch_refuses_is_raised(backend):
    def build():
        q, k, v = operands(4)
        return lambda q, k, v: flex_attention(q, k, v), (q.requires_grad_(), k, v)

    agrees(build, backend, graphs=None, breaks=None)  # torch has no backward of it on the CPU
