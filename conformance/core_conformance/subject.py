"""The subject: the backend under test, as the tests see it."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

import core
from core.backends.manifest import Manifest
from core.backends.registry import Registry, resolve_backend
from core.backends.resolved import ResolvedBackend
from core.errors import BackendError
from core.events import ArtifactBuilt, Event, FellBack, subscribe
from core.plugin import Artifact, Capabilities

from .observer import Watch, Watched
from .torch_compat import tree_leaves

FALLBACK = ("eager",)


@dataclass
class Observed:
    """What one test saw of the backend: it goes into the report."""

    error_ratio: float = 0.0
    artifacts: int = 0
    kernels: int = 0
    provenance: Counter[str] = field(default_factory=Counter)
    """How many nodes the backend says it runs natively, through a library, or by a fallback."""
    fallbacks: list[str] = field(default_factory=list)
    compilers: set[str] = field(default_factory=set)
    broken: bool = False
    """The program was compiled as several graphs: one can't hold it."""
    measured: dict[str, float | str] = field(default_factory=dict)
    """Times that the test took, for the report; no test passes or fails by them."""

    def note_error(self, ratio: float) -> None:
        """Keep the largest ratio of the backend's error to eager's."""
        self.error_ratio = max(self.error_ratio, ratio)


class Subject:
    """A backend under test. `spec` is what `backend=` takes; `options` go with every compile."""

    def __init__(self, spec: Any, device: str = "cpu", options: Mapping[str, Any] | None = None) -> None:
        self.spec = spec
        self.device = device
        self.options: dict[str, Any] = dict(options or {})
        self.fallback: tuple[str, ...] = FALLBACK
        """Who calculates what the backend does not support. Nobody in tests of single operators (see `alone`)."""
        self.excused = False
        """The test is declared unsupported, and runs to see whether the fallback is right."""
        self.precision = ""
        """The lower precision that the run is labelled with, a key of numerics.PRECISIONS; empty for none."""
        self.observed = Observed()
        self._resolved: ResolvedBackend | None = None
        self._watch: Watch | None = None

    @property
    def resolved(self) -> ResolvedBackend:
        """The backend with its hooks bound. Raises the errors of resolution."""
        if self._resolved is None:
            self._resolved = resolve_backend(self.spec)
        return self._resolved

    @property
    def name(self) -> str:
        """The backend's name."""
        return self.resolved.name

    @property
    def capabilities(self) -> Capabilities:
        """What the backend declares."""
        return self.resolved.capabilities

    @property
    def manifest(self) -> Manifest | None:
        """Its backend.toml; None for an object, and for a plugin without one."""
        if not isinstance(self.spec, str):
            return None
        try:
            return Registry().find(self.spec).manifest
        except BackendError:
            return None

    def compile(
        self,
        program: Any,
        *,
        dynamic: bool | None = None,
        fullgraph: bool = True,
        options: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> Any:
        """`core.compile` with this backend; `options` are added to the subject's own."""
        chosen = {**self.options, **(options or {})}
        # A name is resolved anew, to the backend that is watched; an object would give one that is not.
        backend = self.spec if isinstance(self.spec, str) else self.resolved
        return core.compile(
            program,
            backend=backend,
            dynamic=dynamic,
            fullgraph=fullgraph,
            options=chosen or None,
            **{"fallback": self.fallback, **more},
        )

    def alone(self) -> None:
        """From now on nobody calculates in the backend's place, unless the test is excused."""
        if not self.excused:
            self.fallback = ()

    def reset(self) -> None:
        """Drop everything compiled."""
        core.reset()

    def supports(self, dtype: torch.dtype) -> bool:
        """Whether the backend declares this dtype; one that declares none does all."""
        names = self.capabilities.dtypes
        return not names or str(dtype).removeprefix("torch.") in names

    def has(self, mode: str) -> bool:
        """Whether the backend declares "inference" or "training"."""
        return mode in self.capabilities.modes

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Keep what the backend says of the artifacts that it makes, and let observers see what those run."""
        unsubscribe = subscribe(self._hear)
        try:
            try:
                self._watch = Watch(self.resolved)
            except BackendError:
                yield  # a test that needs the backend gets this error
                return
            with self._watch.standing():
                yield
        finally:
            self._watch = None
            unsubscribe()

    @contextlib.contextmanager
    def unwatched(self) -> Iterator[None]:
        """What is compiled in the block runs without an observer around it, as it does for users: for taking times."""
        if self._watch is not None:
            self._watch.resting = True
        try:
            yield
        finally:
            if self._watch is not None:
                self._watch.resting = False

    @property
    def watched(self) -> list[Watched]:
        """The artifacts that the backend has made for this subject, with their graphs."""
        return self._watch.made if self._watch is not None else []

    def _hear(self, event: Event) -> None:
        if isinstance(event, ArtifactBuilt) and isinstance(event.artifact, Artifact):
            self.observed.artifacts += 1
            self.observed.kernels += event.kernels
            own = event.backend == self.name
            self.observed.provenance.update(kind if own else "fallback" for kind in event.artifact.provenance.values())
        elif isinstance(event, FellBack):
            self.observed.fallbacks.append(f"{event.stage}: {event.reason}")


def tensors_of(value: Any) -> list[torch.Tensor]:
    """The tensors of a nested value, in order."""
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]
