"""What the bundled tables of names and certificates answer."""

from __future__ import annotations

import json
from datetime import date

import pytest

from core.backends import certificates
from core.backends.catalog import CATALOG, EVERYTHING, FOREIGN, GONE
from core.backends.certificates import Certificate

SUITES = ("2025.11", "2026.01", "2026.06", "2026.12")


def certificate(**changes) -> Certificate:
    values = {
        "backend": "mine",
        "distribution": "core-mine",
        "version": "1.0",
        "suite": "2026.12",
        "profile": "smoke",
        "device": "cpu",
        "core": "0.1",
        "torch": "2.13",
        "certified": True,
        "ended": "2026-12-01",
    }
    return Certificate(**{**values, **changes})


@pytest.mark.parametrize(
    "changes, state",
    [
        ({}, "certified"),
        ({"ended": "2026-06-30"}, "stale"),
        ({"suite": "2026.01"}, "certified"),
        ({"suite": "2025.11"}, "expired"),
        ({"ended": "2025-12-01"}, "expired"),
        ({"certified": False}, "failed"),
        ({"certified": False, "ended": "2025-12-01"}, "failed"),
    ],
)
def test_a_certificate_ages_with_its_date_and_its_suite(changes, state):
    assert certificate(**changes).state(date(2026, 12, 31), SUITES) == state


@pytest.fixture
def table(monkeypatch, tmp_path):
    """Put certificates in place of the bundled ones."""

    def put(*entries: Certificate) -> None:
        path = tmp_path / "certificates.json"
        rows = [{**vars(entry), "a key of a newer core": 1} for entry in entries]
        path.write_text(json.dumps({"schema": 1, "suites": SUITES, "certificates": rows}))
        read = certificates.bundled.__wrapped__(path)
        monkeypatch.setattr(certificates, "bundled", lambda: read)

    return put


def state(**changes) -> str:
    asked = {"backend": "Mine", "version": "1.0", "profile": "smoke", "device": "cpu", "torch_version": "2.13.1+cpu"}
    return certificates.lookup(**{**asked, "today": date(2026, 12, 31), **changes})


def test_a_certificate_holds_for_one_version_profile_device_and_torch_minor(table):
    table(certificate())
    assert state() == "certified"
    for other in (
        {"backend": "other"},
        {"version": "1.0.1"},
        {"profile": "training"},
        {"device": "cuda:0"},
        {"torch_version": "2.12.0"},
        {"core_version": "0.2.0"},
    ):
        assert state(**other) == "none"
    assert state(core_version="0.1.7") == "certified"


def test_the_best_of_several_certificates_counts(table):
    table(certificate(suite="2025.11"), certificate(certified=False), certificate(ended="2026-06-30"))
    assert state() == "stale"
    assert [each.ended for each in certificates.certificates("mine")] == ["2026-12-01", "2026-12-01", "2026-06-30"]


def test_without_a_table_nothing_is_certified(tmp_path, monkeypatch):
    empty = certificates.bundled.__wrapped__(tmp_path / "absent.json")
    monkeypatch.setattr(certificates, "bundled", lambda: empty)
    assert state() == "none"


def test_names_are_reserved_foreign_or_gone():
    assert "inductor" in CATALOG and "hidet" in FOREIGN and {"fx2trt", "nvfuser", "ts"} <= set(GONE)
    assert not set(CATALOG) & set(FOREIGN) and not set(CATALOG) & set(GONE)
    assert all(entry.note for entry in GONE.values())
    assert all(entry.successor in EVERYTHING for entry in GONE.values())
    assert all(entry.use.startswith("dynamo:") for entry in FOREIGN.values())


def test_the_bundled_suites_are_in_order_and_every_row_is_readable():
    suites, rows = certificates.bundled()
    assert list(suites) == sorted(suites) and suites
    assert all(row.suite in suites for row in rows)
