"""DiagnosableTests: errors with an id and their parts, and reports that name the backend."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

import core
from core.errors import CoreError, InvalidOption
from core.events import ArtifactBuilt, BackendReported, GraphCaptured, subscribe
from core.plugin import Finding

from ..rules import refused, require
from .base import ConformanceTests
from .values import draw


def program(x: Any, y: Any) -> Any:
    """What is compiled and explained."""
    return torch.relu(x + y) * 2


def require_parts(error: CoreError, *words: str) -> None:
    """An id, what happened, what was done instead, what to change; and the words."""
    require(re.fullmatch(r"CORE-[A-Z]\d{3}", error.id), "report", f"{error.id!r} is no id of an error")
    for part in ("what", "instead", "remedy"):
        require(getattr(error, part), "report", f"the error has no part {part!r}: {error}")
    for word in (error.id, *words):
        require(word in str(error), "report", f"the error does not say {word!r}: {error}")


class DiagnosableTests(ConformanceTests):
    """What a user sees when something is asked, and when something fails."""

    def test_error_about_an_option_has_its_parts(self, subject: Any) -> None:
        with refused(InvalidOption, "error", "an unknown option") as caught:
            subject.compile(program, options={"there_is_no_such_option": True})
        require_parts(caught[0], subject.name, "there_is_no_such_option")

    def test_near_miss_of_an_option_is_pointed_out(self, subject: Any) -> None:
        names = [name for name in subject.resolved.options() if len(name) > 3]
        if not names:
            pytest.skip("the backend has no option with a name long enough to mistype")
        name = names[0]
        with refused(InvalidOption, "error", "a mistyped option") as caught:
            subject.compile(program, options={name[:-1] + "_" + name[-1]: 1})
        require_parts(caught[0], name)

    def test_error_about_a_missing_backend_has_its_parts(self, subject: Any) -> None:
        with refused(CoreError, "error", "the name of no backend") as caught:
            core.compile(program, backend=f"no-such-{re.sub(r'[^a-z]', '', subject.name.lower())}-at-all")
        require_parts(caught[0])

    def test_break_under_fullgraph_names_the_users_line(self, subject: Any, generator: torch.Generator) -> None:
        def breaking(x: Any) -> Any:
            if x.sum() > 0:
                return x * 2
            return x - 1

        with refused(CoreError, "error", "a graph break under fullgraph") as caught:
            subject.compile(breaking)(draw(generator, 4))
        error = caught[0]
        require(error.what and error.remedy, "report", f"the error does not say what happened and what to do: {error}")
        where = error.where
        code = breaking.__code__  # its file is not this one where test bodies run under neutral names
        right = where is not None and where.filename == code.co_filename and where.line > code.co_firstlineno
        require(right, "report", f"the error does not name the line of the break: {error}")

    def test_explanation_names_the_backend(self, subject: Any, generator: torch.Generator) -> None:
        x, y = draw(generator, 5), draw(generator, 5)
        told = core.explain(program, backend=subject.spec, options=subject.options or None)(x, y)
        require(len(told.graphs) == 1 and told.op_count == 3, "report", f"{len(told.graphs)} graphs are told of")
        names = {artifact.backend for artifact in told.artifacts}
        require(subject.name in names, "report", f"artifacts of {sorted(names)} are told of, not of {subject.name}")
        require(subject.name in str(told), "report", "the text of the explanation does not name the backend")

    def test_events_name_the_backend_and_its_work(self, subject: Any, generator: torch.Generator) -> None:
        events: list[Any] = []
        stop = subscribe(events.append)
        try:
            subject.compile(program)(draw(generator, 5), draw(generator, 5))
        finally:
            stop()
        graphs = [event for event in events if isinstance(event, GraphCaptured)]
        built = [event for event in events if isinstance(event, ArtifactBuilt)]
        require(len(graphs) == 1, "report", f"{len(graphs)} graphs were told of")
        require(graphs[0].backend == subject.name, "report", f"the graph went to {graphs[0].backend}")
        ours = [event for event in built if event.backend == subject.name]
        require(ours, "report", "no artifact of the backend was told of")
        for event in ours:
            require(event.kernels + event.extern_calls >= 0, "report", "an artifact counts less than nothing")
            require(event.mode in ("inference", "forward", "backward"), "report", f"the mode is {event.mode!r}")

    def test_artifact_describes_itself(self, subject: Any, generator: torch.Generator) -> None:
        subject.compile(program)(draw(generator, 5), draw(generator, 5))
        for watched in subject.watched:
            describe = watched.artifact.describe
            text = describe() if describe is not None else "nothing to describe"
            require(isinstance(text, str) and text.strip(), "report", f"describe returned {text!r}")

    def test_findings_have_a_level_and_a_text(self, subject: Any, generator: torch.Generator) -> None:
        events: list[Any] = []
        stop = subscribe(events.append)
        try:
            subject.compile(lambda x: torch.softmax(x, -1) + torch.cumsum(x, 0))(draw(generator, 5, 5))
        finally:
            stop()
        for event in events:
            if isinstance(event, BackendReported):
                finding = event.finding
                right = isinstance(finding, Finding) and finding.level in ("info", "warning", "error") and finding.text
                require(right, "report", f"a finding of the backend is {finding!r}")

    def test_recompile_is_explained(self, subject: Any, generator: torch.Generator) -> None:
        compiled = subject.compile(program)
        compiled(draw(generator, 5), draw(generator, 5))
        events: list[Any] = []
        stop = subscribe(events.append)
        try:
            compiled(draw(generator, 5, 2), draw(generator, 5, 2))
        finally:
            stop()
        reasons = [reason for event in events for reason in getattr(event, "reasons", ())]
        require(any("x" in reason for reason in reasons), "report", f"a recompile has the reasons {reasons}")

    def test_running_leaves_counts(self, subject: Any, generator: torch.Generator) -> None:
        subject.reset()
        subject.compile(program)(draw(generator, 5), draw(generator, 5))
        counted = core.stats()
        require(counted["graphs"] == 1, "report", f"one graph was compiled, {counted['graphs']} are counted")
        require(counted["ops"] == 3, "report", f"the graph has three operations, {counted['ops']} are counted")
        require(counted["breaks"] == 0, "report", f"no break happened, {counted['breaks']} are counted")
