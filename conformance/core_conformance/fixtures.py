"""What the fixtures of the plugin make: generators and subjects."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch

import core

from .subject import Subject


def generator_of(seed: int, test: str) -> torch.Generator:
    """A generator whose numbers follow from the run's seed and the test's id alone."""
    digest = hashlib.sha256(f"{seed}:{test}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)


@contextlib.contextmanager
def subject_of(spec: Any, device: str, options: Mapping[str, Any] | None = None) -> Iterator[Subject]:
    """A subject for one test: nothing compiled before it, torch's own generator seeded, nothing left behind.

    Artifacts that core has stored are not used: they would stand in for what the backend does now.
    """
    subject = Subject(spec, device, options)
    subject.reset()
    torch.manual_seed(0)
    with core.config.patch(store_artifacts=False), subject.listening():
        yield subject
    subject.reset()
