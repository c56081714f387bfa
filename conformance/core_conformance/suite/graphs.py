"""GraphTests: graphs by their shape, from pointwise chains to attention."""

from __future__ import annotations

from .graphs_pointwise import PointwiseGraphs
from .graphs_tensors import TensorGraphs


class GraphTests(PointwiseGraphs, TensorGraphs):
    """About fifty small graphs, each compared with eager in values, layout, aliasing and effects."""

    abstract = False
