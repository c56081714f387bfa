"""The converters, one module a family of operators; importing this package fills the table."""

from . import (  # noqa: F401
    attention,
    casts,
    comparisons,
    convolution,
    creation,
    elementary,
    indexing,
    layers,
    matrix,
    norms,
    numbers,
    pointwise,
    pooling,
    random,
    reductions,
    resampling,
    shapes,
    sorting,
)
