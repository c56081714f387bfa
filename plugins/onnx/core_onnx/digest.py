"""What stored models follow from beside the graph: the text of the converters."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path


@functools.lru_cache(maxsize=1)
def converters_digest() -> str:
    """A digest of this package's sources: with another converter, a stored model is not the one it would write."""
    found = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        found.update(path.name.encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:16]
