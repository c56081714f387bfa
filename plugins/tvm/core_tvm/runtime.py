"""The installed TVM: its version by metadata, and the processor it compiles for."""

from __future__ import annotations

import functools
import importlib.util
from typing import Any

from core.plugin import installed_version

DISTRIBUTION = "apache-tvm"
OLDEST = (0, 27)
REMEDY = 'pip install "core-tvm[cpu]"'


def version() -> str:
    """The installed version, "" for none. Nothing is imported."""
    return installed_version(DISTRIBUTION)


def missing() -> str:
    """Why TVM can't be used, or "". Nothing is imported."""
    found = version()
    if not found or importlib.util.find_spec("tvm") is None:
        return f"{DISTRIBUTION} is not installed"
    parts = tuple(int(part) for part in found.split(".")[:2] if part.isdigit())
    if parts < OLDEST:
        return f"{DISTRIBUTION} {found} is installed; Relax as it is used here came with {OLDEST[0]}.{OLDEST[1]}"
    return ""


@functools.lru_cache(maxsize=8)
def target(mcpu: str) -> Any:
    """What code is compiled for: `mcpu` as LLVM names processors, "" for this one."""
    import tvm

    name = mcpu or tvm.target.codegen.llvm_get_system_cpu()
    return tvm.target.Target({"kind": "llvm", "mcpu": name, "num-cores": 1})
