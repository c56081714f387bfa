"""`core cache`: what is kept on disk between processes, and its removal."""

from __future__ import annotations

import argparse
from typing import Any

from .output import FOUND, OK, USAGE, print_json, print_table


def register(subparsers: Any, common: argparse.ArgumentParser) -> None:
    cache = subparsers.add_parser("cache", parents=[common], help="the disk cache: list or clear it")
    cache.add_argument("action", choices=("list", "clear"))
    cache.add_argument("name", metavar="NAME", nargs="?", help="only this folder")
    cache.set_defaults(run=_cache)


def _cache(parsed: argparse.Namespace) -> int:
    from ..cache.folders import cache_folders, cache_root, clear

    every = list(cache_folders())
    chosen = [folder for folder in every if parsed.name in (None, folder.name)]
    if parsed.name is not None and not chosen:
        return _unknown(parsed, [folder.name for folder in every])
    failed = [line for folder in chosen for line in clear(folder)] if parsed.action == "clear" else []
    rows = [{"name": f.name, "files": f.files, "bytes": f.size, "folder": str(f.path)} for f in chosen]
    if parsed.json:
        print_json({"root": str(cache_root()), "cleared": parsed.action == "clear", "folders": rows, "failed": failed})
    elif rows:
        print_table(("name", "files", "bytes", "folder"), rows)
        for line in failed or (["cleared"] if parsed.action == "clear" else []):
            print(line)
    else:
        print(f"nothing is kept in {cache_root()}")
    return FOUND if failed else OK


def _unknown(parsed: argparse.Namespace, names: list[str]) -> int:
    text = f"the cache has no folder {parsed.name!r}" + (f"; it has {', '.join(names)}" if names else "")
    if parsed.json:
        print_json({"error": {"what": text}})
    else:
        print(text)
    return USAGE
