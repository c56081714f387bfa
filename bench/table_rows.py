"""What each row of `make models` runs: a callable to compile, and a run of it that gives tensors to compare.

A row has a name and a mode: an architecture with `infer`, `train` or `generate` (greedy decoding with a key-value
cache), an optimizer with `step`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from .architectures import ARCHITECTURES, Architecture
from .joined_architectures import JOINED
from .sense_architectures import SERIES, SOUNDS, VISION
from .text_architectures import DECODERS, ENCODERS, TRANSLATORS

MODES = ("infer", "train", "generate", "step")
GENERATORS = ("gpt2", "llama", "t5")
NEW_TOKENS = 12
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=1e-2),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=1e-2),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, lr=1e-2),
}
MORE = {**ENCODERS, **DECODERS, **TRANSLATORS, **VISION, **SOUNDS, **SERIES, **JOINED}
SETS: dict[str, tuple[str, ...]] = {"main": (*ARCHITECTURES, *OPTIMIZERS), "more": tuple(MORE)}


@dataclass
class Row:
    """`run(compiled)` calls `target`, or what was compiled from it, and gives tensors."""

    target: Any
    run: Callable[[Any], list[torch.Tensor]]


def modes_of(name: str) -> tuple[str, ...]:
    """The modes of a row's name."""
    if name in OPTIMIZERS:
        return ("step",)
    return MODES[:3] if name in GENERATORS else MODES[:2]


def _subject(name: str) -> Architecture:
    torch.manual_seed(0)
    return (ARCHITECTURES.get(name) or MORE[name])()


def row(name: str, mode: str) -> Row:
    """The row with the same weights and inputs each time."""
    if mode == "step":
        return _optimizer(name)
    subject = _subject(name)
    subject.model.train(mode == "train")
    if mode == "generate":
        return _generation(subject.model, subject.inputs["input_ids"])
    return Row(subject.model, subject.train if mode == "train" else subject.infer)


def _generation(model: Any, prompt: torch.Tensor) -> Row:
    """generate() over a compiled forward; the end of a text is never drawn, so that all rows are as long."""
    settings: dict[str, Any] = {"do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    if model.config.is_encoder_decoder:
        settings["decoder_start_token_id"] = 0

    def run(forward: Any) -> list[torch.Tensor]:
        model.forward = forward
        return [model.generate(prompt, max_new_tokens=NEW_TOKENS, **settings)]

    return Row(model.forward, run)


def _optimizer(name: str) -> Row:
    """Three steps of an optimizer after gradients of a network that stays uncompiled."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.LayerNorm(32), nn.Linear(32, 4))
    x = torch.randn(8, 16)
    optimizer = OPTIMIZERS[name](model.parameters())

    def run(step: Any) -> list[torch.Tensor]:
        for _ in range(3):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            step()
        return [parameter.detach() for parameter in model.parameters()]

    return Row(optimizer.step, run)
