"""Graph passes of plugins: where they run, in which order, and what becomes of one that does harm."""

import sys

import pytest
import torch

import core
from core.backends import passes
from core.backends.registry import default_registry
from core.errors import PassFailed
from core.events import BackendReported, subscribe
from core.plugin import Pass, hookimpl

aten = torch.ops.aten


@pytest.fixture
def plugin(monkeypatch):
    """A loaded plugin whose passes a test fills in: stage -> list of passes."""

    class Plugin:
        def __init__(self):
            self.passes = {}

        @hookimpl
        def core_passes(self, stage):
            return self.passes.get(stage, [])

    made = Plugin()
    manager = default_registry()._manager
    manager.register(made, name="core-test:passes")
    monkeypatch.setattr(passes, "_disabled", set())
    yield made
    manager.unregister(made)


@pytest.fixture
def lenient(monkeypatch):
    monkeypatch.setenv("CORE_STRICT", "0")


@pytest.fixture
def findings():
    found = []
    stop = subscribe(lambda event: found.append(event.finding.text) if isinstance(event, BackendReported) else None)
    yield found
    stop()


def replacing(old, new):
    def run(module):
        for node in module.graph.nodes:
            if node.target is old:
                node.target = new
                node.meta.pop("val", None)
        return module

    return run


def program(x):
    return torch.sin(x) + 1


def test_a_pass_changes_the_inference_graph(plugin):
    plugin.passes["inference"] = [Pass("cosine", replacing(aten.sin.default, aten.cos.default))]
    x = torch.randn(4)
    torch.testing.assert_close(core.compile(program, backend="aot_eager")(x), torch.cos(x) + 1)


def test_a_pass_changes_the_torch_graph_of_a_torch_level_backend(plugin):
    plugin.passes["torch"] = [Pass("cosine", replacing(torch.sin, torch.cos))]
    x = torch.randn(4)
    torch.testing.assert_close(core.compile(program, backend="eager")(x), torch.cos(x) + 1)


def test_stages_of_training_run_once_each_on_their_graphs(plugin):
    ran = []

    def noting(stage):
        def run(module):
            ran.append((stage, type(module).__name__))
            return module

        return run

    for stage in passes.STAGES:
        plugin.passes[stage] = [Pass("note", noting(stage))]
    x = torch.randn(4, requires_grad=True)
    compiled = core.compile(program, backend="aot_eager")
    for _ in range(2):
        compiled(x).sum().backward()
    assert [stage for stage, _ in ran] == ["joint", "forward", "backward"]
    torch.testing.assert_close(x.grad, 2 * torch.cos(x).detach())


def test_a_pass_over_the_joint_graph_changes_both_halves(plugin):
    def doubled(module):
        for node in list(module.graph.nodes):
            if node.target is aten.cos.default:
                with module.graph.inserting_after(node):
                    twice = module.graph.call_function(aten.mul.Tensor, (node, 2))
                node.replace_all_uses_with(twice, delete_user_cb=lambda user, made=twice: user is not made)
        return module

    plugin.passes["joint"] = [Pass("doubled", doubled)]
    x = torch.randn(4, requires_grad=True)
    core.compile(program, backend="aot_eager")(x).sum().backward()
    torch.testing.assert_close(x.grad, 2 * torch.cos(x).detach())


def test_passes_run_in_the_order_they_ask_for(plugin):
    order = []
    made = {}
    for name, where in {"c": {"after": "b"}, "b": {}, "a": {"before": "b"}, "d": {"after": "unknown"}}.items():
        made[name] = Pass(name, lambda module, name=name: (order.append(name), module)[1], **where)
    plugin.passes["inference"] = list(made.values())
    core.compile(program, backend="aot_eager")(torch.randn(4))
    assert order.index("a") < order.index("b") < order.index("c") and sorted(order) == ["a", "b", "c", "d"]


def drop_output(module):
    output = next(node for node in module.graph.nodes if node.op == "output")
    output.args = (output.args[0][:0],)
    return module


def other_dtype(module):
    output = next(node for node in module.graph.nodes if node.op == "output")
    (result,) = output.args[0]
    with module.graph.inserting_before(output):
        made = module.graph.call_function(aten._to_copy.default, (result,), {"dtype": torch.float64})
    output.args = ((made,),)
    return module


def other_shape(module):
    output = next(node for node in module.graph.nodes if node.op == "output")
    (result,) = output.args[0]
    with module.graph.inserting_before(output):
        made = module.graph.call_function(aten.repeat.default, (result, [2]))
    output.args = ((made,),)
    return module


def fails(module):
    raise KeyError("lost")


def new_input(module):
    with module.graph.inserting_before(next(iter(module.graph.nodes))):
        module.graph.placeholder("more")
    return module


def draws(module):
    output = next(node for node in module.graph.nodes if node.op == "output")
    with module.graph.inserting_before(output):
        module.graph.call_function(aten.rand_like.default, (output.args[0][0],))
    return module


HARM = {
    fails: "raised KeyError: 'lost'",
    drop_output: "left 0 results of 1",
    other_dtype: "changed the dtype or device of result 0",
    other_shape: "changed the shape of result 0",
    new_input: "changed the inputs",
    draws: "changed which random numbers are drawn",
    (lambda module: None): "returned NoneType, not a graph module",
}


@pytest.mark.parametrize("harm", HARM)
def test_a_pass_that_does_harm_is_off_and_the_graph_goes_on(harm, plugin, findings, lenient):
    ran = []
    plugin.passes["inference"] = [Pass("harm", lambda module: (ran.append(1), harm(module))[1])]
    for size in (4, 5):
        x = torch.randn(size)
        torch.testing.assert_close(core.compile(program, backend="aot_eager", dynamic=False)(x), program(x))
    assert len(ran) == 1
    assert [HARM[harm] in text and "off for this process" in text for text in findings] == [True]


def test_under_strict_a_failing_pass_raises(plugin):
    plugin.passes["inference"] = [Pass("harm", fails)]
    with pytest.raises(PassFailed, match="raised KeyError") as caught:
        core.compile(program, backend="aot_eager")(torch.randn(4))
    assert isinstance(caught.value.__cause__, KeyError) and "CORE_DISABLE_PLUGINS" in caught.value.remedy


def test_passes_that_want_to_run_before_each_other_are_said(plugin, findings, lenient):
    plugin.passes["inference"] = [
        Pass("a", lambda module: module, before="b"),
        Pass("b", lambda module: module, before="a"),
    ]
    x = torch.randn(4)
    torch.testing.assert_close(core.compile(program, backend="aot_eager")(x), program(x))
    assert any("want to run before each other" in text for text in findings)


def test_passes_come_from_entry_points_too(tmp_path, monkeypatch):
    (tmp_path / "core_extra_passes.py").write_text(
        "import torch\nfrom core.plugin import Pass\n"
        "def run(module):\n"
        "    for node in module.graph.nodes:\n"
        "        if node.target is torch.ops.aten.sin.default:\n"
        "            node.target = torch.ops.aten.cos.default\n"
        "    return module\n"
        "def give(stage):\n"
        "    return [Pass('extra', run)] if stage == 'inference' else []\n"
    )
    info = tmp_path / "core_extra_passes-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: core-extra-passes\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[core.passes]\nextra = core_extra_passes:give\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    passes._entry_points.cache_clear()
    x = torch.randn(4)
    try:
        torch.testing.assert_close(core.compile(program, backend="aot_eager")(x), torch.cos(x) + 1)
    finally:
        passes._entry_points.cache_clear()
        sys.modules.pop("core_extra_passes", None)
