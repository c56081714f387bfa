"""docs/conformance-tests.md says of the suite what is there."""

from __future__ import annotations

from cheats_page import PAGE, cheat_rows, class_beginnings, rewritten, rule_rows


def test_page_has_the_lines_that_follow_from_the_code():
    page = PAGE.read_text(encoding="utf-8")
    missing = [line for line in (*cheat_rows().values(), *rule_rows().values()) if line not in page.splitlines()]
    missing += [begin for begin in class_beginnings().values() if f"\n{begin}" not in page]
    assert not missing, "python conformance/meta_tests/cheats_page.py writes them"


def test_writing_the_page_again_changes_nothing():
    page = PAGE.read_text(encoding="utf-8")
    assert rewritten(page) == page
