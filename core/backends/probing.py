"""Asking a plugin whether it works on a device, with a time limit and whatever it may raise.

The probe runs in a thread of its own. One that does not answer is left behind there: Python can't end a thread, and a
probe that holds the interpreter's lock for good stops the process all the same. `core doctor` asks in another process.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from ..plugin import Probe

PROBE_SECONDS = 5.0

MOST_PATIENCE = 10.0


def patience(seconds: float) -> float:
    """A limit of time as it stands here now: longer by as much as more wants to run than there are processors."""
    try:
        wanted = os.getloadavg()[0] / (os.cpu_count() or 1)
    except OSError:  # a system that does not say
        wanted = 1.0
    return seconds * min(max(wanted, 1.0), MOST_PATIENCE)


def ask(probe: Callable[[str], Probe], device: str, issues: str = "") -> Probe:
    """The probe's answer, or a Probe that says why there is none. issues: where its authors want to hear of it."""
    answers: list[Probe] = []
    report = f"report it at {issues}" if issues else "report it to the plugin's authors"

    def run() -> None:
        try:
            answers.append(_checked(probe(device), report))
        except Exception as error:  # a probe must not raise; whatever it raises says that the backend can't be used
            answers.append(Probe(False, f"its probe raised {type(error).__name__}: {error}", report))

    thread = threading.Thread(target=run, name=f"core probe of {device}", daemon=True)
    thread.start()
    thread.join(patience(PROBE_SECONDS))
    if answers:
        return answers[0]
    if thread.is_alive():
        return Probe(False, f"its probe gave no answer within {PROBE_SECONDS:g} s", report)
    return Probe(False, "its probe ended its thread without an answer", report)


def _checked(answer: object, report: str) -> Probe:
    if isinstance(answer, Probe):
        return answer
    return Probe(False, f"its probe returned {type(answer).__name__}, not a core.plugin.Probe", report)
