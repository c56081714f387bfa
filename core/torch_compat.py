"""Every private torch name that core uses, in one place, with the torch versions it was checked with.

Checked with torch 2.11 and 2.13. Names that are costly to import are reached through functions.
"""

from __future__ import annotations
