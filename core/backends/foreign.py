"""Foreign backends: what other projects publish for torch.compile, as metadata shows it. Nothing is imported here.

Enters: the search path. Leaves: one ForeignBackend a name and distribution, from the entry points of the group
`torch_dynamo_backends` and from a table of those that register themselves when a module of theirs is imported. How one
is loaded and what it is given stands in `bridge.py`. This module imports no torch.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .discovery import Scan, publishing, scan, search_path
from .distributions import EntryPoint, version_of
from .policy import normalise

GROUP = "torch_dynamo_backends"
PREFIX = "dynamo:"
OURS = "core.bridge"
"""The module behind the entry points with which core's own backends are published to torch.compile."""


@dataclass(frozen=True)
class Traits:
    """What is known of a foreign backend that its interface does not tell.

    dynamic_shapes, dtypes: as in Capabilities; precision: mode -> what the backend's options must hold for it ({} is
    its own default), empty where nothing is known; empty: it is right for tensors without elements; random: it draws
    from torch's generators; note: said with each compile, about what differs from torch.
    """

    dynamic_shapes: str = "none"
    dtypes: tuple[str, ...] = ()
    empty: bool = False
    random: bool = False
    precision: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    note: str = ""


_STRICT_OPENVINO = {"config": {"INFERENCE_PRECISION_HINT": "f32"}}

TRAITS: Mapping[str, Traits] = {
    "openvino": Traits(
        # int64 and float64 are accepted, and computed in int32 and float32; sums of 8 bits saturate instead of
        # wrapping, and a cast to bfloat16 is made to float16
        dtypes=("float32", "float16", "int32", "int16", "bool"),
        precision={"ieee": _STRICT_OPENVINO, "bf16": {}},
        note="relu of NaN may be 0; what it has no operator for, and graphs of one node, run on torch's own kernels",
    ),
    "inductor": Traits(dynamic_shapes="full", empty=True, random=True),
    "aot_eager": Traits(dynamic_shapes="full", empty=True, random=True),
    "eager": Traits(dynamic_shapes="full", empty=True, random=True),
}
"""Name -> traits. One that is not here gets graphs of fixed sizes, which every callable can take."""


@dataclass(frozen=True)
class Registering:
    """A backend that is there once `module` was imported: as `attribute` of it, or under its name in torch's own
    registry where there is no attribute."""

    module: str
    distribution: str
    attribute: str = ""


REGISTERING: Mapping[str, Registering] = {
    "tensorrt": Registering("torch_tensorrt", "torch-tensorrt"),
    "torch_tensorrt": Registering("torch_tensorrt", "torch-tensorrt"),
    "thunder": Registering("thunder.dynamo", "lightning-thunder", "ThunderCompiler"),
    "hidet": Registering("hidet.graph.frontend.torch", "hidet"),
    "openxla": Registering("torch_xla", "torch-xla"),
    "ttnn": Registering("torch_ttnn", "torch-ttnn", "backend"),
    "ipex": Registering("intel_extension_for_pytorch", "intel-extension-for-pytorch"),
    "tvm": Registering("tvm.contrib.torch", "apache-tvm"),
}


@dataclass(frozen=True)
class ForeignBackend:
    """One callable of another project. entry_point: None for one that registers itself."""

    name: str
    distribution: str
    version: str
    entry_point: EntryPoint | None = None
    registering: Registering | None = None

    @property
    def use(self) -> str:
        """What to pass as `backend=`."""
        return f"{PREFIX}{self.name}"

    @property
    def traits(self) -> Traits:
        return TRAITS.get(normalise(self.name), Traits())


def foreign_backends(scanned: Scan | None = None, *, registering: bool = True) -> tuple[ForeignBackend, ...]:
    """Every foreign backend that the scanned distributions (by default search_path's) publish, sorted by name.

    registering: also those of REGISTERING whose module this process would find.
    """
    found: dict[tuple[str, str], ForeignBackend] = {}
    for name, version, distribution in publishing(scan(search_path()) if scanned is None else scanned, GROUP):
        for point in distribution.entry_points:
            if point.group == GROUP and point.value.partition(":")[0] != OURS:
                found.setdefault((point.name, normalise(name)), ForeignBackend(point.name, name, version, point))
    for key, each in REGISTERING.items() if registering else ():
        if importlib.util.find_spec(each.module.partition(".")[0]) is not None:
            owner = each.distribution
            known = ForeignBackend(key, owner, version_of(owner), None, each)
            found.setdefault((key, normalise(owner)), known)
    return tuple(sorted(found.values(), key=lambda each: (each.name, each.distribution)))


def registered_names() -> list[str]:
    """The names in torch's own registry, as far as this process has loaded it; nothing is imported."""
    registry = sys.modules.get("torch._dynamo.backends.registry")
    return sorted(registry._COMPILER_FNS) if registry is not None else []


def named(backends: Iterable[ForeignBackend], name: str) -> list[ForeignBackend]:
    """Those that a name means: `NAME` or `DISTRIBUTION:NAME`, without the prefix."""
    distribution, _, bare = name.rpartition(":")
    return [
        each
        for each in backends
        if normalise(each.name) == normalise(bare)
        and (not distribution or normalise(each.distribution) == normalise(distribution))
    ]
