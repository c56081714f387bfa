"""PerfTests: call overhead and time against eager, measured and reported. A time fails nothing; a wrong result does."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from ..assertions import assert_like_eager
from ..timing import paired
from .base import ConformanceTests
from .values import draw, needs_training, seeded


class PerfTests(ConformanceTests):
    """Each program is held against eager first. What is measured stands in the report, with the word for it.

    The word is "faster" or "slower" where the median of paired ratios differs from one by more than a twentieth and by
    more than noise moves it, else "alike".
    """

    def _measure(
        self,
        subject: Any,
        generator: torch.Generator,
        program: Callable[..., Any],
        *shapes: Sequence[int],
        step: Callable[[Any], Any] = lambda result: result,
    ) -> None:
        """`program` on tensors of these shapes; `step` takes its result and belongs to what is timed."""

        def make(source: torch.Generator) -> list[Any]:
            return [draw(source, *shape).to(subject.device) for shape in shapes]

        assert_like_eager(subject, program, make, generator=generator, calls=1)
        subject.reset()
        inputs = make(generator)
        with subject.unwatched():
            compiled = subject.compile(program)
            began = time.perf_counter()
            step(compiled(*inputs))
            first_s = time.perf_counter() - began
        pair = paired(lambda: step(compiled(*inputs)), lambda: step(program(*inputs)), subject.device)
        subject.observed.measured.update(
            {
                "compiled_us": pair.first_us,
                "eager_us": pair.second_us,
                "difference_us": round(pair.first_us - pair.second_us, 2),
                "ratio": pair.ratio,
                "noise": pair.noise,
                "first_call_s": round(first_s, 3),
                "rounds": float(pair.rounds),
                "compared": pair.word,
            }
        )

    def test_overhead_of_a_call(self, subject: Any, generator: torch.Generator) -> None:
        """One operation on eight numbers: nearly all of the difference is what a call costs."""
        with torch.no_grad():
            self._measure(subject, generator, lambda x: x + 1, (8,))

    def test_overhead_with_many_inputs(self, subject: Any, generator: torch.Generator) -> None:
        with torch.no_grad():
            self._measure(subject, generator, lambda *xs: xs[0] + xs[-1], *[(8,)] * 20)

    def test_overhead_of_a_module(self, subject: Any, generator: torch.Generator) -> None:
        """Twelve layers of four numbers: what their parameters cost in a call."""
        module = seeded(nn.Sequential(*[nn.Linear(4, 4) for _ in range(12)]), generator).to(subject.device)
        with torch.no_grad():
            self._measure(subject, generator, module, (1, 4))

    def test_chain_of_pointwise_operations(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any, y: Any) -> Any:
            for _ in range(4):
                x = torch.tanh(x * y) + torch.sigmoid(x) * 0.5
            return x

        with torch.no_grad():
            self._measure(subject, generator, program, (512, 512), (512, 512))

    def test_softmax(self, subject: Any, generator: torch.Generator) -> None:
        with torch.no_grad():
            self._measure(subject, generator, lambda x: torch.softmax(x * 0.5, -1), (512, 1024))

    def test_layer_norm(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any, r: Any, w: Any, b: Any) -> Any:
            return F.layer_norm(x + r, (1024,), w, b)

        with torch.no_grad():
            self._measure(subject, generator, program, (256, 1024), (256, 1024), (1024,), (1024,))

    def test_product_with_what_follows_it(self, subject: Any, generator: torch.Generator) -> None:
        def program(x: Any, w: Any, b: Any) -> Any:
            return F.gelu(F.linear(x, w, b))

        with torch.no_grad():
            self._measure(subject, generator, program, (128, 256), (512, 256), (512,))

    def test_attention(self, subject: Any, generator: torch.Generator) -> None:
        with torch.no_grad():
            self._measure(subject, generator, F.scaled_dot_product_attention, *[(2, 4, 128, 32)] * 3)

    def test_convolutions(self, subject: Any, generator: torch.Generator) -> None:
        layers = [nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1)]
        module = seeded(nn.Sequential(*layers), generator).eval().to(subject.device)
        with torch.no_grad():
            self._measure(subject, generator, module, (4, 3, 32, 32))

    def test_encoder_layer(self, subject: Any, generator: torch.Generator) -> None:
        layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
        module = seeded(layer, generator, 0.1).train().to(subject.device)  # in training it has no path of its own
        with torch.no_grad():
            self._measure(subject, generator, module, (4, 32, 64))

    def test_training_step(self, subject: Any, generator: torch.Generator) -> None:
        """Forward and backward of a small network."""
        needs_training(subject)
        layers = [nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 64)]
        module = seeded(nn.Sequential(*layers), generator, 0.1).to(subject.device)
        self._measure(subject, generator, module, (64, 64), step=lambda result: result.square().mean().backward())
