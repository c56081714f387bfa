"""Who calculated: operators of torch that an artifact runs, seen from outside, and other compilers that it starts.

Enters: artifacts, as a backend hands them to core. Leaves: counts of the ATen operators that went through torch's
dispatcher while they ran, and the names of compilers that were entered. What a backend declares native may not appear
there. A backend can hide below the dispatcher; the rest of the suite does not rely on this one look.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from core.backends.resolved import ResolvedBackend
from core.plugin import Artifact

from .torch_compat import COMPILERS, LOADED_FOR_USE, OpOverload, OpOverloadPacket, TorchDispatchMode

PLUMBING = frozenset(
    "empty empty_like empty_strided empty_permuted new_empty new_empty_strided as_strided detach alias view "
    "_unsafe_view _reshape_alias reshape expand t transpose permute select slice squeeze unsqueeze unfold diagonal "
    "split split_with_sizes unbind clone copy contiguous lift_fresh lift_fresh_copy lift set resize "
    "_local_scalar_dense item to _to_copy real imag view_as_real view_as_complex _conj resolve_conj resolve_neg "
    "_assert_async _assert_scalar sym_size sym_stride sym_numel sym_storage_offset".split()
)
"""Operators that carry values from place to place: memory, views and copies are no calculation."""


@dataclass
class Observation:
    """What was seen. ops: operator -> calls, inside artifacts; compilers: entry points of others that were called."""

    ops: Counter[str] = field(default_factory=Counter)
    compilers: set[str] = field(default_factory=set)

    @property
    def calculations(self) -> Counter[str]:
        """The operators that calculate, by the name that all their overloads and forms share."""
        found: Counter[str] = Counter()
        for name, count in self.ops.items():
            base = base_name(name)
            if base not in PLUMBING:
                found[base] += count
        return found


def base_name(operator: str) -> str:
    """`aten.add_.Tensor`, `aten.add.out` and `add` are all "add"."""
    parts = operator.split(".")
    name = parts[1] if len(parts) > 1 and parts[0] in ("aten", "prims") else parts[-1] if len(parts) == 1 else operator
    return name.rstrip("_") or name


class _Seeing(TorchDispatchMode):
    def __init__(self, observation: Observation) -> None:
        super().__init__()
        self.observation = observation

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.observation.ops[str(func)] += 1
        return func(*args, **(kwargs or {}))


_active: list[Observation] = []


@contextlib.contextmanager
def observing() -> Iterator[Observation]:
    """Observe the artifacts of watched backends, and other compilers' entry points, while the block runs."""
    observation = Observation()
    with contextlib.ExitStack() as stack:
        for module, name in COMPILERS:
            stack.enter_context(_spied(module, name, observation))
        _active.append(observation)
        stack.callback(_active.remove, observation)
        yield observation


@contextlib.contextmanager
def _spied(module_name: str, name: str, observation: Observation) -> Iterator[None]:
    """Note calls of one function, or that its module was loaded meanwhile where nothing but its use does that."""
    module = sys.modules.get(module_name)
    original = getattr(module, name, None)
    if module is None or original is None:
        yield
        if module_name in LOADED_FOR_USE and module is None and module_name in sys.modules:
            observation.compilers.add(f"{module_name}.{name}")
        return

    @functools.wraps(original)
    def spy(*args: Any, **kwargs: Any) -> Any:
        observation.compilers.add(f"{module_name}.{name}")
        return original(*args, **kwargs)

    setattr(module, name, spy)
    try:
        yield
    finally:
        setattr(module, name, original)


@dataclass
class Watched:
    """One artifact of a watched backend with the graph that it was made from."""

    artifact: Artifact
    graph: Any
    seen: Observation = field(default_factory=Observation)
    observed_runs: int = 0

    def undeclared(self) -> list[str]:
        """What the artifact calculated through torch although its backend says otherwise; each with its reason."""
        if not self.observed_runs:
            return []
        kinds = {name: self.artifact.provenance.get(name, "") for name in _nodes(self.graph)}
        own, lent = Counter[str](), Counter[str]()
        for name, target in _nodes(self.graph).items():
            (own if kinds[name] in ("native", "") else lent)[base_name(target)] += 1
        found = []
        for name, count in self.seen.calculations.items():
            allowed = lent[name] * self.observed_runs
            if own[name] and count > allowed:
                claim = "native" if "native" in kinds.values() else "nothing"
                found.append(f"{name} ran in torch {count} times, {allowed} are declared; the backend says {claim}")
            elif not any(kind not in ("native", "") for kind in self.artifact.provenance.values()):
                found.append(f"{name} ran in torch {count} times, and no node is declared to")
        return found


def _nodes(graph: Any) -> dict[str, str]:
    """The calls of a graph that calculate: node name -> operator."""
    calls = [node for node in graph.graph.nodes if node.op in ("call_function", "call_method")]
    named = {node.name: _target_name(node.target) for node in calls}
    return {name: target for name, target in named.items() if base_name(target) not in PLUMBING | {"getitem"}}


def _target_name(target: Any) -> str:
    if isinstance(target, str) or isinstance(target, (OpOverload, OpOverloadPacket)):
        return str(target)
    return str(getattr(target, "__name__", target))


class Watch:
    """Stands between core and a backend: artifacts pass through it and are observed while somebody observes."""

    def __init__(self, resolved: ResolvedBackend) -> None:
        self.resolved = resolved
        self.made: list[Watched] = []
        self.resting = False
        """Artifacts go by unseen, and cost nothing more than they do by themselves."""
        self._originals: dict[int, Artifact] = {}

    @contextlib.contextmanager
    def standing(self) -> Iterator[None]:
        """Watch while the block runs."""
        compile_graph, serialize = self.resolved.compile, self.resolved.serialize
        self.resolved.compile = self._watching(compile_graph)
        self.resolved.serialize = lambda artifact: serialize(self._originals.get(id(artifact), artifact))
        try:
            yield
        finally:
            self.resolved.compile, self.resolved.serialize = compile_graph, serialize

    def _watching(self, compile_graph: Callable[..., Any]) -> Callable[..., Any]:
        def compile_and_watch(graph: Any, fake_inputs: Any, ctx: Any) -> Any:
            artifact = compile_graph(graph, fake_inputs, ctx)
            if self.resting or not isinstance(artifact, Artifact) or not callable(artifact.call):
                return artifact
            watched = Watched(artifact, graph)
            self.made.append(watched)
            passed = copy.copy(artifact)
            passed.call = _observable(watched)
            self._originals[id(passed)] = artifact
            return passed

        return compile_and_watch


def _observable(watched: Watched) -> Callable[..., Any]:
    call = watched.artifact.call

    def run(*inputs: Any) -> Any:
        if not _active:
            return call(*inputs)
        watched.observed_runs += 1
        before = Counter(watched.seen.ops)
        with _Seeing(watched.seen):
            result = call(*inputs)
        _active[-1].ops.update(watched.seen.ops - before)
        return result

    return run
