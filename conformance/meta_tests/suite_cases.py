"""The tests of the suite by their ids, and the cheats by their names."""

from __future__ import annotations

import functools

import core_conformance.suite as suite
from core_conformance.cases import Case, Result, cases_of, run_case
from core_conformance.evil import CHEATS, HONEST, ON_CARDS
from core_conformance.surroundings import restore, state

from core.plugin import Backend

OWN = (
    "SemanticsTests GraphTests ModuleTests DynamicTests TrainingTests HygieneTests FailureTests ManifestTests "
    "SerializationTests DeterministicTests DiagnosableTests GpuTests PerfTests"
).split()

ON_IMPORT = "evil-changes-on-import"


@functools.cache
def all_cases() -> dict[str, Case]:
    """id -> test, of every class but those over torch's own table of operators."""
    return {id: case for name in OWN for id, case in cases_of_class(name).items()}


@functools.cache
def cases_of_class(name: str) -> dict[str, Case]:
    """id -> test, of one class."""
    return {case.id: case for case in cases_of(getattr(suite, name))}


def made(name: str) -> Backend | str:
    """A fresh backend of this name; the name itself of an installed one. What an import changes is put back at once."""
    if name == ON_IMPORT:
        before = state()
        from core_conformance.evil.on_import import ChangesSettingsOnImport

        restore(before)
        return ChangesSettingsOnImport()
    kinds = {**CHEATS, **HONEST, **ON_CARDS}
    return kinds[name]() if name in kinds else name


def outcome(name: str, test: str, device: str = "cpu") -> Result:
    """What comes of one test with one backend."""
    return run_case(all_cases()[test], made(name), device=device)
