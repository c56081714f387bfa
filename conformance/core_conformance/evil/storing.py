"""Cheats with stored artifacts."""

from __future__ import annotations

import itertools
import pickle
from typing import Any, ClassVar

import torch

from core.plugin import Artifact, Capabilities, CompileContext

from .interpreter import Interpreted

_SERIALIZABLE = Capabilities(graph_level="aten-functional", serializable=True, deterministic="on-request")


class StoresAddresses(Interpreted):
    """Writes down where an artifact stands in this process instead of the artifact."""

    name = "evil-stores-addresses"
    capabilities = _SERIALIZABLE
    _kept: ClassVar[dict[int, Artifact]] = {}
    _numbers: ClassVar[Any] = itertools.count()

    def serialize(self, artifact: Artifact) -> bytes | None:
        number = next(self._numbers)
        self._kept[number] = artifact
        return str(number).encode()

    def deserialize(self, blob: bytes, ctx: CompileContext) -> Artifact:
        return self._kept[int(blob)]


class AcceptsCorruptBlobs(Interpreted):
    """Takes whatever bytes it is given for its last artifact."""

    name = "evil-accepts-corrupt-blobs"
    capabilities = _SERIALIZABLE

    def __init__(self) -> None:
        self._last: Artifact | None = None

    def serialize(self, artifact: Artifact) -> bytes | None:
        self._last = artifact
        return pickle.dumps({"version": self.version})

    def deserialize(self, blob: bytes, ctx: CompileContext) -> Artifact:
        if self._last is None:
            return Artifact(call=lambda *inputs: tuple(torch.zeros_like(value) for value in inputs[:1]))
        return self._last


class ClaimsToStore(Interpreted):
    """Declares that artifacts can be stored, and stores none."""

    name = "evil-claims-to-store"
    capabilities = _SERIALIZABLE
