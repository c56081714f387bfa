"""Steps of optimizers inside captured code: parameters, gradients and state as in eager, no graph for each step."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn as nn
from observed import agrees

import core

OPTIMIZERS = {
    "plain SGD": ("SGD", {"lr": 0.1}),
    "SGD with momentum": ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    "SGD with dampening": ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.5, "maximize": True}),
    "Adam": ("Adam", {"lr": 0.1}),
    "Adam with all options": ("Adam", {"lr": 0.1, "amsgrad": True, "maximize": True, "weight_decay": 0.1}),
    "AdamW": ("AdamW", {"lr": 0.1}),
    "Adagrad": ("Adagrad", {"lr": 0.1, "lr_decay": 0.1}),
    "RMSprop": ("RMSprop", {"lr": 0.1, "momentum": 0.5, "centered": True}),
    "Adadelta": ("Adadelta", {}),
    "NAdam": ("NAdam", {"lr": 0.1}),
    "Adamax": ("Adamax", {}),
    "Rprop": ("Rprop", {}),
    "RAdam": ("RAdam", {"lr": 0.1, "weight_decay": 0.01}),
    "RAdam that decays apart": ("RAdam", {"lr": 0.1, "weight_decay": 0.01, "decoupled_weight_decay": True}),
}
KINDS = {"as it chooses": {}, "over lists": {"foreach": True}, "tensor by tensor": {"foreach": False}}


def state_of(optimizer):
    """The state of each parameter, with its keys, and the options of the groups."""
    groups = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
    return [dict(state) for state in optimizer.state.values()], groups


def values(module, optimizer):
    parameters = [(p.detach().clone(), None if p.grad is None else p.grad.clone()) for p in module.parameters()]
    return parameters, state_of(optimizer)


def with_gradients(name, options):
    module = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    optimizer = getattr(torch.optim, name)(module.parameters(), **options)
    for parameter in module.parameters():
        parameter.grad = torch.randn_like(parameter)
    return module, optimizer


def same(ours, theirs):
    """Equal to the last bit, in the same structure."""
    if isinstance(ours, torch.Tensor):
        return torch.equal(ours, theirs) and ours.dtype == theirs.dtype and ours.stride() == theirs.stride()
    if isinstance(ours, dict):
        return list(ours) == list(theirs) and all(same(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, (list, tuple)):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    return type(ours) is type(theirs) and ours == theirs


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_compiled_step_is_the_eager_step_to_the_last_bit(name, kind, monkeypatch):
    monkeypatch.setenv("CORE_STRICT", "1")
    cls, options = OPTIMIZERS[name]
    found = []
    for compiled in (False, True):
        torch.manual_seed(0)
        module, optimizer = with_gradients(cls, {**options, **KINDS[kind]})
        core.reset()
        step = core.compile(optimizer.step, backend="eager") if compiled else optimizer.step
        seen = []
        for _ in range(8):
            step()
            seen.append(values(module, optimizer))
        found.append(seen)
    for at, (theirs, ours) in enumerate(zip(*found)):
        assert same(ours, theirs), at
    stats = core.stats()
    assert stats["breaks"] == 0 and stats["skipped"] == 0, stats
    assert stats["graphs"] <= 2, stats  # the first makes the state


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_in_kernels_agrees_with_eager(name):
    cls, options = OPTIMIZERS[name]

    def build():
        module, optimizer = with_gradients(cls, options)
        return (lambda: optimizer.step()), (), lambda: (list(module.parameters()), state_of(optimizer))

    assert agrees(build, "inductor", graphs=None)["graphs"] <= 2


def test_groups_with_options_of_their_own():
    def build():
        first, second = nn.Linear(4, 3), nn.Linear(3, 2)
        groups = [
            {"params": first.parameters(), "lr": 0.1},
            {"params": second.parameters(), "weight_decay": 0.0},
        ]
        optimizer = torch.optim.AdamW(groups, lr=0.01)
        both = nn.Sequential(first, second)

        def step(x):
            both(x).sum().backward()
            optimizer.step()

        return step, (torch.randn(2, 4),), lambda: (list(both.parameters()), state_of(optimizer))

    agrees(build, graphs=2)


def test_parameters_of_two_dtypes_are_stepped_apart():
    def build():
        module = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2).double())
        optimizer = torch.optim.Adam(module.parameters(), lr=0.1, foreach=True)
        for parameter in module.parameters():
            parameter.grad = torch.randn_like(parameter)
        return (lambda: optimizer.step()), (), lambda: (list(module.parameters()), state_of(optimizer))

    agrees(build, graphs=2)


def test_parameters_without_gradient_are_left_alone():
    def build():
        module, optimizer = with_gradients("Adam", {"lr": 0.1})
        module[0].weight.grad = None
        return (lambda: optimizer.step()), (), lambda: (list(module.parameters()), state_of(optimizer))

    agrees(build, graphs=2)


@pytest.mark.parametrize("name", ["SGD", "AdamW", "NAdam"])
def test_a_learning_rate_that_changes_costs_one_more_graph(name):
    def build():
        module, optimizer = with_gradients(name, {"lr": 0.1})
        calls = []

        def observe():
            calls.append(1)
            optimizer.param_groups[0]["lr"] = 0.1 / (len(calls) + 1)
            return list(module.parameters()), state_of(optimizer)

        return (lambda: optimizer.step()), (), observe

    stats = agrees(build, graphs=None, calls=8)
    assert stats["graphs"] <= 3, stats


@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_a_learning_rate_in_a_tensor_costs_no_graph(name):
    def build():
        module, optimizer = with_gradients(name, {"lr": torch.tensor(0.1)})

        def observe():
            optimizer.param_groups[0]["lr"].mul_(0.5)
            return list(module.parameters()), state_of(optimizer)

        return (lambda: optimizer.step()), (), observe

    assert agrees(build, graphs=None, calls=6)["graphs"] <= 2


class CountingOptimizer(torch.optim.Optimizer):
    """An optimizer of the user's, whose step count is a Python number."""

    def __init__(self, parameters, lr=0.1):
        super().__init__(parameters, {"lr": lr, "beta": 0.9})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["step"], state["mean"] = 0, torch.zeros_like(parameter)
                state["step"] += 1
                state["mean"].mul_(group["beta"]).add_(parameter.grad, alpha=1 - group["beta"])
                scale = math.sqrt(1 - group["beta"] ** state["step"])
                parameter.add_(state["mean"], alpha=-group["lr"] * scale)


def test_step_counts_that_are_python_numbers_cost_no_graph_each():
    def build():
        module = nn.Linear(4, 3)
        optimizer = CountingOptimizer(module.parameters())
        for parameter in module.parameters():
            parameter.grad = torch.randn_like(parameter)
        return (lambda: optimizer.step()), (), lambda: (list(module.parameters()), state_of(optimizer))

    stats = agrees(build, graphs=None, calls=8)
    assert stats["graphs"] <= 4, stats


def test_hooks_of_steps_run_as_in_eager():
    def build():
        module, optimizer = with_gradients("SGD", {"lr": 0.1})
        log = []
        optimizer.register_step_pre_hook(lambda *_: log.append("before"))
        optimizer.register_step_post_hook(lambda *_: log.append("after"))
        return (lambda: optimizer.step()), (), lambda: (list(module.parameters()), list(log))

    agrees(build)


def test_a_closure_is_called_with_gradients_on():
    def build():
        module = nn.Linear(4, 3)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)

        def step(x):
            def closure():
                optimizer.zero_grad()
                loss = module(x).pow(2).mean()
                loss.backward()
                return loss

            with torch.no_grad():
                return optimizer.step(closure).detach(), torch.is_grad_enabled()

        return step, (torch.randn(2, 4),), lambda: list(module.parameters())

    agrees(build, graphs=2)


def test_a_step_that_reads_a_value_to_decide_breaks_the_graph():
    def build():
        module, optimizer = with_gradients("ASGD", {})
        return (lambda: optimizer.step()), (), lambda: (list(module.parameters()), state_of(optimizer))

    assert agrees(build, graphs=None, breaks=None)["breaks"] >= 1


def test_code_of_optimizers_computes_as_eager_while_user_code_knows_that_it_is_compiled():
    def build():
        module, optimizer = with_gradients("Adam", {"lr": 0.1, "capturable": True})
        return (lambda: optimizer.step()), (), lambda: list(module.parameters())

    agrees(build, graphs=None, breaks=None)  # capturable on the CPU is an error in eager: the same one
    seen = core.compile(lambda x: x + 1 if torch.compiler.is_compiling() else x, backend="eager")
    assert seen(torch.zeros(())).item() == 1
