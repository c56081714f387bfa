"""ResolvedBackend: a backend ready to compile, its hooks bound once."""

from __future__ import annotations

import contextlib
import difflib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import BackendUnavailable, InvalidOption
from ..plugin import CUDA_GRAPH_MODES, Backend, Capabilities, Option, Probe
from ..settings import options_of_backend
from .hookspecs import DIRECTED
from .probing import ask


@dataclass(eq=False)
class ResolvedBackend:
    """One backend with its directed hooks as plain attributes (`compile`, `supports`, ...: see Backend).

    distribution and version name the plugin in errors; `issues` is where to report its bugs.
    State shared between threads: `_probes`, under `_lock`.
    """

    name: str
    backend: Backend
    capabilities: Capabilities
    distribution: str = ""
    version: str = ""
    issues: str = ""
    overrides: Mapping[str, Callable[..., Any]] = field(default_factory=dict)

    probe: Callable[..., Probe] = field(init=False)
    options: Callable[..., Mapping[str, Option]] = field(init=False)
    decompositions: Callable[..., Any] = field(init=False)
    supports: Callable[..., Any] = field(init=False)
    partition: Callable[..., Any] = field(init=False)
    compile: Callable[..., Any] = field(init=False)
    cache_key: Callable[..., Any] = field(init=False)
    serialize: Callable[..., Any] = field(init=False)
    deserialize: Callable[..., Any] = field(init=False)
    estimate: Callable[..., Any] = field(init=False)
    teardown: Callable[..., Any] = field(init=False)

    def remedy_of(self, error: BaseException | None) -> str:
        """What to do about an exception that left the plugin: what can't be imported is no bug of its own."""
        if isinstance(error, ImportError):
            lines = f"`python -m core info {self.name}` has its pip line (requires_pip)"
            return f"reinstall what {self.distribution} needs, with pip's --force-reinstall: {lines}"
        report = f"report it at {self.issues}" if self.issues else f"report it to {self.distribution}"
        return f"{report}, or choose another backend"

    def __post_init__(self) -> None:
        for hook in DIRECTED:
            setattr(self, hook, self.overrides.get(hook) or getattr(self.backend, hook))
        self.unloaded = False
        self._probes: dict[str, Probe] = {}
        self._lock = threading.Lock()
        # A plugin that isn't thread-safe compiles one graph at a time; re-entrant, as compiling may compile.
        self.compile_lock: Any = contextlib.nullcontext() if self.capabilities.thread_safe else threading.RLock()

    @property
    def label(self) -> str:
        """`tensorrt (core-tensorrt 1.0)`, as errors and reports name it."""
        package = " ".join(part for part in (self.distribution, self.version) if part)
        return f"{self.name} ({package})" if package else self.name

    def require_device(self, device: str) -> None:
        """Probe the backend for a device, once. Raises BackendUnavailable with the plugin's reason and remedy."""
        if self.unloaded:
            raise BackendUnavailable(
                f"backend {self.label} was unloaded",
                instead="nothing was compiled",
                remedy="call core.compile again, which loads it anew",
            )
        with self._lock:
            probe = self._probes.get(device)
        if probe is None:
            probe = self._probe(device)
            with self._lock:
                self._probes[device] = probe
        if not probe.ok:
            raise BackendUnavailable(
                f"backend {self.label} can't work on {device}: {probe.reason or 'it gives no reason'}",
                instead="nothing was compiled",
                remedy=probe.remedy or "choose another backend; `python -m core doctor` lists what works here",
            )

    def _probe(self, device: str) -> Probe:
        kind = device.partition(":")[0]
        declared = {entry.partition(":")[0] for entry in self.capabilities.devices}
        if declared and kind not in declared:
            return Probe(False, f"it declares the devices {', '.join(sorted(declared))}", "move the tensors there")
        if "probe" not in self.overrides and type(self.backend).probe is Backend.probe:
            return Probe(True)  # it has none of its own: nothing to wait for
        return ask(self.probe, device, self.issues)

    def require_mode(self, *, training: bool) -> None:
        """Raise BackendUnavailable when the backend does not declare what a graph asks for."""
        wanted = "training" if training else "inference"
        if wanted in self.capabilities.modes:
            return
        raise BackendUnavailable(
            f"backend {self.label} does not do {wanted}",
            instead="nothing was compiled",
            remedy="call it under torch.no_grad(), or choose another backend" if training else "choose another backend",
        )

    def with_mode(self, given: Mapping[str, Any], mode: str | None) -> Mapping[str, Any]:
        """The user's options with compile's `mode` as an option of that name, which is how a backend knows modes."""
        if mode is None or mode == "default" and not self.knows_mode():
            return given
        if "mode" in given and given["mode"] != mode:
            raise InvalidOption(
                f"mode={mode!r} is given, and options with mode={given['mode']!r}",
                instead="nothing was compiled",
                remedy="pass one of the two",
            )
        if not self.knows_mode():
            if mode in CUDA_GRAPH_MODES and "cudagraphs" in self.known_options():
                return given  # core itself does what the mode asks for
            raise InvalidOption(
                f"backend {self.label} does not know modes, and so not {mode!r}",
                instead="nothing was compiled",
                remedy=f"leave mode out; {_known_options(self.known_options())}",
            )
        return {**given, "mode": mode}

    def for_options(self, given: Mapping[str, Any]) -> ResolvedBackend:
        """The backend that a call with these options means: a bridged one may take another level of graphs."""
        return self

    def knows_mode(self) -> bool:
        """True for a backend that declares an option "mode"."""
        return "mode" in self.known_options()

    def known_options(self) -> list[str]:
        """Names of the options that the backend takes."""
        return sorted(self.options())

    def validate_options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The backend's options: the user's, else those of the setting files, else the defaults.

        Raises InvalidOption for unknown names and wrong values, and says when they stand in a file.
        """
        declared = self.options()
        self._check_options(given, declared, "")
        from_files = options_of_backend(self.name)
        self._check_options(from_files, declared, f" in [tool.core.backends.{self.name}] or the user's file")
        set_here = {**from_files, **given}
        return {name: set_here.get(name, option.default) for name, option in declared.items()}

    def _check_options(self, given: Mapping[str, Any], declared: Mapping[str, Option], place: str) -> None:
        for name, value in given.items():
            option = declared.get(name)
            if option is None:
                raise InvalidOption(
                    f"backend {self.label} has no option {name!r}{place and f', which stands{place}'}",
                    instead="nothing was compiled",
                    remedy=_suggestion(name, declared),
                )
            problem = _value_problem(option, value)
            if problem:
                raise InvalidOption(
                    f"option {name!r} of backend {self.label}{place} is {value!r}",
                    instead="nothing was compiled",
                    remedy=problem,
                )


def _suggestion(name: str, declared: Mapping[str, Option]) -> str:
    close = difflib.get_close_matches(name, declared, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    return _known_options(sorted(declared))


def _known_options(names: list[str]) -> str:
    return f"its options are {', '.join(names)}" if names else "it takes no options"


def _value_problem(option: Option, value: Any) -> str:
    number = option.type is float and isinstance(value, int) and not isinstance(value, bool)
    wrong_bool = isinstance(value, bool) and option.type is not bool and option.type is not object
    if not number and (wrong_bool or not isinstance(value, option.type)) and value != option.default:
        return f"pass a value of type {option.type.__name__}"
    if option.choices and value not in option.choices:
        return f"pass one of {', '.join(map(repr, option.choices))}"
    return ""
