"""Whole training steps in captured code: one graph from the batch to the new parameters, and what goes with them."""

from __future__ import annotations

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from observed import agrees

BACKENDS = ("eager", "aot_eager", "inductor")
schedulers = torch.optim.lr_scheduler


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


def seen(module, optimizer):
    states = [dict(state) for state in optimizer.state.values()]
    return list(module.parameters()), list(module.buffers()), states


def training(make, options, module=None, shape=(5, 4), **zero):
    def build():
        model = module() if module is not None else nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
        optimizer = make(model.parameters(), **options)

        def step(x):
            x = x * 2
            optimizer.zero_grad(**zero)
            loss = model(x).pow(2).mean()
            loss.backward()
            optimizer.step()
            return loss.detach() + 1

        return step, (torch.randn(*shape),), lambda: seen(model, optimizer)

    return build


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop])
@pytest.mark.parametrize("zero", [{}, {"set_to_none": False}])
def test_a_training_step_is_one_graph(make, zero, backend):
    stats = agrees(training(make, {"lr": 0.01}, **zero), backend, graphs=None, calls=5)
    assert stats["graphs"] <= 2, stats  # the first makes gradients and state


def test_a_network_with_running_statistics(backend):
    def convolutions():
        return nn.Sequential(
            nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2)
        )

    build = training(torch.optim.SGD, {"lr": 0.01, "momentum": 0.9}, convolutions, (2, 3, 8, 8))
    assert agrees(build, backend, graphs=None)["graphs"] <= 2


def test_dropout_draws_as_in_eager(backend):
    def dropping():
        return nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))

    assert agrees(training(torch.optim.SGD, {"lr": 0.1}, dropping), backend, graphs=None)["graphs"] <= 2


def test_a_classifier_with_clipped_gradients(backend):
    def build():
        model = nn.Sequential(nn.Embedding(10, 4, padding_idx=0), nn.LayerNorm(4), nn.Linear(4, 10))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

        def step(tokens):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            nn.utils.clip_grad_value_(model.parameters(), 0.5)
            optimizer.step()
            return loss.detach(), norm

        return step, (torch.randint(0, 10, (2, 3)),), lambda: seen(model, optimizer)

    assert agrees(build, backend, graphs=None)["graphs"] <= 2


def test_a_step_under_autocast():
    def build():
        model = nn.Linear(4, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = model(x).float().pow(2).mean()
            loss.backward()
            optimizer.step()

        return step, (torch.randn(2, 4),), lambda: seen(model, optimizer)

    agrees(build, "eager", graphs=2)
    agrees(build, "aot_eager", graphs=2)


def test_a_loop_over_batches_inside_is_one_graph():
    def build():
        model = nn.Linear(4, 3)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        batches = [torch.randn(2, 4) for _ in range(4)]

        def epoch():
            total = 0
            for x in batches:
                optimizer.zero_grad()
                loss = model(x).pow(2).mean()
                loss.backward()
                optimizer.step()
                total = total + loss.detach()
            return total

        return epoch, (), lambda: seen(model, optimizer)

    agrees(build, graphs=2)


def test_a_loop_over_a_data_loader_compiles_what_is_between_its_batches():
    def build():
        model = nn.Linear(4, 3)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        data = torch.utils.data.TensorDataset(torch.randn(8, 4), torch.randn(8, 3))
        loader = torch.utils.data.DataLoader(data, batch_size=2)

        def epoch():
            total = 0
            for x, y in loader:
                optimizer.zero_grad()
                loss = F.mse_loss(model(x), y)
                loss.backward()
                optimizer.step()
                total = total + loss.detach()
            return total

        return epoch, (), lambda: seen(model, optimizer)

    assert 1 <= agrees(build, graphs=None, breaks=None)["graphs"] <= 4


SCHEDULERS = {
    "steps": lambda optimizer: schedulers.StepLR(optimizer, 2),
    "cosine": lambda optimizer: schedulers.CosineAnnealingLR(optimizer, 10),
    "function": lambda optimizer: schedulers.LambdaLR(optimizer, lambda epoch: 0.9**epoch),
    "exponential": lambda optimizer: schedulers.ExponentialLR(optimizer, 0.9),
    "linear": lambda optimizer: schedulers.LinearLR(optimizer),
}


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_schedule_of_the_learning_rate(name, inside):
    def build():
        model = nn.Linear(4, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        scheduler = SCHEDULERS[name](optimizer)

        def step(x):
            optimizer.zero_grad()
            loss = model(x).pow(2).mean()
            loss.backward()
            optimizer.step()
            if inside:
                scheduler.step()
            return loss.detach()

        def observe():
            if not inside:
                scheduler.step()
            return seen(model, optimizer), scheduler.get_last_lr(), scheduler.last_epoch

        return step, (torch.randn(2, 4),), observe

    stats = agrees(build, graphs=None, calls=6)
    assert stats["graphs"] <= 4, stats


def test_a_scaled_loss_breaks_where_the_scaler_decides():
    def build():
        model = nn.Linear(4, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2)

        def step(x):
            optimizer.zero_grad()
            scaler.scale(model(x).pow(2).mean()).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()

        return step, (torch.randn(2, 4),), lambda: (seen(model, optimizer), scaler.get_scale(), scaler.state_dict())

    stats = agrees(build, graphs=None, breaks=None, calls=5)
    assert stats["breaks"] <= 2 and stats["graphs"] <= 4, stats  # one for each of the two captures


def test_a_scaler_that_is_off_is_no_reason_to_break():
    def build():
        model = nn.Linear(4, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", enabled=False)

        def step(x):
            optimizer.zero_grad()
            scaler.scale(model(x).pow(2).mean()).backward()
            scaler.step(optimizer)
            scaler.update()

        return step, (torch.randn(2, 4),), lambda: seen(model, optimizer)

    agrees(build, graphs=2)


def test_a_step_that_skips_on_infinite_gradients_skips_as_in_eager():
    def build():
        model = nn.Linear(4, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)

        def step(x):
            optimizer.zero_grad()
            scaler.scale(model(x * 1e4).pow(2).mean()).backward()
            scaler.step(optimizer)
            scaler.update()

        return step, (torch.randn(2, 4),), lambda: (seen(model, optimizer), scaler.get_scale())

    agrees(build, graphs=None, breaks=None)


# -- inference mode ----------------------------------------------------------------------------------------------------


def test_inference_mode_around_part_of_a_function(backend):
    def build():
        model = nn.Linear(3, 3)

        def fn(x):
            with torch.inference_mode():
                y = model(x) * 2
                state = torch.is_inference_mode_enabled(), y.is_inference(), torch.is_grad_enabled()
            return y, state, torch.is_inference_mode_enabled(), torch.is_grad_enabled()

        return fn, (torch.randn(2, 3),)

    agrees(build, backend)


def test_results_of_inference_mode_beside_results_with_gradients(backend):
    def build():
        model = nn.Linear(3, 3)

        def fn(x):
            with torch.inference_mode():
                y = model(x) * 2
            return y, model(x), x + 1

        return fn, (torch.randn(2, 3),), lambda: list(model.parameters())

    agrees(build, backend)


def test_a_function_decorated_with_inference_mode(backend):
    def build():
        model = nn.Linear(3, 3)

        @torch.inference_mode()
        def fn(x):
            x.add_(1)
            out = model(x)
            return out, out[0], x

        return fn, (torch.randn(2, 3),)

    agrees(build, backend)


def test_inference_mode_with_a_break_inside():
    def build():
        model = nn.Linear(3, 3)

        def fn(x):
            with torch.inference_mode():
                y = model(x) * 2
                y.tolist()
                z = y + 1
            return z, torch.is_inference_mode_enabled(), x + 1

        return fn, (torch.randn(2, 3),)

    assert agrees(build, graphs=None, breaks=None)["breaks"] <= 2


def test_a_result_of_inference_mode_takes_no_part_in_gradients():
    def build():
        model = nn.Linear(3, 3)

        def fn(x):
            with torch.inference_mode():
                y = x * 2
            return model(y)  # the weights' gradients would need y

        return fn, (torch.randn(2, 3),)

    agrees(build, graphs=None, breaks=None)
