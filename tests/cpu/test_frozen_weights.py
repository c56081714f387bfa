"""freeze=True: a backend bakes weights in, and every change that torch sees is seen before the next run."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

import core
from core import _C
from core.errors import FrozenWeightChanged
from core.events import FellBack, subscribe
from core.plugin import Artifact

_SPEC = importlib.util.spec_from_file_location("partial_backends", Path(__file__).with_name("partial_backends.py"))
partial = sys.modules.setdefault("partial_backends", importlib.util.module_from_spec(_SPEC))
if not hasattr(partial, "Taking"):
    _SPEC.loader.exec_module(partial)


class Baking(partial.Taking):
    """Copies the constants when it compiles and never looks at the weights that it is passed."""

    def __init__(self, *operators):
        super().__init__(*(operators or ("addmm", "t", "relu", "mm", "view", "mul", "add")))

    def compile(self, graph, fake_inputs, ctx):
        self.contexts.append(ctx)
        assert ctx.frozen is bool(ctx.constants)
        baked = {at: value.detach().clone() for at, value in ctx.constants.items()}

        def run(*inputs):
            return graph.forward(*(baked.get(at, value) for at, value in enumerate(inputs)))

        return Artifact(run)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)).eval()


def compiled_frozen(model, backend=None, **options):
    backend = backend or Baking()
    return backend, core.compile(model, backend=backend, fallback="eager", freeze=True, fullgraph=True, **options)


CHANGES = {
    "in place": lambda model: model[0].weight.mul_(2),
    "copy_": lambda model: model[2].bias.copy_(torch.ones(4)),
    "load_state_dict": lambda model: model.load_state_dict({k: v + 1 for k, v in model.state_dict().items()}),
    "data replaced": lambda model: setattr(model[0].weight, "data", torch.randn(16, 8)),
    "another parameter": lambda model: setattr(model[0], "weight", torch.nn.Parameter(torch.randn(16, 8))),
    "an optimizer": lambda model: torch.optim.SGD(model.parameters(), lr=1.0).step(
        lambda: [setattr(p, "grad", torch.ones_like(p)) for p in model.parameters()] and None
    ),
    "set_": lambda model: model[2].bias.set_(torch.full((4,), 3.0)),
}


@pytest.mark.parametrize("change", CHANGES)
@torch.no_grad()
def test_a_change_that_torch_sees_is_seen(change, model):
    backend, run = compiled_frozen(model)
    x = torch.randn(3, 8)
    torch.testing.assert_close(run(x), model(x))
    assert len(backend.contexts) == 1 and len(backend.contexts[0].constants) == 4
    CHANGES[change](model)
    for _ in range(3):
        x = torch.randn(3, 8)
        torch.testing.assert_close(run(x), model(x))
    assert len(backend.contexts) == 2


@torch.no_grad()
def test_a_weight_of_another_dtype_is_another_entry(model):
    backend, run = compiled_frozen(model)
    x = torch.randn(3, 8)
    run(x)
    model.double()
    torch.testing.assert_close(run(x.double()), model(x.double()))


@torch.no_grad()
def test_without_freeze_nothing_is_constant(model):
    backend = Baking()
    run = core.compile(model, backend=backend, fallback="eager")
    x = torch.randn(3, 8)
    run(x)
    model[0].weight.data.copy_(torch.zeros(16, 8))
    torch.testing.assert_close(run(x), model(x))
    assert not backend.contexts[0].constants and len(backend.contexts[0].parameters) == 4


@torch.no_grad()
def test_a_write_past_torch_is_seen_after_refresh(model):
    backend, run = compiled_frozen(model)
    x = torch.randn(3, 8)
    before = run(x)
    model[0].weight.data.copy_(torch.zeros(16, 8))
    torch.testing.assert_close(run(x), before)  # the documented limit
    assert core.refresh(torch.nn.Linear(1, 1)) == 0
    assert core.refresh(model) == 1
    torch.testing.assert_close(run(x), model(x))
    assert core.refresh() >= 1


@torch.no_grad()
def test_a_write_past_torch_is_found_by_the_check_of_values(model):
    with core.config.patch(check_frozen=True):
        _, run = compiled_frozen(model)
        x = torch.randn(3, 8)
        run(x)
    run(x)
    model[0].weight.detach().numpy()[0, 0] = 7
    with pytest.raises(FrozenWeightChanged, match="core.refresh") as caught:
        run(x)
    assert "frozen Parameter of shape (16, 8)" in caught.value.what
    core.refresh(model)
    torch.testing.assert_close(run(x), model(x))


def test_the_variable_of_the_check_sets_it(monkeypatch):
    monkeypatch.setenv("CORE_CHECK_FROZEN", "1")
    assert core.config.check_frozen is True


@torch.no_grad()
def test_weights_that_keep_changing_are_read_on_each_call(model):
    events = []
    stop = subscribe(events.append)
    backend, run = compiled_frozen(model)
    x = torch.randn(3, 8)
    for _ in range(20):
        torch.testing.assert_close(run(x), model(x))
        model[0].weight.add_(0.01)
    stop()
    assert len(backend.contexts) < 12 and not backend.contexts[-1].frozen
    assert [event.stage for event in events if isinstance(event, FellBack)] == ["freeze"]


def test_a_graph_with_gradients_freezes_nothing_and_says_so(model):
    events = []
    stop = subscribe(events.append)
    backend, run = compiled_frozen(model)
    x = torch.randn(3, 8)
    for _ in range(2):
        torch.testing.assert_close(run(x), model(x))
        with torch.no_grad():
            model[0].weight.data.copy_(torch.randn(16, 8))
    stop()
    assert not any(ctx.frozen for ctx in backend.contexts)
    assert any(isinstance(event, FellBack) and event.stage == "freeze" for event in events)


@torch.no_grad()
def test_what_the_graph_writes_to_is_not_frozen():
    module = torch.nn.BatchNorm1d(4, affine=False)
    theirs = torch.nn.BatchNorm1d(4, affine=False)
    backend, run = compiled_frozen(module, Baking("nothing"))
    for _ in range(3):
        x = torch.randn(8, 4)
        torch.testing.assert_close(run(x), theirs(x))
    torch.testing.assert_close(module.running_mean, theirs.running_mean)


@torch.no_grad()
def test_frozen_weights_reach_every_region(model):
    backend, run = compiled_frozen(model, Baking("addmm", "t"))
    x = torch.randn(3, 8)
    torch.testing.assert_close(run(x), model(x))
    model[2].weight.mul_(3)
    torch.testing.assert_close(run(x), model(x))
    assert sorted(len(ctx.constants) for ctx in backend.contexts) == [2, 2, 2, 2]


@torch.no_grad()
def test_a_dropped_model_is_freed(model):
    import gc
    import weakref

    backend, run = compiled_frozen(model)
    run(torch.randn(3, 8))
    weight = weakref.ref(model[0].weight)
    backend.contexts.clear(), backend.graphs.clear()
    model = run = None
    gc.collect()
    assert weight() is None or model is None  # the fixture may hold it


def test_the_check_tells_which_weight_changed():
    weights = tuple(torch.nn.Parameter(torch.randn(3)) for _ in range(3))
    check = _C.FrozenWeights(weights)
    assert check() is False and check.changed() == []
    with torch.no_grad():
        weights[1].add_(1)
    assert check() is True and check.changed() == [1]
    for wrong in (torch.ones(2, 2).to_sparse(), 3):
        with pytest.raises(TypeError, match="no version or no memory"):
            _C.FrozenWeights((wrong,))
