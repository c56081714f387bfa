"""A plugin's import and hooks run inside limits: what they change is put back, what fails is kept for the doctor."""

from __future__ import annotations

import gc
import locale
import os
import random
import signal
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import plugin_site
import pytest
from plugin_site import VERSIONS, registry
from plugin_site import add_distribution as add

from core import events
from core.backends import loading, probing, process_state
from core.backends import registry as registry_module
from core.errors import BackendBroken, BackendUnavailable

PLUGIN = plugin_site.PLUGIN.format(name="alpha", version="1")


@pytest.fixture
def seen():
    """The events of the test."""
    found = []
    stop = events.subscribe(found.append)
    yield found
    stop()


# -- what a plugin changes --------------------------------------------------------------------------------------------

CHANGES = {
    "an environment variable": ("import os; os.environ['CORE_TEST_LEFT_BEHIND'] = 'secret'", "CORE_TEST_LEFT_BEHIND"),
    "sys.path": ("import sys; sys.path.insert(0, '/nowhere/at/all')", "sys.path: added /nowhere/at/all"),
    "the working folder": ("import os; os.chdir('/')", "the working folder"),
    "the umask": ("import os; os.umask(0o012)", "became 012"),
    "a signal handler": ("import signal; signal.signal(signal.SIGUSR1, lambda *a: None)", "SIGUSR1"),
    "the filter of all warnings": ("import warnings; warnings.simplefilter('ignore')", "added ignore Warning"),
    "the recursion limit": ("import sys; sys.setrecursionlimit(12345)", "the recursion limit"),
    "the locale": ("import locale; locale.setlocale(locale.LC_ALL, 'C.UTF-8')", "the locale"),
    "the garbage collector": ("import gc; gc.disable()", "the garbage collector"),
    "the random generator": ("import random; random.random()", "Python's random generator"),
    "the root logger": ("import logging; logging.root.setLevel(1)", "the root logger"),
    "standard output": ("import sys, io; sys.stdout = io.StringIO()", "in sys: stdout"),
    "the hook of exceptions": ("import sys; sys.excepthook = print", "in sys: excepthook"),
}


def reading():
    """The state that the changes above touch, read in another way than core does."""
    return (
        dict(os.environ), list(sys.path), os.getcwd(), signal.getsignal(signal.SIGUSR1), list(warnings.filters),
        sys.getrecursionlimit(), locale.setlocale(locale.LC_ALL), gc.isenabled(), random.getstate(),
        __import__("logging").root.level, sys.stdout, sys.excepthook,
    )  # fmt: skip


@pytest.fixture
def other_locale():
    before = locale.setlocale(locale.LC_ALL)
    locale.setlocale(locale.LC_ALL, "C")
    yield
    locale.setlocale(locale.LC_ALL, before)


@pytest.mark.parametrize("what", CHANGES)
def test_what_an_import_changes_is_told_and_put_back(site, seen, what, other_locale):
    source, words = CHANGES[what]
    add(site, "core-alpha", "alpha", source=f"{source}\n{PLUGIN}")
    before = reading()
    found = registry(site)
    assert found.resolve("alpha").name == "alpha"
    assert reading() == before
    (finding,) = found.findings()
    assert finding.level == "warning" and words in finding.text and "alpha' of core-alpha 1.0" in finding.text
    assert (
        finding.text.endswith("it was put back") and finding.remedy == "report it at https://example.org/alpha/issues"
    )
    assert "secret" not in finding.text
    told = [event for event in seen if isinstance(event, events.BackendReported)]
    assert [(event.backend, event.finding) for event in told] == [("alpha", finding)]


@pytest.mark.parametrize("hook", ["core_configure(config)", "core_backend()"])
def test_the_first_hooks_are_watched_like_the_import(site, hook):
    source = PLUGIN.replace(
        "def core_backend():", "def core_backend():\n    import os; os.environ['CORE_TEST_HOOK'] = '1'"
    )
    if "configure" in hook:
        source = PLUGIN + (
            "\n@hookimpl\ndef core_configure(config):\n    import os\n    os.environ['CORE_TEST_HOOK'] = '1'\n"
        )
    add(site, "core-alpha", "alpha", source=source)
    found = registry(site)
    found.resolve("alpha")
    assert "CORE_TEST_HOOK" not in os.environ
    assert "CORE_TEST_HOOK" in found.findings()[0].text


def test_what_an_import_changed_is_put_back_also_when_it_fails(site):
    add(site, "core-alpha", "alpha", source="import os\nos.environ['CORE_TEST_FAILED'] = '1'\nraise ValueError('no')")
    with pytest.raises(BackendBroken, match="ValueError: no"):
        registry(site).resolve("alpha")
    assert "CORE_TEST_FAILED" not in os.environ


def test_a_thread_that_an_import_started_is_told_and_left(site):
    source = (
        "import threading\nstop = threading.Event()\n"
        "threading.Thread(target=stop.wait, args=(60,), name='left behind', daemon=True).start()\n"
    )
    module = add(site, "core-alpha", "alpha", source=source + PLUGIN)
    found = registry(site)
    found.resolve("alpha")
    (finding,) = found.findings()
    assert "started left behind" in finding.text and finding.text.endswith("it can't be put back")
    sys.modules[module].stop.set()


def test_a_quiet_plugin_leaves_no_findings_and_narrow_filters_of_warnings_are_its_own(site):
    source = "import warnings\nwarnings.filterwarnings('ignore', message='alpha says')\n"
    add(site, "core-alpha", "alpha", source=source + PLUGIN)
    found = registry(site)
    with warnings.catch_warnings():
        found.resolve("alpha")
    assert found.findings() == []


def test_a_snapshot_without_changes_tells_none():
    assert process_state.take().changes() == []


# -- what fails -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source, words",
    [
        ("raise RuntimeError('boom')", "RuntimeError: boom"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        (PLUGIN + "\n@hookimpl\ndef core_configure(config):\n    config['settings']['backend'] = 1\n", "TypeError"),
    ],
)
def test_a_failure_is_kept_with_its_traceback_and_not_tried_again(site, source, words):
    module = add(site, "core-alpha", "alpha", source=source)
    found = registry(site)
    with pytest.raises(BackendBroken, match=words) as first:
        found.resolve("alpha")
    (record,) = found.quarantined()
    assert (record.name, record.distribution, record.version) == ("alpha", "core-alpha", "1.0")
    assert record.error is first.value
    assert words in record.traceback and f"{module}/__init__.py" in record.traceback
    with pytest.raises(BackendBroken) as second:
        found.resolve("alpha")
    assert second.value is first.value


def test_an_interrupt_during_an_import_reaches_the_user_and_condemns_nobody(site):
    add(site, "core-alpha", "alpha", source="raise KeyboardInterrupt")
    found = registry(site)
    with pytest.raises(KeyboardInterrupt):
        found.resolve("alpha")
    assert found.quarantined() == []


# -- what hangs -------------------------------------------------------------------------------------------------------

PROBES = {
    "hangs": ("import threading\n    threading.Event().wait(60)", "its probe gave no answer within 0.05 s"),
    "raises": ("raise KeyError('driver')", "its probe raised KeyError: 'driver'"),
    "leaves": ("raise SystemExit", "its probe ended its thread without an answer"),
    "answers something else": ("return True", "its probe returned bool, not a core.plugin.Probe"),
}

SLOW = "import time\n    from core.plugin import Probe\n    time.sleep(0.2)\n    return Probe(True)"


@pytest.mark.parametrize("what", PROBES)
def test_a_probe_that_misbehaves_makes_its_backend_unusable_and_no_other(site, monkeypatch, what):
    monkeypatch.setattr(probing, "PROBE_SECONDS", 0.05)
    body, words = PROBES[what]
    add(site, "core-alpha", "alpha", source=f"{PLUGIN}\n@hookimpl\ndef backend_probe(device):\n    {body}\n")
    add(site, "core-beta", "beta")
    found = registry(site)
    with pytest.raises(BackendUnavailable) as caught:
        found.resolve("alpha").require_device("cpu")
    assert caught.value.what == f"backend alpha (core-alpha 1.0) can't work on cpu: {words}"
    assert caught.value.remedy == "report it at https://example.org/alpha/issues"
    found.resolve("beta").require_device("cpu")


def test_a_busy_machine_gives_a_probe_more_time(site, monkeypatch):
    add(site, "core-alpha", "alpha", source=f"{PLUGIN}\n@hookimpl\ndef backend_probe(device):\n    {SLOW}\n")
    monkeypatch.setattr(probing, "PROBE_SECONDS", 0.05)
    monkeypatch.setattr(probing.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(probing.os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    with pytest.raises(BackendUnavailable):
        registry(site).resolve("alpha").require_device("cpu")
    monkeypatch.setattr(probing.os, "getloadavg", lambda: (20.0, 0.0, 0.0))
    registry(site).resolve("alpha").require_device("cpu")
    monkeypatch.setattr(probing.os, "getloadavg", lambda: (900.0, 0.0, 0.0))
    assert probing.patience(5) == 5 * probing.MOST_PATIENCE


def test_a_probe_is_asked_once_for_each_device(site):
    source = PLUGIN + (
        "\nfrom core.plugin import Probe\nasked = []\n"
        "@hookimpl\ndef backend_probe(device):\n    asked.append(device)\n    return Probe(True)\n"
    )
    module = add(site, "core-alpha", "alpha", source=source)
    resolved = registry(site).resolve("alpha")
    for _ in range(2):
        resolved.require_device("cpu")
    assert sys.modules[module].asked == ["cpu"]


HANGING = """
import threading
going, go = threading.Event(), threading.Event()
import hanging_control
hanging_control.going.set()
hanging_control.go.wait(60)
"""


def test_while_one_import_hangs_others_are_found_and_the_user_is_told(site, monkeypatch, seen):
    control = type(sys)("hanging_control")
    control.going, control.go = threading.Event(), threading.Event()
    monkeypatch.setitem(sys.modules, "hanging_control", control)
    told = threading.Event()
    stop = events.subscribe(lambda event: told.set())
    monkeypatch.setattr(loading, "IMPORT_SECONDS", 0.01)
    monkeypatch.setattr(registry_module, "LOAD_SECONDS", 0.01)
    add(site, "core-alpha", "alpha", source=HANGING + PLUGIN)
    add(site, "core-beta", "beta")
    found = registry(site)
    results = []
    with warnings.catch_warnings(record=True):
        thread = threading.Thread(target=lambda: results.append(found.resolve("alpha")), daemon=True)
        thread.start()
        assert control.going.wait(60) and told.wait(60)
        assert found.resolve("beta").name == "beta"
        with pytest.raises(BackendUnavailable, match="is being imported by another thread") as caught:
            found.resolve("alpha")
        assert "core doctor alpha" in caught.value.remedy
        control.go.set()
        thread.join(60)
    stop()
    assert [resolved.name for resolved in results] == ["alpha"]
    finding = next(e.finding for e in seen if isinstance(e, events.BackendReported) and e.backend == "alpha")
    assert "importing core-alpha for the backend 'alpha' has taken 0.01 s" in finding.text
    assert "CORE_DISABLE_PLUGINS=core-alpha" in finding.remedy and "core doctor alpha" in finding.remedy


# -- configuration and teardown ---------------------------------------------------------------------------------------


def test_the_configuration_is_read_only_and_says_what_is_set(site):
    source = PLUGIN + "\nseen = []\n@hookimpl\ndef core_configure(config):\n    seen.append(config)\n"
    module = add(site, "core-alpha", "alpha", source=source)
    found = registry(site)
    found.resolve("alpha")
    (config,) = sys.modules[module].seen
    assert config["settings"]["on_failure"] == "raise" and config["plugin_api"] == (1, 0)
    assert dict(config["versions"]) == VERSIONS and config["policy"] is found.policy
    for table in (config, config["settings"], config["versions"]):
        with pytest.raises(TypeError):
            table["x"] = 1


def test_a_configuration_comes_before_the_backend_is_made(site):
    source = "order = []\n" + PLUGIN.replace("return Mine()", "order.append('backend')\n    return Mine()")
    source += "\n@hookimpl\ndef core_configure(config):\n    order.append('configure')\n"
    module = add(site, "core-alpha", "alpha", source=source)
    registry(site).resolve("alpha")
    assert sys.modules[module].order == ["configure", "backend"]


def test_unloading_tears_a_backend_down_once_and_it_can_be_loaded_again(site):
    source = PLUGIN + "\ncalls = []\n@hookimpl\ndef backend_teardown():\n    calls.append('down')\n"
    module = add(site, "core-alpha", "alpha", source=source)
    found = registry(site)
    assert found.unload("alpha") == []
    resolved = found.resolve("alpha")
    assert found.loaded() == ["core-alpha:alpha"]
    assert found.unload("alpha") == [] and found.loaded() == []
    assert sys.modules[module].calls == ["down"]
    with pytest.raises(BackendUnavailable, match="was unloaded"):
        resolved.require_device("cpu")
    again = found.resolve("alpha")
    assert again is not resolved
    again.require_device("cpu")


def test_the_end_of_the_process_tears_down_what_it_has_loaded(site, tmp_path):
    teardown = "\n@hookimpl\ndef backend_teardown():\n    print('torn down')\n"
    add(site, "core-alpha", "alpha", source=PLUGIN + teardown)
    program = (
        "from core.backends.registry import resolve_backend\nresolve_backend('alpha')\nprint('end of the program')"
    )
    root = str(Path(__file__).parents[2])
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join((str(site), root))}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environ, cwd=tmp_path)
    assert done.stdout == "end of the program\ntorn down\n", done.stderr


def test_a_plugin_that_needs_no_torch_is_loaded_without_torch(tmp_path, site):
    add(site, "core-alpha", "alpha", source=PLUGIN)
    program = "import sys; sys.modules['torch'] = None; from core.backends.registry import Registry; "
    program += "print(Registry().resolve('alpha').name)"
    root = str(Path(__file__).parents[2])
    environ = dict(os.environ, PYTHONPATH=os.pathsep.join((str(site), root)))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environ, cwd=tmp_path)
    assert done.stdout == "alpha\n", done.stderr


def test_a_teardown_that_fails_is_a_finding(site):
    add(
        site, "core-alpha", "alpha", source=PLUGIN + "\n@hookimpl\ndef backend_teardown():\n    raise OSError('busy')\n"
    )
    found = registry(site)
    found.resolve("alpha")
    (finding,) = found.unload("alpha")
    assert finding.text == "alpha (core-alpha 1.0): teardown raised OSError: busy" and found.loaded() == []
