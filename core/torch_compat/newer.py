"""Public names that the oldest torch lacks, as what there is of them. Checked with torch 2.8, 2.11 and 2.13."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.fx


def present(module: Any, *names: str) -> tuple[Callable[..., Any], ...]:
    """The functions of these names that a module has."""
    return tuple(getattr(module, name) for name in names if hasattr(module, name))


GRAPH_NOTES = present(torch.fx.traceback, "annotate")
"""What writes notes on the nodes of a tracer's graph (since torch 2.9)."""
