"""The backend ipex: results, what is fused, layouts, frozen weights, what is left to the fallback."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import core
from core.events import BackendReported, Partitioned, subscribe

pytest.importorskip("core_ipex")

NAN = float("nan")


def compiled(fn, **options):
    core.reset()
    return core.compile(fn, backend="ipex", **options)


def beside_the_extension():
    from core_ipex.native import installed

    return installed()


@pytest.fixture
def reports():
    """What the backend reported."""
    found = []

    def listen(event):
        if isinstance(event, BackendReported) and event.backend == "ipex":
            found.append(event.finding.text)

    stop = subscribe(listen)
    yield found
    stop()


@pytest.fixture
def said():
    """What was said to be fused, a text a region, whoever's kernels compute it."""
    found = []

    def listen(event):
        if isinstance(event, BackendReported) and event.backend == "ipex":
            if not event.finding.text.startswith("native: "):
                found.append(event.finding.text)

    stop = subscribe(listen)
    yield found
    stop()


class Residual(nn.Module):
    def __init__(self, norm=True):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8) if norm else nn.Identity()
        self.second = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.out = nn.Linear(8, 5)
        if norm:
            nn.init.uniform_(self.norm.running_var, 0.5, 2.0)
            nn.init.normal_(self.norm.running_mean)

    def forward(self, x):
        x = F.relu(self.norm(self.first(x)))
        x = F.relu(self.second(x) + x)
        x = F.max_pool2d(x, 2)
        return F.gelu(self.out(F.adaptive_avg_pool2d(x, 1).flatten(1)))


def close(got, want, tolerance=1e-5):
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("freeze", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 3e-2)])
@torch.no_grad()
def test_a_residual_network_is_one_region_of_fused_kernels(said, freeze, dtype, tolerance):
    torch.manual_seed(0)
    model = Residual(norm=False).eval().to(dtype)
    run = compiled(model, freeze=freeze, fullgraph_backend=True)
    for layout in (torch.contiguous_format, torch.channels_last):
        x = torch.randn(2, 3, 8, 8, dtype=dtype).contiguous(memory_format=layout)
        got, want = run(x), model(x)
        close(got, want, tolerance)
        assert got.stride() == want.stride()
    assert said[0] == "oneDNN computes 1 convolution+add+relu, 1 convolution+relu, 1 linear+gelu"
    assert core.stats()["kernels"] == 0 and core.stats()["extern_calls"] > 0


@torch.no_grad()
def test_without_fusions_the_same_comes_from_single_operators(said):
    model = Residual().eval()
    run = compiled(model, options={"fusions": False}, fullgraph_backend=True)
    x = torch.randn(2, 3, 8, 8)
    close(run(x), model(x))
    single = core.stats()["extern_calls"]
    assert not said
    run = compiled(model, fullgraph_backend=True)
    run(x)
    assert core.stats()["extern_calls"] < single


@pytest.mark.parametrize("freeze", [False, True])
@torch.no_grad()
def test_a_normalization_of_changed_statistics_is_computed_anew(freeze):
    model = Residual().eval()
    run = compiled(model, freeze=freeze)
    x = torch.randn(2, 3, 8, 8)
    for _ in range(2):
        close(run(x), model(x))
        model.norm.running_mean.add_(1.0)
        model.norm.weight.mul_(0.5)
        model.first.weight.add_(0.1)
        model.out.weight.add_(0.5)
        close(run(x), model(x))


@torch.no_grad()
def test_a_normalization_of_known_statistics_is_folded(said):
    model = Residual().eval()
    model.norm.running_mean = nn.Buffer(model.norm.running_mean)
    model.norm.running_var = nn.Buffer(model.norm.running_var)
    run = compiled(model, freeze=True, fullgraph_backend=True)
    x = torch.randn(2, 3, 8, 8)
    for _ in range(2):
        close(run(x), model(x))
        assert "1 convolution+batch_norm+relu" in said.pop()
        model.norm.running_mean.add_(1.0)
    model.norm.running_var.fill_(float("inf"))
    model.norm.weight.fill_(float("inf"))
    close(run(x), model(x))
    assert "batch_norm" not in said.pop()


FUNCTIONS = {
    "linear+gelu": F.gelu,
    "linear+silu": F.silu,
    "linear+tanh": torch.tanh,
    "linear+sigmoid": torch.sigmoid,
    "linear+relu": F.relu,
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("shape", [(7, 6), (2, 3, 6)])
@torch.no_grad()
def test_functions_behind_a_product(said, name, shape):
    layer = nn.Linear(6, 5)
    run = compiled(lambda x: FUNCTIONS[name](layer(x)), freeze=True, fullgraph_backend=True)
    x = torch.randn(shape)
    close(run(x), FUNCTIONS[name](layer(x)))
    assert said == [f"oneDNN computes 1 {name}"]


@torch.no_grad()
def test_sums_behind_a_product_with_the_layouts_of_either_side(said):
    layer = nn.Linear(6, 6)
    run = compiled(lambda x, y: (layer(x) + y, y + layer(x)), fullgraph_backend=True)
    for y in (torch.randn(4, 3, 6), torch.randn(6, 3, 4).transpose(0, 2), torch.randn(4, 3, 1).expand(4, 3, 6)):
        x = torch.randn(4, 3, 6)
        for got, want in zip(run(x, y), (layer(x) + y, y + layer(x))):
            close(got, want)
            assert got.stride() == want.stride()
    assert said[0] == "oneDNN computes 2 linear+add"


@torch.no_grad()
def test_a_sum_that_broadcasts_is_not_fused(said):
    layer = nn.Linear(6, 6, bias=False)
    run = compiled(lambda x, y: layer(x) + y)
    x, y = torch.randn(4, 6), torch.randn(4, 1)
    close(run(x, y), layer(x) + y)
    assert not said


@pytest.mark.parametrize("name", FUNCTIONS)
@torch.no_grad()
def test_nan_and_infinities_go_through(name):
    layer = nn.Linear(2, 2)
    convolution = nn.Conv2d(1, 1, 1)
    run = compiled(lambda x, y: (FUNCTIONS[name](layer(x)), FUNCTIONS[name](convolution(y))))
    x = torch.tensor([[NAN, 1.0], [2.0, NAN], [-1.0, 3.0]])
    y = torch.tensor([NAN, -1.0, 2.0, NAN]).view(1, 1, 2, 2)
    for got, want in zip(run(x, y), (FUNCTIONS[name](layer(x)), FUNCTIONS[name](convolution(y)))):
        close(got, want)
        assert want.isnan().any()


@torch.no_grad()
def test_a_bias_with_gaps_is_read_by_its_stride():
    bias = torch.randn(16)[::2]
    weight, kernel = torch.randn(8, 4), torch.randn(8, 4, 1, 1)
    fn = lambda x, y: (F.gelu(F.linear(x, weight, bias)), F.relu(F.conv2d(y, kernel, bias)))  # noqa: E731
    x, y = torch.randn(3, 4), torch.randn(2, 4, 5, 5)
    for got, want in zip(compiled(fn)(x, y), fn(x, y)):
        close(got, want)


@torch.no_grad()
def test_a_convolution_read_by_a_reshape_and_given_out_has_the_layout_of_the_program():
    convolution = nn.Conv2d(3, 4, 3, stride=2, dilation=1, groups=1)
    fn = lambda x: (convolution(x), convolution(x).view(2, -1) @ torch.ones(36, 2))  # noqa: E731
    x = torch.randn(2, 3, 7, 7)
    for got, want in zip(compiled(fn)(x), fn(x)):
        close(got, want)
        assert got.stride() == want.stride()


@pytest.mark.parametrize("freeze", [False, True])
@torch.no_grad()
def test_batches_that_change_and_tensors_without_elements(freeze):
    model = Residual().eval()
    layer = nn.Linear(3, 4)
    run = compiled(lambda x, y: (model(x), F.gelu(layer(y))), freeze=freeze)
    for rows in (2, 3, 5, 0, 1):
        x, y = torch.randn(rows, 3, 8, 8), torch.randn(rows, 3)
        for got, want in zip(run(x, y), (model(x), F.gelu(layer(y)))):
            close(got, want)
    nothing = compiled(lambda x, y: F.gelu(x @ y.t()))
    close(nothing(torch.ones(2, 0), torch.ones(3, 0)), torch.zeros(2, 3))
    close(nothing(torch.ones(2, 3), torch.ones(0, 3)), torch.zeros(2, 0))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
@torch.no_grad()
def test_other_dtypes_are_left_to_the_fallback(said, dtype):
    layer = nn.Linear(6, 5).to(dtype)
    run = compiled(lambda x: F.gelu(layer(x)))
    x = torch.randn(3, 6, dtype=dtype)
    close(run(x), F.gelu(layer(x)), 1e-2 if dtype is torch.float16 else 1e-9)
    assert not said


def test_training_is_left_to_the_fallback_with_the_reason(said):
    layer = nn.Linear(3, 3)
    partitioned = []
    stop = subscribe(lambda event: partitioned.append(event) if isinstance(event, Partitioned) else None)
    run = compiled(layer)
    run(torch.ones(2, 3)).sum().backward()
    stop()
    close(layer.weight.grad, torch.full((3, 3), 2.0))
    assert not said
    assert partitioned and all(region.fallback for event in partitioned for region in event.regions)
    assert all("no gradients" in one.reason for event in partitioned for one in event.refused)


@pytest.mark.parametrize("alone", [{"fallback": ()}, {"fullgraph_backend": True}])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_where_nobody_else_may_take_it_training_is_computed_here(alone, layout):
    torch.manual_seed(0)
    model, twin = Residual(), Residual()
    twin.load_state_dict(model.state_dict())
    run = compiled(model, **alone)
    for _ in range(2):
        x = torch.randn(4, 3, 8, 8).contiguous(memory_format=layout).requires_grad_()
        y = x.detach().clone().requires_grad_()
        run(x).square().sum().backward()
        twin(y).square().sum().backward()
        close(x.grad, y.grad, 1e-4)
        assert x.grad.stride() == y.grad.stride()
        for one, other in zip(model.parameters(), twin.parameters()):
            close(one.grad, other.grad, 1e-4)
        close(model.norm.running_mean, twin.norm.running_mean)


@torch.no_grad()
def test_what_onednn_does_not_compute_is_yielded_and_computed_where_nobody_takes_it():
    fn = lambda x, at: (torch.softmax(x, -1).exp() > 1.5, x.double().cumsum(0), x[at], x.sort(-1))  # noqa: E731
    x, at = torch.randn(5, 6), torch.tensor([0, 3])
    want = fn(x, at)
    for options, here in (
        ({"fallback": "eager"}, False),
        ({"fallback": ()}, True),
        ({"fullgraph_backend": True}, True),
    ):
        divided = []
        stop = subscribe(lambda event: divided.append(event) if isinstance(event, Partitioned) else None)  # noqa: B023
        got = compiled(fn, **options)(x, at)
        stop()
        for one, other in zip(got, want):
            torch.testing.assert_close(tuple(one) if isinstance(one, tuple) else one, other)
        assert bool(divided) is not here


@torch.no_grad()
def test_random_numbers_behind_a_convolution_are_drawn_in_the_memory_order_of_the_program():
    convolution = nn.Conv2d(3, 4, 3)
    fn = lambda x: torch.rand_like(convolution(x)) + convolution(x)  # noqa: E731
    for layout in (torch.contiguous_format, torch.channels_last):
        x = torch.randn(2, 3, 7, 7).contiguous(memory_format=layout)
        run = compiled(fn, fallback=())
        torch.manual_seed(3)
        got = run(x)
        torch.manual_seed(3)
        want = fn(x)
        close(got, want)
        assert got.stride() == want.stride()


@torch.no_grad()
def test_what_reads_memory_behind_a_convolution_finds_the_order_of_the_program():
    convolution = nn.Conv2d(3, 4, 3)
    fn = lambda x: convolution(x).as_strided((5, 2), (7, 1), 3)  # noqa: E731
    for layout in (torch.contiguous_format, torch.channels_last):
        x = torch.randn(2, 3, 7, 7).contiguous(memory_format=layout)
        close(compiled(fn, fallback=())(x), fn(x))
    fn = lambda x: x.as_strided((5, 2), (7, 1), 3) * 2  # noqa: E731
    x = torch.randn(2, 3, 4, 5).permute(1, 3, 0, 2)
    close(compiled(fn, fallback="eager")(x), fn(x))
    with pytest.raises(core.CoreError, match="depends on the memory"):
        compiled(fn, fallback=())(x)


@torch.no_grad()
def test_a_warm_call_enters_no_file_of_the_plugin():
    layer = nn.Linear(6, 5)
    run = compiled(lambda x: F.gelu(layer(x)))
    x = torch.randn(3, 6)
    run(x)
    entered = []
    sys.setprofile(lambda frame, *_: entered.append(frame.f_code.co_filename))
    run(x)
    sys.setprofile(None)
    assert any("ipex call" in name for name in entered)
    assert not any("core_ipex" in name for name in entered)


@pytest.mark.skipif(beside_the_extension() != "", reason="the extension is used here")
def test_the_diagnosis_says_whose_kernels_run():
    from core_ipex.plugin import core_diagnose

    (finding,) = core_diagnose()
    assert finding.text.startswith("IPEX ended at 2.8.0, archived 2026-03-30; using PyTorch's oneDNN")
    assert "intel_extension_for_pytorch" not in sys.modules


def test_the_extension_is_used_beside_its_own_torch_alone(monkeypatch):
    from core_ipex import native, plugin

    def beside(torch_version, extension):
        versions = {"torch": torch_version, native.MODULE: extension}
        monkeypatch.setattr(native, "installed_version", versions.get)
        monkeypatch.setattr(plugin, "installed_version", versions.get)
        (finding,) = plugin.core_diagnose()
        return native.installed(), finding.text

    for versions in (("2.13.0", "2.8.0"), ("2.8.0", ""), ("2.8.0", "2.7.0"), ("2.80.0", "2.80.0"), ("2.7.1", "2.7.0")):
        found, text = beside(*versions)
        assert found == "" and text.startswith(plugin.ENDED)
    found, text = beside("2.8.0+cu128", "2.8.0")
    assert found == "2.8.0" and text.startswith("native: frozen weights go to the kernels of IPEX 2.8.0")


@torch.no_grad()
def test_an_extension_that_cannot_be_imported_is_said_and_done_without(said, monkeypatch):
    from core_ipex import native

    monkeypatch.setattr(native, "installed", lambda: "2.8.0")
    monkeypatch.setattr(native, "unusable", lambda: "ImportError: it is broken")
    layer, x = nn.Linear(6, 5).eval(), torch.randn(3, 6)
    close(compiled(layer, freeze=True)(x), layer(x))
    assert "the kernels of the extension 2.8.0 can't be called (ImportError: it is broken)" in said
    said.clear()
    close(compiled(layer, freeze=True, options={"native": False})(x), layer(x))
    assert said == ["oneDNN computes 1 linear"]


@pytest.mark.skipif(not beside_the_extension(), reason="the Intel extension and the torch 2.8 that it is for")
@torch.no_grad()
def test_frozen_weights_go_to_the_kernels_of_the_extension(reports):
    torch.manual_seed(0)
    for activation in (F.relu, F.gelu, F.silu, torch.tanh, torch.sigmoid):
        conv, layer, last = nn.Conv2d(4, 4, 3, padding=1, groups=2), nn.Linear(4, 4), nn.Linear(4, 4, bias=False)
        norm = nn.BatchNorm2d(4).eval()

        def program(x, conv=conv, layer=layer, last=last, norm=norm, activation=activation):
            x = activation(norm(conv(x))) + x
            x = activation(layer(x.permute(0, 2, 3, 1)))
            return last(x) + x

        for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 6e-2)):
            model = nn.ModuleList([conv, layer, last, norm]).to(dtype)
            run = compiled(program, freeze=True, fullgraph_backend=True)
            for rows in (2, 5, 3):
                x = torch.randn(rows, 4, 6, 6, dtype=dtype)
                x[0, 0, 0, 0] = NAN
                got, want = run(x), program(x)
                close(got, want, tolerance)
                assert got.stride() == want.stride()
            assert "native: 3 of them by kernels of the extension 2.8.0" in reports
            reports.clear()
            for weight in model.parameters():
                weight.add_(0.5)
            close(run(x), program(x), tolerance)
    off = compiled(program, freeze=True, options={"native": False})
    reports.clear()
    close(off(x), program(x), tolerance)
    assert reports and not any(text.startswith("native") for text in reports)
