"""A copy of the committed tree with an environment of its own, for runs that nobody's edits may reach.

    python tools/fixed_copy.py /tmp/fixed [--commit HEAD]
    cd /tmp/fixed && /tmp/fixed-env/bin/python tools/conformance_profiles.py --backends inductor

Digests in a report are those of the sources that ran: while files are edited, or one is committed half, a report of the
working tree says little. The environment shares what is installed beside this interpreter, torch above all; every
distribution of the repository is taken from the copy. Built extensions are copied too.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def make(folder: Path, commit: str) -> Path:
    """Clone, build nothing, point an environment at the clone. Returns its interpreter."""
    subprocess.run(["git", "clone", "-q", str(ROOT), str(folder)], check=True)
    subprocess.run(["git", "-C", str(folder), "checkout", "-q", "--detach", commit], check=True)
    for built in (*ROOT.glob("core/*.so"), *ROOT.glob("plugins/*/core_*/*.so")):
        shutil.copy2(built, folder / built.relative_to(ROOT))
    environment = folder.with_name(folder.name + "-env")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    here = Path(sysconfig.get_path("purelib"))
    there = environment / here.relative_to(sys.prefix)
    sources = [folder, folder / "conformance", *sorted(path.parent for path in folder.glob("plugins/*/pyproject.toml"))]
    (there / "fixed_copy.pth").write_text("".join(f"{path}\n" for path in (*sources, here)))
    for info in here.glob("core*-*.dist-info"):
        origin = info / "direct_url.json"
        if origin.is_file() and str(ROOT) in origin.read_text():
            copied = shutil.copytree(info, there / info.name)
            (copied / origin.name).write_text(origin.read_text().replace(str(ROOT), str(folder)))
    return environment / "bin" / "python"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the copy goes; FOLDER-env is its environment")
    parser.add_argument("--commit", default="HEAD")
    options = parser.parse_args(arguments)
    folder = options.folder.resolve()
    if folder.exists() or folder.with_name(folder.name + "-env").exists():
        parser.error(f"{folder} or {folder.name}-env is there already")
    python = make(folder, options.commit)
    program = "import core, torch; print(core.compile(torch.relu)(torch.ones(2)).sum().item(), core.__file__)"
    done = subprocess.run([python, "-c", program], cwd=folder, capture_output=True, text=True)
    print(done.stdout.strip() or done.stderr.strip())
    print(f"cd {folder} && {python} tools/conformance_profiles.py")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
