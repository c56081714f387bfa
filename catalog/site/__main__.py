"""`python -m catalog.site [--out DIR] [--date DAY]` builds the site; with --bundle it writes core's tables instead."""

from __future__ import annotations

import argparse
import sys
from datetime import date
from pathlib import Path

from .benchmarks import BENCHMARKS
from .build import build, bundled_texts, read_content
from .names import ROOT, CatalogError
from .reports import REPORTS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m catalog.site", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT.parent / "build" / "catalog")
    parser.add_argument("--date", type=date.fromisoformat, default=date.today(), help="states are those of this day")
    parser.add_argument("--reports", type=Path, default=REPORTS)
    parser.add_argument("--benchmarks", type=Path, default=BENCHMARKS)
    parser.add_argument("--bundle", action="store_true", help="write core/backends/{catalog,certificates}.json")
    options = parser.parse_args()
    try:
        content = read_content(options.date, reports=options.reports, benchmarks=options.benchmarks)
    except CatalogError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if options.bundle:
        for path, text in bundled_texts(content).items():
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path}")
        return 0
    pages = build(content, options.out)
    print(f"wrote {len(pages)} pages to {options.out}")
    return 0


raise SystemExit(main())
