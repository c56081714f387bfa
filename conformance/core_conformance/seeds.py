"""Seeds: values and orders that nobody knows before the nonce is given."""

from __future__ import annotations

import hashlib
import random
import secrets
from collections.abc import Sequence


def fresh_nonce() -> str:
    """A nonce for a run that nobody asked for; a catalog gives its own."""
    return secrets.token_hex(16)


def seed_of(plugin: str, suite: str, nonce: str) -> int:
    """The seed that follows from the plugin's digest, the suite's and the nonce; below 2**63."""
    digest = hashlib.sha256("\n".join((plugin, suite, nonce)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def shuffled(tests: Sequence[str], seed: int) -> list[str]:
    """The tests in an order of the seed's own."""
    order = sorted(tests)
    random.Random(seed).shuffle(order)
    return order


def shards(tests: Sequence[str], count: int) -> list[list[str]]:
    """The tests dealt out to `count` workers."""
    return [list(tests[at::count]) for at in range(count)]
