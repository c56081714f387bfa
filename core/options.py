"""CompileOptions: what a call of `compile` asked for, frozen and validated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .errors import InvalidOption
from .settings import config

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


def strict() -> bool:
    """True when CORE_STRICT=1 or config.strict: what would fall back raises instead."""
    return bool(config.strict)


def disabled() -> bool:
    """True when CORE_DISABLE=1 or config.disable: compile returns functions that run as written."""
    return bool(config.disable)


def is_compiling() -> bool:
    """True inside a function while it is being captured, False in plain Python."""
    return False  # capture answers True in its place


is_dynamo_compiling = is_compiling
"""The name that torch.compiler has for a capture that is not an export: here, every one."""


def is_exporting() -> bool:
    """False: core has no export of programs. torch.compiler has a function of this name."""
    return False


@dataclass(frozen=True)
class CompileOptions:
    """The options of one compiled callable.

    backend: a name, a Backend object or a callable `(gm, example_inputs)`; fullgraph: a break raises;
    dynamic: True all sizes symbolic, False none, None a size becomes symbolic when it changes;
    recompile_limit: entries a callable may hold; nested: capture frames called after a break;
    guard_filter: chooses which guards are kept (see guards.filter).
    """

    backend: Any = "inductor"
    fullgraph: bool = False
    dynamic: bool | None = None
    mode: str | None = None
    backend_options: Mapping[str, Any] = field(default_factory=dict)
    recompile_limit: int = 8
    capture_scalar_outputs: bool = False
    nested: bool = True
    name: str | None = None
    guard_filter: Any = None

    def __post_init__(self) -> None:
        if self.mode is not None and self.mode not in MODES:
            raise InvalidOption(
                f"mode={self.mode!r} is not known",
                instead="nothing was compiled",
                remedy=f"use one of {', '.join(MODES)}",
            )
        if self.dynamic not in (None, True, False):
            raise InvalidOption(
                f"dynamic={self.dynamic!r} is not None, True or False",
                instead="nothing was compiled",
                remedy="pass None (symbolic on the second shape), True or False",
            )
        if type(self.recompile_limit) is not int or self.recompile_limit < 1:
            raise InvalidOption(
                f"recompile_limit={self.recompile_limit!r} is not a positive integer",
                instead="nothing was compiled",
                remedy="pass an integer of at least 1",
            )

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for options under which entries may be shared; backends compare by identity or name."""
        backend = self.backend if isinstance(self.backend, str) else id(self.backend)
        options = tuple(sorted((name, repr(value)) for name, value in self.backend_options.items()))
        return (
            backend,
            self.fullgraph,
            self.dynamic,
            self.mode,
            options,
            self.recompile_limit,
            self.capture_scalar_outputs,
            self.nested,
            self.name,
            None if self.guard_filter is None else id(self.guard_filter),
        )
