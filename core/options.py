"""CompileOptions: what a call of `compile` asked for, frozen and validated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .errors import InvalidOption
from .settings import config

FAILURES = ("raise", "fallback")
"""What a backend that fails to compile leads to."""

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

    fallback: who takes the nodes that the backend does not support, in this order, empty for nobody;
    fullgraph_backend: a node that falls back raises; max_fallback_cost: the largest share of a graph's estimated cost
    that may fall back, from 0 to 1, None for any; on_failure: "raise", or "fallback" to give to the fallback what the
    backend can't compile; precision: "eager" (the process's own flags), "ieee" (nothing looser than each dtype), or a
    looser mode that the backend declares; freeze: parameters and buffers may be treated as constants in graphs
    without gradients; isolate: "process" to have the backend compile in a process of its own; deadline_s: how long one
    compile may take there, and what the backend is told elsewhere; shapes_spec: a ShapesSpec of torch, see
    capture/declared_shapes.py.
    """

    backend: Any = "inductor"
    fullgraph: bool = False
    dynamic: bool | None = None
    mode: str | None = None
    backend_options: Mapping[str, Any] = field(default_factory=dict)
    recompile_limit: int = 8
    capture_scalar_outputs: bool | None = None
    nested: bool = True
    name: str | None = None
    guard_filter: Any = None
    fallback: tuple[Any, ...] = ("inductor", "eager")
    fullgraph_backend: bool = False
    max_fallback_cost: float | None = None
    on_failure: str = "raise"
    precision: str = "eager"
    shapes_spec: Any = None
    freeze: bool = False
    isolate: str | None = None
    deadline_s: float | None = None

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
        object.__setattr__(self, "fallback", _as_fallback(self.fallback))
        for name in ("fullgraph_backend", "freeze"):
            if type(getattr(self, name)) is not bool:
                raise _wrong(name, getattr(self, name), "pass True or False")
        share = self.max_fallback_cost
        if share is not None and (type(share) not in (int, float) or not 0 <= share <= 1):
            raise _wrong("max_fallback_cost", share, "pass a share from 0 to 1, or None for any")
        if self.on_failure not in FAILURES:
            raise _wrong("on_failure", self.on_failure, f"pass one of {', '.join(map(repr, FAILURES))}")
        if self.isolate not in (None, "process"):
            raise _wrong("isolate", self.isolate, 'pass "process", or None to compile in this one')
        deadline = self.deadline_s
        if deadline is not None and (type(deadline) not in (int, float) or not deadline > 0):
            raise _wrong("deadline_s", deadline, "pass a number of seconds above 0, or None")
        if not isinstance(self.precision, str) or not self.precision:
            raise _wrong("precision", self.precision, 'pass "eager", "ieee" or a mode that the backend declares')

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for options under which entries may be shared; backends compare by identity or name."""
        options = tuple(sorted((name, repr(value)) for name, value in self.backend_options.items()))
        return (
            _backend_key(self.backend),
            self.fullgraph,
            self.dynamic,
            self.mode,
            options,
            self.recompile_limit,
            self.capture_scalar_outputs,
            self.nested,
            self.name,
            None if self.guard_filter is None else id(self.guard_filter),
            _backend_key(self.fallback),
            self.fullgraph_backend,
            self.max_fallback_cost,
            self.on_failure,
            self.precision,
            self.freeze,
            self.isolate,
            self.deadline_s,
            None if self.shapes_spec is None else id(self.shapes_spec),
        )


def _backend_key(backend: Any) -> Any:
    if isinstance(backend, (list, tuple)):
        return tuple(_backend_key(item) for item in backend)
    return backend if isinstance(backend, str) else id(backend)


def _as_fallback(given: Any) -> tuple[Any, ...]:
    """One backend or several, as a tuple; None for nobody."""
    if given is None:
        return ()
    return tuple(given) if isinstance(given, (list, tuple)) else (given,)


def _wrong(name: str, value: Any, remedy: str) -> InvalidOption:
    return InvalidOption(f"{name}={value!r} is not possible", instead="nothing was compiled", remedy=remedy)
