"""The default backend of core: compiles functional ATen graphs to fused loops in C++/OpenMP and Triton."""

__version__ = "0.1.0"
