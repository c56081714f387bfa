"""What is written for a graph: names, dimensions, casts, weights outside of the model, refusals."""

from __future__ import annotations

import pytest
import torch

import core
from core.plugin import Artifact, Backend, Capabilities

onnx = pytest.importorskip("onnx")
pytest.importorskip("core_onnx")

from core_onnx import ConversionError, Target, convert, unsupported_reason  # noqa: E402
from core_onnx.registry import load_converters  # noqa: E402


class Keeps(Backend):
    """Runs a graph as it is and keeps it."""

    name = "keeps"
    version = "1"
    capabilities = Capabilities(graph_level="core-aten")

    def __init__(self):
        self.graphs = []

    def compile(self, graph, fake_inputs, ctx):
        self.graphs.append(graph)
        return Artifact(call=graph.forward)


def graph_of(fn, *args, **options):
    backend = Keeps()
    core.reset()
    core.compile(fn, backend=backend, fullgraph=True, **options)(*args)
    (graph,) = backend.graphs
    return graph


def calls_of(graph):
    return [node for node in graph.graph.nodes if node.op == "call_function"]


def test_a_model_passes_onnx_s_own_checker_and_names_what_goes_in_and_out():
    graph = graph_of(lambda x, y: (torch.relu(x @ y), x + 1), torch.ones(2, 3), torch.ones(3, 4))
    made = convert(graph, name="named")
    onnx.checker.check_model(made.model, full_check=True)
    assert made.inputs == ("in0", "in1") and made.outputs == ("out0", "out1")
    assert made.model.graph.name == "named"
    sizes = [[d.dim_value for d in value.type.tensor_type.shape.dim] for value in made.model.graph.output]
    assert sizes == [[2, 4], [2, 3]]
    assert {node.op_type for node in made.model.graph.node} == {"MatMul", "Relu", "Add", "Identity"}


def test_symbolic_sizes_are_named_dimensions():
    graph = graph_of(lambda x: x.reshape(x.shape[0] * 2, -1) + x.shape[0], torch.ones(5, 6), dynamic=True)
    made = convert(graph)
    onnx.checker.check_model(made.model)
    tensors = [value for value in made.model.graph.input if value.type.tensor_type.shape.dim]
    assert tensors[0].type.tensor_type.shape.dim[0].dim_param
    assert not tensors[0].type.tensor_type.shape.dim[0].dim_value


def test_a_target_without_a_kernel_gets_casts_where_a_wider_type_gives_the_same():
    graph = graph_of(lambda x: x.abs(), torch.ones(2, dtype=torch.int8))
    only_int32 = Target("test", computes=lambda operator, dtype: dtype is torch.int32)
    kinds = [node.op_type for node in convert(graph, target=only_int32).model.graph.node]
    assert kinds == ["Cast", "Abs", "Cast", "Identity"]
    assert [node.op_type for node in convert(graph).model.graph.node] == ["Abs", "Identity"]


def test_16_bit_floats_are_calculated_wide_and_rounded_once():
    graph = graph_of(lambda x: torch.nn.functional.silu(x), torch.ones(2, dtype=torch.bfloat16))
    kinds = [node.op_type for node in convert(graph).model.graph.node]
    assert kinds.count("Cast") == 2 and kinds[0] == "Cast" and kinds[-2:] == ["Cast", "Identity"]


def test_a_target_that_has_no_wider_type_is_refused_by_name():
    graph = graph_of(lambda x: x.exp(), torch.ones(2, dtype=torch.float64))
    target = Target("the runtime", computes=lambda operator, dtype: dtype is torch.float32)
    with pytest.raises(ConversionError, match="exp.*the runtime has no Exp of float64"):
        convert(graph, target=target)


def test_frozen_weights_stay_outside_and_only_those_that_are_read():
    weight, unused = torch.ones(3, 4), torch.ones(7)
    graph = graph_of(lambda x, w, u: x @ w, torch.ones(2, 3), weight, unused)
    made = convert(graph, frozen={1: weight})
    assert [value.name for value in made.model.graph.input if value.name == "in1"] == []
    assert made.external["in1"] is weight
    assert made.model.graph.initializer[0].data_location == onnx.TensorProto.EXTERNAL
    assert len(made.serialized()) < 1000


def test_supports_answers_from_the_converters_themselves():
    graph = graph_of(lambda x: torch.special.i0(x).exp() // 2, torch.ones(2))
    reasons = [unsupported_reason(node) for node in calls_of(graph)]
    assert [bool(reason) for reason in reasons] == [True, False, False]
    assert reasons[0] == "aten.special_i0.default has no converter" or "i0" in reasons[0]


def test_integer_division_by_a_tensor_is_refused_since_it_may_hold_zero():
    graph = graph_of(lambda x, y: (x // y, x // 3), torch.tensor([7]), torch.tensor([2]))
    reasons = [unsupported_reason(node) for node in calls_of(graph)]
    assert ["divided by zero" in reason for reason in reasons] == [True, False]


def test_what_draws_random_numbers_is_refused():
    graph = graph_of(lambda x: torch.rand_like(x) + x, torch.ones(3))
    assert [bool(unsupported_reason(node)) for node in calls_of(graph)] == [True, False]


def test_an_operator_has_one_converter():
    from core_onnx.registry import converts

    load_converters()
    with pytest.raises(ValueError, match="two converters"):
        converts("aten.add.Tensor")(lambda builder: None)


def test_a_target_that_drops_nan_gets_relu_from_comparisons():
    graph = graph_of(lambda x: torch.relu(x), torch.ones(3))
    made = convert(graph, target=Target(drops_nan=frozenset(("Max", "Min", "Relu"))))
    assert "Relu" not in {node.op_type for node in made.model.graph.node}


CUDA_ATTENTION = {  # what comes between the values and the numbers of the CPU's operator
    "_scaled_dot_product_efficient_attention": (None, False),
    "_scaled_dot_product_flash_attention": (),
    "_scaled_dot_product_cudnn_attention": (None, False),
}


def attention_of(name, query, causal):
    """The graph of an attention with its operator replaced by one of CUDA's."""
    graph = graph_of(lambda q: torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=causal), query)
    (node,) = [node for node in calls_of(graph) if "flash_attention" in str(node.target)]
    node.target = getattr(torch.ops.aten, name).default
    node.args = (*node.args[:3], *CUDA_ATTENTION[name], 0.0, causal)
    return graph, node


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", CUDA_ATTENTION)
def test_attention_of_cuda_is_that_of_the_cpu(name, causal):
    from onnx.reference import ReferenceEvaluator

    query = torch.randn(2, 3, 5, 4)
    graph, _ = attention_of(name, query, causal)
    made = convert(graph, target=Target("test", 18))
    (found,) = ReferenceEvaluator(made.model).run(None, {"in0": query.numpy()})
    expected = torch.nn.functional.scaled_dot_product_attention(query, query, query, is_causal=causal)
    torch.testing.assert_close(torch.from_numpy(found), expected)


@pytest.mark.parametrize("name", CUDA_ATTENTION)
def test_attention_of_cuda_that_keeps_what_its_backward_needs_is_refused(name):
    import operator

    graph, node = attention_of(name, torch.randn(2, 3, 5, 4), False)
    assert not unsupported_reason(node, Target("test", 18))
    (output,) = [node for node in graph.graph.nodes if node.op == "output"]
    with graph.graph.inserting_before(output):
        sums = graph.graph.call_function(operator.getitem, (node, 1))
        sums.meta.update(node.meta)
    output.args = ((*output.args[0], sums),)
    assert "backward" in str(unsupported_reason(node, Target("test", 18)))
