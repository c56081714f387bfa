"""ModuleTests: small models, each of one structure, in inference and with gradients of every parameter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ..assertions import assert_like_eager
from . import modules_small as small
from .base import ConformanceTests
from .values import Make, draw, indices, needs_dtype, needs_training, normal, seeded


class ModuleTests(ConformanceTests):
    """Modules keep their state; what is checked is results, buffers after the call, and gradients."""

    def _check(self, subject: Any, generator: torch.Generator, module: nn.Module, make: Make, **more: Any) -> None:
        assert_like_eager(subject, seeded(module, generator), make, generator=generator, **more)

    def test_perceptron(self, subject: Any, generator: torch.Generator) -> None:
        self._check(subject, generator, small.Perceptron(), normal((5, 8)))

    def test_perceptron_with_gradients(self, subject: Any, generator: torch.Generator) -> None:
        needs_training(subject)
        self._check(subject, generator, small.Perceptron(), normal((5, 8)), grad=True)

    def test_residual_convolutions_in_evaluation(self, subject: Any, generator: torch.Generator) -> None:
        with torch.no_grad():
            self._check(subject, generator, small.ResidualConvolutions().eval(), normal((2, 3, 8, 8)))

    def test_residual_convolutions_in_training(self, subject: Any, generator: torch.Generator) -> None:
        needs_training(subject)
        self._check(subject, generator, small.ResidualConvolutions(), normal((3, 3, 8, 8)), grad=True)

    def test_encoder_layer(self, subject: Any, generator: torch.Generator) -> None:
        with torch.no_grad():
            self._check(subject, generator, small.EncoderLayer(), normal((2, 5, 16)))

    def test_encoder_layer_with_gradients(self, subject: Any, generator: torch.Generator) -> None:
        needs_training(subject)
        self._check(subject, generator, small.EncoderLayer(), normal((2, 5, 16)), grad=True)

    def test_encoder_layer_of_torch(self, subject: Any, generator: torch.Generator) -> None:
        layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
        self._check(subject, generator, layer.train(), normal((2, 5, 16)), check_layout=False)

    def test_decoder_with_a_cache_that_grows(self, subject: Any, generator: torch.Generator) -> None:
        needs_dtype(subject, torch.int64)
        module = seeded(small.DecoderWithCache(), generator).eval()
        compiled = subject.compile(module)
        cache = ours = (torch.zeros(2, 4, 0, 4), torch.zeros(2, 4, 0, 4))
        from ..rules import closely

        with torch.no_grad():
            for steps in (3, 1, 1, 1, 2):
                tokens = indices(generator, 20, 2, steps)
                want, cache = module(tokens, *cache)
                got, ours = compiled(tokens, *ours)
                closely(got, want, "numerics", f"the scores with a cache of {cache[0].shape[2]}", factor=4)
                closely(ours, cache, "numerics", "the cache", factor=4)

    def test_long_short_term_memory(self, subject: Any, generator: torch.Generator) -> None:
        self._check(subject, generator, small.Recurrent(nn.LSTMCell), normal((2, 4, 6)))

    def test_gated_recurrence(self, subject: Any, generator: torch.Generator) -> None:
        self._check(subject, generator, small.Recurrent(nn.GRUCell), normal((2, 4, 6)))

    def test_gated_recurrence_with_gradients(self, subject: Any, generator: torch.Generator) -> None:
        needs_training(subject)
        self._check(subject, generator, small.Recurrent(nn.GRUCell), normal((2, 4, 6)), grad=True)

    def test_pooled_embeddings(self, subject: Any, generator: torch.Generator) -> None:
        needs_dtype(subject, torch.int64)
        self._check(subject, generator, small.PooledEmbeddings(), _tokens(30))

    def test_pooled_embeddings_with_gradients(self, subject: Any, generator: torch.Generator) -> None:
        needs_dtype(subject, torch.int64)
        needs_training(subject)
        self._check(subject, generator, small.PooledEmbeddings(), _tokens(30), grad=True)

    def test_down_and_up(self, subject: Any, generator: torch.Generator) -> None:
        with torch.no_grad():
            self._check(subject, generator, small.DownAndUp(), normal((1, 3, 8, 8)))

    def test_down_and_up_in_channels_last(self, subject: Any, generator: torch.Generator) -> None:
        def make(numbers: torch.Generator) -> list[Any]:
            return [draw(numbers, 2, 3, 8, 8).to(memory_format=torch.channels_last)]

        with torch.no_grad():
            self._check(subject, generator, small.DownAndUp().to(memory_format=torch.channels_last), make)

    def test_mixture_of_experts(self, subject: Any, generator: torch.Generator) -> None:
        self._check(subject, generator, small.MixtureOfExperts(), normal((6, 8)))

    def test_two_inputs_with_shared_weights(self, subject: Any, generator: torch.Generator) -> None:
        needs_training(subject)
        self._check(subject, generator, small.TwoInputsSharedWeights(), normal((4, 8), (5, 8)), grad=True)

    def test_module_that_counts_its_calls(self, subject: Any, generator: torch.Generator) -> None:
        needs_dtype(subject, torch.int64)
        self._check(subject, generator, small.CountsItsCalls(), normal((6, 4)))

    def test_module_in_sixteen_bits(self, subject: Any, generator: torch.Generator) -> None:
        needs_dtype(subject, torch.bfloat16)
        with torch.no_grad():
            self._check(subject, generator, small.Perceptron(), normal((5, 8)), dtype=torch.bfloat16)

    def test_module_in_double_precision(self, subject: Any, generator: torch.Generator) -> None:
        needs_dtype(subject, torch.float64)
        with torch.no_grad():
            self._check(subject, generator, small.EncoderLayer(), normal((2, 5, 16)), dtype=torch.float64)


def _tokens(words: int) -> Callable[[torch.Generator], list[Any]]:
    def make(generator: torch.Generator) -> list[Any]:
        return [indices(generator, words, 3, 7), draw(generator, 3, 7, dtype=torch.bool)]

    return make
