"""Graphs that can't be captured in a CUDA graph are told from their nodes. The device here is "meta"."""

from __future__ import annotations

import pytest
import torch
import torch.fx as fx

from core.backends.cuda_graphs.unsafe_nodes import SCALAR_MAKERS, WAITING, first_unsafe
from core.graph.clone_mutate import clone_mutate
from core.graph.kernel_operators import NAMESPACE

aten = torch.ops.aten
META = torch.device("meta")


def on_device(*shape, dtype=torch.float32):
    return torch.empty(shape, dtype=dtype, device=META)


class Written:
    """A graph written call by call, each with the result that stands for it."""

    def __init__(self):
        self.graph = fx.Graph()
        self.root = torch.nn.Module()

    def takes(self, value):
        node = self.graph.placeholder(f"input_{len(self.graph.nodes)}")
        node.meta["val"] = value
        return node

    def constant(self, value):
        name = f"constant_{len(self.graph.nodes)}"
        self.root.register_buffer(name, value)
        return self.graph.get_attr(name)

    def call(self, target, *args, val, **kwargs):
        node = self.graph.call_function(target, args, kwargs)
        node.meta["val"] = val
        return node

    def reason(self, *results, custom=False):
        self.graph.output(results)
        return first_unsafe(fx.GraphModule(self.root, self.graph), META, custom=custom)[0]


@pytest.fixture
def written():
    return Written()


def test_the_names_are_those_of_operators():
    known = {name.partition("::")[2].partition(".")[0] for name in torch._C._dispatch_get_all_op_names()}
    assert not {*WAITING, *SCALAR_MAKERS} - known


def test_kernels_on_the_device_may_be_captured(written):
    x = written.takes(on_device(3))
    made = written.call(aten.full.default, (3,), 2.0, val=on_device(3))
    assert written.reason(written.call(aten.add.Tensor, x, made, val=on_device(3))) == ""


def test_a_number_in_a_tensor_of_the_cpu_is_an_operand_of_elements(written):
    x = written.takes(on_device(3))
    two = written.constant(torch.tensor(2.0))
    copy = written.call(aten.lift_fresh_copy.default, two, val=torch.tensor(2.0))
    made = written.call(aten.full.default, (), 2.0, val=torch.tensor(2.0))
    product = written.call(aten.mul.Tensor, x, copy, val=on_device(3))
    assert written.reason(written.call(aten.mul.Tensor, product, made, val=on_device(3))) == ""


def test_elsewhere_such_a_number_is_copied_to_the_device(written):
    x = written.takes(on_device(3))
    two = written.constant(torch.tensor(2))
    taken = written.call(aten.index.Tensor, x, [two], val=on_device())
    assert "copies a number" in written.reason(taken)


def test_a_constant_of_several_numbers_on_the_cpu_is_refused(written):
    written.constant(torch.tensor([1.0, 2.0]))
    assert "cpu" in written.reason()


def test_inputs_on_the_cpu_are_refused(written):
    assert "is on cpu" in written.reason(written.takes(torch.ones(())))


def test_copies_to_the_cpu_are_refused(written):
    x = written.takes(on_device(3))
    assert "is on cpu" in written.reason(written.call(aten._to_copy.default, x, device="cpu", val=torch.ones(3)))


@pytest.mark.parametrize("dtype, unsafe", [(torch.bool, True), (torch.uint8, True), (torch.int64, False)])
@pytest.mark.parametrize("put", [False, True])
def test_masks_as_indices_are_refused_and_numbers_are_not(written, put, dtype, unsafe):
    x, at = written.takes(on_device(3)), written.takes(on_device(3, dtype=dtype))
    if put:
        indexed = written.call(aten.index_put.default, x, [at], x, val=on_device(3))
    else:
        indexed = written.call(aten.index.Tensor, x, [at], val=on_device(3))
    reason = written.reason(indexed)
    assert ("mask" in reason) == unsafe and bool(reason) == unsafe


def test_operators_that_look_at_values_are_refused(written):
    x = written.takes(on_device(3))
    assert "looks at values" in written.reason(written.call(aten.nonzero.default, x, val=on_device(3, 1)))


def test_decompositions_are_refused(written):
    x = written.takes(on_device(3, 3))
    assert "waits for the device" in written.reason(written.call(aten.linalg_qr.default, x, val=(on_device(3, 3),) * 2))


def test_control_flow_is_refused(written):
    x = written.takes(on_device(3))
    assert "decides on the host" in written.reason(written.call(torch.ops.higher_order.cond, x, val=on_device(3)))


def test_sparse_tensors_are_refused(written):
    assert "layout" in written.reason(written.takes(torch.ones(3).to_sparse()))


@torch.library.custom_op("unsafe_node_tests::same", mutates_args=())
def same(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@pytest.mark.parametrize("custom", [False, True])
def test_operators_of_other_libraries_are_captured_on_request_only(written, custom):
    x = written.takes(on_device(3))
    reason = written.reason(written.call(torch.ops.unsafe_node_tests.same.default, x, val=on_device(3)), custom=custom)
    assert ("another library" in reason) == (not custom)


@pytest.mark.parametrize("namespace", ["unsafe_nodes_test", NAMESPACE])
def test_an_operator_on_clones_is_looked_at_as_by_itself(written, namespace):
    with torch.library._scoped_library(namespace, "FRAGMENT") as library:
        library.define("fill(Tensor(a!) x) -> ()")
        operator = getattr(torch.ops, namespace).fill.default
        x = written.takes(on_device(3))
        call = written.call(clone_mutate, operator, (0,), (x,), {}, val=(on_device(3),))
        reason = written.reason(call)
        assert ("another library" in reason) == (namespace != NAMESPACE)
