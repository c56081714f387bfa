"""Calls of compiled graphs captured as CUDA graphs and replayed: one launch in place of all that a call launches.

Enters: the call of an artifact that may be captured. Leaves: a call with the same results, which runs plainly until it
is captured and wherever it can't be. What holds everywhere: a replay writes to no memory that a tensor of the program
lies in. Results are copied out of the graph's memory; those that core itself lets go (what a backward needs, what is
written back to inputs) stay where they are, and nothing is replayed there as long as one of them lives.
It must not know any backend, nor what the graph computes.
"""

from .graph_options import GraphOptions
from .replayed import DeviceGraphs, ReplayedCall, graphs_of, statistics, trim
from .wanted import with_cuda_graphs

__all__ = ["DeviceGraphs", "GraphOptions", "ReplayedCall", "graphs_of", "statistics", "trim", "with_cuda_graphs"]
