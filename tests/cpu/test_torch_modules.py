"""Modules of torch.nn and what changes modules, forward and backward."""

from __future__ import annotations

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.nn.utils.parametrize as parametrize
from observed import BACKENDS, agrees


def leaf(*shape):
    return torch.randn(*shape, requires_grad=True)


def called(make, *inputs):
    def build():
        module = make()
        state = lambda: (list(module.parameters()), list(module.buffers()))  # noqa: E731
        return lambda *args: module(*args), tuple(make_input() for make_input in inputs), state

    return build


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


class Symmetric(nn.Module):
    def forward(self, w):
        return w.triu() + w.triu(1).T


def symmetric():
    module = nn.Linear(3, 3)
    parametrize.register_parametrization(module, "weight", Symmetric())
    return module


ONE_GRAPH = {
    "LSTMCell": called(lambda: nn.LSTMCell(3, 4), lambda: leaf(2, 3)),
    "GRUCell": called(lambda: nn.GRUCell(3, 4), lambda: leaf(2, 3)),
    "MultiheadAttention": called(
        lambda: nn.MultiheadAttention(4, 2, batch_first=True),
        lambda: leaf(2, 5, 4),
        *(2 * [lambda: torch.randn(2, 5, 4)]),
    ),
    "Transformer": called(
        lambda: nn.Transformer(4, 2, 1, 1, 8, batch_first=True), lambda: leaf(2, 5, 4), lambda: leaf(2, 3, 4)
    ),
    "TransformerEncoder, evaluated": called(
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 2).eval(),
        lambda: torch.randn(2, 5, 4),
    ),
    "MultiheadAttention, evaluated and frozen": called(
        lambda: nn.MultiheadAttention(4, 2, batch_first=True).eval().requires_grad_(False),
        *(3 * [lambda: torch.randn(2, 5, 4)]),
    ),
    "BatchNorm2d": called(
        lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2)),
        lambda: leaf(2, 2, 8, 8),
    ),
    "InstanceNorm1d with statistics": called(
        lambda: nn.InstanceNorm1d(3, affine=True, track_running_stats=True), lambda: leaf(2, 3, 5)
    ),
    "EmbeddingBag": called(lambda: nn.EmbeddingBag(10, 3), lambda: torch.randint(0, 10, (2, 4))),
    "Embedding with max_norm": called(lambda: nn.Embedding(10, 3, max_norm=0.5), lambda: torch.randint(0, 10, (2, 4))),
    "Bilinear": called(lambda: nn.Bilinear(3, 3, 2), lambda: leaf(2, 3), lambda: leaf(2, 3)),
    "a parametrization": called(symmetric, lambda: torch.randn(2, 3)),
    "weight_norm": called(lambda: nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)), lambda: torch.randn(2, 3)),
    "spectral_norm": called(
        lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3)), lambda: torch.randn(2, 3)
    ),
    "orthogonal": called(lambda: nn.utils.parametrizations.orthogonal(nn.Linear(3, 3)), lambda: torch.randn(2, 3)),
}

AGREEING = {
    "LSTM": called(lambda: nn.LSTM(3, 4, 2, batch_first=True, dropout=0.2), lambda: leaf(2, 5, 3)),
    "LSTM, evaluated": called(lambda: nn.LSTM(3, 4, 2).eval(), lambda: torch.randn(2, 5, 3)),
    "GRU": called(lambda: nn.GRU(3, 4, bidirectional=True), lambda: leaf(2, 5, 3)),
    "RNN": called(lambda: nn.RNN(3, 4), lambda: leaf(2, 5, 3)),
    "lazy modules": called(
        lambda: nn.Sequential(nn.LazyLinear(3), nn.ReLU(), nn.LazyLinear(2)), lambda: torch.randn(2, 3)
    ),
    "AdaptiveLogSoftmaxWithLoss": called(
        lambda: nn.AdaptiveLogSoftmaxWithLoss(4, 10, [3]), lambda: leaf(5, 4), lambda: torch.randint(0, 10, (5,))
    ),
}


@pytest.mark.parametrize("name", ONE_GRAPH)
def test_one_graph(name, backend):
    agrees(ONE_GRAPH[name], backend)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", AGREEING)
def test_agrees(name, backend):
    if name == "lazy modules":

        def build():
            module = nn.Sequential(nn.LazyLinear(3), nn.ReLU(), nn.LazyLinear(2))
            return lambda x: module(x), (torch.randn(2, 3),), lambda: len(list(module.parameters()))

        agrees(build, backend, graphs=None, breaks=None)
        return
    agrees(AGREEING[name], backend, graphs=None, breaks=None)


def test_packed_sequences(backend):
    def build():
        module = nn.LSTM(3, 4, batch_first=True)

        def fn(x, lengths):
            packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            return nn.utils.rnn.pad_packed_sequence(module(packed)[0], batch_first=True)[0]

        return fn, (torch.randn(2, 5, 3), torch.tensor([5, 3])), lambda: list(module.parameters())

    agrees(build, backend, graphs=None, breaks=None)


def test_losses_whose_sizes_are_data_break_the_graph(backend):
    def fn(logits):
        targets, sizes = torch.tensor([[1, 2], [1, 1]]), (torch.tensor([5, 5]), torch.tensor([2, 1]))
        return F.ctc_loss(logits.log_softmax(-1), targets, *sizes)

    agrees(lambda: (fn, (leaf(5, 2, 4),)), backend, graphs=None, breaks=1)


def test_modules_made_inside(backend):
    agrees(
        lambda: (lambda x: nn.Linear(3, 3)(x), (torch.randn(2, 3),)), backend, graphs=None, breaks=None, strict=False
    )


def test_flex_attention_is_one_graph():
    from torch.nn.attention.flex_attention import flex_attention

    def fn(q):
        return flex_attention(q, q, q, score_mod=lambda score, b, h, i, j: score + i - j)

    agrees(lambda: (fn, (torch.randn(1, 2, 16, 8),)))


CONTROL = {
    "cond": lambda: (
        lambda x: torch.cond(x.sum() > 0, lambda t: t.sin(), lambda t: t.cos(), (x,)),
        (torch.randn(4),),
    ),
    "while_loop": lambda: (
        lambda x: torch._higher_order_ops.while_loop(
            lambda i, t: i < 3, lambda i, t: (i + 1, t * 2), (torch.tensor(0), x)
        ),
        (torch.randn(4),),
    ),
    "scan": lambda: (
        lambda x: torch._higher_order_ops.scan(lambda c, t: (c + t, c * t), torch.zeros(4), x),
        (torch.randn(3, 4),),
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CONTROL)
def test_control_flow_operators_are_one_graph(name):
    agrees(CONTROL[name])


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("weights", [False, True], ids=["without weights", "with weights"])
def test_attention_in_evaluation_gives_what_its_fast_path_gives(backend, weights):
    def build():
        module = nn.MultiheadAttention(8, 2, batch_first=True).eval().requires_grad_(False)
        return lambda x: module(x, x, x, need_weights=weights), (torch.randn(2, 3, 8),)

    agrees(build, backend)
