"""What a backend plugin is made of: the only module of core that vendors import. It imports no torch.

A plugin is a module or object named by an entry point of the group `core.backends`; it implements the hook
`core_backend`, which returns a `Backend`. Everything core asks of that backend later is a method of it (or, for plugins
that prefer functions, a hookimpl named `backend_<method>`), bound once when the name is resolved.

A minimal plugin::

    from core.plugin import Artifact, Backend, Capabilities, hookimpl

    class Mine(Backend):
        name = "mine"
        version = "1.0"
        capabilities = Capabilities(graph_level="aten-functional", modes=("inference", "training"))

        def compile(self, graph, fake_inputs, ctx):
            return Artifact(call=my_compiler(graph, fake_inputs))

    @hookimpl
    def core_backend():
        return Mine()
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pluggy

from .errors import BackendFailed
from .step import current_step

__all__ = [
    "CAPABILITY_CHOICES",
    "CUDA_GRAPH_MODES",
    "GRAPH_LEVELS",
    "MODES",
    "PLUGIN_API",
    "PROJECT",
    "Artifact",
    "Backend",
    "Capabilities",
    "CompileContext",
    "CompileFailed",
    "Finding",
    "Option",
    "Pass",
    "PluginBug",
    "Probe",
    "StaleArtifact",
    "Support",
    "Unsupported",
    "cuda_graph_options",
    "hookimpl",
    "hookspec",
    "installed_version",
]

PROJECT = "core"
"""The prefix of the entry-point groups (`core.backends`, `core.manifests`, `core.passes`) and pluggy's project name."""

PLUGIN_API = (1, 0)
"""(major, minor). New hooks, optional arguments and context fields raise the minor; anything else the major."""

GRAPH_LEVELS = ("torch", "aten-functional", "core-aten")
"""The graphs a backend can ask for: the user's torch calls; functional ATen; functional ATen in the core op set."""

MODES = ("inference", "forward", "backward")
"""What a graph handed to `Backend.compile` computes."""

CAPABILITY_CHOICES = {
    "graph_level": GRAPH_LEVELS,
    "dynamic_shapes": ("none", "bounded", "full"),
    "mutation": ("host", "native"),
    "aliasing": ("host", "native"),
    "layouts": ("any", "contiguous"),
    "deterministic": ("always", "on-request", "no"),
    "cudagraph_safe": ("yes", "no", "per-artifact"),
}
"""The values that a capability of these names may have."""

CUDA_GRAPH_MODES = ("reduce-overhead", "max-autotune")
"""Values of compile's `mode` in which calls are captured in CUDA graphs."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


def installed_version(distribution: str) -> str:
    """The version of an installed distribution by its metadata, without an import; "" where it is not installed."""
    from importlib import metadata  # it brings the parser of e-mail

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


class Unsupported(Exception):
    """Raised by a backend for nodes that it cannot compile; core then hands those nodes to somebody else or reports it.

    nodes: the fx nodes, or their names; reason: one sentence for the user.
    """

    def __init__(self, nodes: Sequence[Any] = (), reason: str = "") -> None:
        self.nodes = tuple(nodes)
        self.reason = reason
        names = ", ".join(str(node) for node in self.nodes)
        super().__init__(f"{names}: {reason}" if names and reason else names or reason or "unsupported graph")


class CompileFailed(Exception):
    """Raised by a backend whose own compiler failed. `stage` names the step, `log` holds that compiler's output."""

    def __init__(self, stage: str, log: str = "") -> None:
        self.stage = stage
        self.log = log
        super().__init__(f"{stage} failed" + (f":\n{log}" if log else ""))


class StaleArtifact(Exception):
    """Raised by `Backend.deserialize` for bytes of another version or machine; core compiles again."""


class PluginBug(BackendFailed):
    """A plugin raised what the plugin contract does not foresee. Names the distribution and where to report it."""

    def __init__(self, what: str, *, dist: str, version: str, issues_url: str = "", **parts: Any) -> None:
        super().__init__(what, **parts)
        self.dist = dist
        self.version = version
        self.issues_url = issues_url


@dataclass(frozen=True)
class Capabilities:
    """What a backend declares. The manifest's table `[capabilities]` has the same keys; both must agree.

    graph_level: one of GRAPH_LEVELS; modes: of "inference", "training"; dtypes: names as "float32", empty for all;
    devices: as "cpu", "cuda", "cuda:sm80+", empty for all; dynamic_shapes: "none", "bounded" or "full";
    mutation, aliasing: "host" (core does it, the graph is functional) or "native"; layouts: "any" or "contiguous";
    deterministic: "always", "on-request" or "no"; cudagraph_safe: "yes", "no" or "per-artifact".
    """

    graph_level: str = "aten-functional"
    modes: tuple[str, ...] = ("inference", "training")
    dtypes: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    dynamic_shapes: str = "full"
    mutation: str = "host"
    aliasing: str = "host"
    layouts: str = "any"
    deterministic: str = "on-request"
    precision_default: str = "ieee"
    precision_modes: tuple[str, ...] = ("ieee",)
    cudagraph_safe: str = "no"
    serializable: bool = False
    thread_safe: bool = True
    compile_isolation: bool = False
    op_coverage: str = ""


@dataclass(frozen=True)
class Probe:
    """Whether a backend can work on a device here and now; `reason` and `remedy` are for the user when it can't."""

    ok: bool
    reason: str = ""
    remedy: str = ""
    runtime_versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Option:
    """One option of a backend: `type` is the Python type its value must have, `choices` limits it when not empty."""

    type: type
    default: Any
    choices: tuple[Any, ...] = ()
    help: str = ""


def cuda_graph_options(on: bool = False) -> dict[str, Option]:
    """The options by which users say whether and how core captures calls in CUDA graphs, for a backend's own.

    A backend that declares them, and in its capabilities that its calls may be captured, has nothing else to do: core
    captures and replays them where `cudagraphs` is True (`on` is its default) or compile's mode is one of
    CUDA_GRAPH_MODES.
    """
    return {
        "cudagraphs": Option(bool, on, help="capture calls on a GPU in CUDA graphs and replay them"),
        "cudagraph_warmup": Option(int, 1, help="plain calls of a size before it is captured"),
        "cudagraph_sizes": Option(int, 16, help="how many sizes of one graph are captured; others run plainly"),
        "cudagraph_instances": Option(int, 4, help="captures of one size, for results that are held over later calls"),
        "cudagraph_copy_outputs": Option(
            bool, True, help="copy results out of the graph's memory; else they stay there as long as they live"
        ),
        "cudagraph_custom_operators": Option(
            bool, False, help="capture operators of other libraries too: what they do on the host happens once"
        ),
    }


@dataclass(frozen=True)
class Support:
    """How a backend would run a node: "native" (its own code), "library" (a call of one) or "no".

    yields: it takes the node only where no other backend of the call does; `reason` says why.
    """

    kind: str
    reason: str = ""
    yields: bool = False


@dataclass(frozen=True)
class Finding:
    """A line of a report. `level` is "info", "warning" or "error"."""

    level: str
    text: str
    remedy: str = ""


@dataclass(frozen=True)
class Pass:
    """A graph pass of a plugin: `run(graph_module) -> graph_module`, placed before or after the passes named."""

    name: str
    run: Callable[[Any], Any]
    before: str = ""
    after: str = ""


def _ignore(finding: Finding) -> None:
    """The report sink of a context that nobody listens to."""


@dataclass(frozen=True)
class CompileContext:
    """What a backend may know about the graph it compiles. New fields appear here, never as new method arguments.

    device: "cpu" or "cuda:0", that of the graph's tensors; mode: one of MODES; shape_env: torch's ShapeEnv, None for a
    static graph; options: the user's options of this backend, validated; precision: "eager" (the process's own flags),
    "ieee" or a looser mode the user asked for; deterministic: the process asks for deterministic algorithms;
    output_strides: one entry an output, the strides core expects (None: any; core restrides what differs);
    parameters: indices of the inputs that are parameters or buffers of a module; frozen: the values of those in
    `constants` (index -> the real tensor) may be baked into the artifact: core compiles again before they are used
    changed; ranges: name of a symbol of shape_env -> (least, largest or None, example), for its sizes;
    deadline_s and workspace_limit_bytes: None for no limit; cache_dir: a folder the backend may write, None for none;
    report: takes a Finding; name: a readable name of the graph, for files and logs; tuning: the `mode` that the user
    gave to compile ("default", "reduce-overhead", "max-autotune", ...); step: how many steps the program has begun, for
    memory that is reused from one to the next; isolated: core compiles the graph in a process of its own.
    """

    device: str = "cpu"
    mode: str = "inference"
    shape_env: Any = None
    options: Mapping[str, Any] = field(default_factory=dict)
    precision: str = "eager"
    deterministic: bool = False
    output_strides: tuple[tuple[Any, ...] | None, ...] = ()
    parameters: frozenset[int] = frozenset()
    frozen: bool = False
    constants: Mapping[int, Any] = field(default_factory=dict)
    ranges: Mapping[str, tuple[int, int | None, int]] = field(default_factory=dict)
    deadline_s: float | None = None
    workspace_limit_bytes: int | None = None
    cache_dir: str | None = None
    report: Callable[[Finding], None] = _ignore
    name: str = "graph"
    tuning: str = "default"
    step: Callable[[], int] = current_step
    isolated: bool = False


@dataclass
class Artifact:
    """A compiled graph.

    call: flat, `call(*inputs) -> tuple of outputs`; with `boxed`, `call(list_of_inputs)`, which empties the list;
    kernels, extern_calls: launched and library calls in one run; provenance: node name -> "native", "library" or
    "fallback"; guards: expressions over the graph's symbols that the code relies on beyond the graph's own;
    cudagraph_safe: whether a run may be captured in a CUDA graph, for backends that declare "per-artifact"; size_bytes:
    of code and constants; describe: returns readable source for reports.
    """

    call: Callable[..., Any]
    boxed: bool = False
    kernels: int = 0
    extern_calls: int = 0
    provenance: Mapping[str, str] = field(default_factory=dict)
    cudagraph_safe: bool = False
    size_bytes: int = 0
    describe: Callable[[], str] | None = None
    guards: tuple[Any, ...] = ()


class Backend:
    """A compiler of graphs. Subclass it, set the three attributes, write `compile`; the rest has defaults.

    Core owns functionalisation, mutation, aliasing, strides, autograd and the choice of nodes; a backend sees one graph
    of the level it declares and answers with an Artifact. Methods may be called from several threads only when
    `capabilities.thread_safe`.
    """

    name: str = ""
    version: str = ""
    capabilities: Capabilities = Capabilities()

    def probe(self, device: str) -> Probe:
        """Say whether the backend works for `device` ("cpu", "cuda", ...). Must not raise nor make a CUDA context."""
        return Probe(True)

    def options(self) -> Mapping[str, Option]:
        """The options that users may pass, by name. Core rejects any other name and any value of another type."""
        return {}

    def decompositions(self, mode: str) -> Mapping[Any, Callable[..., Any]] | str | None:
        """The ATen overloads to take apart before `compile`: a table, the name of a set ("core"), or None for none."""
        return None

    def supports(self, node: Any, ctx: CompileContext) -> Support:
        """Say how the backend would run `node`. Pure: core remembers the answers."""
        return Support("native")

    def partition(self, graph: Any, ctx: CompileContext) -> Any:
        """Partitions of `graph` as lists of nodes, or None to leave it to core."""
        return None

    def compile(self, graph: Any, fake_inputs: Sequence[Any], ctx: CompileContext) -> Artifact:
        """Compile `graph` (an fx.GraphModule) for inputs like `fake_inputs`.

        Raises Unsupported for nodes it can't compile and CompileFailed when its compiler fails.
        """
        raise NotImplementedError(f"{type(self).__qualname__} does not implement compile")

    def cache_key(self, ctx: CompileContext) -> bytes:
        """Whatever beyond graph, inputs, options and versions decides about the artifact."""
        return b""

    def serialize(self, artifact: Artifact) -> bytes | None:
        """The artifact as bytes, or None when it can't be stored."""
        return None

    def deserialize(self, blob: bytes, ctx: CompileContext) -> Artifact:
        """The artifact from bytes of `serialize`. Raises StaleArtifact when they don't fit this process."""
        raise StaleArtifact(f"{self.name} stores no artifacts")

    def estimate(self, graph: Any, ctx: CompileContext) -> float | None:
        """Seconds one run is expected to take, or None. Used to leave out hopeless candidates only."""
        return None

    def teardown(self) -> None:
        """Release what the backend holds; called when the plugin is unloaded."""
