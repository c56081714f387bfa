"""backend="auto": a graph starts on the default backend; the others are tried once, and the fastest right one stays.

Enters: a captured graph. Leaves: a callable that is the default backend's until the call that decides (the third by
default); in that call, in its thread, every candidate is compiled, run on copies of the call's inputs, held against
eager and timed in turn with the default. From then on the callable is the winner's own: nothing of this file stands
before it. A decision is kept on disk, and the next process begins with the winner.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from ..errors import BackendError
from ..events import AutoDecided, Partitioned, Trial, emit, subscribe
from ..graph.captured import CapturedGraph
from ..graph.functionalize import is_random
from ..graph.wrapper_tensors import is_wrapper
from ..options import CompileOptions
from ..plugin import Artifact, Backend, Capabilities, CompileContext, Option, Unsupported
from ..settings import config
from ..torch_compat.tensor_hooks import has_saved_tensor_hooks
from . import auto_store
from .artifact import first_line, graph_device
from .auto_trial import Copies, Reference, Run, measure, ratio_of, run_once, size_bytes
from .certificates import lookup
from .debugging import TUNINGS
from .generated import compile_source
from .policy import normalise
from .resolved import ResolvedBackend

if TYPE_CHECKING:
    from .registry import Registry

DEFAULT = "inductor"
COVERAGE = 0.9
"""A candidate must run at least this share of a graph's estimated cost itself."""

GAIN = 0.05
"""A candidate must be faster than the default by more than this share, and by more than the noise."""

LARGEST_COPY = 4 << 30
"""Bytes of inputs that may be copied for a trial: each candidate needs one copy, and the call another."""


@dataclass(frozen=True)
class Candidate:
    """A backend by the name that `backend=` takes. reason: why it is out before anything is compiled."""

    name: str
    label: str
    reason: str = ""


class AutoBackend(Backend):
    """Chooses among other backends, one graph at a time."""

    name = "auto"
    version = "1.0"
    capabilities = Capabilities(graph_level="aten-functional")

    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    def options(self) -> Mapping[str, Option]:
        return {
            "candidates": Option(object, (), help="names to try; empty: every installed plugin. Foreign ones too"),
            "frozen": Option(object, None, help="True: stored decisions only; None: core.config.auto_frozen"),
            "mode": Option(str, "default", TUNINGS, help="compile's mode, for the candidates that know modes"),
        }

    def compile(self, graph: Any, fake_inputs: Sequence[Any], ctx: CompileContext) -> Artifact:
        raise Unsupported((), 'backend="auto" chooses for whole graphs: it is no part of a list of backends')


class AutoResolved(ResolvedBackend):
    """The backend that compile_graph hands whole captures to."""

    def compile_captured(
        self, captured: CapturedGraph, options: CompileOptions, name: str, build: Callable[..., Run]
    ) -> Run:
        """`build(captured, backend, options, name=, announce=)` compiles for one backend."""
        backend: Any = self.backend
        return _Choice(backend.registry, captured, options, name, build).start()


def resolved_auto(registry: Registry) -> ResolvedBackend:
    """`backend="auto"` over the backends of a registry."""
    backend = AutoBackend(registry)
    return AutoResolved(backend.name, backend, backend.capabilities)


class _Choice:
    """The choice for one graph. `_lock` keeps a second thread out of the deciding call: it runs the default."""

    def __init__(
        self, registry: Registry, captured: CapturedGraph, options: CompileOptions, name: str, build: Any
    ) -> None:
        self.registry, self.captured, self.options, self.name, self._build = registry, captured, options, name, build
        given = options.backend_options
        self.frozen = config.auto_frozen if given.get("frozen") is None else bool(given["frozen"])
        self.device = graph_device(captured)
        self.default = default_name(registry)
        self.candidates = candidates_for(registry, captured, given.get("candidates") or config.auto_candidates)
        self._left = config.auto_calls
        self._lock = threading.Lock()
        self._namespace: dict[str, Any] = {}
        self._default_run: Run | None = None

    # -- the first call ------------------------------------------------------------------------------------------------

    def start(self) -> Run:
        """The stored winner, or the default, with a decision ahead where one is possible."""
        usable = [candidate for candidate in self.candidates if not candidate.reason]
        labels = [candidate.label for candidate in usable]
        self.key = auto_store.decision_key(self.captured, self.device, labels, self._options_key())
        stored = auto_store.read(self.key)
        if stored is not None and stored["winner"] in [self.default, *(each.name for each in usable)]:
            self._tell(stored["winner"], [Trial(**row) for row in stored["trials"]], "", stored=True)
            return self._compiled(stored["winner"])
        reason = self._why_not(usable)
        if reason:
            self._tell(self.default, self._left_out(), reason)
            return self._compiled(self.default)
        assert self.captured.record is not None
        self.captured.record.kept = True
        run = self._compiled(self.default)
        self._default_run = run
        getattr(run, "followers", []).append(self._settle_default)
        compiled = compile_source(("def compiled(*inputs):", "    return run(*inputs)"), self._namespace, "compiled")
        compiled.followers = self._followers = []  # type: ignore[attr-defined]
        self._namespace["run"] = self._call
        return compiled

    def _options_key(self) -> list[Any]:
        options = self.options
        return [options.mode, options.precision, options.fallback, options.freeze, config.require_certified]

    def _settle_default(self, final: Run) -> None:
        self._default_run = final

    def _why_not(self, usable: Sequence[Candidate]) -> str:
        """Why nothing will be measured, or an empty text."""
        if not usable:
            return "no other backend is a candidate"
        if self.frozen:
            return "frozen: there is no stored decision for this graph"
        if self.options.freeze:
            return "weights are constants (freeze=True): copies of them are others"
        if has_saved_tensor_hooks():  # a checkpoint: each run has to save the same
            return "it is called under saved-tensor hooks, which runs for comparison would call"
        return unmeasurable(self.captured)

    # -- the calls up to the decision ----------------------------------------------------------------------------------

    def _call(self, *inputs: Any) -> Any:
        self._left -= 1
        default = self._default_run
        assert default is not None
        if self._left > 0 or not self._lock.acquire(blocking=False):
            return default(*inputs)
        try:
            final = self._decided(inputs)
            self._namespace["run"] = final
            for follower in self._followers:
                follower(final)
            self._followers.clear()
        finally:
            self._lock.release()
        return final(*inputs)

    def _decided(self, inputs: Sequence[Any]) -> Run:
        """Try the candidates on copies of this call's inputs; the callable to use from now on."""
        default = self._default_run
        assert default is not None
        needed = size_bytes(inputs)
        if needed > LARGEST_COPY:
            self._tell(self.default, self._left_out(), f"a copy of the inputs takes {needed} bytes")
            return default
        copies = Copies(self.captured, inputs)
        reference = Reference(self.captured, copies)
        base = reference.judge(run_once(self.captured, default, copies.make()))
        runs: list[tuple[Candidate, Run, Trial]] = []
        out = self._left_out()
        for candidate in self.candidates:
            if candidate.reason:
                continue
            lost = auto_store.lost_trial(self.key, candidate.label)
            if lost:
                out.append(Trial(candidate.name, None, None, None, None, lost))
                continue
            with auto_store.on_trial(self.key, [candidate.label]):
                run, trial = self._tried(candidate, copies, reference)
            if run is None:
                out.append(trial)
            else:
                runs.append((candidate, run, trial))
        default = self._default_run  # what it settled on in its own run
        if not runs:
            self._decide(self.default, [Trial(self.default, 1.0, base.ratio), *out])
            return default
        with auto_store.on_trial(self.key, [candidate.label for candidate, _, _ in runs]):
            times = measure(self.captured, [default, *(run for _, run, _ in runs)], copies, config.auto_seconds)
        return self._fastest(default, base.ratio, runs, times, out)

    def _tried(self, candidate: Candidate, copies: Copies, reference: Reference) -> tuple[Run | None, Trial]:
        """Compile a candidate and hold it against eager; without a run where it is out."""
        shares: list[float] = []

        def hear(event: Any) -> None:
            if isinstance(event, Partitioned):
                shares.append(sum(region.share for region in event.regions if not region.fallback))

        guards = len(self.captured.shapes().guards)
        settled: list[Run] = []
        unsubscribe = subscribe(hear)
        began = time.perf_counter()
        ratio = 0.0
        try:
            run = self._compiled(candidate.name, announce=False)
            getattr(run, "followers", []).append(settled.append)
            results = run_once(self.captured, run, copies.make())
            seconds = time.perf_counter() - began
            verdict = reference.judge(results)
            ratio, reason = verdict.ratio, verdict.reason
        except BackendError as error:
            seconds, reason = time.perf_counter() - began, error.what
        except Exception as error:  # the edge of a plugin: a candidate that fails is a row of the table
            seconds, reason = time.perf_counter() - began, f"{type(error).__name__}: {error}"
        finally:
            unsubscribe()
        coverage = min(shares, default=1.0)
        if not reason and coverage < COVERAGE:
            reason = f"it runs {coverage:.0%} of the graph itself"
        if not reason and len(self.captured.shapes().guards) != guards:
            reason = "its code holds for some of the sizes only that the entry serves"
        trial = Trial(candidate.name, coverage, ratio, seconds, None, reason)
        return (None if reason else (settled[-1] if settled else run)), trial

    def _fastest(
        self,
        default: Run,
        base_ratio: float,
        runs: Sequence[tuple[Candidate, Run, Trial]],
        times: Sequence[Sequence[float]],
        out: Sequence[Trial],
    ) -> Run:
        measured = [
            (candidate.name, run, replace(trial, run_us=_middle(own)), *ratio_of(own, times[0]))
            for (candidate, run, trial), own in zip(runs, times[1:])
        ]
        faster = [row for row in measured if row[3] + row[4] < 1 - GAIN]
        winner, chosen = min(
            ((row[3], row[0], row[1]) for row in faster),
            key=lambda row: row[0],
            default=(1.0, self.default, default),
        )[1:]
        base = Trial(self.default, 1.0, base_ratio, None, _middle(times[0]))
        rows = [replace(base, reason=f"{winner} is faster") if faster else base]
        for name, _, trial, ratio, noise in measured:
            if name == winner:
                rows.append(trial)
            elif ratio + noise < 1 - GAIN:
                rows.append(replace(trial, reason=f"{winner} is faster"))
            else:
                text = f"{ratio:.2f} of the default's time, +-{noise:.2f}: not faster by more than {GAIN:.0%}"
                rows.append(replace(trial, reason=text))
        self._decide(winner, [*rows, *out])
        return chosen

    # -- what is said and kept -----------------------------------------------------------------------------------------

    def _compiled(self, name: str, announce: bool = True) -> Run:
        resolved = self.registry.resolve(name)
        mode = self.options.mode if resolved.knows_mode() else None
        options = replace(self.options, backend=name, backend_options={}, mode=mode)
        return self._build(self.captured, resolved, options, name=self.name, announce=announce)

    def _left_out(self) -> list[Trial]:
        return [Trial(each.name, None, None, None, None, each.reason) for each in self.candidates if each.reason]

    def _decide(self, winner: str, trials: list[Trial]) -> None:
        auto_store.write(self.key, {"winner": winner, "trials": [asdict(trial) for trial in trials]})
        self._tell(winner, trials, "")

    def _tell(self, winner: str, trials: Sequence[Trial], reason: str, stored: bool = False) -> None:
        line = first_line(self.captured)
        emit(AutoDecided(self.name, winner, tuple(trials), reason, stored, line))


def _middle(seconds: Sequence[float]) -> float:
    ordered = sorted(seconds)
    return ordered[len(ordered) // 2] * 1e6


# -- who takes part ---------------------------------------------------------------------------------------------------


def default_name(registry: Registry) -> str:
    """The backend that every graph starts on."""
    return DEFAULT if registry.provides(DEFAULT) else "aot_eager"


def candidates_for(registry: Registry, captured: CapturedGraph, named: Sequence[str]) -> list[Candidate]:
    """The backends to consider besides the default, those out at once with their reason; nothing is imported.

    named: names of the user's choice, foreign ones among them; empty for every installed plugin that compiles.
    """
    default = default_name(registry)
    names = list(named) or [b.name for b in registry.installed() if normalise(b.distribution) != "core"]
    return [_candidate(registry, captured, name) for name in names if normalise(name) != normalise(default)]


def _candidate(registry: Registry, captured: CapturedGraph, name: str) -> Candidate:
    try:
        foreign = registry.find_foreign(name)
        if foreign is not None:
            label = f"{foreign.use} {foreign.distribution} {foreign.version}"
            reason = registry.foreign_refusal(foreign) or _certificate(foreign.use, foreign.version, captured)
            if not reason and not captured.shapes().static and foreign.traits.dynamic_shapes != "full":
                reason = "it takes graphs of fixed sizes, and this one has symbolic ones"
            return Candidate(foreign.use, label, reason)
        backend = registry.find(name)
    except BackendError as error:
        return Candidate(name, name, error.what)
    label = f"{backend.name} {backend.distribution} {backend.version}"
    state, reason = registry.state(backend)
    if state == "ready":
        capabilities = backend.manifest.capabilities if backend.manifest is not None else None
        reason = _misfit(capabilities, captured) if capabilities is not None else ""
        if not reason and normalise(backend.distribution) != "core":
            reason = _certificate(backend.name, backend.version, captured)
    return Candidate(backend.name, label, reason or ("" if state == "ready" else state))


def _misfit(capabilities: Capabilities, captured: CapturedGraph) -> str:
    wanted = "training" if captured.needs_grad else "inference"
    if wanted not in capabilities.modes:
        return f"it does not do {wanted}"
    kind = graph_device(captured).partition(":")[0]
    kinds = {entry.partition(":")[0] for entry in capabilities.devices}
    if kinds and kind not in kinds:
        return f"it does not work on {kind}"
    if capabilities.dynamic_shapes != "full" and not captured.shapes().static:
        return f"its dynamic shapes are {capabilities.dynamic_shapes!r}, and the graph has symbolic sizes"
    return ""


def _certificate(name: str, version: str, captured: CapturedGraph) -> str:
    """Why a backend's certificate does not admit it, empty where it does or none is required."""
    if not config.require_certified:
        return ""
    profile = "training" if captured.needs_grad else "inference-core"
    state = lookup(name, version, profile, graph_device(captured), torch.__version__)
    if state == "certified":
        return ""
    found = "no certificate" if state == "none" else f"a certificate that is {state}"
    return f"it has {found} for {profile}, and require_certified is on"


def unmeasurable(captured: CapturedGraph) -> str:
    """Why a graph can't be run twice without anybody noticing, or can't be compared; else an empty text."""
    record = captured.record
    if record is None or record.refused is not None:
        return "its operators are not all known: it is not run twice"
    for call in record.calls:
        if is_random(call):
            return f"{call.op} draws random numbers: backends are not compared on it"
        if call.op.namespace not in ("aten", "prims"):
            return f"{call.op} may do more than compute: it is not run twice"
    if any(isinstance(node.target, torch._ops.HigherOrderOperator) for node in captured.module.graph.nodes):
        return "it contains a higher-order operator: it is not run twice"
    if any(item.is_tensor and not _is_plain(item.fake) for item in captured.inputs):
        return "an input is not a plain strided tensor: it can't be copied"
    if any(is_wrapper(fake) for fake in captured.outputs):
        return "a result is a tensor of a class with a dispatch of its own: it can't be compared"
    if any(captured.inputs[index].requires_grad for index in captured.mutated):
        return "it writes to an input that carries gradients: a copy would not be the same"
    return ""


def _is_plain(fake: Any) -> bool:
    if is_wrapper(fake):
        return False
    return fake.layout is torch.strided and not fake.is_quantized and not fake.is_conj() and not fake.is_neg()
