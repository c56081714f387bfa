"""Messages as reports have them."""

from __future__ import annotations

import os
import site
import sys
from pathlib import Path

import core

LONGEST = 2000
"""Characters of a message that are kept."""


def without_folders(text: str) -> str:
    """A message without the folders that this machine has its packages in: they say nothing, and reports are public."""
    roots = {str(Path(__file__).parents[1]), str(Path(core.__file__).parents[1]), *site.getsitepackages(), sys.prefix}
    roots |= {folder for folder in sys.path if folder}
    for root in sorted(roots, key=len, reverse=True):
        text = text.replace(f"{root}{os.sep}", "")
    return text


def for_report(text: str) -> str:
    """What a report keeps of a message."""
    return without_folders(text)[:LONGEST]
