"""Engines built here, with no GPU, for a named compute capability; their models run by another runtime against eager.

What an engine computes needs a GPU and is not looked at. That the ONNX model it is built from is right is.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

import core
from core.plugin import Artifact, Backend, Capabilities, CompileFailed, Unsupported

pytest.importorskip("onnx")
pytest.importorskip("core_tensorrt")
trt = pytest.importorskip("tensorrt_rtx_bindings")

from core_tensorrt.build import Settings, build_engine  # noqa: E402
from core_tensorrt.engines import Engine  # noqa: E402
from core_tensorrt.plugin import TensorRtBackend  # noqa: E402
from core_tensorrt.runtimes import logger_of  # noqa: E402
from core_tensorrt.targets import FLOATS, INTEGERS, OPERATORS, computes  # noqa: E402

HERE = Settings("tensorrt_rtx_bindings", compute_capability="8.6")


class Keeps(Backend):
    """Runs a graph as it is and keeps it, what it was told, and the inputs of the last call."""

    name = "keeps"
    version = "1"
    capabilities = Capabilities(graph_level="core-aten", dynamic_shapes="bounded")

    def compile(self, graph, fake_inputs, ctx):
        self.graph, self.fakes, self.ctx, self.weights = graph, list(fake_inputs), ctx, dict(ctx.constants)

        def call(*inputs):
            self.inputs = inputs
            return graph.forward(*inputs)

        return Artifact(call=call)


class Convolutions(nn.Module):
    """Convolutions, normalisation, pooling, a linear layer at the end."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 16, 3, stride=2, padding=1, groups=2)
        self.last = nn.Linear(16, 5)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.norm(self.first(x))), 2)
        return self.last(nn.functional.adaptive_avg_pool2d(self.second(x), 1).flatten(1))


class Block(nn.Module):
    def __init__(self, width, causal):
        super().__init__()
        self.causal = causal
        self.parts, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU("tanh" if causal else "none"))
        self.narrow = nn.Linear(2 * width, width)

    def forward(self, x, mask=None):
        q, k, v = self.parts(self.before(x)).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, mask, is_causal=self.causal)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.narrow(self.feed(self.after(x)))


class Patches(nn.Module):
    """An image in patches, a learned first token, two blocks, a class."""

    def __init__(self):
        super().__init__()
        self.cut = nn.Conv2d(3, 16, 4, stride=4)
        self.token, self.places = nn.Parameter(torch.randn(1, 1, 16)), nn.Parameter(torch.randn(1, 17, 16))
        self.blocks = nn.ModuleList(Block(16, False) for _ in range(2))
        self.norm, self.last = nn.LayerNorm(16), nn.Linear(16, 5)

    def forward(self, x):
        x = self.cut(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        for block in self.blocks:
            x = block(x)
        return self.last(self.norm(x)[:, 0])


class Words(nn.Module):
    """Token numbers with places and a padding mask, two blocks in both directions, a pooled result."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(50, 16), nn.Embedding(12, 16)
        self.blocks = nn.ModuleList(Block(16, False) for _ in range(2))
        self.pool = nn.Linear(16, 16)

    def forward(self, tokens, mask):
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        bias = (1.0 - mask[:, None, None, :].to(x.dtype)) * -10000.0
        for block in self.blocks:
            x = block(x, bias)
        return torch.tanh(self.pool(x[:, 0]))


class Decoder(nn.Module):
    """Token numbers, two causal blocks, scores by the embedding's own weights."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(50, 16), nn.Embedding(12, 16)
        self.blocks = nn.ModuleList(Block(16, True) for _ in range(2))
        self.norm = nn.LayerNorm(16)

    def forward(self, tokens):
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ self.words.weight.t()


def image(rows):
    return (torch.randn(rows, 3, 16, 16),)


def text(rows):
    return (torch.randint(0, 50, (rows, 9)), torch.ones(rows, 9, dtype=torch.int64))


NETS = {
    "convolutions": (Convolutions, image),
    "patches": (Patches, image),
    "words": (Words, text),
    "decoder": (Decoder, lambda rows: text(rows)[:1]),
}


def kept(fn, *calls, **options):
    """The backend with the last graph that the calls compile, and the results of the last call."""
    backend = Keeps()
    core.reset()
    run = core.compile(fn, backend=backend, fullgraph=True, **options)
    with torch.no_grad():
        for args in calls:
            backend.results = run(*args)
    return backend


def built_of(kept, **settings):
    return build_engine(kept.graph, kept.fakes, ranges=kept.ctx.ranges, settings=replace(HERE, **settings))


def run_elsewhere(model, inputs):
    """The results of a converted graph by ONNX Runtime, from the same bytes."""
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    if model.external:
        values = [ort.OrtValue.from_dlpack(weight) for weight in model.external.values()]
        options.add_external_initializers(list(model.external), values)
    engine = ort.InferenceSession(model.serialized(), options, providers=["CPUExecutionProvider"])
    names = {value.name for value in model.model.graph.input}
    feed = {name: torch.as_tensor(value).detach().numpy() for name, value in zip(model.inputs, inputs) if name in names}
    return [torch.from_numpy(value) for value in engine.run(None, feed)]


def refusals_of(kept):
    backend = TensorRtBackend()
    calls = [node for node in kept.graph.graph.nodes if node.op == "call_function"]
    answers = {node.name: backend.supports(node, kept.ctx).reason for node in calls}
    return {name: reason for name, reason in answers.items() if reason}


@pytest.mark.parametrize("kind", NETS)
def test_a_net_becomes_one_engine_of_a_model_that_is_as_exact_as_eager(kind):
    torch.manual_seed(0)
    make, inputs = NETS[kind]
    module, args = make().eval(), inputs(2)
    graph = kept(module, args)
    assert not refusals_of(graph)
    built = built_of(graph)
    assert len(built.engine) > 1000 and built.layers > 10 and built.profile == {}
    with torch.no_grad():
        torch.testing.assert_close(run_elsewhere(built.graph, graph.inputs)[0], module(*args), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", NETS)
def test_a_batch_that_changes_is_one_engine_with_a_profile(kind):
    torch.manual_seed(0)
    make, inputs = NETS[kind]
    module, args = make().eval(), inputs(5)
    graph = kept(module, inputs(2), inputs(3), args)
    assert core.stats()["graphs"] == 2
    built = built_of(graph)
    assert built.layers > 10 and len(built.engine) > 1000
    least, usual, largest = built.profile["in0"]
    assert least[0] in (1, 2) and usual[0] == 3 and largest[0] >= 8 and least[1:] == usual[1:] == largest[1:]
    with torch.no_grad():
        torch.testing.assert_close(run_elsewhere(built.graph, graph.inputs)[0], module(*args), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", NETS)
def test_frozen_weights_are_given_by_pointer_and_lie_in_the_engine(kind):
    torch.manual_seed(0)
    make, inputs = NETS[kind]
    module, args = make().eval(), inputs(2)
    graph = kept(module, args, freeze=True)
    assert len(graph.weights) > 5
    frozen = {index: weight.detach().contiguous() for index, weight in graph.weights.items()}
    built = build_engine(graph.graph, graph.fakes, frozen=frozen, settings=HERE)
    assert built.layers > 10 and built.graph.external
    assert len(built.graph.model.graph.input) == len(graph.fakes) - len(frozen)
    assert sum(len(one.raw_data) for one in built.graph.model.graph.initializer) < 4000
    with torch.no_grad():
        torch.testing.assert_close(run_elsewhere(built.graph, graph.inputs)[0], module(*args), rtol=1e-4, atol=1e-4)


def test_types_are_those_of_the_graph_and_casts_are_its_own():
    def fn(x, y):
        return (x @ y).softmax(-1), x.float().exp().to(torch.bfloat16)

    graph = kept(fn, (torch.randn(4, 4).half(), torch.randn(4, 4).half()))
    assert not refusals_of(graph)
    built = built_of(graph)
    assert built.layers > 2
    kinds = [value.type.tensor_type.elem_type for value in built.graph.model.graph.output]
    assert kinds == [10, 16]


def test_integers_and_booleans_build_and_what_would_be_narrowed_is_refused_by_name():
    def taken(i, j, b):
        return i + i, i * 3, j.cumsum(0), i > 2, ~b, b & (i > 0), torch.where(b, i, -i), j.to(torch.int32)

    i = torch.arange(4, dtype=torch.int32)
    graph = kept(taken, (i, i.long(), i > 1))
    assert not refusals_of(graph) and built_of(graph).layers > 5
    for dtype in (torch.float64, torch.uint8, torch.int8, torch.int16):
        refused = refusals_of(kept(lambda x: x + x, (torch.ones(3, dtype=dtype),)))
        assert set(refused.values()) == {f"TensorRT has no exact {str(dtype)[6:]}"}
    empty = refusals_of(kept(lambda x: x + 1, (torch.ones(0, 3),), dynamic=False))
    assert set(empty.values()) == {"tensors without elements are not taken"}


def test_kinds_of_an_operator_that_the_parser_lacks_are_refused():
    x, places = torch.randn(4, 6), torch.zeros(4, 6, dtype=torch.int64)
    for fn in (
        lambda x, i: x.scatter_add(1, i, x),
        lambda x, i: x.index_put((i[0],), x[0], accumulate=True),
        lambda x, i: x.argmax(),
        lambda x, i: x[0].topk(2)[0],
        lambda x, i: x.flatten().max(0)[0],
    ):
        found = set(refusals_of(kept(fn, (x, places))).values())
        assert found & {"the ONNX parser has no scattering that adds", "values of a vector are not put in order"}
    taken = kept(lambda x, i: (x.scatter(1, i, x), x.argmax(1), x.max(0)), (x, places))
    assert not refusals_of(taken) and built_of(taken).layers > 3


def test_no_more_values_are_put_in_order_than_the_library_keeps():
    rows = torch.zeros(2, 3841, dtype=torch.int32)
    found = refusals_of(kept(lambda x: (x.sort(-1)[0], x.topk(3841)[0], x.sort(dim=1, stable=True)[0]), (rows,)))
    assert set(found.values()) == {"TensorRT puts 3840 values in order at most"}
    taken = kept(lambda x: (x[:, :3840].sort(-1)[0], x.sort(0)[0], x.topk(3840)[0]), (rows,))
    assert not refusals_of(taken) and built_of(taken).layers > 3


def test_every_operator_that_is_taken_is_known_to_the_parser():
    log = logger_of("tensorrt_rtx_bindings")
    network = trt.Builder(log).create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, log)
    assert not [name for name in OPERATORS if not parser.supports_operator(name)]
    assert not parser.supports_operator("BitCast") and not computes("BitCast", torch.float32)
    assert not any(computes("NonZero", dtype) for dtype in (*FLOATS, *INTEGERS, torch.bool))


def test_a_number_of_the_program_that_decides_a_size_is_an_input_of_the_engine():
    graph = kept(lambda x: x.reshape(x.shape[0] * 2, -1) + x.shape[0], (torch.ones(5, 6),), (torch.ones(3, 6),))
    assert not refusals_of(graph)
    built = built_of(graph)
    assert built.layers > 1 and built.profile["in0"][1] == (3, 6)


def test_options_of_the_builder_are_used():
    graph = kept(lambda x: torch.relu(x @ x), (torch.randn(8, 8),))
    small = built_of(graph, workspace=1 << 26, level=0, tf32=True, compute_capability="8.0")
    assert small.layers > 0 and small.engine
    other = built_of(graph, compute_capability="12.0")
    assert other.engine != small.engine


def test_a_capability_without_code_says_which_there_are_and_none_named_builds_too():
    graph = kept(lambda x: torch.relu(x @ x), (torch.randn(8, 8),))
    with pytest.raises(CompileFailed, match=r"(?s)compute capability 9\.0.*SM86"):
        built_of(graph, compute_capability="9.0")
    assert built_of(graph, compute_capability="").layers > 0


def test_an_engine_is_not_loaded_without_a_gpu_and_the_library_s_words_are_given():
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    built = built_of(kept(lambda x: torch.relu(x @ x), (torch.randn(8, 8),)))
    with pytest.raises(CompileFailed, match="(?s)loading the engine.*deserializeCudaEngine"):
        Engine(HERE.module, built.engine)


def test_what_has_no_onnx_form_is_refused_with_its_node():
    graph = kept(lambda x: torch.special.i0(x) + 1, (torch.randn(3),))
    assert list(refusals_of(graph)) == ["i0"] or "i0" in " ".join(refusals_of(graph))
    with pytest.raises(Unsupported, match="i0"):
        built_of(graph)
