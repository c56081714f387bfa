"""What a converter raises for a node that ONNX, or the target, can't express."""

from __future__ import annotations


class ConversionError(Exception):
    """The node has no ONNX form; the text is the reason, one sentence for the user."""
