"""Other projects' torch.compile backends as backends of core: the only file that may import torch._dynamo.

Enters: a ForeignBackend of foreign.py. Leaves: a ResolvedBackend named `dynamo:NAME`. The callable behind it gets what
torch.compile gives to one: a graph module that it may change, example inputs, `options` and `mode`; but the graph is
the functional ATen graph of core, its parameters among the inputs, so that mutation, aliasing, strides, autograd and
dtypes stay core's. Under the option `raw` it gets the torch-level graph, and autograd is the callable's business.
torch._dynamo is imported only where a name has to be looked up in its registry; most foreign backends import it anyway.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.fx as fx

from .. import torch_compat
from ..errors import BackendBroken, BackendNotInstalled, BridgeLoop, InvalidOption
from ..events import FellBack, emit
from ..graph.geometry import hint
from ..graph.partition import is_random
from ..plugin import Artifact, Backend, Capabilities, CompileContext, Finding, Option, Support, Unsupported
from ..torch_compat import tracing
from .foreign import OURS, PREFIX, TRAITS, ForeignBackend, Traits
from .foreign_outputs import own_memory, told_of_torchs_kernels
from .loading import watched_import
from .policy import normalise
from .resolved import ResolvedBackend

OWN_OPTIONS: Mapping[str, Option] = {
    "raw": Option(bool, False, help="give the torch-level graph; autograd and all else is the callable's"),
    "examples": Option(str, "fake", ("fake", "real"), help="example inputs: fakes, or real tensors of zeros"),
}
"""Options of the bridge itself. Every other option goes to the callable, as torch.compile would pass it."""

_TORCHS_OWN = frozenset(("inductor", "aot_eager", "eager", "cudagraphs"))
"""Names of torch's own backends: that these end in its compiler is what was asked for."""


# -- loading ----------------------------------------------------------------------------------------------------------


def load_foreign(name: str, found: ForeignBackend | None) -> ResolvedBackend:
    """The backend `dynamo:name`. found: what metadata says of it, None to ask torch's own registry.

    Raises BackendBroken when its module does not import, BackendNotInstalled when torch knows no such name.
    """
    owner, release = (found.distribution, found.version) if found is not None else ("torch", torch.__version__)
    try:
        with watched_import(f"{PREFIX}{name}", owner, release):
            function = _callable(name, found)
    except (BackendNotInstalled, BridgeLoop):
        raise
    except (Exception, SystemExit) as error:  # whatever a foreign module raises while it is imported
        owner = f" of {found.distribution} {found.version}".rstrip() if found is not None else ""
        raise BackendBroken(
            f"backend {PREFIX}{name}{owner} could not be loaded: {type(error).__name__}: {error}",
            instead="other backends keep working",
            remedy=f"reinstall {found.distribution}" if found is not None and found.distribution else "see the error",
        ) from error
    if getattr(function, "__module__", "") == OURS:
        raise BridgeLoop(
            f"backend {PREFIX}{name} is core's own, published for torch.compile",
            instead="nothing was compiled",
            remedy=f"pass backend={name.removeprefix('core_')!r}" if name != "core" else "leave the backend out",
        )
    traits = found.traits if found is not None else TRAITS.get(normalise(name), Traits())
    distribution, version = (found.distribution, found.version) if found is not None else ("torch", torch.__version__)
    return resolved_foreign(name, function, traits, distribution, version)


def resolved_foreign(
    name: str, function: Callable[..., Any], traits: Traits, distribution: str = "", version: str = ""
) -> ResolvedBackend:
    """A callable in torch.compile's convention as the backend `dynamo:name`."""
    backend = BridgedBackend(name, function, traits, version)
    return BridgedResolved(backend.name, backend, backend.capabilities, distribution=distribution, version=version)


def _callable(name: str, found: ForeignBackend | None) -> Callable[..., Any]:
    if found is not None and found.entry_point is not None:
        return _checked(name, found.entry_point.load())
    if found is not None and found.registering is not None:
        module = importlib.import_module(found.registering.module)
        if found.registering.attribute:
            return _checked(name, getattr(module, found.registering.attribute))
    return _checked(name, _looked_up(name))


def _looked_up(name: str) -> Any:
    """A name of torch's own registry, where importing a module may have put it."""
    registry: Any = importlib.import_module("torch._dynamo.backends.registry")
    known = registry.list_backends(exclude_tags=None)
    wanted = next((each for each in known if normalise(each) == normalise(name)), None)
    if wanted is None:
        raise BackendNotInstalled(
            f"torch.compile has no backend {name!r}, and no installed distribution publishes one",
            instead="nothing was compiled",
            remedy=f"import the module that registers it; torch knows {', '.join(known)}",
        )
    return registry.lookup_backend(wanted)


def _checked(name: str, function: Any) -> Callable[..., Any]:
    if isinstance(function, type):
        function = function()
    if not callable(function):
        raise TypeError(f"{name} is {type(function).__name__}, not a callable (graph_module, example_inputs)")
    return function  # type: ignore[no-any-return]


# -- the backend ------------------------------------------------------------------------------------------------------


class BridgedBackend(Backend):
    """A callable `(gm, example_inputs, *, options, mode)` of another project."""

    def __init__(
        self, name: str, function: Callable[..., Any], traits: Traits, version: str, raw: bool = False
    ) -> None:
        self.bare_name = name
        self.name = f"{PREFIX}{name}"
        self.function = function
        self.traits = traits
        self.version = version
        self.raw = raw
        self.capabilities = Capabilities(
            graph_level="torch" if raw else "aten-functional",
            dynamic_shapes=traits.dynamic_shapes,
            dtypes=() if raw else traits.dtypes,
            precision_modes=tuple(traits.precision) or ("ieee",),
            thread_safe=False,
        )

    def options(self) -> Mapping[str, Option]:
        return OWN_OPTIONS

    def supports(self, node: Any, ctx: CompileContext) -> Support:
        """What callables get wrong most stays with core's fallback: tensors without elements, and random numbers, which
        have to follow torch's generators."""
        if not self.traits.random and is_random(node):
            return Support("no", "it draws random numbers")
        if self.traits.empty:
            return Support("native")
        values = [operand.meta.get("val") for operand in (*node.all_input_nodes, node)]
        flat = [item for value in values for item in (value if isinstance(value, (tuple, list)) else (value,))]
        if any(isinstance(item, torch.Tensor) and any(size == 0 for size in item.shape) for item in flat):
            return Support("no", "a tensor has no elements")
        return Support("native")

    def compile(self, graph: Any, fake_inputs: Sequence[Any], ctx: CompileContext) -> Artifact:
        if self.capabilities.dynamic_shapes == "none" and _is_symbolic(graph, fake_inputs):
            raise Unsupported((), f"{self.name} is given graphs of fixed sizes only, and this one has symbolic ones")
        examples = _examples(fake_inputs, real=ctx.options.get("examples") == "real", history=self.raw)
        module = _own_copy(graph, examples)
        if self.traits.note:
            ctx.report(Finding("info", f"{self.name}: {self.traits.note}"))
        fake_mode = next((torch_compat.tracing.fake_mode_of(f) for f in fake_inputs if _is_fake(f)), None)
        with tracing.tracing_context(fake_mode), _grad_mode(self.raw), self._told_of_other_compilers(ctx):
            compiled = self.function(module, examples, **self._keywords(ctx))
        if not callable(compiled):
            raise TypeError(f"it returned {type(compiled).__name__}, which can't be called")
        # Called with the inputs one by one, as torch.compile does whatever a mark of AOTAutograd on it says.
        call = compiled.forward if isinstance(compiled, fx.GraphModule) else compiled
        if self.raw:
            return Artifact(call=call)
        provenance: dict[str, str] = {}
        watched = told_of_torchs_kernels(call, graph, provenance, ctx.report, self.name)
        return Artifact(call=own_memory(call, first=watched), provenance=provenance)

    def _keywords(self, ctx: CompileContext) -> dict[str, Any]:
        """The options of the call and those that the precision asks for, as this callable takes them."""
        given = {key: value for key, value in ctx.options.items() if key not in OWN_OPTIONS}
        precision = self.traits.precision
        wanted = precision.get(ctx.precision, precision.get("ieee", {}) if ctx.precision == "eager" else {})
        mode = given.pop("mode", None)
        keywords: dict[str, Any] = {} if mode in (None, "default") else {"mode": mode}
        options = _merged(wanted, given)
        if not options:
            return keywords
        if takes_options(self.function):
            return {**keywords, "options": options}
        return {**keywords, **options}

    @contextlib.contextmanager
    def _told_of_other_compilers(self, ctx: CompileContext) -> Iterator[None]:
        """Say so when the callable hands the graph to torch's own compiler, which some do instead of failing."""
        before = _compiles_of_torch()
        yield
        if _compiles_of_torch() == before or self.bare_name in _TORCHS_OWN:
            return
        text = f"{self.name} handed a graph ({ctx.mode}) to torch's own compiler instead of compiling it"
        ctx.report(Finding("warning", text, "choose another backend for this graph, or report it to its authors"))
        emit(FellBack("backend", text))


class BridgedResolved(ResolvedBackend):
    """Options besides those of the bridge are the callable's own: what it takes, only it knows."""

    def known_options(self) -> list[str]:
        return sorted([*OWN_OPTIONS, "mode"])

    def validate_options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        own = {key: value for key, value in given.items() if key in OWN_OPTIONS}
        rest = {key: value for key, value in given.items() if key not in OWN_OPTIONS}
        function = self.backend.function  # type: ignore[attr-defined]
        if rest and not takes_options(function):
            _require_parameters(self, function, rest)
        return {**super().validate_options(own), **rest}

    def for_options(self, given: Mapping[str, Any]) -> ResolvedBackend:
        backend: Any = self.backend
        if bool(given.get("raw", False)) == backend.raw:
            return self
        twin = BridgedBackend(backend.bare_name, backend.function, backend.traits, backend.version, not backend.raw)
        return replace(self, backend=twin, capabilities=twin.capabilities)


def takes_options(function: Callable[..., Any]) -> bool:
    """Whether a callable has the parameter `options`, or takes any: torch.compile's way of passing them."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return True  # no signature to read: the convention
    return any(p.name == "options" or p.kind is p.VAR_KEYWORD for p in parameters)


def _require_parameters(resolved: ResolvedBackend, function: Callable[..., Any], given: Mapping[str, Any]) -> None:
    try:
        inspect.signature(function).bind(None, [], **given)
    except TypeError as error:
        raise InvalidOption(
            f"backend {resolved.label} does not take the options {', '.join(sorted(given))}: {error}",
            instead="nothing was compiled",
            remedy="pass options that the callable has parameters for",
        ) from None


def _merged(wanted: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Options of the user over those of a precision; tables inside are merged key by key."""
    merged = dict(given)
    for key, value in wanted.items():
        own = given.get(key)
        if isinstance(value, Mapping) and isinstance(own, Mapping):
            merged[key] = {**value, **own}
        elif key not in given:
            merged[key] = dict(value) if isinstance(value, Mapping) else value
    return merged


# -- what the callable is given ---------------------------------------------------------------------------------------


def _is_fake(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and hasattr(value, "fake_mode")


def _is_symbolic(graph: fx.GraphModule, fake_inputs: Sequence[Any]) -> bool:
    numbers = (torch.SymInt, torch.SymFloat, torch.SymBool)
    values = [*fake_inputs, *(node.meta.get("val", node.meta.get("example_value")) for node in graph.graph.nodes)]
    flat = [item for value in values for item in (value if isinstance(value, (tuple, list)) else (value,))]
    return any(
        isinstance(item, numbers)
        or isinstance(item, torch.Tensor)
        and any(isinstance(size, torch.SymInt) for size in item.shape)
        for item in flat
    )


def _examples(fake_inputs: Sequence[Any], *, real: bool, history: bool) -> list[Any]:
    """One example an input: fakes without history, or real zeros. history: they require gradients as the inputs do."""
    return [_example(fake, real, history) for fake in fake_inputs]


def _example(fake: Any, real: bool, history: bool) -> Any:
    if not isinstance(fake, torch.Tensor):
        return hint(fake) if real and isinstance(fake, torch.SymInt) else fake
    if not real:
        return fake if history else fake.detach()
    sizes = [hint(size) for size in fake.shape]
    with torch.no_grad():
        made = torch.empty_strided(sizes, [hint(s) for s in fake.stride()], dtype=fake.dtype, device=fake.device)
        made.zero_()
    return made.requires_grad_(history and fake.requires_grad)


def _own_copy(graph: fx.GraphModule, examples: Sequence[Any]) -> fx.GraphModule:
    """The graph as a module that the callable may rewrite, with the metadata that such callables look for."""
    from torch.fx.passes.shape_prop import _extract_tensor_metadata

    module = fx.GraphModule(graph, copy.deepcopy(graph.graph))
    module.meta.update(graph.meta)
    placed = iter(examples)
    for node in module.graph.nodes:
        value = node.meta.get("val", node.meta.get("example_value"))
        if node.op == "placeholder":
            example = next(placed)
            value = example if value is None or isinstance(example, torch.Tensor) and _is_fake(example) else value
        if isinstance(value, torch.Tensor):
            node.meta.setdefault("val", value)
            node.meta["example_value"] = value
            if "tensor_meta" not in node.meta and value.layout is torch.strided:
                node.meta["tensor_meta"] = _extract_tensor_metadata(value)
        elif value is not None:
            node.meta.setdefault("example_value", value)
    return module


def _grad_mode(raw: bool) -> contextlib.AbstractContextManager[Any]:
    """A functional graph is compiled without gradients: core has taken them apart already."""
    return contextlib.nullcontext() if raw else torch.no_grad()


def _compiles_of_torch() -> int:
    """How many graphs torch's own compiler has been given in this process."""
    module = sys.modules.get("torch._dynamo.utils")
    counters = getattr(module, "counters", None)
    return int(counters["aot_autograd"]["total"]) if counters is not None else 0
