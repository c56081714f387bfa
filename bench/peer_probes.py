"""The sixteen probes of the conformance suite on a backend under torch.compile itself, for comparison.

    python -m bench.peer_probes openvino

`python -m core conformance probes --backend dynamo:openvino` prints the same table for the same callable under core.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from core_conformance import cases, probes
from core_conformance.subject import Subject


class PeerSubject(Subject):
    """A backend under torch.compile, in the place of one under core."""

    def compile(
        self, program: Any, *, dynamic: bool | None = None, fullgraph: bool = True, options: Any = None, **more: Any
    ) -> Any:
        return torch.compile(program, backend=self.peer, dynamic=dynamic, fullgraph=fullgraph, options=options or None)

    def reset(self) -> None:
        torch.compiler.reset()

    def supports(self, dtype: torch.dtype) -> bool:
        return True

    def has(self, mode: str) -> bool:
        return True


@contextlib.contextmanager
def peer_subject_of(spec: Any, device: str, options: Any = None) -> Iterator[PeerSubject]:
    """What cases.subject_of is for core. The registry is asked for "eager": nothing of core compiles here."""
    subject = PeerSubject("eager", device, options)
    subject.peer = spec
    subject.reset()
    torch.manual_seed(0)
    yield subject
    subject.reset()


def main(arguments: list[str]) -> None:
    """Print the table of each backend named."""
    warnings.simplefilter("ignore")
    cases.subject_of = peer_subject_of
    for name in arguments:
        print(probes.table(f"torch.compile(backend={name!r})", probes.run(name)))


if __name__ == "__main__":
    main(sys.argv[1:])
