"""Functional ATen graphs as ONNX models: one converter function per operator, in files by family.

Enters: an fx.GraphModule of graph level "core-aten" (or "aten-functional"), whose nodes carry their fake results in
`meta["val"]`. Leaves: an `OnnxGraph`, an ONNX model with the names of its inputs and outputs. It must not know any
runtime: what a runtime computes is told by a `Target`.
"""

from __future__ import annotations

from .convert import Answer, OnnxGraph, answer, convert, unsupported_reason
from .errors import ConversionError
from .target import EVERYTHING, Target

__version__ = "0.1.0"
__all__ = ["EVERYTHING", "Answer", "ConversionError", "OnnxGraph", "Target", "answer", "convert", "unsupported_reason"]
