"""Whether a graph has to provide gradients."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from .captured import GraphInput
from .geometry import has_storage, storage_key
from .history import history
from .recorder import AtenRecord


def needs_gradients(inputs: Sequence[GraphInput], outputs: Iterable[Any], record: AtenRecord | None) -> bool:
    """True when an output, or an input that the graph writes to, carries a history that the graph itself has made."""
    own = {id(item.fake) for item in inputs}
    storages = {storage_key(item.fake) for item in inputs if item.is_tensor}
    for fake in outputs:
        if not isinstance(fake, torch.Tensor) or id(fake) in own or not fake.requires_grad:
            continue
        # a view that no_grad code took has no history; of an input, it is taken again outside the graph
        if not has_storage(fake) or storage_key(fake) not in storages:
            return True
        if record is None or record.no_backward is not None or history(fake) is not None:
            return True
    return record is not None and any(
        facts is not None and facts.edge_moved() and facts.fake.requires_grad for facts in record.facts
    )
