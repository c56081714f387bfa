"""Whether a backend said that it can't, which is no wrong result."""

from __future__ import annotations

from core.errors import NodesUnclaimed
from core.plugin import Unsupported


def refuses(error: BaseException | None) -> bool:
    """Whether an error, or what it was raised from, says that the backend does not support what it was given."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, (Unsupported, NodesUnclaimed)):
            return True
        seen.add(id(error))
        error = error.__cause__
    return False
