"""Captures plain functions with GraphBuilder and compiles them for a backend: what the backend tests run."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import torch


def sibling(name):
    """A module beside this file: the import mode of the tests puts no folder on sys.path."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


replay = sibling("graph_replay")

from core.backends.compile_graph import compile_graph  # noqa: E402
from core.events import subscribe  # noqa: E402
from core.options import CompileOptions  # noqa: E402


def capture(program, *inputs, **options):
    """`program(*inputs)` as a CapturedGraph. Modules may be called inside: their parameters are lifted."""
    return replay.capture(program, inputs, **options)


def compiled(program, *inputs, backend="aot_eager", dynamic=None, backend_options=None, **options):
    """A callable for inputs like these, through the whole way behind capture."""
    captured = capture(program, *inputs, dynamic=dynamic)
    options = CompileOptions(backend_options=backend_options or {}, **options)
    call = compile_graph(captured, backend, options)
    holder = [call]  # what a bound graph would hold: the settled callable after the first run
    call.followers.append(lambda final: holder.__setitem__(0, final))

    def run(*values):
        return holder[0](*replay.actual_inputs(captured, values))

    run.holder = holder
    run.captured = captured
    return run


class Events:
    """The events emitted inside a `with` block."""

    def __enter__(self):
        self.seen = []
        self._stop = subscribe(self.seen.append)
        return self

    def __exit__(self, *exception):
        self._stop()

    def of(self, kind):
        return [event for event in self.seen if isinstance(event, kind)]


def leaf(*size, seed=0, dtype=torch.float32):
    """A random leaf that requires gradients."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*size, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
