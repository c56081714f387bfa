"""A badge for a README: what a report certifies, as a small image that needs no server."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

GREEN, AMBER, RED = "#2e7d32", "#9a6700", "#b3261e"
LETTER = 6.6
"""The width of a letter of the badge's face, about."""


def texts(made: Mapping[str, Any]) -> tuple[str, str, str]:
    """(left, right, colour) of the badge of a report."""
    summary = made["summary"]
    left = f"core {made['profile']}"
    if made.get("precision"):
        left += f" ({made['precision']})"
    coverage = summary.get("coverage")
    parts = [f"suite {made['suite']}", str(made["ended"])[:10]]
    if coverage is not None:
        parts.insert(0, f"native {coverage:.0%}")
    if summary["certified"]:
        return left, " · ".join(["certified", *parts]), GREEN
    if summary.get("passes"):
        return left, " · ".join(["passed", *parts]), AMBER
    return left, " · ".join([f"{summary['failed'] + summary['xfailed']} of {summary['total']} failed", *parts]), RED


def svg(made: Mapping[str, Any]) -> str:
    """The badge of a report as SVG."""
    left, right, colour = texts(made)
    first, second = round(len(left) * LETTER + 14), round(len(right) * LETTER + 14)
    title = escape(f"{left}: {right}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{first + second}" height="20" role="img" aria-label="{title}">'
        f"<title>{title}</title>"
        f'<rect width="{first}" height="20" fill="#444"/>'
        f'<rect x="{first}" width="{second}" height="20" fill="{colour}"/>'
        '<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">'
        f'<text x="{first / 2:g}" y="14">{escape(left)}</text>'
        f'<text x="{first + second / 2:g}" y="14">{escape(right)}</text></g></svg>\n'
    )
