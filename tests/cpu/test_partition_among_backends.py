"""Graphs divided among backends: who gets which nodes, what is said, what is refused, and that results are eager's."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import core
from core.errors import BackendFailed, FallbackTooCostly, NodesUnclaimed, PrecisionUnavailable
from core.events import ArtifactBuilt, BackendReported, FellBack, Partitioned, subscribe
from core.plugin import Artifact, Backend, Capabilities, PluginBug, Support

_SPEC = importlib.util.spec_from_file_location("partial_backends", Path(__file__).with_name("partial_backends.py"))
partial = sys.modules.setdefault("partial_backends", importlib.util.module_from_spec(_SPEC))
if not hasattr(partial, "Taking"):
    _SPEC.loader.exec_module(partial)
Taking = partial.Taking
PRODUCTS = ("mm", "addmm", "t", "relu")


@pytest.fixture
def seen():
    events = []
    stop = subscribe(events.append)
    yield lambda kind: [event for event in events if isinstance(event, kind)]
    stop()


def network():
    torch.manual_seed(0)
    layers = [
        torch.nn.Linear(64, 64),
        torch.nn.ReLU(),
        torch.nn.LayerNorm(64),
        torch.nn.Linear(64, 64),
        torch.nn.Tanh(),
    ]
    return torch.nn.Sequential(*layers, torch.nn.Linear(64, 8))


def gradients(run, module, x):
    module.zero_grad()
    run(x).square().sum().backward()
    return [parameter.grad.clone() for parameter in module.parameters()]


# -- results ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fallback", [("eager",), ("inductor", "eager")])
def test_a_backend_of_products_and_the_fallback_train_as_eager_in_one_graph(fallback, seen):
    if fallback[0] == "inductor":
        pytest.importorskip("core_inductor")
    module, x, backend = network(), torch.randn(32, 64), Taking(*PRODUCTS)
    compiled = core.compile(module, backend=backend, fallback=fallback, fullgraph=True)
    for _ in range(3):
        x = torch.randn(32, 64)
        torch.testing.assert_close(compiled(x), module(x), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(gradients(compiled, module, x), gradients(module, module, x), rtol=1e-4, atol=1e-4)
    assert core.stats()["graphs"] == 1 and core.stats()["breaks"] == 0
    forward, backward = seen(Partitioned)
    assert [region.backend for region in forward.regions] == ["taking", fallback[0]] * 2 + ["taking"]
    assert (forward.mode, backward.mode) == ("forward", "backward")
    assert {region.backend for region in backward.regions} == {"taking", fallback[0]}
    assert len(backend.compiled) == sum(region.backend == "taking" for e in (forward, backward) for region in e.regions)


def test_weights_changed_in_place_are_seen_by_every_region():
    module, x = network(), torch.randn(32, 64)
    compiled = core.compile(module, backend=Taking(*PRODUCTS), fallback="eager")
    with torch.no_grad():
        compiled(x)
        for parameter in module.parameters():
            parameter.mul_(1.5)
        torch.testing.assert_close(compiled(x), module(x))
        module[0].weight.data.copy_(torch.randn(64, 64))
        torch.testing.assert_close(compiled(x), module(x))


def test_mutation_views_and_results_that_are_inputs_are_eagers():
    def program(x, w):
        x.mul_(2)
        y = torch.tanh(x @ w)
        y.add_(1)
        return x, y, y.t(), x.view(-1), (y @ w.t()).relu()

    x, w = torch.randn(16, 16), torch.randn(16, 16)
    compiled = core.compile(program, backend=Taking("mm", "relu"), fallback="eager", fullgraph=True)
    for _ in range(3):
        mine, theirs = x.clone(), x.clone()
        found, expected = compiled(mine, w), program(theirs, w)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(mine, theirs)
        assert found[0] is mine and found[2]._base is found[1] and found[3].data_ptr() == mine.data_ptr()
        assert [r.stride() for r in found] == [r.stride() for r in expected]


def test_random_numbers_are_drawn_in_the_programs_order():
    def program(x):
        return F.dropout(x @ x, 0.5) + torch.rand_like(x), torch.randn(4).exp()

    x = torch.randn(16, 16)
    compiled = core.compile(program, backend=Taking("mm", "rand_like", "exp"), fallback="eager", fullgraph=True)
    for seed in range(3):
        torch.manual_seed(seed)
        found, state = compiled(x), torch.get_rng_state()
        torch.manual_seed(seed)
        torch.testing.assert_close(found, program(x))
        assert torch.equal(state, torch.get_rng_state())


def test_sizes_cross_regions_as_numbers():
    def program(x, w):
        rows = x.shape[0]
        y = torch.tanh(x @ w) * rows
        return (y.reshape(rows * 2, -1) @ w[:8]).relu(), rows + 1, y.reshape(-1)

    backend = Taking("mm", "relu", "view")
    compiled = core.compile(program, backend=backend, fallback="eager", fullgraph=True, dynamic=True)
    for rows in (4, 6, 9):
        x, w = torch.randn(rows, 16), torch.randn(16, 16)
        torch.testing.assert_close(compiled(x, w), program(x, w))
    assert core.stats()["recompiles"] == 0
    graph, fakes = backend.graphs[-1]
    assert all(isinstance(fake, (torch.Tensor, torch.SymInt)) for fake in fakes)


def test_regions_that_are_equal_are_compiled_once(seen):
    def program(x, ws):
        for w in ws:
            x = torch.tanh(x @ w)
        return x

    x, ws, backend = torch.randn(8, 8), [torch.randn(8, 8) for _ in range(4)], Taking("mm")
    compiled = core.compile(program, backend=backend, fallback="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, ws), program(x, ws))
    torch.testing.assert_close(compiled(x, ws[::-1]), program(x, ws[::-1]))
    (partitioned,) = seen(Partitioned)
    assert len(partitioned.regions) == 8
    assert [ops for _, ops in backend.compiled] == [["mm"]]
    assert len(seen(ArtifactBuilt)) == 2


# -- who gets what ----------------------------------------------------------------------------------------------------


def test_the_second_backend_of_a_list_takes_what_the_first_leaves(seen):
    first, second = Taking("mm", name="first"), Taking("tanh", name="second")
    compiled = core.compile(lambda x: torch.tanh(x @ x).sin(), backend=[first, second], fallback="eager")
    x = torch.randn(16, 16)
    torch.testing.assert_close(compiled(x), torch.tanh(x @ x).sin())
    (partitioned,) = seen(Partitioned)
    shown = [(region.backend, region.fallback) for region in partitioned.regions]
    assert shown[:1] == [("first", False)] and ("eager", True) in shown
    reasons = {(refused.node, refused.backend): refused.reason for refused in partitioned.refused}
    assert reasons["tanh_default", "first"] == "it has no tanh"
    assert all(refused.line is not None for refused in partitioned.refused)
    assert sum(region.share for region in partitioned.regions) == pytest.approx(1)


def test_a_backend_that_takes_everything_is_called_directly(seen):
    backend = Taking("mm", "relu")
    x = torch.randn(8, 8)
    compiled = core.compile(lambda x: (x @ x).relu(), backend=backend)
    compiled(x), compiled(x)
    assert not seen(Partitioned) and not seen(FellBack)
    (entry,) = compiled.entries()
    bound = [c for c in entry.code.co_consts if type(c).__name__ == "BoundGraph"]
    assert bound[0].fn == backend.graphs[0][0].forward
    assert sorted(backend.asked) == ["mm_default", "relu_default"]  # each node once


def test_a_region_never_waits_for_itself(seen):
    def program(x):
        a = x @ x
        b = torch.tanh(a)
        return a @ b, (a @ x).relu()

    x, backend = torch.randn(16, 16), Taking("mm", "relu")
    compiled = core.compile(program, backend=backend, fallback="eager")
    torch.testing.assert_close(compiled(x), program(x))
    (partitioned,) = seen(Partitioned)
    assert [region.backend for region in partitioned.regions] == ["taking", "eager", "taking"]


@pytest.mark.parametrize(("operator", "size", "kept"), [("sin", 4, False), ("sin", 200, True), ("mm", 2, True)])
def test_what_costs_less_than_a_call_joins_its_neighbours_but_a_product_does_not(operator, size, kept, seen):
    def program(x):
        y = torch.tanh(x)
        return torch.tanh(y @ y if operator == "mm" else y.sin())

    x = torch.randn(size, size)
    torch.testing.assert_close(core.compile(program, backend=Taking(operator), fallback="eager")(x), program(x))
    (partitioned,) = seen(Partitioned)
    assert [region.backend for region in partitioned.regions] == (["eager", "taking", "eager"] if kept else ["eager"])
    assert any("costs less than a call" in refused.reason for refused in partitioned.refused) is not kept


def test_a_dtype_that_is_not_declared_is_left_to_the_fallback(seen):
    backend = Taking("mm", "tanh", dtypes=("float32",))
    compiled = core.compile(lambda x, y: (x @ x, y @ y), backend=backend, fallback="eager")
    x, y = torch.randn(8, 8), torch.randn(8, 8, dtype=torch.float64)
    torch.testing.assert_close(compiled(x, y), (x @ x, y @ y))
    (partitioned,) = seen(Partitioned)
    assert ["float64" in refused.reason for refused in partitioned.refused] == [True]


def test_what_a_backend_refuses_while_compiling_is_handed_on_once(seen):
    backend = Taking("mm", "tanh", refused=("tanh",))
    compiled = core.compile(lambda x: torch.tanh(x @ x), backend=backend, fallback="eager")
    x = torch.randn(16, 16)
    torch.testing.assert_close(compiled(x), torch.tanh(x @ x))
    assert [ops for _, ops in backend.compiled] == [["mm"]]
    (partitioned,) = seen(Partitioned)
    assert [(r.node, r.reason) for r in partitioned.refused] == [("tanh_default", "not today")]


def test_a_backend_that_refuses_again_has_failed():
    class Never(Taking):
        def compile(self, graph, fake_inputs, ctx):
            raise core.plugin.Unsupported([next(n for n in graph.graph.nodes if n.op == "call_function")], "no more")

    def program(x):
        return torch.tanh(x @ x) @ x

    x = torch.randn(16, 16)
    with pytest.raises(BackendFailed, match="no more"):
        core.compile(program, backend=Never("mm", "tanh"), fallback="eager")(x)
    compiled = core.compile(program, backend=Never("mm", "tanh"), fallback="eager", on_failure="fallback")
    torch.testing.assert_close(compiled(x), program(x))


def test_a_failing_compiler_raises_or_falls_back_as_asked(seen):
    class Failing(Taking):
        def compile(self, graph, fake_inputs, ctx):
            raise core.plugin.CompileFailed("lowering")

    x = torch.randn(16, 16)
    with pytest.raises(BackendFailed, match="lowering failed"):
        core.compile(lambda x: torch.tanh(x @ x), backend=Failing("mm"), fallback="eager")(x)
    compiled = core.compile(lambda x: torch.tanh(x @ x), backend=Failing("mm"), fallback="eager", on_failure="fallback")
    torch.testing.assert_close(compiled(x), torch.tanh(x @ x))
    assert any("lowering failed" in event.reason for event in seen(FellBack))


# -- refusing ---------------------------------------------------------------------------------------------------------


def test_fullgraph_backend_raises_with_nodes_lines_and_reasons():
    x = torch.randn(8, 8)
    with pytest.raises(NodesUnclaimed) as caught:
        core.compile(lambda x: torch.tanh(x @ x), backend=Taking("mm"), fullgraph_backend=True)(x)
    assert "tanh_default" in caught.value.what and "it has no tanh" in caught.value.what
    assert caught.value.where.filename == __file__ and Path(__file__).name in caught.value.what


def test_without_a_fallback_nodes_without_a_taker_raise():
    with pytest.raises(NodesUnclaimed, match="it has no tanh"):
        core.compile(lambda x: torch.tanh(x @ x), backend=Taking("mm"), fallback=())(torch.randn(8, 8))


def test_more_fallback_than_allowed_raises_and_less_does_not():
    def program(x):
        return torch.tanh(x @ x)

    x = torch.randn(256, 256)
    compiled = core.compile(program, backend=Taking("mm"), fallback="eager", max_fallback_cost=0.5)
    torch.testing.assert_close(compiled(x), program(x))
    with pytest.raises(FallbackTooCostly, match="mm_default") as caught:
        core.compile(program, backend=Taking("tanh"), fallback="eager", max_fallback_cost=0.5)(x)
    assert "max_fallback_cost=0.5" in caught.value.what and caught.value.where is not None


def test_a_wrong_answer_to_supports_is_the_backends_fault():
    class Wrong(Taking):
        def supports(self, node, ctx):
            return True

    with pytest.raises(BackendFailed, match="supports.*answered True"):
        core.compile(lambda x: x @ x, backend=Wrong())(torch.randn(4, 4))
    assert issubclass(PluginBug, BackendFailed) and Support("no").kind == "no"


class Yielding(Taking):
    """Takes everything, what is not among its operators only where nobody else does."""

    def supports(self, node, ctx):
        own = super().supports(node, ctx)
        return own if own.kind != "no" else Support("library", "another has it better", yields=True)


def test_a_node_that_is_yielded_goes_to_the_fallback_and_comes_back_where_there_is_none(seen):
    def program(x):
        return torch.tanh(x @ x)

    x = torch.randn(16, 16)
    backend = Yielding("mm", name="yielding")
    torch.testing.assert_close(core.compile(program, backend=backend, fallback="eager")(x), program(x))
    assert backend.compiled[-1][1] == ["mm"]
    (event,) = seen(Partitioned)
    assert [(one.backend, one.fallback) for one in event.regions] == [("yielding", False), ("eager", True)]
    assert [(one.operator, one.reason) for one in event.refused] == [("aten.tanh.default", "another has it better")]
    for alone in ({"fallback": ()}, {"fullgraph_backend": True}):
        backend = Yielding("mm", name="yielding")
        torch.testing.assert_close(core.compile(program, backend=backend, **alone)(x), program(x))
        assert [names for _, names in backend.compiled] == [["mm", "tanh"]]
    assert len(seen(Partitioned)) == 1


def test_of_two_that_yield_the_first_gets_the_node_and_one_that_does_not_yield_comes_before_both():
    first, second, third = Yielding(name="first"), Yielding(name="second"), Taking("tanh", name="third")
    x = torch.randn(16, 16)
    run = core.compile(lambda x: torch.tanh(x).cos(), backend=[first, second, third], fallback=())
    torch.testing.assert_close(run(x), torch.tanh(x).cos())
    assert [each.compiled[0][1] if each.compiled else [] for each in (first, second, third)] == [["cos"], [], ["tanh"]]


# -- a backend's own partition ----------------------------------------------------------------------------------------


def own_partition(groups):
    class Own(Taking):
        def partition(self, graph, ctx):
            return groups

    return Own("mm", "relu")


def layered(x):
    return torch.tanh((x @ x).relu()) @ x


def test_a_backends_own_partition_is_used_and_the_rest_goes_on(seen):
    backend = own_partition([["mm_default"], ["mm_default_1"]])
    x = torch.randn(16, 16)
    compiled = core.compile(layered, backend=backend, fallback="eager")
    torch.testing.assert_close(compiled(x), layered(x))
    (partitioned,) = seen(Partitioned)
    assert [r.nodes for r in partitioned.regions if r.backend == "taking"] == [("mm_default",), ("mm_default_1",)]


@pytest.mark.parametrize(
    ("groups", "reason"),
    [
        ([["mm_default", "mm_default_1"]], "before and after"),
        ([["tanh_default"]], "tanh_default is not a node that the backend has"),
        ([["mm_default"], ["mm_default"]], "in two parts"),
        ([["nothing"]], "no node of the graph"),
        (3, "raised TypeError"),
    ],
)
def test_a_partition_that_can_not_be_used_is_a_finding_and_core_divides(groups, reason, seen):
    backend, x = own_partition(groups), torch.randn(16, 16)
    compiled = core.compile(layered, backend=backend, fallback="eager")
    torch.testing.assert_close(compiled(x), layered(x))
    assert any(reason in event.finding.text for event in seen(BackendReported))
    (partitioned,) = seen(Partitioned)
    assert [r.backend for r in partitioned.regions] == ["taking", "eager", "taking"]


# -- what a backend declares ------------------------------------------------------------------------------------------


def test_training_on_an_inference_backend_goes_to_the_next_or_the_fallback(seen):
    x = torch.randn(8, 8, requires_grad=True)

    def program(x):
        return torch.tanh(x @ x)

    only = Taking("mm", "tanh", name="only", modes=("inference",))
    other = Taking("mm", "tanh", name="other")
    core.compile(program, backend=[only, other])(x).sum().backward()
    assert not only.compiled and other.compiled
    compiled = core.compile(program, backend=only, fallback="eager", on_failure="fallback")
    compiled(x).sum().backward()
    assert not only.compiled and any("does not do training" in event.reason for event in seen(FellBack))
    with torch.no_grad():
        compiled(x)
    assert only.compiled


def test_a_backend_without_dynamic_shapes_gets_numbers_and_an_entry_a_shape():
    backend = Taking("mm", "relu", "view", dynamic_shapes="none")

    def program(x, w):
        return (x @ w).relu().view(-1)

    compiled = core.compile(program, backend=backend, fallback="eager")
    for rows in (4, 5, 6):
        x, w = torch.randn(rows, 8), torch.randn(8, 8)
        torch.testing.assert_close(compiled(x, w), program(x, w))
    assert len(compiled.entries()) == 3
    for graph, fakes in backend.graphs:
        values = [node.meta["val"] for node in graph.graph.nodes if "val" in node.meta and node.op != "output"]
        assert all(type(size) is int for value in (*values, *fakes) for size in value.shape)


@pytest.mark.parametrize("fallback", ["eager", "inductor"])
def test_a_region_whose_sizes_are_computed_is_given_what_says_their_symbols(fallback):
    if fallback == "inductor":
        pytest.importorskip("core_inductor")
    layer = torch.nn.Conv2d(3, 8, 3)

    def program(x):
        return layer(x).relu().flatten(2).mean(-1)

    taken = Taking("convolution", "relu", "view", dynamic_shapes="full")
    compiled = core.compile(program, backend=taken, fallback=fallback, fullgraph=True, dynamic=True)
    with torch.no_grad():
        for batch, height, width in ((4, 20, 20), (2, 9, 14), (8, 31, 5)):
            x = torch.randn(batch, 3, height, width)
            torch.testing.assert_close(compiled(x), program(x), rtol=1e-4, atol=1e-5)
    assert core.stats()["graphs"] == 1


def test_dynamic_true_on_a_backend_without_dynamic_shapes_is_specialised():
    backend = Taking("mm", "relu", dynamic_shapes="none")
    compiled = core.compile(lambda x: (x @ x.t()).relu(), backend=backend, fallback="eager", dynamic=True)
    for rows in (4, 5):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(compiled(x), (x @ x.t()).relu())
    assert len(compiled.entries()) == 2


def test_a_backend_with_bounded_shapes_gets_ranges():
    backend = Taking("mm", "relu", dynamic_shapes="bounded")
    compiled = core.compile(lambda x, w: (x @ w).relu(), backend=backend, dynamic=True)
    w = torch.randn(8, 8)
    for rows in (4, 6, 31):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(compiled(x, w), (x @ w).relu())
    assert len(compiled.entries()) == 1
    ranges = backend.contexts[0].ranges
    assert (1, 32, 4) in [(max(low, 1), high, example) for low, high, example in ranges.values()]
    x = torch.randn(200, 8)
    torch.testing.assert_close(compiled(x, w), (x @ w).relu())
    assert len(compiled.entries()) == 2


def test_a_torch_level_backend_takes_the_whole_graph_or_nothing(seen):
    class Torch(Backend):
        name = "torch_level"
        capabilities = Capabilities(graph_level="torch")

        def compile(self, graph, fake_inputs, ctx):
            raise core.plugin.Unsupported([], "no such graphs")

    x = torch.randn(8, 8)
    compiled = core.compile(lambda x: torch.tanh(x @ x), backend=Torch(), fallback="eager")
    torch.testing.assert_close(compiled(x), torch.tanh(x @ x))
    assert any("the whole graph goes to the next backend" in event.reason for event in seen(FellBack))
    second = Torch()
    compiled = core.compile(lambda x: torch.tanh(x @ x), backend=[Taking("mm"), second], fallback="eager")
    torch.testing.assert_close(compiled(x), torch.tanh(x @ x))
    assert any("takes whole torch graphs only" in event.reason for event in seen(FellBack))


def test_a_precision_that_is_not_declared_is_an_error_and_ieee_is_kept_under_loose_flags():
    x = torch.randn(8, 8)
    with pytest.raises(PrecisionUnavailable, match="no precision 'tf32'; it declares 'ieee'"):
        core.compile(lambda x: x @ x, backend=Taking("mm"), precision="tf32")(x)
    used = []

    class Watching(Taking):
        def compile(self, graph, fake_inputs, ctx):
            def run(*inputs):
                used.append((ctx.precision, torch.get_float32_matmul_precision()))
                return graph.forward(*inputs)

            return Artifact(run)

    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        core.compile(lambda x: x @ x, backend=Watching("mm"), precision="ieee")(x)
        core.compile(lambda x: x @ x, backend=Watching("mm"))(x)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    assert used == [("ieee", "highest"), ("eager", "medium")]


def test_explain_shows_the_regions_and_why():
    x = torch.randn(16, 16)
    text = str(core.explain(lambda x: torch.tanh(x @ x), backend=Taking("mm"), fallback="eager")(x))
    assert "2 regions" in text and "eager (fallback)" in text and "it has no tanh" in text


def test_a_backend_that_asks_for_a_size_of_the_data_does_not_get_the_node(seen):
    class Asking(Taking):
        def supports(self, node, ctx):
            return Support("native") if node.meta["val"].shape[0] > 1 else Support("no", "too small")

    def program(x):
        return x[x > 0] * 2

    compiled = core.compile(
        program, backend=Asking("mul", "gt", dynamic_shapes="full"), fallback="eager", fullgraph=True
    )
    for x in (torch.tensor([1.0, -1.0, 2.0]), torch.ones(3)):
        torch.testing.assert_close(compiled(x), program(x))
    assert core.stats()["graphs"] == 1
