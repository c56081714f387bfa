"""Lineup: the backends of one call of compile() in order of claim, and what takes the rest.

Enters: CompileOptions. Leaves: the backends that fit a graph, and the options each of them gets. `backend=["a", "b"]`:
a takes what it supports, b what is left; then the fallback list, each entry looked up when a node gets that far.
State shared between threads: `_rest`, which two threads may compute twice with equal results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..errors import BackendError, BackendIncompatible, BackendNotInstalled, BackendUnavailable, InvalidOption
from ..events import FellBack, emit
from ..graph.captured import CapturedGraph
from ..options import CompileOptions
from ..plugin import Backend, Unsupported
from .artifact import first_line, graph_device
from .debugging import AotEagerBackend
from .precision import require_precision
from .registry import resolve_backend
from .resolved import ResolvedBackend

_PASSED_OVER = (BackendNotInstalled, BackendIncompatible, BackendUnavailable)


class Lineup:
    """claimants: the backends that the user asked for; options: of the whole call."""

    def __init__(self, claimants: Sequence[ResolvedBackend], options: CompileOptions) -> None:
        self.claimants = tuple(claimants)
        self.options = options
        self.claimants = tuple(each.for_options(self.options_of(each).backend_options) for each in self.claimants)
        self._rest: tuple[ResolvedBackend, ...] | None = None

    @property
    def first(self) -> ResolvedBackend:
        """The backend with the first claim."""
        return self.claimants[0]

    @property
    def in_order(self) -> bool:
        """True when a graph may run as captured, so that its writes come between its other operations."""
        return any(
            each.capabilities.graph_level == "torch" or hasattr(each, "compile_captured") for each in self.claimants
        )

    # -- options -----------------------------------------------------------------------------------------------------

    def check_options(self) -> None:
        """Raise InvalidOption for what no claimant takes."""
        for resolved in self.claimants:
            own = self.options_of(resolved)
            resolved.validate_options(resolved.with_mode(own.backend_options, own.mode))
            if own.isolate is not None:
                from .isolation import require_isolation

                require_isolation(resolved)

    def options_of(self, resolved: ResolvedBackend) -> CompileOptions:
        """The options of one backend: a table under its name is its own, the rest belongs to the first.

        Backends of the fallback have their defaults. `mode` goes to those that know modes.
        """
        if len(self.claimants) == 1 and resolved is self.first:
            return self.options
        given = self.options.backend_options
        names = {claimant.name for claimant in self.claimants} if len(self.claimants) > 1 else set()
        tables = {name: value for name, value in given.items() if name in names and isinstance(value, Mapping)}
        own: dict[str, Any] = {}
        if resolved in self.claimants:
            if resolved is self.first:
                own.update((name, value) for name, value in given.items() if name not in tables)
            own.update(tables.get(resolved.name, {}))
        first = bool(self.claimants) and resolved is self.first
        mode = self.options.mode if first or resolved.knows_mode() else None
        return replace(self.options, backend_options=own, mode=mode)

    # -- who takes a graph ---------------------------------------------------------------------------------------------

    def fit(self, captured: CapturedGraph) -> list[ResolvedBackend]:
        """The claimants that can work on a graph: its device, its mode, the precision asked for.

        One that can't is passed over with an event where another claimant or, under on_failure="fallback", the fallback
        takes its place. Raises BackendUnavailable or PrecisionUnavailable.
        """
        device = graph_device(captured).partition(":")[0]
        able, refusals = [], []
        for resolved in self.claimants:
            try:
                resolved.require_device(device)
                resolved.require_mode(training=captured.needs_grad)
                require_precision(resolved, self.options.precision)
                able.append(resolved)
            except BackendUnavailable as refusal:
                refusals.append(refusal)
        if refusals and not able and not self.may_fall_back:
            raise refusals[0]
        for passed in refusals:
            emit(FellBack("backend", passed.what, first_line(captured)))
        return able

    @property
    def may_fall_back(self) -> bool:
        """Whether a backend that fails is replaced."""
        options = self.options
        return options.on_failure == "fallback" and bool(options.fallback) and not options.fullgraph_backend

    def require_replacement(self, failed: BackendError, others: Sequence[ResolvedBackend], captured: Any) -> None:
        """Say that a backend failed on a graph as a whole, or raise the failure where nobody may take its place."""
        handed_on = isinstance(failed.__cause__, Unsupported) and self.options.fallback
        allowed = self.may_fall_back or (handed_on and not self.options.fullgraph_backend)
        if not (allowed or (others and isinstance(failed.__cause__, Unsupported))):
            raise failed
        emit(FellBack("backend", f"{failed.what}; the whole graph goes to the next backend", first_line(captured)))

    def rest(self, device: str, *, training: bool) -> list[ResolvedBackend]:
        """The fallback for a device: those that are installed, work there and take functional graphs."""
        if self._rest is None:
            self._rest = tuple(found for spec in self.options.fallback if (found := _part_taker(spec)) is not None)
        able = []
        for resolved in self._rest:
            if any(resolved.backend is claimant.backend for claimant in self.claimants):
                continue
            try:
                resolved.require_device(device)
                resolved.require_mode(training=training)
            except BackendUnavailable:
                continue
            able.append(resolved)
        return able


def _part_taker(spec: Any) -> ResolvedBackend | None:
    """A backend of the fallback list, None for one that isn't here or that only takes the user's whole graph.

    "eager" stands for torch's own kernels, one node after the other.
    """
    if spec == "eager":
        return _torch_kernels()
    try:
        resolved = resolve_backend(spec)
    except _PASSED_OVER as error:
        emit(FellBack("fallback", error.what))
        return None
    if resolved.capabilities.graph_level == "torch":
        emit(FellBack("fallback", f"backend {resolved.label} takes whole torch graphs only, no part of one"))
        return None
    return resolved


def _torch_kernels() -> ResolvedBackend:
    backend: Backend = AotEagerBackend()
    return ResolvedBackend("eager", backend, backend.capabilities)


def lineup_of(options: CompileOptions) -> Lineup:
    """The lineup of a call of compile(). Of a list, what can't be used here is passed over, unless nothing is left.

    Raises what resolving the backend raises.
    """
    specs = options.backend
    if not isinstance(specs, (list, tuple)):
        return Lineup([resolve_backend(specs)], options)
    if not specs:
        raise InvalidOption(
            "backend=[] names no backend", instead="nothing was compiled", remedy="name at least one, or leave it out"
        )
    claimants: list[ResolvedBackend] = []
    refusals: list[BackendError] = []
    for spec in specs:
        try:
            resolved = resolve_backend(spec)
        except _PASSED_OVER as refusal:
            refusals.append(refusal)
            continue
        if not any(resolved.backend is known.backend for known in claimants):
            claimants.append(resolved)
    if not claimants:
        raise refusals[0]
    for passed in refusals:
        emit(FellBack("backend", passed.what))
    return Lineup(claimants, options)


def as_lineup(backend: Any, options: CompileOptions) -> Lineup:
    """What compile_graph is given, as a lineup."""
    if isinstance(backend, Lineup):
        return backend
    if isinstance(backend, ResolvedBackend):
        return Lineup([backend], options)
    return lineup_of(replace(options, backend=backend))
