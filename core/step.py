"""The step that a program is in: what a backend needs to know that keeps outputs of one step in reused memory.

State shared between threads: `_step`, under the GIL. This module imports no torch.
"""

from __future__ import annotations

_step = 0


def cudagraph_mark_step_begin() -> None:
    """Say that a new step of training or inference begins: outputs of earlier steps are no longer needed.

    A backend that replays CUDA graphs may then write over them; it reads the step from `CompileContext.step`.
    """
    global _step
    _step += 1


def current_step() -> int:
    """How many steps have begun."""
    return _step
