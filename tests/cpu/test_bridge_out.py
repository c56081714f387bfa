"""Core's backends under torch.compile: the peer captures, core compiles, results and side effects are eager's."""

from __future__ import annotations

import copy
import tomllib
from collections import Counter
from importlib import metadata
from pathlib import Path

import pytest
import torch

import core.bridge
from core.errors import BackendNotInstalled
from core.events import ArtifactBuilt, FellBack, GraphBroken, subscribe

pytestmark = pytest.mark.filterwarnings("ignore")


class Seen:
    """What core built while a block ran."""

    def __init__(self):
        self.built = []
        self.trouble = []

    def __enter__(self):
        self._end = subscribe(self._take)
        return self

    def __exit__(self, *raised):
        self._end()

    def _take(self, event):
        if isinstance(event, ArtifactBuilt):
            self.built.append(event)
        if isinstance(event, (FellBack, GraphBroken)):
            self.trouble.append(event)

    @property
    def kinds(self):
        return Counter((event.backend, event.mode) for event in self.built)


@pytest.fixture(autouse=True)
def _forget():
    yield
    torch.compiler.reset()
    core.reset()


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.0), torch.nn.Linear(8, 3)
    )


def test_the_names_are_published_to_the_peer():
    points = {point.name: point.value for point in metadata.entry_points(group="torch_dynamo_backends")}
    names = {"core": "core", "core_eager": "eager", "core_aot_eager": "aot_eager", "core_inductor": "inductor"}
    assert {name: points.get(name) for name in names} == {n: f"core.bridge:{v}" for n, v in names.items()}


def test_every_plugin_publishes_its_backends_to_the_peer():
    for path in (Path(__file__).resolve().parents[2] / "plugins").glob("*/pyproject.toml"):
        points = tomllib.loads(path.read_text())["project"].get("entry-points", {})
        wanted = {f"core_{name}": f"core.bridge:{name}" for name in points.get("core.backends", {})}
        assert points.get("torch_dynamo_backends", {}) == wanted, path.parent.name


@pytest.mark.parametrize("name", ["core", "core_inductor", "core_aot_eager", "core_eager"])
def test_a_network_trains_as_in_eager(name):
    ours, theirs = network(), network()
    x = torch.randn(5, 6)
    with Seen() as seen:
        compiled = torch.compile(ours, backend=name)
        for _ in range(3):
            got, want = compiled(x), theirs(x)
            torch.testing.assert_close(got, want)
            got.square().sum().backward()
            want.square().sum().backward()
    for left, right in zip(ours.parameters(), theirs.parameters()):
        torch.testing.assert_close(left.grad, right.grad, rtol=1e-4, atol=1e-5)
    for left, right in zip(ours.buffers(), theirs.buffers()):
        torch.testing.assert_close(left, right)
    backend = {"core": "inductor"}.get(name, name.removeprefix("core_"))
    modes = {"core_eager": {(backend, "forward"): 1}}.get(name, {(backend, "forward"): 1, (backend, "backward"): 1})
    assert seen.kinds == modes and not seen.trouble
    if backend == "inductor":
        assert all(event.kernels for event in seen.built), "our kernels are what ran"


def test_writes_to_inputs_and_views_of_them_are_kept():
    def program(x, y):
        x.add_(y)
        view = x[1:]
        view.mul_(2)
        return view, x * 3

    x, y = torch.randn(4, 3), torch.randn(4, 3)
    ours, theirs = x.clone(), x.clone()
    with Seen() as seen:
        got = torch.compile(program, backend="core_inductor")(ours, y)
    want = program(theirs, y)
    torch.testing.assert_close(ours, theirs)
    for left, right in zip(got, want):
        torch.testing.assert_close(left, right)
    got[0].zero_()
    assert float(ours[1:].abs().sum()) == 0.0, "the view is a view of the input"
    assert seen.kinds == {("inductor", "inference"): 1}


def test_graph_breaks_of_the_peer_give_one_artifact_each():
    told = []

    def program(x):
        x = torch.relu(x + 1)
        told.append(1)
        torch._dynamo.graph_break()
        return x.sin() * 2

    x = torch.randn(7)
    with Seen() as seen:
        compiled = torch.compile(program, backend="core_inductor")
        torch.testing.assert_close(compiled(x), program(x))
    assert seen.kinds == {("inductor", "inference"): 2} and len(told) == 2


def test_changing_sizes_settle_on_a_graph_for_every_size():
    def program(x, scale):
        return (x * scale).relu().sum(0) + x.shape[0]

    with Seen() as seen:
        compiled = torch.compile(program, backend="core_inductor")
        for size in (3, 4, 5, 6, 9, 12, 15):
            x = torch.randn(size, 4)
            torch.testing.assert_close(compiled(x, 0.5), program(x, 0.5))
    assert len(seen.built) <= 3 and not seen.trouble


def test_a_number_that_the_peer_makes_symbolic_is_taken():
    def program(x, count):
        return x + count

    compiled = torch.compile(program, backend="core_aot_eager", dynamic=True)
    for count in (2, 3, 7):
        torch.testing.assert_close(compiled(torch.ones(3), count), torch.full((3,), 1.0 + count))


def test_the_function_takes_real_and_fake_examples_and_no_inference_changes_it():
    from torch._subclasses.fake_tensor import FakeTensorMode

    class Graph(torch.nn.Module):
        def forward(self, x):
            return (torch.tanh(x) * 2,)

    x = torch.randn(3)
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(x)
    for example in (x, fake):
        traced = torch.fx.symbolic_trace(Graph())
        run = core.bridge.eager(traced, [example])
        torch.testing.assert_close(run(x)[0], torch.tanh(x) * 2)


def test_options_and_mode_reach_the_backend():
    def program(x):
        return x.sin() + 1

    x = torch.randn(4)
    torch.testing.assert_close(torch.compile(program, backend="core_inductor", mode="reduce-overhead")(x), program(x))
    torch.compiler.reset()
    with pytest.raises(Exception, match="CORE-O001") as caught:
        torch.compile(program, backend="core_inductor", options={"no_such_option": 1})(x)
    assert "no_such_option" in str(caught.value)


def test_an_unknown_backend_is_named():
    traced = torch.fx.symbolic_trace(copy.deepcopy(network()))
    with pytest.raises(BackendNotInstalled, match="CORE-B001"):
        core.bridge.no_such_backend(traced, [])
