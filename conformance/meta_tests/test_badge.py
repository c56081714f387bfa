"""The badge shows what the report's summary says, as an image of its own."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

from core_conformance.badge import AMBER, GREEN, RED, svg, texts


def made(certified=True, **more):
    summary = {
        "certified": certified and "precision" not in more,
        "passes": certified,
        "failed": 0 if certified else 3,
        "xfailed": 0,
        "total": 150,
        "coverage": 0.875,
    }
    return {"profile": "smoke", "suite": "2026.12", "ended": "2026-12-01T10:00:00", "summary": summary, **more}


def test_a_certified_report_is_green_with_coverage_suite_and_date():
    assert texts(made()) == ("core smoke", "certified · native 88% · suite 2026.12 · 2026-12-01", GREEN)


def test_a_failed_report_is_red_with_its_count():
    left, right, colour = texts(made(certified=False))
    assert right.startswith("3 of 150 failed") and colour == RED


def test_a_run_in_lower_precision_has_a_badge_that_says_so():
    left, _, colour = texts(made(precision="<bf16>"))
    assert left == "core smoke (<bf16>)" and colour == AMBER


def test_the_image_is_well_formed_and_loads_nothing():
    text = svg(made(precision="<bf16>"))
    root = ElementTree.fromstring(text)
    assert root.tag.endswith("svg") and "href" not in text and int(root.get("width")) > 100
    assert "&lt;bf16&gt;" in text
