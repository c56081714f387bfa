"""A backend that computes with numpy and is careless about everything but values: core makes the rest eager's."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

import core
from core.backends.layout import relayout
from core.errors import BackendMisbehaved
from core.events import BackendReported, Partitioned, subscribe
from core.plugin import Artifact

_SPEC = importlib.util.spec_from_file_location("partial_backends", Path(__file__).with_name("partial_backends.py"))
partial = sys.modules.setdefault("partial_backends", importlib.util.module_from_spec(_SPEC))
if not hasattr(partial, "Taking"):
    _SPEC.loader.exec_module(partial)
OverNumpy, Taking = partial.OverNumpy, partial.Taking


@pytest.fixture
def seen():
    events = []
    stop = subscribe(events.append)
    yield lambda kind: [event for event in events if isinstance(event, kind)]
    stop()


def agree(program, make, *, calls=3, dynamic=None, fallback="eager", backend=None, check_strides=True):
    """Compile once; each call has fresh values; results, strides, changes of inputs and aliasing are eager's."""
    backend = backend or OverNumpy()
    compiled = core.compile(program, backend=backend, fallback=fallback, fullgraph=True, dynamic=dynamic)
    earlier = []
    for call in range(calls):
        torch.manual_seed(call)
        mine = make()
        torch.manual_seed(call)
        theirs = make()
        torch.manual_seed(100 + call)
        found, state = compiled(*mine), torch.get_rng_state()
        torch.manual_seed(100 + call)
        expected = program(*theirs)
        assert torch.equal(state, torch.get_rng_state())
        torch.testing.assert_close(found, expected, equal_nan=True)
        torch.testing.assert_close(mine, theirs)
        left, right = (x if isinstance(x, tuple) else (x,) for x in (found, expected))
        for got, want in zip(left, right):
            if isinstance(want, torch.Tensor):
                assert type(got) is torch.Tensor and got.dtype is want.dtype and got.shape == want.shape
                if check_strides:
                    assert [s for s, n in zip(got.stride(), got.shape) if n > 1] == [
                        s for s, n in zip(want.stride(), want.shape) if n > 1
                    ]
        assert shared(left, mine) == shared(right, theirs)
        earlier.append((found, expected))
    for found, expected in earlier:  # later calls left earlier results alone
        torch.testing.assert_close(found, expected, equal_nan=True)
    assert backend.compiled
    return backend


def shared(results, inputs):
    """Which results share a storage with which inputs and with one another."""
    tensors = [value for value in (*results, *inputs) if isinstance(value, torch.Tensor)]
    keys = [tensor.untyped_storage().data_ptr() for tensor in tensors]
    return [(i, j) for i in range(len(keys)) for j in range(i) if keys[i] and keys[i] == keys[j]]


def pair(*sizes):
    return lambda: (torch.randn(sizes), torch.randn(sizes))


PROGRAMS = {
    "a product": lambda x, y: torch.relu(x @ y.t()),
    "an input handed on": lambda x, y: (x, x + y, y),
    "one result twice": lambda x, y: (lambda r: (r, r, x))(x + y),
    "a copy that must not alias": lambda x, y: (x.clone(), (x + y).clone()),
    "two copies of one value": lambda x, y: (lambda r: (r.clone(), r.clone(), r))(x * y),
    "views of a result": lambda x, y: (lambda r: (r, r.t(), r.view(-1)))(x * y),
    "a transposed result": lambda x, y: (x + y).t(),
    "a copy of a transposed result": lambda x, y: (x + y).t().clone(),
    "results without elements": lambda x, y: ((x + y)[:0], x + y),
    "a 0-dimensional result": lambda x, y: ((x * y).sum(), x.sum(0)),
    "numbers among results": lambda x, y: (x + y, x.shape[0], 3, None),
    "NaN through relu": lambda x, y: torch.relu(x * float("nan")),
    "an operator it lacks": lambda x, y: torch.tanh(x @ y.t()).relu() + 1,
    "an expanded operand": lambda x, y: x + y[:1].expand(x.shape[0], y.shape[1]),
    "another dtype between": lambda x, y: ((x + y).double() * 2).float() + y,
    "integers": lambda x, y: ((x * 10).int() // 3, x + y),
    "random numbers": lambda x, y: (x + torch.rand_like(y), torch.nn.functional.dropout(x * y, 0.5)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_eagers(name):
    agree(PROGRAMS[name], pair(40, 60))


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_results_are_eagers_with_symbolic_sizes(name):
    sizes = iter([40, 40, 70, 70, 50, 50])

    def make():
        rows = next(sizes)
        return torch.randn(rows, 60), torch.randn(rows, 60)

    program = PROGRAMS[name]
    agree(program, make, dynamic=True, backend=OverNumpy(dynamic_shapes="full"))


def test_strides_of_sizes_of_one_are_eagers_without_a_copy():
    def program(x, y):
        one = (x + y)[:, 2]  # [1] out of rows of four
        return one, (x * y)[:, 1:3].expand(1, 2), (x + y).t().clone(), x[:, :1] - y[:, :1]

    compiled = core.compile(program, backend=OverNumpy(), fullgraph=True)
    for call in range(3):
        x, y = torch.randn(1, 4) + call, torch.randn(1, 8)[:, ::2]
        found, expected = compiled(x, y), program(x, y)
        torch.testing.assert_close(found, expected, check_stride=True)
        assert [one._is_view() for one in found] == [one._is_view() for one in expected]
    given = torch.arange(4.0).reshape(1, 4)
    repair = relayout([torch.empty_strided((1, 4), (9, 1))], [0])
    (repaired,) = repair(given)
    assert repaired.stride() == (9, 1) and repaired.data_ptr() == given.data_ptr()


def mutating(x, y):
    x.add_(y)
    y[0].mul_(2)
    return x.t(), (x * y).relu_()


def test_changes_of_inputs_are_written_back():
    agree(mutating, pair(40, 60))


def test_a_graph_that_returns_nothing_changes_its_inputs():
    def program(x, y):
        x.copy_(x + y)

    agree(program, pair(40, 60))


def test_inputs_that_are_not_contiguous_arrive_so():
    agree(lambda x, y: torch.relu(x + y), lambda: (torch.randn(60, 40).t(), torch.randn(80, 60)[::2]))
    agree(lambda x, y: torch.relu(x + y), lambda: (torch.randn(1, 60).expand(40, 60), torch.randn(40, 120)[:, ::2]))
    channels = torch.channels_last
    agree(
        lambda x, y: torch.relu(x + y),
        lambda: tuple(torch.randn(2, 3, 4, 5).to(memory_format=channels) for _ in "xy"),
    )


def test_inputs_without_elements_and_without_dimensions():
    agree(lambda x, y: (x + y, (x * y).sum()), pair(0, 6))
    agree(lambda x, y: (x + y, x * y), pair())


def test_gradients_are_eagers_through_it_and_what_it_lacks():
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3), torch.nn.ReLU())
    backend = OverNumpy()
    compiled = core.compile(module, backend=backend, fallback="eager", fullgraph=True)
    for _ in range(3):
        x = torch.randn(4, 6)
        mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
        grads = []
        for run, leaf in ((compiled, mine), (module, theirs)):
            module.zero_grad()
            run(leaf).square().sum().backward()
            grads.append([leaf.grad, *(parameter.grad.clone() for parameter in module.parameters())])
        torch.testing.assert_close(*grads)
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.sub_(0.1 * parameter.grad)
    assert any("backward" in name for name, _ in backend.compiled)


def test_gradients_are_memory_of_their_own():
    x, y = torch.randn(4, 6, requires_grad=True), torch.randn(4, 6, requires_grad=True)
    compiled = core.compile(lambda x, y: x + y, backend=OverNumpy(), fallback="eager")
    incoming = torch.ones(4, 6)
    for _ in range(2):
        x.grad = y.grad = None
        compiled(x, y).backward(incoming)
        assert x.grad.data_ptr() != y.grad.data_ptr()
        x.grad.add_(1)
        assert torch.equal(y.grad, torch.ones(4, 6)) and torch.equal(incoming, torch.ones(4, 6))


def test_twenty_steps_of_an_optimizer_are_eagers():
    def train(compile):
        torch.manual_seed(0)
        module = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
        run = compile(module)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)
        for _ in range(20):
            optimizer.zero_grad()
            run(torch.randn(4, 6)).square().mean().backward()
            optimizer.step()
        return list(module.parameters())

    mine = train(lambda module: core.compile(module, backend=OverNumpy(), fallback="eager"))
    torch.testing.assert_close(mine, train(lambda module: module))


def test_a_result_in_memory_of_an_input_is_copied_and_said_once(seen):
    compiled = core.compile(lambda x: x.clone(), backend=OverNumpy(), fallback="eager")
    for _ in range(3):
        x = torch.randn(4)
        found = compiled(x)
        assert found.data_ptr() != x.data_ptr() and torch.equal(found, x)
    texts = [event.finding.text for event in seen(BackendReported)]
    assert ["output 0 of a graph shares memory with input 0" in text for text in texts] == [True]


def test_a_graph_that_computes_nothing_reaches_no_backend():
    backend = Taking("mm")
    compiled = core.compile(lambda x: (x, x.shape[0], None), backend=backend, fallback=())
    x = torch.randn(3)
    assert compiled(x)[0] is x and not backend.compiled


def test_only_tensors_that_it_computes_are_asked_of_a_backend(seen):
    backend = Taking("mm", "relu")
    compiled = core.compile(
        lambda x: (lambda r: (r, x.shape[0] + 1, r.relu(), None))(x @ x), backend=backend, dynamic=True
    )
    x = torch.randn(4, 4)
    found = compiled(x)
    torch.testing.assert_close(found, (x @ x, 5, (x @ x).relu(), None))
    graph, _ = backend.graphs[0]
    output = next(node for node in graph.graph.nodes if node.op == "output")
    assert all(isinstance(node.meta["val"], torch.Tensor) for node in output.args[0])
    assert not seen(Partitioned)


class Wrong(Taking):
    def __init__(self, change):
        super().__init__("mm", "relu", "tanh")
        self.change = change

    def compile(self, graph, fake_inputs, ctx):
        return Artifact(lambda *inputs: self.change(graph.forward(*inputs)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda results: (None,), "output 0 with the type NoneType, not a tensor"),
        (lambda results: (results[0].numpy(),), "output 0 with the type ndarray, not a tensor"),
        (lambda results: (results[0].item(),), "output 0 with the type float, not a tensor"),
        (lambda results: (results[0].double(),), "output 0 with dtype torch.float64"),
        (lambda results: (results[0].unsqueeze(0),), "output 0 with shape"),
        (lambda results: results * 2, "2 outputs, the graph has 1"),
        (lambda results: None, "a NoneType instead of a tuple"),
    ],
)
def test_what_is_no_result_is_an_error_of_the_first_run_in_a_region_too(change, message):
    def program(x):
        return torch.sin((x @ x).relu().max())

    x = torch.randn(1, 1)
    with pytest.raises(BackendMisbehaved, match=message):
        core.compile(program, backend=Wrong(change), fallback="eager")(x)


def test_threads_share_a_compiled_function():
    import threading

    module = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    compiled = core.compile(module, backend=OverNumpy(), fallback="eager")
    x = torch.randn(4, 6)
    with torch.no_grad():
        expected = module(x)
    wrong = []

    def work():
        with torch.no_grad():
            for _ in range(20):
                if not torch.allclose(compiled(x), expected, atol=1e-6):
                    wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
