"""Fused oneDNN kernels for CPUs as a backend of core.

Enters: functional ATen graphs. Leaves: generated code that calls the fused oneDNN kernels that PyTorch
carries, and ATen's for the rest of a region. No part of the Intel extension is used: it ended at 2.8.0.
"""

__version__ = "0.1.0"
