"""Who can run which node of a functional graph: each backend asked once a node, and core's own reasons against it.

Enters: a graph of ATen calls, a ResolvedBackend and the context it compiles under. Leaves: a verdict a node.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import torch
import torch.fx as fx

from ..errors import BackendFailed, UserLine
from ..graph.geometry import is_contiguous
from ..graph.partition import is_number, operator_name
from ..plugin import Backend, Capabilities, CompileContext, PluginBug, Support
from .resolved import ResolvedBackend

KINDS = ("native", "library", "no")
NATIVE = Support("native")

_READS_OF_SIZES = frozenset(("sym_size", "sym_stride", "sym_numel", "sym_storage_offset"))
_FIXED_TO_MEMORY = frozenset(("as_strided", "as_strided_scatter"))


def is_host_number(node: fx.Node) -> bool:
    """True for arithmetic on sizes: core does it between the regions. What is read from data is a backend's."""
    if node.op != "call_function" or not is_number(node):
        return False
    return not isinstance(node.target, torch._ops.OpOverload) or operator_name(node) in _READS_OF_SIZES


def is_work(node: fx.Node) -> bool:
    """True for a node that some backend must run: no input, constant, item of a result, or size."""
    return node.op == "call_function" and node.target is not operator.getitem and not is_host_number(node)


def asks_nothing(resolved: ResolvedBackend) -> bool:
    """True for a backend that takes every node of its device: it has no opinion, and declares no limits."""
    own = "supports" in resolved.overrides or type(resolved.backend).supports is not Backend.supports
    own = own or "supports" in vars(resolved.backend)
    capabilities = resolved.capabilities
    return not own and not capabilities.dtypes and capabilities.dynamic_shapes == "full" and _any_layout(capabilities)


def partitions_itself(resolved: ResolvedBackend) -> bool:
    """True for a backend with a partition of its own."""
    own = "partition" in resolved.overrides or type(resolved.backend).partition is not Backend.partition
    return own or "partition" in vars(resolved.backend)


def _any_layout(capabilities: Capabilities) -> bool:
    return capabilities.layouts == "any"


class Verdicts:
    """The verdicts of one backend on the nodes of one graph. A node that it refused while compiling can be `struck`."""

    def __init__(self, resolved: ResolvedBackend, ctx: CompileContext) -> None:
        self.resolved = resolved
        self.ctx = ctx
        self._known: dict[fx.Node, Support] = {}
        self._asks = not asks_nothing(resolved)
        self._dtypes = frozenset(resolved.capabilities.dtypes)
        self._devices = frozenset(entry.partition(":")[0] for entry in resolved.capabilities.devices)

    def of(self, node: fx.Node) -> Support:
        """How the backend would run a node. Raises PluginBug when its answer is none, or it raises."""
        known = self._known.get(node)
        if known is None:
            known = self._known[node] = self._judged(node)
        return known

    def strike(self, node: fx.Node, reason: str) -> None:
        """The backend doesn't take this node after all."""
        self._known[node] = Support("no", reason)

    def forget(self, node: fx.Node) -> None:
        """Take a strike back."""
        self._known.pop(node, None)

    def _judged(self, node: fx.Node) -> Support:
        against = self._refusal(node)
        if against:
            return Support("no", against)
        return self._asked(node) if self._asks else NATIVE

    def _asked(self, node: fx.Node) -> Support:
        try:
            answer = self.resolved.supports(node, self.ctx)
        except Exception as error:  # the plugin boundary: whatever comes out of it is named after the plugin and raised
            if _asks_about_data(error):
                return Support("no", "the backend asks for a size that only the data knows")
            raise self._bug(node, f"raised {type(error).__name__}: {error}", error) from error
        if not isinstance(answer, Support) or answer.kind not in KINDS:
            raise self._bug(node, f"answered {answer!r}, not a Support of {', '.join(map(repr, KINDS))}")
        return answer

    def _refusal(self, node: fx.Node) -> str:
        """Core's own reason why the backend can't have a node: what it declares is no opinion but a limit."""
        if self._devices:
            elsewhere = _named_device(node)
            if elsewhere and elsewhere not in self._devices:
                return f"it is on {elsewhere}, and the backend declares {', '.join(sorted(self._devices))}"
        if not self._asks:
            return ""
        values = _values(node)
        if self._dtypes:
            for value in values:
                name = str(value.dtype).removeprefix("torch.")
                if name not in self._dtypes:
                    return f"its dtype {name} is not among those that the backend declares"
        capabilities = self.resolved.capabilities
        if capabilities.dynamic_shapes != "full" and any(_has_open_size(value) for value in values):
            return f"a size depends on data, and the backend's dynamic shapes are {capabilities.dynamic_shapes!r}"
        if not _any_layout(capabilities) and operator_name(node) in _FIXED_TO_MEMORY:
            if not is_contiguous(values[0]):
                return "its result depends on the memory layout of its operand, which the backend gets contiguous"
        if _takes_list(node):
            return "it takes the whole result of an operator with several results"
        return ""

    def _bug(self, node: fx.Node, what: str, error: Exception | None = None) -> BackendFailed:
        resolved, text = self.resolved, f"backend {self.resolved.label}: supports({node.name}) {what}"
        where, instead = user_line(node), "nothing was compiled"
        if not resolved.distribution:
            return BackendFailed(text, where=where, instead=instead, remedy="the error is the backend's own")
        return PluginBug(
            text,
            dist=resolved.distribution,
            version=resolved.version,
            issues_url=resolved.issues,
            where=where,
            instead=instead,
            remedy=resolved.remedy_of(error),
        )


def user_line(node: fx.Node) -> UserLine | None:
    """The user's line that a node comes from."""
    return node.meta.get("user_line")


def provenance(nodes: Any, verdicts: Verdicts) -> Mapping[str, str]:
    """Node name -> how its backend runs it."""
    return {node.name: verdicts.of(node).kind for node in nodes}


def _values(node: fx.Node) -> list[torch.Tensor]:
    """The tensors that a node takes and gives, operands first."""
    found: list[torch.Tensor] = []
    for value in (*(operand.meta.get("val") for operand in node.all_input_nodes), node.meta.get("val")):
        items = value if isinstance(value, (tuple, list)) else (value,)
        found += [item for item in items if isinstance(item, torch.Tensor)]
    return found


def _named_device(node: fx.Node) -> str:
    """The device kind that a node names, or that of a constant it takes, where operands alone don't tell."""
    device = node.kwargs.get("device")
    if device is not None:
        return torch.device(device).type  # type: ignore[arg-type]
    return ""


def _asks_about_data(error: Exception) -> bool:
    from .. import torch_compat

    return isinstance(error, torch_compat.data_dependent_errors())


def _has_open_size(value: torch.Tensor) -> bool:
    """True where a size is known to no call before the graph runs."""
    from .. import torch_compat

    for size in value.shape:
        if isinstance(size, torch.SymInt):
            expr = size.node.expr
            if any(not torch_compat.has_number(size.node.shape_env, symbol) for symbol in expr.free_symbols):
                return True
    return False


def _takes_list(node: fx.Node) -> bool:
    return any(
        isinstance(operand.meta.get("val"), (tuple, list)) and operand.op == "call_function"
        for operand in node.all_input_nodes
    )
