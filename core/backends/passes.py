"""Graph passes of plugins: collected by stage, ordered, each one's result verified before the next runs.

Enters: a graph module and the name of its stage. Leaves: the module that the passes made of it, or the one that entered
where there is none. A pass that raises, or whose result takes or gives something else than before, is off for the rest
of the process: the graph before it goes on and a finding says so (under CORE_STRICT=1 it is an error).
State shared between threads: `_disabled` and `_entry_points`, sets and tuples replaced or added to under the GIL.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import torch
import torch.fx as fx

from ..errors import PassFailed
from ..events import BackendReported, emit
from ..graph.captured import CapturedGraph
from ..graph.emitter import NodeEmitter
from ..graph.node_memory import owns_memory
from ..graph.partition import is_impure
from ..graph.symbols import expression
from ..options import strict
from ..plugin import PROJECT, Finding, Pass
from .registry import default_registry

STAGES = ("torch", "joint", "forward", "backward", "inference")
"""torch: the graph of a backend of that level; joint: forward and backward in one; forward, backward: the two that a
backend gets in training; inference: the one without gradients. The last four are functional ATen graphs."""

GROUP = f"{PROJECT}.passes"

_disabled: set[tuple[str, str, str]] = set()


@dataclass(frozen=True)
class SourcedPass:
    """A pass and who brought it."""

    source: str
    wanted: Pass


def run_passes(module: fx.GraphModule, stage: str, captured: CapturedGraph) -> fx.GraphModule:
    """All passes of a stage, in order. Raises PassFailed under CORE_STRICT=1."""
    for each in ordered(collect(stage), stage):
        if (each.source, stage, each.wanted.name) not in _disabled:
            module = _run_one(each, module, stage, captured)
    return module


# -- which passes there are -------------------------------------------------------------------------------------------


def collect(stage: str) -> list[SourcedPass]:
    """The passes of a stage, of loaded plugins first, then of entry points of the group `core.passes`."""
    found: list[SourcedPass] = []
    for source, give in (*default_registry().pass_sources(), *_entry_points()):
        try:
            given = give(stage) or ()
            found += [SourcedPass(source, item) for item in given if _is_pass(item, source)]
        except PassFailed:
            raise
        except Exception as error:  # the edge of a plugin: its passes are left out, and it is said
            _failed(source, f"core_passes({stage!r}) raised {type(error).__name__}: {error}", error)
    return found


def _is_pass(item: Any, source: str) -> bool:
    if isinstance(item, Pass):
        return True
    _failed(source, f"core_passes gave {item!r}, not a core.plugin.Pass", None)
    return False


@functools.cache
def _entry_points() -> tuple[tuple[str, Callable[[str], Any]], ...]:
    """(name, stage -> passes) of each allowed entry point; it is a function, or an object with `core_passes`."""
    found = []
    policy = default_registry().policy
    for point in metadata.entry_points(group=GROUP):
        owner = point.dist.metadata["Name"] if point.dist is not None else ""
        if policy.refusal(point.name, owner or ""):
            continue
        source = f"{owner}:{point.name}"
        try:
            loaded = point.load()
        except Exception as error:  # the edge of a plugin: the others go on, and it is said
            _failed(source, f"it could not be loaded: {type(error).__name__}: {error}", error)
            continue
        found.append((source, getattr(loaded, "core_passes", loaded)))
    return tuple(found)


def ordered(passes: Sequence[SourcedPass], stage: str) -> list[SourcedPass]:
    """Each behind those that it names in `after` and before those in `before`; else as they came."""
    names = {each.wanted.name for each in passes}
    needs: dict[str, set[str]] = {name: set() for name in names}
    for each in passes:
        if each.wanted.after in names:
            needs[each.wanted.name].add(each.wanted.after)
        if each.wanted.before in names:
            needs[each.wanted.before].add(each.wanted.name)
    result: list[SourcedPass] = []
    waiting = list(passes)
    while waiting:
        left = {each.wanted.name for each in waiting}
        ready = next((each for each in waiting if not needs[each.wanted.name] & left), None)
        if ready is None:
            circle = ", ".join(sorted(left))
            _failed(waiting[0].source, f"the passes {circle} of stage {stage!r} want to run before each other", None)
            return [*result, *waiting]
        result.append(ready)
        waiting.remove(ready)
    return result


# -- running one ------------------------------------------------------------------------------------------------------


class _Invalid(Exception):
    """What is wrong with the graph that a pass returned."""


def _run_one(each: SourcedPass, module: fx.GraphModule, stage: str, captured: CapturedGraph) -> fx.GraphModule:
    """One pass on a copy, so that the graph before it is there when it fails."""
    trial = fx.GraphModule(module, copy.deepcopy(module.graph), type(module).__name__)
    what = f"the pass {each.wanted.name!r} of stage {stage!r}"
    try:
        result: fx.GraphModule = each.wanted.run(trial)
        _verify(module, result, stage, captured)
    except _Invalid as wrong:
        return _without(each, module, stage, f"{what} {wrong}", wrong)
    except Exception as error:  # the edge of a plugin: the pass is off, and it is said
        return _without(each, module, stage, f"{what} raised {type(error).__name__}: {error}", error)
    result.recompile()
    return result


def _without(each: SourcedPass, module: fx.GraphModule, stage: str, text: str, error: BaseException) -> fx.GraphModule:
    _disabled.add((each.source, stage, each.wanted.name))
    _failed(each.source, f"{text}; it is off for this process", error)
    return module


def _failed(source: str, text: str, error: BaseException | None) -> None:
    if strict():
        raise PassFailed(
            f"{source}: {text}",
            instead="nothing was compiled",
            remedy=f"report it to the authors, or turn it off: CORE_DISABLE_PLUGINS={source.partition(':')[0]}",
        ) from error
    emit(BackendReported(source, Finding("error", text, "report it to the plugin's authors")))


def _verify(before: fx.GraphModule, after: Any, stage: str, captured: CapturedGraph) -> None:
    """Raise _Invalid unless the graph takes and gives what it did, and does what has effects as it did."""
    if not isinstance(after, fx.GraphModule):
        raise _Invalid(f"returned {type(after).__name__}, not a graph module")
    try:
        after.graph.lint()
    except RuntimeError as error:
        raise _Invalid(f"left a graph that is not well-formed: {error}") from error
    old, new = (list(module.graph.nodes) for module in (before, after))
    takes = [[node.name for node in nodes if node.op == "placeholder"] for nodes in (old, new)]
    if takes[0] != takes[1]:
        raise _Invalid("changed the inputs of the graph")
    gives = [_results(nodes) for nodes in (old, new)]
    if len(gives[0]) != len(gives[1]):
        raise _Invalid(f"left {len(gives[1])} results of {len(gives[0])}")
    if stage == "torch":
        return
    effects = [[node.target for node in nodes if is_impure(node)] for nodes in (old, new)]
    if effects[0] != effects[1]:
        raise _Invalid("changed which random numbers are drawn or what is written to, or their order")
    _fill_values(new, captured)
    for at, (was, now) in enumerate(zip(*gives)):
        difference = _difference(was, now)
        if difference:
            raise _Invalid(f"changed {difference} of result {at}")


def _results(nodes: Iterable[fx.Node]) -> list[Any]:
    return list(next(node for node in reversed(list(nodes)) if node.op == "output").args[0])  # type: ignore[arg-type]


def _fill_values(nodes: Sequence[fx.Node], captured: CapturedGraph) -> None:
    """Give the nodes that the pass wrote a fake value, by running them on those of their operands."""
    emitter = NodeEmitter(captured.fake_mode, captured.shape_env)
    for node in nodes:
        if node.op == "call_function" and "val" not in node.meta:
            node.meta["val"] = emitter.run(node.target, node.args, node.kwargs)  # type: ignore[arg-type]


def _difference(was: Any, now: Any) -> str:
    if not isinstance(was, fx.Node) or not isinstance(now, fx.Node):
        return "" if type(was) is type(now) and was == now else "the kind"
    old, new = was.meta.get("val"), now.meta.get("val")
    if not isinstance(old, torch.Tensor) or not isinstance(new, torch.Tensor):
        return "" if expression(old) == expression(new) else "the value"
    if old.dtype is not new.dtype or old.device != new.device:
        return "the dtype or device"
    if [expression(size) for size in old.shape] != [expression(size) for size in new.shape]:
        return "the shape"
    if owns_memory(was) and not owns_memory(now):
        return "whose memory it is, "
    strides = [[expression(step) for step, size in zip(x.stride(), x.shape) if size != 1] for x in (old, new)]
    return "" if strides[0] == strides[1] else "the strides"
