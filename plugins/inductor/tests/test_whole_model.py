"""A transformer through core.compile with this backend: what its plan consists of, and that results are eager's."""

from __future__ import annotations

import pytest
import torch

import core
from core import events

MATRIX_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "linear", "_scaled_dot_product", "convolution")


@pytest.fixture(autouse=True)
def fresh():
    core.reset()
    yield
    core.reset()


@pytest.fixture
def artifacts():
    """The ArtifactBuilt events of the test."""
    found: list[events.ArtifactBuilt] = []
    unsubscribe = events.subscribe(lambda e: found.append(e) if isinstance(e, events.ArtifactBuilt) else None)
    yield found
    unsubscribe()


def encoder(layers: int = 2) -> torch.nn.Module:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, activation="gelu", batch_first=True)
    return torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


def library_operators(event: events.ArtifactBuilt) -> set[str]:
    return {name for name, where in event.artifact.provenance.items() if where == "library"}


def test_the_plan_of_a_transformer_calls_the_library_for_matrix_products_only(artifacts):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64
    )
    model = transformers.BertModel(config).eval()
    ids = torch.randint(0, 50, (2, 16))
    with torch.no_grad():
        got, want = core.compile(model)(ids), model(ids)
    torch.testing.assert_close(got.last_hidden_state, want.last_hidden_state)
    assert [event.mode for event in artifacts] == ["inference"]
    strange = [name for name in library_operators(artifacts[0]) if not name.startswith(MATRIX_PRODUCTS)]
    assert not strange
    stats = core.stats()
    assert stats["graphs"] == 1 and stats["breaks"] == 0
    assert 0 < stats["kernels"] <= 12 and stats["extern_calls"] <= 16


def test_training_gives_eagers_gradients(artifacts):
    model = encoder()
    x = torch.randn(2, 8, 64, requires_grad=True)
    core.compile(model)(x).square().mean().backward()
    got = [x.grad.clone(), *(p.grad.clone() for p in model.parameters())]
    x.grad = None
    model.zero_grad()
    model(x).square().mean().backward()
    for ours, theirs in zip(got, [x.grad, *(p.grad for p in model.parameters())]):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
    assert sorted(event.mode for event in artifacts) == ["backward", "forward"]


def test_dropout_draws_eagers_numbers_and_leaves_the_generator_alike():
    model = encoder(1)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.3
    compiled, x = core.compile(model), torch.randn(2, 8, 64)
    for _ in range(2):
        torch.manual_seed(5)
        want = model(x)
        state = torch.get_rng_state()
        torch.manual_seed(5)
        torch.testing.assert_close(compiled(x), want)
        assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("training", [False, True])
def test_autocast_around_the_call_is_applied_once(training):
    model = encoder(1).train(training)
    x = torch.randn(2, 8, 64)
    compiled = core.compile(model)
    with torch.set_grad_enabled(training):
        for _ in range(2):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                got, want = compiled(x), model(x)
            assert got.dtype == want.dtype
            torch.testing.assert_close(got.float(), want.float(), rtol=5e-2, atol=5e-2)
        torch.testing.assert_close(compiled(x), model(x))


def test_weights_changed_after_compiling_are_read():
    model = encoder(1).eval()
    x = torch.randn(2, 8, 64)
    compiled = core.compile(model)
    with torch.no_grad():
        compiled(x)
        for change in (
            lambda p: p.data.mul_(0.5),
            lambda p: p.data.copy_(torch.randn_like(p)),
            lambda p: setattr(p, "data", torch.randn_like(p)),
            lambda p: p.numpy().__setitem__(..., 0.25),
        ):
            for parameter in model.parameters():
                change(parameter)
            torch.testing.assert_close(compiled(x), model(x))
        model.load_state_dict(encoder(1).state_dict())
        torch.testing.assert_close(compiled(x), model(x))
        model.double()
        torch.testing.assert_close(compiled(x.double()), model(x.double()))
