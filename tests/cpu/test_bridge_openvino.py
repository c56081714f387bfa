"""OpenVINO's own torch.compile backend, unmodified, under core: forward and training against float64."""

from __future__ import annotations

import copy

import pytest
import torch

import core
from core.events import ArtifactBuilt, BackendReported, Partitioned, subscribe

pytest.importorskip("openvino")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def events():
    told = []
    end = subscribe(told.append)
    yield told
    end()
    core.reset()


def convolutions():
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1, bias=False),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.Conv2d(8, 16, 3, stride=2),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(16, 4),
    ), torch.randn(2, 3, 16, 16)


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(50, 32)
        layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, activation="gelu", batch_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = torch.nn.Linear(32, 5)

    def forward(self, tokens):
        return self.head(self.layers(self.words(tokens))).mean(1)


def encoder():
    return Encoder(), torch.randint(0, 50, (2, 7))


def perceptron():
    layers = [torch.nn.Linear(6, 32), torch.nn.ReLU(), torch.nn.Linear(32, 32), torch.nn.Tanh(), torch.nn.Linear(32, 3)]
    return torch.nn.Sequential(*layers), torch.randn(8, 6)


def relative(got, reference):
    return float((got.double() - reference).norm() / reference.norm().clamp_min(1e-12))


@pytest.mark.parametrize("training", [False, True], ids=["forward", "training"])
@pytest.mark.parametrize("make", [convolutions, encoder, perceptron])
def test_networks_are_as_exact_as_in_eager(make, training, events):
    torch.manual_seed(0)
    module, x = make()
    ours = copy.deepcopy(module).train(training)
    eager, exact = copy.deepcopy(ours), copy.deepcopy(ours).double()
    wide = x.double() if x.is_floating_point() else x
    compiled = core.compile(ours, backend="dynamo:openvino", fullgraph=True)
    with torch.set_grad_enabled(training):
        got, near, reference = compiled(x), eager(x), exact(wide)
    assert relative(got, reference) <= 4 * relative(near, reference) + 1e-6
    if training:
        for result in (got, near, reference):
            result.square().sum().backward()
        for left, middle, right in zip(ours.parameters(), eager.parameters(), exact.parameters()):
            assert relative(left.grad, right.grad) <= 4 * relative(middle.grad, right.grad) + 1e-6
        for left, right in zip(ours.buffers(), exact.buffers()):
            assert relative(left, right.double()) <= 1e-6
    built = {(event.backend, event.mode) for event in events if isinstance(event, ArtifactBuilt)}
    modes = ("forward", "backward") if training else ("inference",)
    assert {("dynamo:openvino", mode) for mode in modes} <= built
    assert {name for name, _ in built} <= {"dynamo:openvino", "inductor"}


def test_its_default_precision_is_what_the_user_asked_for_and_nothing_less():
    torch.manual_seed(0)
    module, x = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)), torch.randn(32, 64)
    exact = copy.deepcopy(module).double()(x.double())
    with torch.no_grad():
        strict = core.compile(module, backend="dynamo:openvino")(x)
    assert relative(strict, exact) < 1e-6


def test_integers_of_64_bits_and_float64_go_elsewhere_and_it_is_said(events):
    def program(x, at):
        return torch.relu(x @ x.T).exp() + (at * 3_000_000_000).sum()

    x, at = torch.randn(5, 5), torch.arange(4)
    result = core.compile(program, backend="dynamo:openvino")(x, at)
    torch.testing.assert_close(result, program(x, at))
    (event,) = [event for event in events if isinstance(event, Partitioned)]
    assert {region.backend for region in event.regions} == {"dynamo:openvino", "inductor"}
    assert any("int64" in refused.reason for refused in event.refused)


def test_another_size_is_another_graph_with_the_right_result(events):
    def program(x):
        return torch.relu(x @ x.T).mean() * x.shape[0]

    compiled = core.compile(program, backend="dynamo:openvino")
    for size in (3, 5, 8):
        x = torch.randn(size, 4)
        torch.testing.assert_close(compiled(x), program(x))
    assert len([event for event in events if isinstance(event, ArtifactBuilt)]) == 3


def test_its_note_is_said(events):
    core.compile(lambda x: torch.relu(x @ x), backend="dynamo:openvino")(torch.randn(3, 3))
    texts = [event.finding.text for event in events if isinstance(event, BackendReported)]
    assert any("relu of NaN" in text for text in texts)
