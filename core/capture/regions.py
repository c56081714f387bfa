"""What tracing a region needs besides the graph's part of it: refusals, and the check that nothing escapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ..errors import Unsupported
from ..graph.region import Region, escaped
from ..variables.base import ObservedException, VariableTracker
from ..variables.tensor import TensorVariable

VT = VariableTracker


def trace_body(tx: Any, what: str, body: Callable[[], VT]) -> VT:
    """Run `body`, which traces into user code inside an open region; an exception of the program breaks the graph."""
    try:
        return body().realize(tx)
    except ObservedException as raised:
        name = raised.value.python_type().__name__
        raise Unsupported(
            f"{what} raised {name}", remedy="catch the exception inside, or call it outside the compiled function"
        ) from None


def refuse_escapes(tx: Any, moment: int, regions: tuple[Region, ...]) -> None:
    """Raise Unsupported when an object older than `moment` now holds a tensor that one of the regions made."""
    bound = [value for _, _, value in tx.side_effects.globals.values() if value is not None]
    for tensor in tensors_in([*tx.side_effects.older_than(moment), *bound]):
        if tensor.value.region in regions:
            raise escaped(tensor.value)


def tensors_in(start: Any) -> Iterator[TensorVariable]:
    """The tensors among trackers and what they hold."""
    seen: set[int] = set()
    waiting = [start]
    while waiting:
        item = waiting.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, TensorVariable):
            yield item
        if isinstance(item, VariableTracker):
            waiting.append(list(vars(item).values()))
        elif type(item) in (list, tuple):
            waiting.extend(item)
        elif type(item) is dict:
            waiting.extend(item.values())
