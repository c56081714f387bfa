"""The process of isolation.py: one request is read from a folder, one answer is written there.

`python -m core.backends.isolated_compile FOLDER`. The answer's bytes are what the backend's `serialize` made.
"""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Any

from ..plugin import CompileFailed, Finding, Unsupported


def main(folder: Path) -> None:
    """Answer the request in `folder`."""
    from .isolation import read_message, write_message

    request, memory = read_message(folder / "request")
    sys.path[:] = request["path"]
    findings: list[Finding] = []
    blobs: list[bytes] = []
    try:
        blobs = [_compiled(request, memory, findings)]
        answer: dict[str, Any] = {}
    except Unsupported as error:
        answer = {"error": "unsupported", "nodes": [str(node) for node in error.nodes], "text": error.reason}
    except CompileFailed as error:
        answer = {"error": "failed", "stage": error.stage, "text": error.log}
    except Exception as error:  # whatever the plugin raises is raised again where it was asked for
        trace = "".join(traceback.format_exception(error))
        answer = {"error": "raised", "text": f"{type(error).__name__}: {error}\n{trace}"}
    answer["findings"] = [[finding.level, finding.text, finding.remedy] for finding in findings]
    write_message(folder / "answer", answer, blobs)


def _compiled(request: dict[str, Any], memory: list[bytes], findings: list[Finding]) -> bytes:
    from .. import torch_compat
    from .graph_text import GraphText, read_graph
    from .isolation import apply_flags, context_from, tensor_from
    from .registry import default_registry

    apply_flags(request["flags"])
    resolved = default_registry().resolve(request["backend"])
    ctx = context_from(request, findings)
    resolved.require_device(ctx.device.partition(":")[0])
    constants = [tensor_from(layout, blob) for layout, blob in zip(request["constants"], memory)]
    torch_compat.fakes_take_higher_order_operators()
    graph, fakes = read_graph(GraphText(request["graph"], constants), torch_compat.fake_tensor_mode(None))
    blob = resolved.serialize(resolved.compile(graph, fakes, ctx))
    if not isinstance(blob, bytes):
        raise TypeError(f"serialize returned {type(blob).__name__}, not bytes")
    return blob


if __name__ == "__main__":
    main(Path(sys.argv[1]))
