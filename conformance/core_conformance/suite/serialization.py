"""SerializationTests: a stored artifact is the artifact, elsewhere too, or it is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from core.plugin import StaleArtifact

from ..bare_process import run_bare
from ..recording import Asked, asked_for
from ..rules import broken, closely, require
from .base import ConformanceTests
from .values import draw

PROGRAM = """
import torch

def program(x, y):
    return torch.tanh(x) * y + 1, (x + y).sum(0)
"""


def program(x: Any, y: Any) -> Any:
    """What is stored."""
    return torch.tanh(x) * y + 1, (x + y).sum(0)


class SerializationTests(ConformanceTests):
    """For backends that declare `serializable`; others skip."""

    @staticmethod
    def _stored(subject: Any, generator: torch.Generator) -> tuple[Asked, bytes]:
        if not subject.capabilities.serializable:
            pytest.skip("the backend does not declare that artifacts can be stored")
        asked = asked_for(subject, program, draw(generator, 4, 5), draw(generator, 4, 5))[0]
        blob = subject.resolved.serialize(asked.artifact)
        require(isinstance(blob, bytes), "serialization", f"storing is declared, and serialize gave {blob!r:.80}")
        return asked, blob

    def test_stored_artifact_gives_the_same_results(self, subject: Any, generator: torch.Generator) -> None:
        asked, blob = self._stored(subject, generator)
        self._works(subject.resolved.deserialize(blob, asked.ctx), generator)

    def test_stored_artifact_lives_without_its_original(self, subject: Any, generator: torch.Generator) -> None:
        asked, blob = self._stored(subject, generator)
        asked.artifact = None
        subject.reset()
        self._works(subject.resolved.deserialize(blob, asked.ctx), generator)

    def test_stored_artifact_gives_the_same_results_in_another_process(
        self, subject: Any, generator: torch.Generator
    ) -> None:
        asked, blob = self._stored(subject, generator)
        calls = [[draw(generator, 4, 5), draw(generator, 4, 5)] for _ in range(2)]
        ctx = asked.ctx
        context = {
            "device": ctx.device,
            "mode": ctx.mode,
            "options": dict(ctx.options),
            "precision": ctx.precision,
            "deterministic": ctx.deterministic,
            "output_strides": [None if s is None else [int(n) for n in s] for s in ctx.output_strides],
            "name": ctx.name,
        }
        reply = run_bare(subject, PROGRAM, calls, blob=blob, context=context)
        text = f"another process could not use a stored artifact:\n{reply.output[-1500:]}"
        require(reply.status == 0, "serialization", text)
        for given, got in zip(calls, reply.results):
            closely(got, list(program(*given)), "serialization", "a result of another process")

    @pytest.mark.parametrize("damage", ["empty", "cut short", "other bytes", "one byte changed"])
    def test_damaged_artifact_is_refused(self, subject: Any, generator: torch.Generator, damage: str) -> None:
        asked, blob = self._stored(subject, generator)
        middle = len(blob) // 2
        damaged = {
            "empty": b"",
            "cut short": blob[:middle],
            "other bytes": b"\x00\xff" * 40,
            "one byte changed": blob[:middle] + bytes([blob[middle] ^ 0x55]) + blob[middle + 1 :],
        }[damage]
        try:
            artifact = subject.resolved.deserialize(damaged, asked.ctx)
        except StaleArtifact:
            return
        except Exception as error:  # the contract has one exception for this
            text = f"a damaged artifact ({damage}) raised {type(error).__name__}, not StaleArtifact: {error}"
            raise broken("serialization", text) from error
        require(False, "serialization", f"a damaged artifact ({damage}) was taken: {artifact!r:.80}")

    @staticmethod
    def _works(artifact: Any, generator: torch.Generator) -> None:
        for _ in range(2):
            x, y = draw(generator, 4, 5), draw(generator, 4, 5)
            results = artifact.call([x, y]) if artifact.boxed else artifact.call(x, y)
            closely(tuple(results), program(x, y), "serialization", "a result of a stored artifact")
