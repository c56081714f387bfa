"""What may be imported without torch, and what an interpreter that core does not know is told."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Any import of torch fails in these processes, as it does where torch is not installed.
WITHOUT_TORCH = "import sys\nsys.modules['torch'] = None\n"

TORCH_FREE = (
    "core",
    "core._C",
    "core.plugin",
    "core.errors",
    "core.events",
    "core.options",
    "core.cli",
    "core.api",
    "core.bytecode",
    "core.bytecode.assemble",
    "core.bytecode.decode",
    "core.bytecode.emit",
    "core.bytecode.liveness",
    "core.bytecode.resume",
    "core.bytecode.stack",
    "core.bytecode.tables",
    "core.guards",
    "core.guards.checks",
    "core.guards.failure",
    "core.guards.shapes",
    "core.guards.tree",
    "core.backends.catalog",
    "core.backends.loading",
    "core.backends.lock",
    "core.backends.process_state",
    "core.backends.torch_state",
    "core.cache.folders",
    "core.cli.cache",
    "core.cli.doctor",
    "core.cli.install",
    "core.cli.listing",
    "core.cli.lock",
    "core.backends.certificates",
    "core.backends.discovery",
    "core.backends.distributions",
    "core.backends.plain_toml",
    "core.backends.hookspecs",
    "core.backends.manifest",
    "core.backends.policy",
    "core.backends.registry",
    "core.backends.versions",
    "core.report.doctor",
    "core.report.explain",
    "core.report.logs",
    "core.report.progress",
    "core_inductor.plugin",
)


def run(program: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    paths = (str(ROOT), str(ROOT / "plugins" / "inductor"))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment}
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, env=env, timeout=120
    )


def test_the_torch_free_modules_import_where_torch_is_missing():
    program = WITHOUT_TORCH + (
        "from importlib import import_module\n"
        "for name in sys.argv[1:]:\n"
        "    try:\n"
        "        import_module(name)\n"
        "    except ImportError as error:\n"
        "        print(name, error)\n"
    )
    done = run(program, *TORCH_FREE)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""


def test_importing_core_loads_no_other_module_of_it():
    done = run("import sys, core\nprint(sorted(name for name in sys.modules if name.split('.')[0] == 'core'))")
    assert done.stdout.strip() == "['core']", done.stderr


def test_names_of_core_are_loaded_on_first_use_and_unknown_ones_are_attribute_errors():
    program = (
        "import core\n"
        "assert 'compile' not in vars(core) and 'compile' in dir(core)\n"
        "core.compile\n"
        "assert 'compile' in vars(core)\n"
        "try:\n"
        "    core.no_such_name\n"
        "except AttributeError as error:\n"
        "    print(error)\n"
    )
    assert run(program).stdout.strip() == "module 'core' has no attribute 'no_such_name'"


@pytest.mark.parametrize(
    "command", [("list",), ("list", "--all"), ("info", "eager"), ("search", "eager"), ("cache", "list"), ("--help",)]
)
def test_the_command_line_works_where_torch_is_missing(command):
    program = WITHOUT_TORCH + "from core.cli import main\nsys.exit(main(sys.argv[1:]))"
    done = run(program, *command)
    assert done.returncode in (0, 1) and "Traceback" not in done.stderr, done.stderr
    assert done.stdout


def test_the_doctor_reports_a_missing_torch_with_the_remedy():
    program = (
        "from core.backends import manifest\n"
        "real = manifest.version_of\n"
        "manifest.version_of = lambda name: '' if name == 'torch' else real(name)\n"
        "from core.report.doctor import _torch\n"
        "print(_torch())\n"
    )
    done = run(program)
    assert "torch is not installed" in done.stdout and "pip install torch" in done.stdout, done.stderr


@pytest.mark.parametrize("version", [(3, 10), (3, 14)])
def test_an_interpreter_with_another_bytecode_is_refused_by_name(version):
    program = (
        "import sys\n"
        f"sys.version_info = {(*version, 0, 'final', 0)!r}\n"
        "from core.errors import UnsupportedPython\n"
        "try:\n"
        "    import core.bytecode\n"
        "except UnsupportedPython as error:\n"
        "    assert isinstance(error, ImportError)\n"
        "    print(error)\n"
    )
    lines = run(program).stdout.splitlines()
    assert lines[0].startswith(f"[CORE-P001] CPython {version[0]}.{version[1]} ")
    assert lines[-1].strip() == "remedy: use CPython 3.11, 3.12 or 3.13"


def test_pip_refuses_other_interpreters_by_the_metadata():
    for project in (ROOT / "pyproject.toml", ROOT / "plugins" / "inductor" / "pyproject.toml"):
        wanted = tomllib.loads(project.read_text())["project"]["requires-python"]
        assert ">=3.11" in wanted and "<3.14" in wanted, project


def test_the_extension_refuses_a_sub_interpreter():
    try:
        import _xxsubinterpreters as interpreters
    except ImportError:
        pytest.skip("this interpreter offers no sub-interpreters to Python code")
    del interpreters
    program = (
        "import _xxsubinterpreters as interpreters, sys\n"
        "made = interpreters.create()\n"
        "code = f'''\n"
        "import sys\n"
        "sys.path[:] = {sys.path!r}\n"
        "try:\n"
        "    import core._C\n"
        "except ImportError as error:\n"
        "    print(error, flush=True)\n"
        "'''\n"
        "interpreters.run_string(made, code)\n"
    )
    done = run(program)
    assert "[CORE-P001]" in done.stdout or "does not support loading in subinterpreters" in done.stdout, done.stderr
