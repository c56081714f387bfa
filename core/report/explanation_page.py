"""An explanation as plain data, for JSON, and as one self-contained HTML page.

Enters: an Explanation. Leaves: dictionaries and lists of text and numbers, and from those the page: no script, no link.
"""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .explain import Explanation

STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:75em;margin:2em auto;padding:0 1em;color:#222;background:#fff}"
    "table{border-collapse:collapse;margin:.5em 0 1.5em}th,td{border:1px solid #ccc;padding:.25em .6em;text-align:left;"
    "vertical-align:top}th{background:#f2f2f2}td.n{text-align:right}pre{background:#f7f7f7;padding:.6em;overflow:auto}"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}th{background:#2a2a2a}"
    "pre{background:#222}th,td{border-color:#444}}"
)


def as_data(explanation: Explanation) -> dict[str, Any]:
    """What an explanation holds, without its objects: graphs, breaks, recompiles, artifacts, regions, choices."""
    return {
        "graph_count": explanation.graph_count,
        "op_count": explanation.op_count,
        "graph_break_count": explanation.graph_break_count,
        "seconds": {name: round(value, 6) for name, value in explanation.phases.items()},
        "graphs": [
            {
                "function": g.function,
                "backend": g.backend,
                "ops": g.ops,
                "code": str(getattr(g.graph, "code", "")).strip(),
            }
            for g in explanation.graphs
        ],
        "breaks": [{"line": _text(b.line), "reason": b.reason, "remedy": b.remedy} for b in explanation.breaks],
        "recompiles": [{"function": r.function, "reasons": list(r.reasons)} for r in explanation.recompiles],
        "limits": [{"function": each.function, "limit": each.limit} for each in explanation.limits],
        "skipped": [{"function": each.function, "reason": each.reason} for each in explanation.skipped],
        "fallbacks": [
            {"stage": each.stage, "reason": each.reason, "line": _text(each.line)} for each in explanation.fallbacks
        ],
        "artifacts": [
            {
                "backend": each.backend,
                "mode": each.mode,
                "kernels": each.kernels,
                "extern_calls": each.extern_calls,
                "seconds": round(each.seconds, 6),
            }
            for each in explanation.artifacts
        ],
        "regions": [
            {
                "function": partition.function,
                "mode": partition.mode,
                "regions": [dataclasses.asdict(region) for region in partition.regions],
                "refused": [{**dataclasses.asdict(node), "line": _text(node.line)} for node in partition.refused],
            }
            for partition in explanation.partitions
        ],
        "auto": [
            {
                "function": choice.function,
                "winner": choice.winner,
                "stored": choice.stored,
                "reason": choice.reason,
                "line": _text(choice.line),
                "trials": [dataclasses.asdict(trial) for trial in choice.trials],
            }
            for choice in explanation.choices
        ],
        "findings": [
            {"backend": each.backend, "level": each.finding.level, "text": each.finding.text}
            for each in explanation.findings
        ],
        "guards": [str(guard) for guard in explanation.guards],
    }


def _text(line: Any) -> str:
    return "" if line is None else str(line)


def page(title: str, data: Mapping[str, Any]) -> str:
    """The data of as_data as one HTML page."""
    parts = [
        f"<p>{data['graph_count']} graphs with {data['op_count']} operations, "
        f"{data['graph_break_count']} graph breaks</p>",
        _section("Graph breaks", data["breaks"]),
        _section("Recompiles", data["recompiles"]),
        _section("Limits reached", data["limits"]),
        _section("Fallbacks", data["fallbacks"]),
        _section("Artifacts", data["artifacts"]),
        *(_regions(partition) for partition in data["regions"]),
        *(_choice(choice) for choice in data["auto"]),
        _section("What backends say", data["findings"]),
        _section("Run as written", data["skipped"]),
        *(_graph(graph) for graph in data["graphs"]),
        _listed("Guards", data["guards"]),
    ]
    name = html.escape(title)
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{name}</title><style>{STYLE}</style>'
    return f"{head}<h1>{name}</h1>\n" + "\n".join(filter(None, parts)) + "</html>\n"


def _section(title: str, rows: Sequence[Mapping[str, Any]]) -> str:
    return f"<h2>{title}</h2>{_table(rows)}" if rows else ""


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{html.escape(name.replace('_', ' '))}</th>" for name in rows[0])
    body = "".join("<tr>" + "".join(map(_cell, row.values())) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _cell(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return f"<td>{'' if value is None else 'yes' if value else 'no'}</td>"
    if isinstance(value, (int, float)):
        return f'<td class="n">{value:.4g}</td>' if isinstance(value, float) else f'<td class="n">{value}</td>'
    text = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    return f"<td>{html.escape(text)}</td>"


def _regions(partition: Mapping[str, Any]) -> str:
    title = f"Regions of {html.escape(partition['function'])} ({html.escape(partition['mode'])})"
    return f"<h2>{title}</h2>{_table(partition['regions'])}{_table(partition['refused'])}"


def _choice(choice: Mapping[str, Any]) -> str:
    why = f" {html.escape(choice['reason'])}" if choice["reason"] else ""
    stored = " (stored)" if choice["stored"] else ""
    title = f"<h2>auto, {html.escape(choice['function'])}</h2>"
    return f"{title}<p>winner: {html.escape(choice['winner'])}{stored}.{why}</p>{_table(choice['trials'])}"


def _graph(graph: Mapping[str, Any]) -> str:
    title = f"Graph of {html.escape(graph['function'])}, {graph['ops']} operations, {html.escape(graph['backend'])}"
    return f"<h2>{title}</h2><pre>{html.escape(graph['code'])}</pre>"


def _listed(title: str, items: Iterable[str]) -> str:
    rows = "".join(f"<li>{html.escape(item)}</li>" for item in items)
    return f"<details><summary>{title}</summary><ul>{rows}</ul></details>" if rows else ""
