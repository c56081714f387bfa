"""Profiles: which tests a claim consists of. All of them pass, or the claim is not made."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

from core.errors import SuiteMisused

from .decoys import decoy_tests
from .patterns import matches_any

FOLDER = Path(__file__).parent / "profiles"


@dataclass(frozen=True)
class Profile:
    """One profile. Patterns are of test ids; operators are names of torch's table, each tested in its dtypes.

    must_pass: patterns of tests that no declaration excuses and that may not be skipped; decoys: programs outside the
    suite that run between its tests; timeout_s: for one test; devices: kinds of device that it is for, empty for all.
    """

    name: str
    summary: str
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    gradients: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    must_pass: tuple[str, ...] = ()
    decoys: int = 4
    timeout_s: float = 120.0
    devices: tuple[str, ...] = ()

    def holds(self, test: str) -> bool:
        """Whether a test belongs to the profile."""
        for name, operators in (("op", self.operators), ("gradients", self.gradients)):
            head = f"ops::OpTests::{name}["
            if test.startswith(head):
                operator, _, dtype = test.removeprefix(head).removesuffix("]").rpartition("-")
                wanted = "*" in operators or operator in operators
                return wanted and (not self.dtypes or dtype in self.dtypes) and not matches_any(self.exclude, test)
        return matches_any(self.include, test) and not matches_any(self.exclude, test)

    def requires(self, test: str) -> bool:
        """Whether the test must pass, whatever is declared."""
        return test in decoy_tests(self.decoys) or matches_any(self.must_pass, test)

    def selected(self, tests: Iterable[str]) -> list[str]:
        """The tests of the profile, in the order given, and its decoys."""
        return [test for test in tests if self.holds(test)] + decoy_tests(self.decoys)


def require_device(profile: Profile, device: str) -> None:
    """Refuse a run on a device that the profile is not for, or that torch does not find here. Raises SuiteMisused."""
    kind = torch.device(device).type
    if profile.devices and kind not in profile.devices:
        wanted = " or ".join(profile.devices)
        raise SuiteMisused(
            f"profile {profile.name} is for {wanted}, and this run is on {device}",
            instead="no test was run",
            remedy=f"pass --device {profile.devices[0]} on a machine that has one",
        )
    if kind == "cuda" and not torch.cuda.is_available():
        raise SuiteMisused(
            f"torch {torch.__version__} finds no device of kind {kind} here",
            instead="no test was run",
            remedy="run on a machine with such a device and a build of torch for it",
        )


def names() -> list[str]:
    """The profiles that there are."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load(name: str) -> Profile:
    """A profile by its name. Raises SuiteMisused."""
    path = FOLDER / f"{name}.toml"
    if name not in names():
        raise SuiteMisused(
            f"there is no profile {name!r}",
            instead="no test was run",
            remedy=f"choose one of {', '.join(names())}",
        )
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    data = {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
    return Profile(name=name, **data)
