"""SemanticsTests: what PyTorch programs may rely on, whoever compiles them."""

from __future__ import annotations

from .semantics_memory import MemorySemantics
from .semantics_numbers import NumberSemantics
from .semantics_probes import SemanticProbes
from .semantics_state import StateSemantics


class SemanticsTests(SemanticProbes, MemorySemantics, NumberSemantics, StateSemantics):
    """The sixteen probes, and memory, numbers and state in full."""

    abstract = False
