"""Training as programs do it outside of what they compile: losses, gradients and states of some steps are eager's."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn.utils.parametrizations import orthogonal, spectral_norm, weight_norm

import core

LOOPS = {}


def loop(graphs, breaks=0):
    def register(function):
        LOOPS[function.__name__.replace("_", " ")] = (function, graphs, breaks)
        return function

    return register


def tensors(value):
    if isinstance(value, torch.Tensor):
        return [value.detach().clone()]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in tensors(item)]
    return []


def net(inputs=6, outputs=3):
    return nn.Sequential(nn.Linear(inputs, 8), nn.Tanh(), nn.Linear(8, outputs))


def batches(count=5):
    return [(torch.randn(4, 6), torch.randn(4, 3)) for _ in range(count)]


def state(module, optimizer=None):
    gradients = [parameter.grad for parameter in module.parameters() if parameter.grad is not None]
    kept = list(optimizer.state.values()) if optimizer is not None else []
    return [module.state_dict(), gradients, kept]


def fit(module, call, optimizer, loss=F.mse_loss, data=None):
    """Losses of five plain steps, and what they leave behind."""
    losses = []
    for x, y in data or batches():
        found = loss(call(x), y)
        optimizer.zero_grad()
        found.backward()
        optimizer.step()
        losses.append(found)
    return tensors([losses, state(module, optimizer)])


@loop(1)
def steps_of_optimizers_in_hooks(compiled):
    module = net()
    call = compiled(module)
    optimizers = {p: torch.optim.SGD([p], 0.1, momentum=0.9) for p in module.parameters()}

    def step(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in module.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    losses = []
    for x, y in batches():
        losses.append(F.mse_loss(call(x), y))
        losses[-1].backward()
    return [losses, state(module)]


@loop(3)
def averaged_weights(compiled):
    from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn

    module = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    call, optimizer = compiled(module), torch.optim.SGD(module.parameters(), 0.1)
    average, moving = AveragedModel(module), AveragedModel(module, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    schedule, data = SWALR(optimizer, swa_lr=0.05), batches()
    for x, y in data:
        optimizer.zero_grad()
        F.mse_loss(call(x), y).backward()
        optimizer.step()
        average.update_parameters(module)
        moving.update_parameters(module)
        schedule.step()
    update_bn([x for x, _ in data], average)
    return [compiled(average)(data[0][0]), compiled(moving)(data[0][0]), state(module), state(average)]


@loop(1)
def lbfgs_with_a_closure(compiled):
    module, ((x, y),) = net(), batches(1)
    call = compiled(module)
    optimizer = torch.optim.LBFGS(module.parameters(), lr=0.5, max_iter=4, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = F.mse_loss(call(x), y)
        loss.backward()
        return loss

    return [[optimizer.step(closure) for _ in range(3)], state(module)]


@loop(3)
def a_generator_and_a_discriminator(compiled):
    made, judge = net(2, 3), net(3, 1)
    generate, judged = compiled(made), compiled(judge)
    of_made, of_judge = (torch.optim.Adam(module.parameters(), 1e-2) for module in (made, judge))
    right, wrong, losses = torch.ones(4, 1), torch.zeros(4, 1), []
    loss = F.binary_cross_entropy_with_logits
    for _, y in batches():
        fake = generate(torch.randn(4, 2))
        of_judge.zero_grad()
        losses.append(loss(judged(y), right) + loss(judged(fake.detach()), wrong))
        losses[-1].backward()
        of_judge.step()
        of_made.zero_grad()
        losses.append(loss(judged(fake), right))
        losses[-1].backward()
        of_made.step()
    return [losses, state(made, of_made), state(judge, of_judge)]


@loop(1)
def both_losses_of_one_graph_with_a_kept_one(compiled):
    made, judge, losses = net(2, 3), net(3, 1), []

    @compiled
    def both(noise, y):
        score = judge(made(noise))
        return score.mean() - judge(y).mean(), -score.mean()

    for _, y in batches():
        first, second = both(torch.randn(4, 2), y)
        judge.zero_grad()
        made.zero_grad()
        first.backward(retain_graph=True)
        kept = [parameter.grad.clone() for parameter in judge.parameters()]
        made.zero_grad()
        second.backward()
        with torch.no_grad():
            for parameter, gradient in zip(judge.parameters(), kept):
                parameter -= 0.1 * gradient
            for parameter in made.parameters():
                parameter -= 0.1 * parameter.grad
        losses += [first, second]
    return [losses, state(made), state(judge)]


@loop(2)
def a_penalty_on_gradients(compiled):
    module, losses = net(3, 1), []
    call, optimizer = compiled(module), torch.optim.Adam(module.parameters(), 1e-2)
    for _, y in batches():
        fake = torch.randn(4, 3)
        between = (y * 0.5 + fake * 0.5).requires_grad_()
        (gradient,) = torch.autograd.grad(call(between).sum(), between, create_graph=True)
        loss = call(fake).mean() - call(y).mean() + (gradient.norm(2, dim=1) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss)
    return [losses, state(module, optimizer)]


@loop(1)
def products_with_the_hessian(compiled):
    module, found = net(), []
    call, parameters = compiled(module), list(module.parameters())
    directions = [torch.randn_like(parameter) for parameter in parameters]
    for x, y in batches(3):
        gradients = torch.autograd.grad(F.mse_loss(call(x), y), parameters, create_graph=True)
        along = sum((gradient * direction).sum() for gradient, direction in zip(gradients, directions))
        found.append(torch.autograd.grad(along, parameters))
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients):
                parameter -= 0.1 * gradient
    return found


@loop(2)
def meta_learning(compiled):
    module, losses = net(), []
    optimizer = torch.optim.Adam(module.parameters(), 1e-2)
    call = compiled(lambda weights, x: functional_call(module, weights, (x,)))
    for x, y in batches(3):
        weights = dict(module.named_parameters())
        for _ in range(2):
            loss = F.mse_loss(call(weights, x[:2]), y[:2])
            gradients = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
            weights = {name: w - 0.1 * g for (name, w), g in zip(weights.items(), gradients)}
        optimizer.zero_grad()
        losses.append(F.mse_loss(call(weights, x[2:]), y[2:]))
        losses[-1].backward()
        optimizer.step()
    return [losses, state(module, optimizer)]


@loop(1)
def actions_of_a_policy(compiled):
    module, found = net(), []
    call, optimizer = compiled(module), torch.optim.Adam(module.parameters(), 1e-2)
    for x, y in batches():
        chosen = torch.distributions.Categorical(logits=call(x))
        action = chosen.sample()
        loss = -(chosen.log_prob(action) * y[:, 0]).mean() - 0.01 * chosen.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found += [loss, action]
    return [found, state(module, optimizer)]


@loop(1)
def a_recurrent_net_whose_state_is_detached(compiled):
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.cells, self.out = nn.LSTM(6, 8, batch_first=True), nn.Linear(8, 3)

        def forward(self, x, hidden):
            y, hidden = self.cells(x, hidden)
            return self.out(y), hidden

    module, losses = Recurrent(), []
    call, optimizer = compiled(module), torch.optim.SGD(module.parameters(), 0.1)
    hidden = torch.zeros(1, 4, 8), torch.zeros(1, 4, 8)
    for _ in range(5):
        y, hidden = call(torch.randn(4, 3, 6), tuple(each.detach() for each in hidden))
        losses.append(y.square().mean())
        optimizer.zero_grad()
        losses[-1].backward()
        optimizer.step()
    return [losses, hidden, state(module)]


@loop(2)
def a_history_over_several_calls(compiled):
    module, losses, hidden = nn.GRUCell(6, 8), [], torch.zeros(4, 8)
    call = compiled(module)
    for step in range(6):
        hidden = call(torch.randn(4, 6), hidden)
        losses.append(hidden.square().mean())
        if step % 3 == 2:
            losses[-1].backward()
            hidden = hidden.detach()
    return [losses, state(module)]


@loop(1)
def tied_weights(compiled):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.out = nn.Embedding(10, 8), nn.Linear(8, 10, bias=False)
            self.out.weight = self.words.weight

        def forward(self, x):
            return self.out(self.words(x).tanh())

    module = Tied()
    data = [(torch.randint(0, 10, (4, 5)), torch.randint(0, 10, (20,))) for _ in range(5)]
    optimizer = torch.optim.Adam(module.parameters(), 1e-2)
    return fit(module, compiled(module), optimizer, lambda y, wanted: F.cross_entropy(y.flatten(0, 1), wanted), data)


@loop(2)
def parametrized_weights(compiled):
    layers = spectral_norm(nn.Linear(6, 8)), weight_norm(nn.Linear(8, 6)), orthogonal(nn.Linear(6, 6))
    module = nn.Sequential(*layers, nn.Linear(6, 3))
    call = compiled(module)
    found = fit(module, call, torch.optim.SGD(module.parameters(), 0.1))
    return [found, call.eval()(torch.ones(4, 6))]


@loop(4)
def parts_that_are_frozen_in_turn(compiled):
    module, found = net(), []
    call = compiled(module)
    for step, (x, y) in enumerate(batches(6)):
        module[0].requires_grad_(step % 2 == 0)
        module[2].weight.requires_grad_(step % 3 != 0)
        module.zero_grad()
        found.append(F.mse_loss(call(x), y))
        found[-1].backward()
        found += tensors([parameter.grad for parameter in module.parameters()])
    return found


@loop(1)
def layers_that_learn_their_sizes(compiled):
    module = nn.Sequential(nn.LazyLinear(8), nn.LazyBatchNorm1d(), nn.ReLU(), nn.LazyLinear(3))
    call = compiled(module)
    call(torch.randn(4, 6))
    return fit(module, call, torch.optim.SGD(module.parameters(), 0.1))


@loop(1)
def gradients_of_each_example(compiled):
    module, found = net(), []

    def loss(weights, x, y):
        return F.mse_loss(functional_call(module, weights, (x[None],)), y[None])

    each = compiled(vmap(grad(loss), in_dims=(None, 0, 0)))
    for x, y in batches(3):
        gradients = each({name: p.detach() for name, p in module.named_parameters()}, x, y)
        found.append(gradients)
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                parameter -= 0.1 * gradients[name].mean(0)
    return found


@loop(1)
def a_learned_rate_of_learning(compiled):
    rate, found = nn.Parameter(torch.tensor(0.1)), []

    @compiled
    def inner(weight, x, y, rate):
        (gradient,) = torch.autograd.grad(F.mse_loss(x @ weight, y), weight, create_graph=True)
        return weight - rate * gradient

    for x, y in batches(3):
        weight = torch.ones(6, 3, requires_grad=True)
        for _ in range(3):
            weight = inner(weight, x, y, rate)
        rate.grad = None
        found.append(F.mse_loss(x @ weight, y))
        found[-1].backward()
        found.append(rate.grad.clone())
    return found


@loop(3)
def a_fixed_point_with_gradients_in_a_hook(compiled):
    module, found = nn.Linear(6, 6), []
    call = compiled(lambda z, x: torch.tanh(module(z) * 0.3 + x))
    for x, _ in batches(3):
        with torch.no_grad():
            z = torch.zeros_like(x)
            for _ in range(10):
                z = call(z, x)
        z = call(z, x)
        start = z.detach().clone().requires_grad_()
        once = call(start, x)

        def solved(gradient, start=start, once=once):
            total = gradient
            for _ in range(10):
                total = torch.autograd.grad(once, start, total, retain_graph=True)[0] + gradient
            return total

        z.register_hook(solved)
        module.zero_grad()
        found.append(z.square().mean())
        found[-1].backward()
        found.append(module.weight.grad.clone())
    return found


@loop(1)
def gradients_of_each_of_several_losses(compiled):
    module, found = net(), []

    @compiled
    def losses(x, y):
        p = module(x)
        return (p - y).square().mean(), (p - y).abs().mean(), p.logsumexp(-1).mean()

    for x, y in batches(3):
        parts = [torch.autograd.grad(each, list(module.parameters()), retain_graph=True) for each in losses(x, y)]
        found.append(parts)
        with torch.no_grad():
            for parameter, *gradients in zip(module.parameters(), *parts):
                parameter -= 0.1 * sum(gradients)
    return found


@pytest.mark.parametrize("backend", ("eager", "aot_eager"))
@pytest.mark.parametrize("name", LOOPS)
def test_a_loop(name, backend):
    function, graphs, breaks = LOOPS[name]
    torch.manual_seed(0)
    expected = tensors(function(lambda target: target))
    core.reset()
    torch.manual_seed(0)
    found = tensors(function(functools.partial(core.compile, backend=backend)))
    torch.testing.assert_close(found, expected, rtol=2e-4, atol=2e-5)
    assert (core.stats()["graphs"], core.stats()["breaks"]) == (graphs, breaks)
