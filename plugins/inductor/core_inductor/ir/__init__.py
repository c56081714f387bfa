"""The loop IR: what a graph of ATen operations means as loops over buffers.

Enters: sizes, strides, dtypes and scalar operations from the lowerings. Leaves: nodes whose bodies are flat lists of
operations, and index maps between them. This folder must not know ATen, fx, C++ or Triton.
"""
