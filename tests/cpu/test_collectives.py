"""Functional collectives of torch.distributed are operations of the graph; what is known of a group is a constant."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
import torch

import core

dist = pytest.importorskip("torch.distributed")
if not dist.is_available():
    pytest.skip("this torch has no distributed package", allow_module_level=True)
import torch.distributed._functional_collectives as collectives  # noqa: E402


@pytest.fixture
def group():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.new_group([0])
    dist.destroy_process_group()


def agrees(program, *inputs, backend="eager"):
    expected = program(*inputs)
    compiled = core.compile(program, backend=backend, fullgraph=True)
    core.reset()
    for _ in range(2):
        torch.testing.assert_close(compiled(*inputs), expected)
    return core.stats()


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_a_reduction_over_the_default_group_is_in_the_graph(group, backend):
    def program(x):
        return collectives.all_reduce(x * 2, "sum", dist.group.WORLD) + 1

    found = agrees(program, torch.randn(4, 4), backend=backend)
    assert (found["graphs"], found["breaks"]) == (1, 0)


@pytest.mark.parametrize(
    "program",
    [
        lambda x, group: collectives.all_reduce_coalesced([x, x + 1], "avg", group),
        lambda x, group: collectives.all_to_all_single(x, None, None, group) + 1,
        lambda x, group: collectives.broadcast(x, 0, group) * 2,
        lambda x, group: (
            x * dist.get_world_size(group) + dist.get_rank(group) + len(dist.get_process_group_ranks(group))
        ),
        lambda x, group: x + group.size() + group.rank() + len(group.group_name),
    ],
    ids=["several", "exchange", "broadcast", "numbers of a group", "methods of a group"],
)
def test_a_group_is_passed_and_asked(group, program):
    found = agrees(program, torch.randn(4, 4), group)
    assert (found["graphs"], found["breaks"]) == (1, 0)


def test_gathering_and_scattering_know_the_size_of_the_group(group):
    gather = getattr(collectives, "all_gather_single", collectives.all_gather_tensor)
    scatter = getattr(collectives, "reduce_scatter_single", collectives.reduce_scatter_tensor)

    def program(x):
        return gather(x, 0, group) * 2, scatter(x, "sum", 1, group) + 1

    found = agrees(program, torch.randn(4, 4))
    assert (found["graphs"], found["breaks"]) == (1, 0)


def test_another_group_is_captured_again(group):
    def program(x, group):
        return collectives.all_reduce(x, "sum", group) + group.size()

    other = dist.new_group([0])
    compiled = core.compile(program, backend="eager", fullgraph=True)
    x = torch.ones(3)
    for one in (group, other, group):
        torch.testing.assert_close(compiled(x, one), x + 1)
    assert core.stats()["graphs"] == 2


def test_a_collective_that_writes_its_tensor_runs_as_written(group):
    def program(x):
        y = x * 2
        dist.all_reduce(y)
        return y + 1

    compiled = core.compile(program, backend="eager")
    x = torch.randn(3)
    torch.testing.assert_close(compiled(x), x * 2 + 1)
    assert (core.stats()["graphs"], core.stats()["breaks"]) == (2, 1)


TWO_RANKS = """
    import sys, torch, torch.distributed as dist, core
    import torch.distributed._functional_collectives as collectives

    rank, path = int(sys.argv[1]), sys.argv[2]
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=2)
    weight = torch.full((2, 2), 1.0 + rank, requires_grad=True)

    def step(x):
        loss = (x @ weight).pow(2).sum()
        grad, = torch.autograd.grad(loss, weight)
        return collectives.all_reduce(grad, "avg", dist.group.WORLD) + 0

    x = torch.arange(4.0).reshape(2, 2) + rank
    eager = step(x)
    compiled = core.compile(step, backend="aot_eager", fullgraph=True)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), eager)
    print(core.stats()["graphs"], eager.sum().item())
    dist.destroy_process_group()
"""


def test_two_processes_average_their_gradients(tmp_path):
    script = tmp_path / "ranks.py"
    script.write_text(textwrap.dedent(TWO_RANKS))
    command = [sys.executable, str(script)]
    ranks = [
        subprocess.Popen([*command, str(rank), str(tmp_path / "meet")], stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    said = [rank.communicate(timeout=240)[0].split() for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0]
    assert said[0] == said[1] and said[0][0] == "1"
