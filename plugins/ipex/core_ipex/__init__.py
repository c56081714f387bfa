"""Fused oneDNN kernels for CPUs as a backend of core.

Enters: functional ATen graphs. Leaves: generated code that calls the fused oneDNN kernels that PyTorch
carries, and ATen's for the rest of a region. The Intel extension's, which ended at 2.8.0, are called for frozen
weights where it is installed beside the torch that it is for.
"""

__version__ = "0.1.0"
