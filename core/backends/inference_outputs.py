"""Results that a program makes in inference mode, from graphs that know nothing of it: they come as inference tensors.

Where all results are such, the whole graph runs in that mode; where some are, those are copied in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..errors import RecorderRefused
from ..graph.captured import CapturedGraph
from ..graph.geometry import has_storage, storage_key
from ..torch_compat import training
from .generated import Code, tuple_text
from .wrapper import follow


def inference_places(captured: CapturedGraph) -> list[int]:
    """The outputs that are inference tensors although the graph is called outside of inference mode, those left out
    that are views of inputs: they come as such.

    Raises RecorderRefused where copies of them would part what shares memory.
    """
    if torch.is_inference_mode_enabled():
        return []
    given = {storage_key(one.fake) for one in captured.inputs if _is_inference(one.fake) and has_storage(one.fake)}
    places = [
        at
        for at, fake in enumerate(captured.outputs)
        if _is_inference(fake) and not (has_storage(fake) and storage_key(fake) in given)
    ]
    if places and not _all_inference(captured, places):
        keys = [storage_key(captured.outputs[at]) for at in places if has_storage(captured.outputs[at])]
        if len(set(keys)) < len(keys):
            raise RecorderRefused("results of inference mode share memory", instead="the graph runs as captured")
    return places


def _is_inference(fake: Any) -> bool:
    return isinstance(fake, torch.Tensor) and fake.is_inference()


def _all_inference(captured: CapturedGraph, places: list[int]) -> bool:
    """Whether no result was made outside of inference mode and nothing needs gradients."""
    tensors = [at for at, fake in enumerate(captured.outputs) if isinstance(fake, torch.Tensor)]
    return places == tensors and not captured.needs_grad


def in_inference_mode(
    run: Callable[..., tuple[Any, ...]], captured: CapturedGraph, places: list[int]
) -> Callable[..., tuple[Any, ...]]:
    """`run`, its outputs at `places` made in inference mode."""
    if not places:
        return run
    code = Code("compiled", ["*inputs"])
    mode = code.bind(training.inference_mode_guard(), "inference_mode")
    results = [f"s{at}" for at in range(len(captured.outputs))]
    if _all_inference(captured, places):
        code.line(f"with {mode}(True):")
        code.line("    return run(*inputs)")
    else:
        code.line(f"{tuple_text(results)} = run(*inputs)")
        code.line(f"with {mode}(True):")
        for at in places:
            code.line(f"    s{at} = s{at}.clone()")
        code.line(f"return {tuple_text(results)}")
    code.namespace["run"] = run
    compiled = code.finish()
    follow(compiled, code.namespace, "run", run)
    return compiled
