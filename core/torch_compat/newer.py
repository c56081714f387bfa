"""What the oldest torch lacks or does in another way, as what works in each. Checked with torch 2.8, 2.11 and 2.13."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.fx


def present(module: Any, *names: str) -> tuple[Callable[..., Any], ...]:
    """The functions of these names that a module has."""
    return tuple(getattr(module, name) for name in names if hasattr(module, name))


GRAPH_NOTES = present(torch.fx.traceback, "annotate")
"""What writes notes on the nodes of a tracer's graph (since torch 2.9)."""

VIEWS_TAKE_SYMBOLS = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 11)
"""Whether the C++ rule of aten.view for fake tensors takes symbolic sizes (2.8: no; 2.11 and 2.13: yes)."""


def taking_symbols(handler: Callable[..., Any]) -> Callable[..., Any]:
    """The handler of a mode for fake tensors with the Python rule of aten.view, which always takes them."""
    from torch._dispatch.python import enable_python_dispatcher

    view = torch.ops.aten.view.default

    def __torch_dispatch__(mode: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not view:
            return handler(mode, func, types, args, kwargs)
        with enable_python_dispatcher():
            return handler(mode, func, types, args, kwargs)

    return __torch_dispatch__
