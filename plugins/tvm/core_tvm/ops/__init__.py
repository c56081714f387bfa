"""Converters by family. Importing this package fills the table; it imports TVM."""

from __future__ import annotations

from . import (  # noqa: F401
    activations,
    attention,
    convolution,
    creation,
    elementary,
    indexing,
    matrix,
    norms,
    pointwise,
    pooling,
    reductions,
    resampling,
    scans,
    scattering,
    shapes,
)
