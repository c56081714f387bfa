"""RealState: torch's settings that the traced code switches, for real while it is captured and by nodes of the graph.

Enters: a change of grad mode, of autocast, of inference mode. Leaves: the setting changed, a node that changes it when
the graph runs, and what undoes both. Settings without a method here are switched by switches.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx as fx

from .. import torch_compat
from ..errors import UserLine
from .graph_value import annotate
from .inference_mode import ENTER_INFERENCE, EXIT_INFERENCE, InferenceRegion


class RealState:
    """The state that one graph has changed. For a class that says to which graph nodes go now."""

    def __init__(self) -> None:
        self._undo: list[tuple[Any, Callable[[], None], Callable[[], Any]]] = []

    @property
    def fake_mode(self) -> Any:
        """The FakeTensorMode of the capture."""
        raise NotImplementedError

    @property
    def _current_graph(self) -> fx.Graph:
        raise NotImplementedError

    def set_grad_enabled(self, mode: bool, *, line: UserLine | None = None) -> bool:
        """Switch grad mode, here and in the graph; returns the mode before. finish() and abort() put it back."""
        before = torch.is_grad_enabled()
        if before != mode:
            apply = torch_compat.set_grad_enabled_function()
            self._toggle(apply, (mode,), line)
            apply(mode)
            self._push_undo("grad", lambda: apply(before), lambda: self._toggle(apply, (before,), None))
        return before

    def enter_autocast(
        self,
        device_type: str,
        dtype: torch.dtype | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
        *,
        line: UserLine | None = None,
    ) -> Any:
        """Enter autocast, here and in the graph; returns the token for exit_autocast."""
        vals = (device_type, dtype, enabled, cache_enabled)
        node = self._toggle(torch_compat.enter_autocast_function(), vals, line)
        mode = torch_compat.enter_autocast_function()(*vals)
        leave = torch_compat.exit_autocast_function()
        token = (node, mode)
        self._push_undo(token, lambda: leave(mode), lambda: self._toggle(leave, (node,), None))
        return token

    def exit_autocast(self, token: Any, *, line: UserLine | None = None) -> None:
        """Leave the autocast region that `token` names."""
        node, mode = token
        leave = torch_compat.exit_autocast_function()
        self._toggle(leave, (node,), line)
        leave(mode)
        self._undo = [entry for entry in self._undo if entry[0] is not token]

    def enter_inference_mode(self, mode: bool, *, line: UserLine | None = None) -> Any:
        """Switch inference mode, here and in the graph; returns the token for exit_inference_mode."""
        token = InferenceRegion(self._toggle(ENTER_INFERENCE, (mode,), line), ENTER_INFERENCE(mode))
        self._push_undo(token, token.leave, lambda: self._toggle(EXIT_INFERENCE, (token.node,), None))
        return token

    def exit_inference_mode(self, token: Any, *, line: UserLine | None = None) -> None:
        """Leave the region that `token` names."""
        self._toggle(EXIT_INFERENCE, (token.node,), line)
        token.leave()
        self._undo = [entry for entry in self._undo if entry[0] is not token]

    def _toggle(self, fn: Any, args: tuple[Any, ...], line: UserLine | None) -> fx.Node:
        self.fake_mode  # noqa: B018 - a graph of toggles alone is a graph as well
        node = self._current_graph.call_function(fn, args)
        annotate(node, None, line)
        return node

    def _push_undo(self, key: Any, restore: Callable[[], None], write: Callable[[], Any]) -> None:
        self._undo.append((key, restore, write))

    @property
    def open_regions(self) -> int:
        """How many autocast regions the code has entered and not left."""
        return sum(isinstance(key, tuple) for key, _, _ in self._undo)

    @property
    def open_inference_regions(self) -> int:
        """How many regions of inference mode the code has entered and not left."""
        return sum(isinstance(key, InferenceRegion) for key, _, _ in self._undo)

    def _restore_state(self, *, write: bool) -> None:
        while self._undo:
            _, restore, write_node = self._undo.pop()
            restore()
            if write:
                write_node()
