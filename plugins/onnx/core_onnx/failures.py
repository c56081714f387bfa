"""What a runtime says when it stops, as the exception that eager raises."""

from __future__ import annotations

import re

_NODE = re.compile(r"[Nn]ame:\s*'(?P<node>[^'/]*)/(?P<operator>[^'/]*)/")
_PLACES = re.compile(r"out of (data )?bounds|out of range|invalid ind(ex|ice|ices) found|gather_elements\.cc")
_BY_ELEMENT = re.compile(r"^aten\.(gather|scatter)")


def placed_error(operator: str) -> str:
    """The class of eager's exception for an index outside of the tensor."""
    return "RuntimeError" if _BY_ELEMENT.match(operator) else "IndexError"


def refusal(error: str, text: str) -> Exception:
    """The exception of a question that was not answered with 0."""
    if error == "ZeroDivisionError":  # in eager it is the text of a RuntimeError
        return RuntimeError(f"ZeroDivisionError: {text}")
    return (IndexError if error == "IndexError" else RuntimeError)(text)


def as_eager(error: Exception) -> Exception:
    """The exception to raise in place of a runtime's, whose message names a node that core-onnx has written.

    The runtime's own comes back where it tells nothing that is known here.
    """
    text = str(error)
    node = _NODE.search(text)
    if node is None or not _PLACES.search(text):
        return error
    kind = IndexError if placed_error(node["operator"]) == "IndexError" else RuntimeError
    return kind(f"an index is out of range, in {node['node']} ({node['operator']}): {text}")
