"""CUDA graphs as a backend of core: torch's own kernels, captured and replayed.

Enters: functional ATen graphs on a GPU. Leaves: their calls through torch's kernels; core captures and replays them as
it does those of any backend that allows it.
"""

__version__ = "0.1.0"
