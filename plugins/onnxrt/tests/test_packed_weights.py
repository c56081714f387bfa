"""Weights of convolutions that are packed though they are read: whatever writes to them, results are eager's."""

from __future__ import annotations

import os
import sys

import pytest
import torch
from torch import nn

import core
from core.events import ArtifactBuilt, subscribe

pytest.importorskip("onnxruntime")
pytest.importorskip("core_onnxrt")

from core_onnxrt.packing import RESTLESS, PackedCall  # noqa: E402

SHAPE = (2, 3, 32, 32)


class Net(nn.Module):
    """A large convolution with its normalization, and a small one."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.small = nn.Conv2d(16, 4, 3, stride=16)
        self.norm.running_mean.uniform_(-1, 1)

    def forward(self, x):
        return self.small(torch.relu(self.norm(self.first(x))))


@pytest.fixture
def built():
    """The PackedCalls of what is compiled; None for a graph without one."""
    found = []

    def hear(event):
        if isinstance(event, ArtifactBuilt):
            owner = event.artifact.owner
            parts = [part.owner for part in owner] if isinstance(owner, tuple) else [owner]
            found.extend(part if isinstance(part, PackedCall) else None for part in parts)

    stop = subscribe(hear)
    yield found
    stop()


def compiled(fn, **options):
    core.reset()
    return core.compile(fn, backend="onnxrt", **options)


def same(run, model, x):
    torch.testing.assert_close(run(x), model(x), rtol=1e-4, atol=1e-5)


def packs(call):
    return RESTLESS - call.left


def through_numpy(model):
    model.first.weight.detach().numpy()[:] *= -1


def replaced(model):
    model.first.weight.data = torch.randn_like(model.first.weight)


def loaded(model):
    model.load_state_dict({name: value * 2 for name, value in model.state_dict().items()})


WRITES = {
    "in place": lambda model: model.first.weight.mul_(-2),
    "past autograd": lambda model: model.first.weight.data.mul_(-3),
    "through numpy": through_numpy,
    "other memory": replaced,
    "loaded": loaded,
    "a bias": lambda model: model.first.bias.data.add_(1),
    "statistics": lambda model: model.norm.running_var.data.mul_(4),
    "the small one": lambda model: model.small.weight.data.mul_(4),
}


@torch.no_grad()
@pytest.mark.parametrize("write", WRITES)
def test_weights_written_in_any_way_are_seen_by_the_next_call(built, write):
    model, x = Net().eval(), torch.randn(SHAPE)
    run = compiled(model)
    for _ in range(3):
        same(run, model, x)
    (call,) = built
    assert packs(call) == 1 and [port.sizes for port in call.ports] == [(16, 3, 3, 3), *[(16,)] * 5]
    WRITES[write](model)
    for _ in range(3):
        same(run, model, x)
    assert packs(call) == (1 if write == "the small one" else 2)
    assert core.stats()["graphs"] == 1 and core.stats()["recompiles"] == 0


@torch.no_grad()
def test_weights_that_change_between_all_calls_are_read_and_nothing_is_packed(built):
    model, x = Net().eval(), torch.randn(SHAPE)
    run = compiled(model)
    for _ in range(4):
        model.first.weight.data.mul_(1.5)
        same(run, model, x)
    assert packs(built[0]) == 0 and built[0].namespace["_now"][0] is None


@torch.no_grad()
def test_weights_that_keep_changing_are_read_for_good(built):
    model, x = Net().eval(), torch.randn(SHAPE)
    run = compiled(model)
    for _ in range(RESTLESS + 2):
        model.first.weight.data.mul_(-1)
        for _ in range(3):
            same(run, model, x)
    assert packs(built[0]) == RESTLESS and not built[0].engines
    assert built[0].namespace["_renew"] is built[0].reading.function


@torch.no_grad()
def test_bytes_are_compared_so_that_nan_is_no_change_and_the_sign_of_zero_is_one(built):
    model, x = Net().eval(), torch.randn(SHAPE)
    model.first.weight.data[0] = float("nan")
    model.first.bias.data[1] = 0.0
    run = compiled(model)
    for _ in range(4):
        torch.testing.assert_close(run(x), model(x), rtol=1e-4, atol=1e-5, equal_nan=True)
    assert packs(built[0]) == 1
    model.first.bias.data[1] = -0.0
    run(x), run(x)
    assert packs(built[0]) == 2


@torch.no_grad()
def test_small_results_other_layouts_and_the_option_leave_weights_alone(built):
    small = torch.randn(1, 3, 16, 16)
    compiled(Net().eval())(small)
    compiled(Net().eval(), options={"pack_weights": False})(torch.randn(SHAPE))
    compiled(lambda x, w: nn.functional.conv2d(x, w))(torch.randn(SHAPE), torch.randn(4, 3, 3, 3))
    compiled(Net().eval(), freeze=True)(torch.randn(SHAPE))
    assert built == [None] * 4
    model, x = Net().eval(), torch.randn(SHAPE)
    model.first.to(memory_format=torch.channels_last)
    run = compiled(model)
    for _ in range(4):
        same(run, model, x)
        model.first.weight.data.mul_(-1)
    assert all(call is None or packs(call) == 0 for call in built[4:])


@torch.no_grad()
def test_sizes_that_change_keep_their_packed_weights(built):
    model = Net().eval()
    run = compiled(model)
    for rows in (2, 3, 3, 5, 4):
        same(run, model, torch.randn(rows, 3, 32, 32))
    model.first.weight.data.mul_(-1)
    same(run, model, torch.randn(7, 3, 32, 32))
    assert core.stats()["graphs"] == 2 and packs(built[1]) == 1


@torch.no_grad()
def test_a_warm_packed_call_enters_no_python_file_of_the_plugin(built):
    model, x = Net().eval(), torch.randn(SHAPE)
    run = compiled(model)
    for _ in range(3):
        run(x)
    seen = []
    sys.setprofile(lambda frame, event, arg: seen.append(frame.f_code.co_filename) if event == "call" else None)
    try:
        run(x)
    finally:
        sys.setprofile(None)
    assert not [name for name in seen if "core_onnxrt" in name], seen
    assert packs(built[0]) == 1


@torch.no_grad()
def test_threads_and_the_child_of_a_fork_run_packed_weights(built):
    from concurrent.futures import ThreadPoolExecutor

    model, x = Net().eval(), torch.randn(SHAPE)
    run = compiled(model)
    want = model(x)
    for _ in range(3):
        run(x)
    with torch.inference_mode(False), ThreadPoolExecutor(4) as pool:

        def once(_):
            with torch.no_grad():
                return run(x)

        for got in pool.map(once, range(16)):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    child = os.fork()
    if not child:
        os._exit(0 if torch.allclose(run(x), want, atol=1e-4) else 1)
    assert os.waitpid(child, 0)[1] == 0


@torch.no_grad()
def test_a_part_between_calls_of_torch_packs_its_own_weights(built):
    model, x = Net().eval(), torch.randn(SHAPE)

    def fn(x):
        return torch.special.i0(model(torch.special.i0(x)))

    run = compiled(fn, fallback=(), fullgraph_backend=True)
    for _ in range(3):
        torch.testing.assert_close(run(x), fn(x), rtol=1e-4, atol=1e-4)
    model.first.weight.data.mul_(-0.5)
    for _ in range(3):
        torch.testing.assert_close(run(x), fn(x), rtol=1e-4, atol=1e-4)
    (call,) = [part for part in built if part is not None]
    assert packs(call) == 2 and call.ports[0].sizes == (16, 3, 3, 3)


def test_weights_are_packed_and_followed_in_inference_mode_too(built):
    model, x = Net().eval(), torch.randn(SHAPE)
    run = compiled(model)
    with torch.inference_mode():
        for _ in range(3):
            same(run, model, x)
        assert packs(built[0]) == 1
        model.first.weight.data.mul_(-2)
        for _ in range(3):
            same(run, model, x)
    with torch.no_grad():
        for _ in range(3):
            same(run, model, x)
    assert packs(built[0]) == 2
