"""From the catalog's files to a folder of static pages, and to the tables that core carries."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import jinja2

from .benchmarks import BENCHMARKS, read_benchmarks
from .content import MEANINGS, SIGNS, Content
from .manifests import read_manifests
from .names import BACKENDS, BUNDLED, bundle_text, read_names
from .reports import REPORTS, SUITES, read_reports, read_suites
from .stages import STAGES, read_stages

HERE = Path(__file__).resolve().parent
CERTIFICATES = BUNDLED.with_name("certificates.json")


def read_content(
    today: date,
    *,
    names: Path = BACKENDS,
    reports: Path = REPORTS,
    suites: Path = SUITES,
    benchmarks: Path = BENCHMARKS,
    stages: Path = STAGES,
) -> Content:
    """Read and verify everything. Raises CatalogError."""
    rows, released = read_names(names), read_suites(suites)
    verified = read_reports(reports, [row["use"] or row["name"] for row in rows], released)
    steps = read_stages(stages, [row["name"] for row in rows])
    return Content(rows, verified, released, read_manifests(), read_benchmarks(benchmarks), today, steps)


def build(content: Content, out: Path) -> list[str]:
    """Write the site to the folder `out`, replacing it; returns the pages' addresses relative to it."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    for asset in sorted((HERE / "static").iterdir()):
        shutil.copy(asset, out / asset.name)
    templates = _templates(content)
    pages = []
    for address, template, values in _pages(content):
        path = out / address
        path.parent.mkdir(parents=True, exist_ok=True)
        values = {"root": "../" * address.count("/"), "address": address, **values}
        path.write_text(templates.get_template(template).render(values), encoding="utf-8")
        pages.append(address)
    for report in content.reports:
        path = out / "reports" / f"{report.place}.json"
        path.write_text(json.dumps(report.data, indent=1, sort_keys=True), encoding="utf-8")
    (out / "index.json").write_text(index_text(content), encoding="utf-8")
    return pages


def _pages(content: Content) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(address, template, values) of every page."""
    yield "index.html", "index.html", {}
    yield "operators.html", "operators.html", {}
    yield "benchmarks.html", "benchmarks.html", {}
    yield "compare.html", "compare.html", {}
    yield "about.html", "about.html", {}
    for row in content.rows:
        yield f"backends/{row['name']}.html", "backend.html", {"row": row}
    for report in content.reports:
        yield f"reports/{report.place}.html", "report.html", {"report": report}
    for left, right in content.pairs:
        yield f"compare/{left}-{right}.html", "pair.html", {"left": left, "right": right}


def _templates(content: Content) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(site=content, SIGNS=SIGNS, MEANINGS=MEANINGS)
    environment.filters["percent"] = lambda share: f"{100 * share:.1f} %"
    environment.filters["seen"] = _seen
    environment.filters["number"] = lambda value: "" if value is None else f"{value:,.4g}"
    environment.filters["whole"] = lambda value: "" if value is None else f"{value:,.0f}"
    environment.filters["hundredths"] = lambda value: "" if value is None else f"{value:,.2f}"
    return environment


def _seen(test: Mapping[str, Any]) -> str:
    """The first line of a failure, without the rule in front, which has a column of its own."""
    first = str(test.get("message") or "").partition("\n")[0]
    return first.removeprefix(f"[{test.get('rule')}]").strip()


def index_text(content: Content) -> str:
    """index.json: names and certificates with their state, for machines."""
    certificates = [
        {**vars(report.certificate()), "state": content.state(report), "report": f"reports/{report.place}.json"}
        for report in content.reports
    ]
    index = {
        "schema": 1,
        "generated": content.today.isoformat(),
        "suites": list(content.suites),
        "backends": [{key: value for key, value in row.items() if value} for row in content.rows],
        "certificates": certificates,
    }
    return json.dumps(index, indent=1, sort_keys=True) + "\n"


def certificates_text(content: Content) -> str:
    """The certificates as core carries them: core/backends/certificates.json, which ages by itself."""
    table = {
        "schema": 1,
        "suites": list(content.suites),
        "certificates": [vars(report.certificate()) for report in content.reports],
    }
    return json.dumps(table, indent=2) + "\n"


def bundled_texts(content: Content) -> dict[Path, str]:
    """File of core -> what it should hold now."""
    return {BUNDLED: bundle_text(list(map(dict, content.rows))), CERTIFICATES: certificates_text(content)}
