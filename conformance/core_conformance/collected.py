"""All classes of the suite in one file: what a worker collects its tests from."""

from __future__ import annotations

from .suite import *  # noqa: F403
