"""compile() with a backend whose calls are captured, on a device of the CPU that captures: inference, training, breaks,
sizes, random numbers, regions, modes, and what is said of graphs that can't be."""

from __future__ import annotations

import gc
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from graph_device_on_cpu import DeviceOnCpu
from observed import captures, reasons
from torch import nn

import core
from core import events
from core.backends import cuda_graphs
from core.backends.cuda_graphs import graph_device, replayed
from core.plugin import Artifact, Backend, Capabilities, Option, Support, cuda_graph_options

WARM = Path(core.__file__).parent


class Captured(Backend):
    """torch's kernels, in calls that may be captured."""

    name = "captured"
    version = "1"
    capabilities = Capabilities(graph_level="aten-functional", cudagraph_safe="yes")

    def options(self):
        return cuda_graph_options(on=True)

    def compile(self, graph, fake_inputs, ctx):
        return Artifact(call=graph.forward)


@pytest.fixture(autouse=True)
def device(monkeypatch):
    """The CPU as a device that captures."""
    made = DeviceOnCpu()
    monkeypatch.setitem(graph_device.KINDS, "cpu", lambda device: made)
    monkeypatch.setattr(replayed, "_graphs", {})
    core.reset()
    yield made
    core.reset()


def rows():
    """(captures, replays, plain calls) of each graph, in order of name."""
    found = sorted(cuda_graphs.statistics(), key=lambda row: row["name"])
    return [(row["captures"], row["replays"], row["plain"]) for row in found]


def compiled(fn, backend=None, **options):
    return core.compile(fn, backend=backend or Captured(), options=options)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3))


# -- inference --------------------------------------------------------------------------------------------------------


def test_a_module_is_captured_once_and_replayed(heard):
    model = network()
    fast = compiled(model)
    with torch.no_grad():
        for _ in range(5):
            x = torch.randn(4, 6)
            assert torch.equal(fast(x), model(x))
    assert rows() == [(1, 4, 1)]
    assert captures(heard)[0].inputs == (1, 6, 0, 0)
    assert core.stats()["graphs"] == 1 and core.stats()["breaks"] == 0


@pytest.mark.parametrize("copy_outputs", [True, False])
def test_no_file_of_core_is_entered_by_a_replay(copy_outputs):
    fast = compiled(lambda x: (torch.tanh(x) * 2, x.sum(0), x.t() + 1), cudagraph_copy_outputs=copy_outputs)
    entered = []

    def profile(frame, event, arg):
        if event == "call" and frame.f_code.co_filename.startswith(str(WARM)):
            entered.append(f"{frame.f_code.co_filename}:{frame.f_code.co_name}")

    for _ in range(4):
        fast(torch.randn(4, 6))
    x = torch.randn(4, 6)
    sys.setprofile(profile)
    try:
        fast(x)
    finally:
        sys.setprofile(None)
    assert entered == []
    assert rows() == [(1, 4, 1)]


def test_results_survive_later_calls_and_may_be_written_to():
    fast = compiled(lambda x: torch.softmax(x, -1))
    kept = []
    for _ in range(6):
        x = torch.randn(4, 6)
        result = fast(x)
        kept.append((result, torch.softmax(x, -1) + 1))
        result.add_(1)
    assert all(torch.allclose(got, want) for got, want in kept)


def test_mutated_inputs_are_written_back():
    def program(cache, x, at):
        cache[at] = x
        return cache.sum(0)

    fast = compiled(program)
    cache, twin = torch.zeros(4, 3), torch.zeros(4, 3)
    for number in range(8):
        x, at = torch.randn(3), torch.tensor(number % 4)
        assert torch.equal(fast(cache, x, at), program(twin, x, at))
        assert torch.equal(cache, twin)
    assert rows() == [(1, 7, 1)]


def test_what_is_written_back_is_not_copied_out_first(heard):
    def program(state, x):
        state.mul_(0.5).add_(x)
        return None

    fast = compiled(program)
    state, twin = torch.zeros(64), torch.zeros(64)
    for _ in range(5):
        x = torch.randn(64)
        fast(state, x), program(twin, x)
        assert torch.equal(state, twin)
    assert captures(heard)[0].inputs == (1, 0, 1, 0)
    made = next(iter(replayed.graphs_of("cpu").recordings))
    assert [result.kind for result in made.results] == ["leased"]


def test_several_graphs_of_one_call_are_each_captured():
    def program(x):
        y = torch.relu(x) * 2
        print(end="")
        return y.sum(-1) + x.mean(-1)

    fast = compiled(program)
    for _ in range(4):
        x = torch.randn(4, 6)
        assert torch.allclose(fast(x), program(x))
    assert rows() == [(1, 3, 1)] * 2
    assert core.stats()["breaks"] == 1


def test_sizes_that_differ_have_a_capture_each(heard):
    fast = compiled(lambda x: torch.softmax(x, -1) * x.shape[0])
    for _ in range(4):
        for rows_ in (2, 3, 5, 7):
            x = torch.randn(rows_, 6)
            assert torch.allclose(fast(x), torch.softmax(x, -1) * rows_)
    assert sum(each[0] for each in rows()) == 4  # the graph of the first size, or the one for all others
    assert core.stats()["recompiles"] == 1


def test_a_limit_on_sizes_is_kept(heard):
    fast = core.compile(lambda x: x * 2 + 1, backend=Captured(), dynamic=True, options={"cudagraph_sizes": 2})
    for _ in range(4):
        for count in (2, 3, 5, 7):
            x = torch.randn(count)
            assert torch.equal(fast(x), x * 2 + 1)
    assert [each[0] for each in rows()] == [2]
    assert any("cudagraph_sizes" in reason for reason in reasons(heard))


def test_random_numbers_are_those_of_the_seed():
    program = lambda x: F.dropout(x, 0.5, True) + torch.rand_like(x)  # noqa: E731
    plain = core.compile(program, backend="aot_eager")
    fast = compiled(program)
    x = torch.ones(32)
    torch.manual_seed(9)
    want = [plain(x) for _ in range(5)]
    torch.manual_seed(9)
    got = [fast(x) for _ in range(5)]
    assert all(torch.equal(a, b) for a, b in zip(got, want))
    assert rows() == [(1, 4, 1)]


def test_weights_that_are_replaced_are_noticed():
    model = network()
    fast = compiled(model)
    with torch.no_grad():
        for number in range(6):
            x = torch.randn(4, 6)
            assert torch.equal(fast(x), model(x))
            if number % 2:
                model[0].weight.data = torch.randn(8, 6)
            else:
                model[0].weight.mul_(1.5)


def test_inference_mode_is_kept():
    fast = compiled(lambda x: torch.tanh(x) * 2)
    for _ in range(4):
        with torch.inference_mode():
            x = torch.randn(5)
            got = fast(x)
            assert torch.equal(got, torch.tanh(x) * 2) and got.is_inference()
        y = torch.randn(5)
        got = fast(y)
        assert torch.equal(got, torch.tanh(y) * 2) and not got.is_inference()


# -- training ---------------------------------------------------------------------------------------------------------


def trained(model, steps, run=None, keep=False):
    """Losses and final parameters of a few steps of SGD."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(1)
    losses, held = [], []
    for _ in range(steps):
        x, y = torch.randn(4, 6, generator=generator), torch.randn(4, 3, generator=generator)
        loss = F.mse_loss((run or model)(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().clone())
        held.append(loss if keep else None)
    return losses, [parameter.detach().clone() for parameter in model.parameters()]


@pytest.mark.parametrize("keep", [False, True], ids=["losses let go", "losses kept"])
def test_training_steps_are_those_of_eager(keep, heard):
    want = trained(network(), 6)
    model = network()
    got = trained(model, 6, compiled(model), keep)
    for a, b in zip(want[0] + want[1], got[0] + got[1]):
        assert torch.allclose(a, b, atol=1e-6)
    assert rows() == [(1, 5, 1), (1, 5, 1)]
    forward, backward = captures(heard)
    assert forward.inputs[:2] == (1, 6)
    assert backward.inputs[3] > 0  # what the forward saved is read where it lies
    assert reasons(heard) == []


def test_saved_activations_are_not_written_over_by_a_second_forward():
    model, twin = network(), network()
    fast = compiled(model)
    for _ in range(4):
        xs = [torch.randn(4, 6) for _ in range(3)]
        losses = [fast(x).square().sum() for x in xs]
        wants = [twin(x).square().sum() for x in xs]
        for loss, want in zip(losses, wants):
            loss.backward(), want.backward()
        for a, b in zip(model.parameters(), twin.parameters()):
            assert torch.allclose(a.grad, b.grad, rtol=1e-4, atol=1e-5)


def test_gradients_survive_later_steps():
    model, twin = network(), network()
    fast = compiled(model)
    kept = []
    for _ in range(5):
        x = torch.randn(4, 6)
        got = torch.autograd.grad(fast(x).square().sum(), list(model.parameters()))
        want = torch.autograd.grad(twin(x).square().sum(), list(twin.parameters()))
        kept.append((got, want))
    for got, want in kept:
        assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(got, want))


def test_a_graph_kept_for_a_second_backward_keeps_its_activations():
    model, twin = network(), network()
    fast = compiled(model)
    for _ in range(4):
        x, other = torch.randn(4, 6), torch.randn(4, 6)
        loss, want = fast(x).square().sum(), twin(x).square().sum()
        loss.backward(retain_graph=True), want.backward(retain_graph=True)
        fast(other).sum().backward(), twin(other).sum().backward()
        loss.backward(), want.backward()
        for a, b in zip(model.parameters(), twin.parameters()):
            assert torch.allclose(a.grad, b.grad, rtol=1e-4, atol=1e-4)


def test_two_models_in_turn_spoil_nothing_of_each_other():
    models, twins = [network(), network()], [network(), network()]
    fast = [compiled(model) for model in models]
    for _ in range(4):
        x = torch.randn(4, 6)
        losses = [each(x).square().sum() for each in fast]
        with torch.no_grad():
            fast[0](x)
        wants = [each(x).square().sum() for each in twins]
        for loss, want in zip(reversed(losses), reversed(wants)):
            loss.backward(), want.backward()
    for model, twin in zip(models, twins):
        for a, b in zip(model.parameters(), twin.parameters()):
            assert torch.allclose(a.grad, b.grad, rtol=1e-4, atol=1e-4)


def test_statistics_of_batch_norm_are_updated_on_each_replay():
    def make():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8))

    model, twin = make(), make()
    fast = compiled(model)
    for _ in range(5):
        x = torch.randn(4, 6)
        fast(x).sum().backward(), twin(x).sum().backward()
    assert torch.allclose(model[1].running_mean, twin[1].running_mean, atol=1e-6)
    assert torch.allclose(model[1].running_var, twin[1].running_var, atol=1e-6)
    assert model[1].num_batches_tracked == 5


def test_gradients_of_dropout_belong_to_its_numbers():
    fast = compiled(lambda x: F.dropout(x, 0.5, True) * 3)
    for _ in range(5):
        x = torch.randn(64, requires_grad=True)
        result = fast(x)
        result.sum().backward()
        assert torch.equal(x.grad != 0, result != 0)


def whole_step(model, optimizer):
    def step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def test_a_whole_training_step_is_captured_with_its_optimizer(heard):
    def run(wrap):
        model = network()
        step = wrap(whole_step(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)))
        generator = torch.Generator().manual_seed(1)
        shapes = ((4, 6), (4, 3))
        losses = [step(*(torch.randn(shape, generator=generator) for shape in shapes)) for _ in range(8)]
        return [*losses, *(parameter.detach() for parameter in model.parameters())]

    for a, b in zip(run(compiled), run(lambda fn: fn)):
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-6)
    assert any(replays >= 3 for _, replays, _ in rows())
    assert reasons(heard) == []


def test_sizes_of_training_are_captured_each():
    model, twin = network(), network()
    fast = core.compile(model, backend=Captured(), dynamic=True)
    for _ in range(3):
        for count in (3, 5, 8):
            x = torch.randn(count, 6)
            model.zero_grad(), twin.zero_grad()
            fast(x).square().mean().backward(), twin(x).square().mean().backward()
            for a, b in zip(model.parameters(), twin.parameters()):
                assert torch.allclose(a.grad, b.grad, rtol=1e-4, atol=1e-5)
    assert [each[0] for each in rows()] == [3, 3]


def test_gradients_of_gradients_are_those_of_eager():
    program = lambda x: torch.tanh(x * x).sum()  # noqa: E731
    fast = compiled(program)
    for _ in range(4):
        x = torch.randn(5, requires_grad=True)
        found = []
        for run in (fast, program):
            first = torch.autograd.grad(run(x), x, create_graph=True)[0]
            found.append(torch.autograd.grad(first.square().sum(), x)[0])
        assert torch.allclose(*found, rtol=1e-4, atol=1e-5)


def test_training_with_results_that_stay_in_the_graphs_memory():
    model, twin = network(), network()
    fast = compiled(model, cudagraph_copy_outputs=False)
    kept = []
    for _ in range(6):
        x = torch.randn(4, 6)
        model.zero_grad(), twin.zero_grad()
        got, want = fast(x), twin(x)
        got.square().mean().backward(), want.square().mean().backward()
        kept.append((got, want, [p.grad for p in model.parameters()], [p.grad for p in twin.parameters()]))
    for got, want, gradients, wanted in kept:
        assert torch.allclose(got, want, atol=1e-6)
        assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(gradients, wanted))


# -- what is asked for and what is said -------------------------------------------------------------------------------


class Modal(Captured):
    """As inductor: off, until a mode asks for it."""

    name = "modal"

    def options(self):
        modes = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
        return {"mode": Option(str, "default", modes), **cuda_graph_options()}


class Modeless(Captured):
    name = "modeless"

    def options(self):
        return cuda_graph_options()


@pytest.mark.parametrize("backend", [Modal, Modeless])
@pytest.mark.parametrize(
    "given, asked",
    [({}, 0), ({"mode": "reduce-overhead"}, 1), ({"mode": "max-autotune"}, 1), ({"options": {"cudagraphs": True}}, 1)],
    ids=["default", "reduce-overhead", "max-autotune", "option"],
)
def test_a_mode_or_an_option_asks_for_it(backend, given, asked):
    fast = core.compile(lambda x: x * 2, backend=backend(), **given)
    for _ in range(3):
        x = torch.randn(3)
        assert torch.equal(fast(x), x * 2)
    assert rows() == [(1, 2, 1)] * asked


def test_a_backend_that_declares_it_for_artifacts_is_asked_for_each():
    class PerArtifact(Captured):
        capabilities = replace(Captured.capabilities, cudagraph_safe="per-artifact")

        def compile(self, graph, fake_inputs, ctx):
            return Artifact(call=graph.forward, cudagraph_safe="relu" in graph.code)

    heard = []
    stop = events.subscribe(heard.append)
    for fn in (torch.relu, torch.tanh):
        fast = core.compile(lambda x, fn=fn: fn(x), backend=PerArtifact())
        for _ in range(3):
            fast(torch.randn(3))
    stop()
    assert rows() == [(1, 2, 1)]
    assert ["does not declare" in reason for reason in reasons(heard)] == [True]


@torch.library.custom_op("captured_tests::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@doubled.register_fake
def _(x):
    return torch.empty_like(x)


UNSAFE = {
    "a mask": (lambda x: x.index_put((x > 0,), torch.zeros(())), "index_put"),
    "decompositions": (lambda x: torch.linalg.qr(x[:, :4])[1], "qr"),
    "an operator of a library": (lambda x: torch.ops.captured_tests.doubled(x), "doubled"),
}


@pytest.mark.parametrize("case", UNSAFE)
def test_a_graph_that_waits_for_the_device_is_not_captured_and_says_why(case, heard):
    program, word = UNSAFE[case]
    fast = compiled(program)
    for _ in range(3):
        x = torch.randn(4, 6)
        assert torch.equal(fast(x), program(x))
    assert rows() == []
    found = [event for event in heard if isinstance(event, events.FellBack) and event.stage == "cudagraphs"]
    assert len(found) == 1 and word in found[0].reason and "test_cuda_graphs_of_backends" in str(found[0].line)


def test_operators_of_libraries_are_captured_on_request():
    fast = compiled(lambda x: torch.ops.captured_tests.doubled(x), cudagraph_custom_operators=True)
    for _ in range(3):
        x = torch.randn(3)
        assert torch.equal(fast(x), x * 2)
    assert rows() == [(1, 2, 1)]


def test_options_that_make_no_sense_name_themselves():
    with pytest.raises(core.errors.InvalidOption, match="cudagraph_warmup"):
        compiled(lambda x: x + 1, cudagraph_warmup=-1)(torch.ones(2))


def test_results_may_stay_in_the_memory_of_the_graph():
    fast = compiled(lambda x: (x * 2, x + 1), cudagraph_copy_outputs=False, cudagraph_instances=2)
    kept = []
    for _ in range(6):
        x = torch.randn(4)
        kept.append((fast(x), (x * 2, x + 1)))
    assert all(torch.equal(a, b) for got, want in kept for a, b in zip(got, want))
    assert rows() == [(2, 2, 4)]


def test_regions_beside_another_backends_are_each_captured():
    class Partly(Captured):
        def supports(self, node, ctx):
            return Support("no", "not here") if "cumsum" in str(node.target) else Support("library")

    program = lambda x: torch.relu(torch.tanh(x @ x).cumsum(0) @ x) * 3 + x.sum()  # noqa: E731
    fast = core.compile(program, backend=Partly(), fallback="eager")
    for _ in range(4):
        x = torch.randn(300, 300)
        assert torch.allclose(fast(x), program(x), rtol=1e-3, atol=1e-2)
    assert rows() == [(1, 3, 1)] * 2


# -- memory -----------------------------------------------------------------------------------------------------------


def test_a_reset_drops_captures_and_gives_memory_back(device):
    fast = compiled(lambda x: x * 2)
    for _ in range(3):
        fast(torch.randn(3))
    graphs = replayed.graphs_of("cpu")
    assert len(graphs.recordings) == 1
    core.reset()
    gc.collect()
    assert len(graphs.recordings) == 0 and device.trims >= 1
    x = torch.randn(3)
    assert torch.equal(fast(x), x * 2)


def test_logs_say_what_was_captured(capsys):
    from core.report.logs import Log

    stop = events.subscribe(Log(["kernels"]))
    fast = compiled(lambda x: x * 2)
    for _ in range(3):
        fast(torch.randn(3))
    stop()
    text = capsys.readouterr().err
    assert "captured in" in text and "1 inputs copied; read in place: 0 parameters" in text


def test_explain_lists_refusals():
    report = core.explain(lambda x: x.index_put((x > 0,), torch.zeros(())), backend=Captured())(torch.randn(3))
    assert any("CUDA graph" in event.reason for event in report.fallbacks)
