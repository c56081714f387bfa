"""A run that can certify: every test of a profile, in worker processes, shuffled, with values that nobody knew.

Enters: a name, a profile, a nonce. Leaves: a report. While it goes on, each result is kept in a journal beside
the report, so that a run that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from core.backends.foreign import PREFIX
from core.backends.registry import Registry, resolve_backend

from . import declarations, report
from .decoys import HEAD
from .digests import distribution_digest, folder_digest
from .patterns import matches
from .profiles import Profile
from .seeds import seed_of, shards, shuffled
from .workers import Setting, listing, run_shard


@dataclass(frozen=True)
class Request:
    """What is to be run."""

    backend: str
    profile: Profile
    nonce: str
    device: str = "cpu"
    workers: int = 1
    declarations: tuple[declarations.Declaration, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    label: str = ""
    """The lower precision that this run is labelled with, a key of numerics.PRECISIONS."""
    only: str = ""
    """A pattern of ids; a run with one certifies nothing."""


def backend_facts(name: str) -> dict[str, Any]:
    """Name, distribution, version and manifest digest of an installed backend. Raises the errors of resolution.

    A backend of another project, `dynamo:NAME`, has no manifest; its distribution is the one that publishes it.
    """
    bridged = _bridged(name)
    if bridged is not None:
        return bridged
    found = Registry().find(name)
    manifest = next(iter(_manifests(found.distribution)), None)
    return {
        "name": found.name,
        "distribution": found.distribution,
        "version": found.version,
        "manifest_digest": folder_digest(manifest) if manifest is not None else "",
    }


def _bridged(name: str) -> dict[str, Any] | None:
    """The facts of a backend that core reaches through its bridge; None for a plugin."""
    foreign = Registry().find_foreign(name)
    if foreign is not None:
        return _facts(foreign.use, foreign.distribution, foreign.version)
    if name.strip().casefold().startswith(PREFIX):  # torch's own registry knows it, once it is asked
        resolved = resolve_backend(name)
        return _facts(resolved.name, resolved.distribution, resolved.version)
    return None


def _facts(name: str, distribution: str, version: str) -> dict[str, Any]:
    return {"name": name, "distribution": distribution, "version": version, "manifest_digest": ""}


def _manifests(distribution: str) -> list[Path]:
    from core.backends.discovery import MANIFESTS_GROUP
    from core.backends.manifest import locate_manifest

    try:
        owner = metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return []
    entries = [entry for entry in owner.entry_points if entry.group == MANIFESTS_GROUP]
    located = [locate_manifest(owner, entry.value) for entry in entries]
    return [path for path in located if path is not None]


def shipped_declarations(backend: str) -> Path | None:
    """The conformance.toml that a backend's distribution has beside its manifest, if there is one."""
    if _bridged(backend) is not None:
        return None
    for manifest in _manifests(Registry().find(backend).distribution):
        beside = manifest.with_name("conformance.toml")
        if beside.is_file():
            return beside
    return None


class Journal:
    """Results as they come, one JSON line each; the first line says what they belong to."""

    def __init__(self, path: Path | None, head: dict[str, Any], *, resume: bool) -> None:
        self.path = path
        self.results: dict[str, dict[str, Any]] = {}
        self._lock = threading.Lock()
        if path is None:
            return
        if resume and path.exists():
            self._take(path, head)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(head) + "\n", encoding="utf-8")

    def _take(self, path: Path, head: dict[str, Any]) -> None:
        first, *lines = path.read_text(encoding="utf-8").splitlines()
        if json.loads(first) != head:
            path.write_text(json.dumps(head) + "\n", encoding="utf-8")
            return
        for line in lines:
            entry = json.loads(line)
            self.results[entry.pop("test")] = entry

    def add(self, test: str, result: dict[str, Any]) -> None:
        """Keep a result; workers' threads call it."""
        with self._lock:
            self.results[test] = result
            if self.path is not None:
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"test": test, **result}) + "\n")

    def remove(self) -> None:
        """The report stands, the journal is no longer needed."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def run(
    request: Request,
    *,
    journal: Path | None = None,
    resume: bool = False,
    told: Callable[[str, dict[str, Any]], None] = lambda test, result: None,
) -> dict[str, Any]:
    """Run a profile and return its report. `told` hears of each result."""
    facts = backend_facts(request.backend)
    suite_digest = distribution_digest("core-conformance")
    seed = seed_of(distribution_digest(facts["distribution"]), suite_digest, request.nonce)
    setting = Setting(
        request.backend,
        request.device,
        seed,
        request.profile.timeout_s,
        options=request.options,
        precision=request.label,
    )
    everything = listing(setting)
    tests = request.profile.selected(everything)
    declarations.check(request.declarations, request.profile, tests, everything)
    if request.only:
        tests = [test for test in tests if matches(request.only, test)]
    started = datetime.now(UTC).isoformat(timespec="seconds")
    head = {"seed": seed, "profile": request.profile.name, "device": request.device, "started": started}
    if resume and journal is not None and journal.exists():
        head["started"] = started = json.loads(journal.read_text().partition("\n")[0]).get("started", started)
    kept = Journal(journal, head, resume=resume)
    _run_all(request, setting, [test for test in tests if test not in kept.results], kept, told)
    judged = {test: _judged(request, test, kept.results[test]) for test in tests if test in kept.results}
    label = request.label or ("partial" if request.only else "")
    made = report.build(
        profile=request.profile,
        backend=facts,
        device=request.device,
        tests=judged,
        nonce=request.nonce,
        seed=seed,
        started=started,
        ended=datetime.now(UTC).isoformat(timespec="seconds"),
        declarations=[each.as_json() for each in request.declarations],
        label=label,
    )
    kept.remove()
    return made


def _run_all(
    request: Request,
    setting: Setting,
    tests: Sequence[str],
    kept: Journal,
    told: Callable[[str, dict[str, Any]], None],
) -> None:
    """Deal the tests out to workers, each with its thread here; decoys go to workers of their own."""
    order = shuffled([test for test in tests if not test.startswith(HEAD)], setting.seed)
    decoys = [test for test in tests if test.startswith(HEAD)]
    unsupported = tuple(
        test
        for test in order
        if (found := declarations.covering(request.declarations, test)) is not None and found.kind == "unsupported"
    )
    setting = replace(setting, unsupported=unsupported)
    hidden = replace(setting, module="core_conformance.decoys")
    stop = threading.Event()

    def done(test: str, result: dict[str, Any]) -> None:
        kept.add(test, result)
        told(test, result)

    work = [(setting, shard) for shard in shards(order, max(1, request.workers))] + [(hidden, decoys)]
    threads = [threading.Thread(target=run_shard, args=(how, shard, done, stop.is_set)) for how, shard in work if shard]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            while thread.is_alive():
                thread.join(0.5)
    except BaseException:
        stop.set()
        raise
    finally:
        for thread in threads:
            thread.join()


def _judged(request: Request, test: str, result: dict[str, Any]) -> dict[str, Any]:
    declaration = declarations.covering(request.declarations, test)
    verdict = declarations.judge(
        result["outcome"], result.get("message", ""), declaration, required=request.profile.requires(test)
    )
    return {**result, "outcome": verdict.outcome, "message": verdict.message}
