"""GraphOptions: how calls are captured, as the options of a backend say it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ...errors import InvalidOption

PREFIX = "cudagraph_"
"""Options of a backend have the names of the fields behind this (see core.plugin.cuda_graph_options)."""


@dataclass(frozen=True)
class GraphOptions:
    """warmup: plain calls of a size before it is captured; sizes: how many sizes of one graph are captured, others run
    plainly; instances: captures of one size, for results that are still held when it is called again; copy_outputs:
    results are copied out of the graph's memory, else they stay there and another instance serves the next call while
    one of them lives; custom_operators: operators that are not torch's own are captured too: what they do on the host
    happens once."""

    warmup: int = 1
    sizes: int = 16
    instances: int = 4
    copy_outputs: bool = True
    custom_operators: bool = False

    def __post_init__(self) -> None:
        for name, least in (("warmup", 0), ("sizes", 1), ("instances", 1)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise InvalidOption(
                    f"option {PREFIX + name!r} is {value!r}",
                    instead="nothing was compiled",
                    remedy=f"pass a whole number of at least {least}",
                )

    @staticmethod
    def of(options: Mapping[str, Any]) -> GraphOptions:
        """Those among the options of a backend; what it does not declare has its default."""
        given = {field.name: PREFIX + field.name for field in fields(GraphOptions)}
        return GraphOptions(**{name: options[key] for name, key in given.items() if key in options})
