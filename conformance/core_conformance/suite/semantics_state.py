"""Semantics of state: modules whose weights change, grad modes, random numbers, threads, copies."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import torch
from torch import nn

from ..rules import closely, exactly, require
from .base import ConformanceTests
from .in_threads import in_threads
from .values import draw, needs_dtype, needs_training, seeded


class StateSemantics(ConformanceTests):
    """What lies outside the arguments of a call."""

    abstract = True

    def _follows(self, subject: Any, generator: torch.Generator, change: Any) -> None:
        """A compiled Linear follows what `change` does to the module between two calls."""
        module = seeded(nn.Linear(6, 4), generator).eval()
        compiled = subject.compile(module)
        with torch.no_grad():
            for _ in range(3):
                x = draw(generator, 5, 6)
                closely(compiled(x), module(x), "stale-result", "the result after the change of a weight")
                change(module)

    def test_weight_given_through_data(self, subject: Any, generator: torch.Generator) -> None:
        def change(module: Any) -> None:
            module.weight.data.mul_(-2)
            module.bias.data = draw(generator, 4)

        self._follows(subject, generator, change)

    def test_weight_replaced_by_another_parameter(self, subject: Any, generator: torch.Generator) -> None:
        def change(module: Any) -> None:
            module.weight = nn.Parameter(draw(generator, 4, 6))

        self._follows(subject, generator, change)

    def test_weights_loaded_from_a_state_dict(self, subject: Any, generator: torch.Generator) -> None:
        def change(module: Any) -> None:
            module.load_state_dict({"weight": draw(generator, 4, 6), "bias": draw(generator, 4)})

        self._follows(subject, generator, change)

    def test_weights_assigned_from_a_state_dict(self, subject: Any, generator: torch.Generator) -> None:
        def change(module: Any) -> None:
            state = {"weight": nn.Parameter(draw(generator, 4, 6)), "bias": nn.Parameter(draw(generator, 4))}
            module.load_state_dict(state, assign=True)

        self._follows(subject, generator, change)

    def test_buffers_are_read_and_written(self, subject: Any, generator: torch.Generator) -> None:
        module = nn.BatchNorm1d(3)
        twin = copy.deepcopy(module)
        compiled = subject.compile(module)
        with torch.no_grad():
            for _ in range(3):
                x = draw(generator, 8, 3)
                closely(compiled(x), twin(x), "numerics")
                closely(module.running_mean, twin.running_mean, "mutation", "the running mean")
                closely(module.running_var, twin.running_var, "mutation", "the running variance")
        require(int(module.num_batches_tracked) == 3, "mutation", "the count of batches is not kept")

    def test_training_flag_is_followed(self, subject: Any, generator: torch.Generator) -> None:
        module = seeded(nn.Sequential(nn.Linear(4, 64), nn.Dropout(0.5)), generator)
        compiled = subject.compile(module)
        x = draw(generator, 3, 4)
        with torch.no_grad():
            for training in (False, True, False):
                module.train(training)
                compiled.train(training)
                plain = module[0](x)
                dropped = bool(((compiled(x) == 0) & (plain != 0)).any())
                require(dropped == training, "stale-result", f"dropout acts as if training were {not training}")

    def test_dropout_of_nothing_and_of_everything(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            drop = torch.nn.functional.dropout
            return drop(x, 0.0, True), drop(x, 1.0, True), drop(x, 0.5, False)

        compiled = subject.compile(program)
        x = draw(generator, 20)
        exactly(compiled(x), program(x), "rng")

    def test_drawn_numbers_have_their_distribution(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            return torch.rand_like(x), torch.randn_like(x), torch.bernoulli(torch.full_like(x, 0.3))

        compiled = subject.compile(program)
        uniform, gaussian, coin = compiled(torch.empty(20_000))
        require(0 <= float(uniform.min()) and float(uniform.max()) < 1, "rng", "rand leaves its range")
        for name, got, want in (
            ("the mean of rand", uniform.mean(), 0.5),
            ("the variance of rand", uniform.var(), 1 / 12),
            ("the mean of randn", gaussian.mean(), 0.0),
            ("the variance of randn", gaussian.var(), 1.0),
            ("the mean of bernoulli", coin.mean(), 0.3),
        ):
            require(abs(float(got) - want) < 0.06, "rng", f"{name} is {float(got):.3f}, not near {want:.3f}")

    def test_drawing_moves_the_generator(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            return x + torch.rand(4)

        compiled = subject.compile(program)
        torch.manual_seed(3)
        compiled(torch.zeros(4))
        before = torch.get_rng_state()
        compiled(torch.zeros(4))
        require(not torch.equal(before, torch.get_rng_state()), "rng", "a draw leaves torch's generator where it was")

    def test_program_without_random_numbers_leaves_the_generator(
        self, subject: Any, generator: torch.Generator
    ) -> None:
        before = torch.get_rng_state()
        compiled = subject.compile(lambda x: torch.tanh(x) * 2)
        compiled(draw(generator, 4))
        compiled(draw(generator, 4))
        require(torch.equal(before, torch.get_rng_state()), "rng", "torch's generator moved without a draw")

    def test_results_require_gradients_as_in_eager(self, subject: Any, generator: torch.Generator) -> None:
        needs_training(subject)

        def program(x: Any, w: Any) -> Any:
            return x * 2, x * w, (x * w).detach(), (x > 0), w + 1

        compiled = subject.compile(program)
        for flags in ((False, True), (True, False), (False, False)):
            inputs = [draw(generator, 4).requires_grad_(flag) for flag in flags]
            got = [value.requires_grad for value in compiled(*inputs)]
            want = [value.requires_grad for value in program(*inputs)]
            require(got == want, "requires_grad", f"the results require gradients {got}, eager's {want}")

    def test_no_grad_is_followed(self, subject: Any, generator: torch.Generator) -> None:
        needs_training(subject)

        def program(x: Any) -> Any:
            with torch.no_grad():
                y = x * 2
            return y, x * 3

        compiled = subject.compile(program)
        x = draw(generator, 4).requires_grad_()
        y, z = compiled(x)
        require(not y.requires_grad and z.requires_grad, "requires_grad", "no_grad inside the program is lost")
        with torch.no_grad():
            y, z = compiled(x)
            require(not z.requires_grad, "requires_grad", "no_grad around the call is lost")
        _, z = compiled(x)
        require(z.requires_grad, "requires_grad", "no_grad of an earlier call is kept")

    def test_inference_mode_is_followed(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            return torch.sin(x) * 2

        compiled = subject.compile(program)
        x = draw(generator, 4)
        with torch.inference_mode():
            inside = compiled(x)
            require(inside.is_inference(), "requires_grad", "a result of inference mode is an ordinary tensor")
        closely(inside.clone(), program(x), "numerics")
        outside = compiled(x)
        require(not outside.is_inference(), "requires_grad", "an ordinary result is a tensor of inference mode")

    def test_autocast_is_followed(self, subject: Any, generator: torch.Generator) -> None:
        needs_dtype(subject, torch.bfloat16)
        compiled = subject.compile(torch.nn.functional.linear)
        x, w = draw(generator, 4, 8), draw(generator, 3, 8)
        for on in (False, True, False):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=on):
                got, want = compiled(x, w), torch.nn.functional.linear(x, w)
            closely(got, want, "numerics", f"the result with autocast={on}", factor=2)

    def test_threads_get_their_own_results(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any, y: Any) -> Any:
            return torch.tanh(x) * y + x.sum()

        compiled = subject.compile(program)
        work = [[(draw(generator, 16), draw(generator, 16)) for _ in range(12)] for _ in range(4)]
        compiled(*work[0][0])

        def run(pairs: list[tuple[Any, Any]]) -> None:
            for x, y in pairs:
                closely(compiled(x, y), program(x, y), "threads", "the result in a thread")

        in_threads(run, work)

    def test_threads_compile_at_once(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any) -> Any:
            return torch.sin(x) + x.mean()

        compiled = subject.compile(program)
        values = [draw(generator, 4 + at) for at in range(4)]

        def run(x: Any) -> None:
            closely(compiled(x), program(x), "threads", "the result in a thread")

        in_threads(run, values)

    def test_compiled_calls_compiled(self, subject: Any, generator: torch.Generator) -> None:
        inner = subject.compile(lambda x: torch.relu(x) + 1)

        def outer(x: Any, depth: int) -> Any:
            return inner(x) * 2 if depth == 0 else compiled(inner(x), depth - 1) + 1

        compiled = subject.compile(outer, fullgraph=False)
        x = draw(generator, 6)
        for depth in (0, 2):
            want = x
            for _ in range(depth + 1):
                want = torch.relu(want) + 1
            closely(compiled(x, depth), want * 2 + depth, "numerics", "the result of a compiled function in another")

    def test_results_go_on_in_eager_code(self, subject: Any, generator: torch.Generator) -> None:
        needs_training(subject)
        first, second = subject.compile(lambda x: torch.sin(x) * 2), subject.compile(lambda x: (x * x).sum())
        x = draw(generator, 6).requires_grad_()
        twin = x.detach().clone().requires_grad_()
        second(first(x).cos() + 1).backward()
        ((torch.sin(twin) * 2).cos() + 1).square().sum().backward()
        closely(x.grad, twin.grad, "gradients")

    def test_copies_of_a_module_are_independent(self, subject: Any, generator: torch.Generator) -> None:
        module = seeded(nn.Sequential(nn.Linear(5, 5), nn.ReLU()), generator)
        compiled = subject.compile(module)
        x = draw(generator, 2, 5)
        with torch.no_grad():
            compiled(x)
            twin = copy.deepcopy(compiled)
            want = module(x)
            twin[0].weight.mul_(3)
            closely(compiled(x), want, "stale-result", "the result of the original after a change of its copy")
            closely(twin(x), copy.deepcopy(twin[1])(twin[0](x)), "stale-result", "the result of the copy")

    def test_pickled_module_gives_the_same(self, subject: Any, generator: torch.Generator) -> None:
        module = seeded(nn.Sequential(nn.Linear(5, 5), nn.Tanh()), generator)
        compiled = subject.compile(module)
        x = draw(generator, 2, 5)
        with torch.no_grad():
            want = compiled(x)
            closely(pickle.loads(pickle.dumps(compiled))(x), want, "stale-result", "the result of the pickled module")

    def test_two_backends_in_one_process(self, subject: Any, generator: torch.Generator) -> None:
        import core

        def program(x: Any) -> Any:
            return torch.exp(-x) * x, x.sum(-1)

        ours, other = subject.compile(program), core.compile(program, backend="eager")
        for shape in ((4,), (4,), (6, 2)):
            x = draw(generator, *shape)
            closely(ours(x), program(x), "numerics")
            closely(other(x), program(x), "numerics", "the result of the other backend")

    def test_what_was_compiled_is_compiled_again_after_a_reset(self, subject: Any, generator: torch.Generator) -> None:
        compiled = subject.compile(lambda x: torch.cos(x) - 1)
        for _ in range(2):
            x = draw(generator, 7)
            closely(compiled(x), torch.cos(x) - 1, "numerics")
            subject.reset()
