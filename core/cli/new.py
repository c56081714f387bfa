"""`core new NAME`: a complete plugin distribution to start from."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .output import OK, print_json


def register(subparsers: Any, common: argparse.ArgumentParser) -> None:
    new = subparsers.add_parser("new", parents=[common], help="write a plugin distribution to start from")
    new.add_argument("name", metavar="NAME", help="the backend's name, as backend= will take it")
    new.add_argument("--dir", metavar="DIR", default=".", help="where the project's folder goes (default: here)")
    new.add_argument("--license", metavar="ID", default="BSD-3-Clause", help="BSD-3-Clause, MIT, Apache-2.0 or none")
    new.add_argument("--author", metavar="WHO", default="", help="for the licence and the manifest")
    new.add_argument("--url", metavar="URL", default="", help="the project's address; issues go to URL/issues")
    new.add_argument("--claim", action="store_true", help="the catalog's name is mine")
    new.set_defaults(run=_new)


def _new(parsed: argparse.Namespace) -> int:
    from ..errors import InvalidOption
    from .scaffold import LICENSES, Plugin, plugin_name, write_plugin

    known = {license.casefold(): license for license in LICENSES}
    license = known.get(parsed.license.casefold())
    if license is None:
        raise InvalidOption(
            f"there is no template for the licence {parsed.license!r}",
            instead="nothing was written",
            remedy=f"pass one of {', '.join(LICENSES)}",
        )
    for option in ("author", "url"):
        if set('"\\\n') & set(getattr(parsed, option)):
            raise InvalidOption(
                f"--{option} holds a quote, a backslash or a line break",
                instead="nothing was written",
                remedy="leave those out; the files can be edited afterwards",
            )
    name = plugin_name(parsed.name, claim=parsed.claim)
    plugin = Plugin(name, license=license, author=parsed.author, url=parsed.url)
    folder = Path(parsed.dir) / plugin.distribution
    files = write_plugin(plugin, folder)
    if parsed.json:
        facts = {"name": name, "distribution": plugin.distribution, "package": plugin.package, "folder": str(folder)}
        print_json({**facts, "files": [path.as_posix() for path in files]})
    else:
        print(f"wrote {len(files)} files to {folder}:")
        for path in files:
            print(f"  {path.as_posix()}")
        print(f'next: pip install -e "{folder}[test]" && cd {folder} && pytest')
    return OK
