"""The exceptions of core. Each has an id and four parts: what, where, what we did instead, what to change."""

from __future__ import annotations

from dataclasses import dataclass
from types import CodeType


@dataclass(frozen=True)
class UserLine:
    """A place in the user's code.

    `columns` are (first, last) character positions on the line, or None where Python keeps none.
    """

    filename: str
    line: int
    function: str = ""
    columns: tuple[int, int] | None = None

    def __str__(self) -> str:
        inside = f" in {self.function}" if self.function else ""
        return f"{self.filename}:{self.line}{inside}"


class CoreError(Exception):
    """Base of every error that core raises.

    what: what happened; where: the user's line, when there is one; instead: what core did in place of it;
    remedy: what to change. `id` is stable and stands in docs/errors.md.
    """

    id = "CORE-E000"

    def __init__(self, what: str, *, where: UserLine | None = None, instead: str = "", remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.instead = instead
        self.remedy = remedy

    def __str__(self) -> str:
        parts = [f"[{self.id}] {self.what}"]
        if self.where is not None:
            parts.append(f"  at: {self.where}")
        if self.instead:
            parts.append(f"  instead: {self.instead}")
        if self.remedy:
            parts.append(f"  remedy: {self.remedy}")
        return "\n".join(parts)


class Unsupported(CoreError):
    """Capture met something it does not trace. Without fullgraph it becomes a graph break; with it, it is raised."""

    id = "CORE-C001"
    from_around = False  # it takes the frames around: one further in does not meet it by itself
    left: CodeType | None = None  # a comprehension that it ends: Python runs that as a whole
    met_again = False  # on the way out it passed a call that is captured as a frame of its own, if this frame breaks


class RecompileLimit(CoreError):
    """A callable reached its limit of compiled entries under fullgraph."""

    id = "CORE-C003"


class RecompileRefused(CoreError, RuntimeError):
    """A call needs compiling, and the stance of the process forbids it."""

    id = "CORE-C004"


class ConstraintViolated(CoreError):
    """A dimension was marked dynamic, and the code fixes its size or narrows its range."""

    id = "CORE-C005"


class RecorderRefused(CoreError):
    """The ATen record of a graph can't be trusted; the fallback (AOTAutograd) takes the graph."""

    id = "CORE-R001"


class InvalidOption(CoreError, ValueError):
    """An option has an unknown name, a wrong type or a value outside its choices."""

    id = "CORE-O001"


class UnknownSetting(InvalidOption, AttributeError):
    """A setting that core.config does not have. It is an AttributeError too, so that hasattr() answers."""

    id = "CORE-O002"


class UnsupportedPython(CoreError, ImportError):
    """This interpreter is not one that core supports."""

    id = "CORE-P001"


class BackendError(CoreError):
    """Base of the errors about a backend."""

    id = "CORE-B000"


class BackendNotInstalled(BackendError):
    """No installed distribution provides the backend."""

    id = "CORE-B001"


class AmbiguousBackend(BackendError):
    """More than one distribution provides the name."""

    id = "CORE-B002"


class BackendIncompatible(BackendError):
    """The plugin needs another version of core's plugin API, torch or Python."""

    id = "CORE-B003"


class BackendUnavailable(BackendError):
    """The plugin is installed but can't work on this machine."""

    id = "CORE-B004"


class BackendBroken(BackendError):
    """The plugin failed to load; it is quarantined for this process."""

    id = "CORE-B005"


class BackendRetired(BackendNotInstalled):
    """The name is one of the past: the backend it meant is gone."""

    id = "CORE-B009"


class PluginNotLocked(BackendUnavailable):
    """A lock is required, and it does not hold the plugin as it is installed."""

    id = "CORE-B010"


class BackendFailed(BackendError):
    """The backend raised while compiling a graph."""

    id = "CORE-B006"


class BackendMisbehaved(BackendError):
    """A compiled graph returned something other than what the graph contract asks for."""

    id = "CORE-B007"


class NotTwiceDifferentiable(BackendError, RuntimeError):
    """A compiled graph can't give the gradient of its gradient for this call."""

    id = "CORE-B008"


class CompileTimedOut(BackendFailed):
    """A backend that compiles in a process of its own did not end within its deadline."""

    id = "CORE-B011"


class CompilerDied(BackendFailed):
    """The process in which a backend compiled ended without an answer."""

    id = "CORE-B012"


class IsolationImpossible(BackendUnavailable):
    """A backend, or a graph, that can't be compiled in a process of its own."""

    id = "CORE-B013"


class NodesUnclaimed(BackendError):
    """Nodes of a graph are supported by no backend that is allowed to take them."""

    id = "CORE-B015"


class FallbackTooCostly(BackendError):
    """More of a graph's cost would fall back than max_fallback_cost allows."""

    id = "CORE-B016"


class PrecisionUnavailable(BackendUnavailable):
    """The backend does not declare the precision that was asked for."""

    id = "CORE-B017"


class PassFailed(BackendError):
    """A graph pass of a plugin raised, or changed what a graph takes and gives."""

    id = "CORE-B018"


class FrozenWeightChanged(BackendError):
    """A frozen weight has other values than when it was compiled, and nothing said so."""

    id = "CORE-B019"


class BridgeLoop(BackendError):
    """A name of torch.compile's that leads back to core's own backend."""

    id = "CORE-B020"


class PluginNameRefused(CoreError, ValueError):
    """`core new` was given a name that no backend can have, or that belongs to another one."""

    id = "CORE-N001"


class PluginNotWritten(CoreError, OSError):
    """`core new` could not write the project's folder."""

    id = "CORE-N002"


class SuiteNotInstalled(CoreError, ImportError):
    """A command of the conformance suite was given, and the distribution that holds it is not installed."""

    id = "CORE-T001"


class SuiteMisused(CoreError, ValueError):
    """The conformance suite was given a profile, a declaration, a report or a nonce that it can't work with."""

    id = "CORE-T002"
