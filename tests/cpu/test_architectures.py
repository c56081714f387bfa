"""Whole models of several architectures: one graph, no break, eager's results, gradients and random numbers."""

from __future__ import annotations

import contextlib

import pytest
import torch

import core
from bench.architectures import ARCHITECTURES, make
from core import events

NAMES = ("bert", "gpt2", "llama", "t5", "whisper", "mamba", "swin", "unet", "recommender", "lstm")
FROM_TORCH = ("unet", "recommender", "lstm")
GENERATORS = ("gpt2", "llama", "t5")


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def architecture(name):
    if name not in FROM_TORCH:
        pytest.importorskip("transformers")
    return make(name)


def assert_one_graph():
    stats = core.stats()
    counts = (stats["graphs"], stats["breaks"], stats["recompiles"], stats["skipped"])
    assert counts == (1, 0, 0, 0), stats


def assert_close(got, want, tolerance):
    assert len(got) == len(want)
    for ours, theirs in zip(got, want):
        assert ours.dtype == theirs.dtype
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


@contextlib.contextmanager
def breaks_of():
    """The reasons of the graph breaks meanwhile."""
    reasons = []
    unsubscribe = events.subscribe(
        lambda event: reasons.append(event.reason) if isinstance(event, events.GraphBroken) else None
    )
    try:
        yield reasons
    finally:
        unsubscribe()


def seeded(step, model):
    torch.manual_seed(1)
    return [tensor.clone() for tensor in step(model)]


# a scan in the place of a loop adds in another order
TOLERANCES = {"mamba": 1e-5}


@pytest.mark.parametrize("name", NAMES)
def test_inference_is_one_graph_and_equals_eager(name):
    subject = architecture(name)
    subject.model.eval()
    want = subject.infer(subject.model)
    compiled = core.compile(subject.model, backend="eager")
    for _ in range(2):
        assert_close(subject.infer(compiled), want, TOLERANCES.get(name, 0))
    assert_one_graph()


@pytest.mark.parametrize("name", NAMES)
def test_training_is_one_graph_with_eager_gradients_and_dropout(name):
    subject = architecture(name)
    subject.model.train()
    state = {key: value.clone() for key, value in subject.model.state_dict().items()}
    want = seeded(subject.train, subject.model)
    compiled = core.compile(subject.model, backend="eager")
    with breaks_of() as reasons:
        for _ in range(2):
            subject.model.load_state_dict(state)  # running statistics as before
            assert_close(seeded(subject.train, compiled), want, TOLERANCES.get(name, 0))
    if "a branch depends on the value of a tensor" in reasons:
        pytest.skip("this version of the model decides by a tensor which layers it drops")
    assert_one_graph()


@pytest.mark.parametrize("name", GENERATORS)
def test_generation_with_a_cache_takes_three_graphs_whatever_its_length(name):
    subject = architecture(name)
    model = subject.model.eval()
    settings = {"do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    if model.config.is_encoder_decoder:
        settings["decoder_start_token_id"] = 0
    prompt = subject.inputs["input_ids"]
    compiled = core.compile(model, backend="eager")
    for length in (6, 14):
        want = model.generate(prompt, max_new_tokens=length, **settings)
        assert torch.equal(compiled.generate(prompt, max_new_tokens=length, **settings), want)
    stats = core.stats()
    # the prompt, the second token, and every further token with the cache's length symbolic
    assert (stats["graphs"], stats["breaks"], stats["recompiles"]) == (3, 0, 2), stats


WAYS_TO_GENERATE = {
    "sampling": ({"do_sample": True, "top_k": 20}, 3),
    "beams": ({"num_beams": 3}, 3),
    "a cache of fixed size": ({"cache_implementation": "static", "disable_compile": True}, 2),
}


@pytest.mark.parametrize(("settings", "graphs"), WAYS_TO_GENERATE.values(), ids=WAYS_TO_GENERATE)
def test_each_way_to_generate_takes_few_graphs_for_thirty_tokens(settings, graphs):
    subject = architecture("llama")
    model = subject.model.eval()
    settings = {"do_sample": False, "pad_token_id": 0, "eos_token_id": None, "max_new_tokens": 30, **settings}
    prompt = subject.inputs["input_ids"]
    torch.manual_seed(3)
    want = model.generate(prompt, **settings)
    model.forward = core.compile(model.forward, backend="eager")
    for _ in range(2):
        torch.manual_seed(3)
        assert torch.equal(model.generate(prompt, **settings), want)
    stats = core.stats()
    counts = [stats[key] for key in ("graphs", "breaks", "recompiles", "skipped")]
    assert counts == [graphs, 0, graphs - 1, 0], stats


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop])
def test_training_loops_follow_the_optimizer_outside(optimizer):
    def loop(compile_model):
        subject = make("unet")
        subject.model.train()
        model = compile_model(subject.model)
        steps = optimizer(subject.model.parameters(), lr=1e-3)
        losses = []
        for step in range(4):
            steps.zero_grad(set_to_none=step % 2 == 0)
            loss = model(**subject.inputs).square().mean()
            loss.backward()
            steps.step()
            losses.append(loss.detach())
        return [*losses, *subject.model.state_dict().values()]

    want = loop(lambda model: model)
    got = loop(lambda model: core.compile(model, backend="eager"))
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(got, want))
    assert_one_graph()


def test_every_architecture_of_the_table_can_be_made():
    pytest.importorskip("transformers")
    for name in ARCHITECTURES:
        subject = make(name)
        assert sum(p.numel() for p in subject.model.parameters()) < 3_000_000, name
