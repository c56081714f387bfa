"""The conformance suite of core: what a backend has to do to be called right, and reports of whether it does.

Enters: a backend's name. Leaves: a report that names every test, its outcome and what was measured. The suite knows
backends through `core.compile` and the plugin contract only; it must not know how any of them works.
"""

from __future__ import annotations

SUITE = "2026.12"
"""The version of the suite, by calendar. Tests that are added become must-pass in the next one."""
