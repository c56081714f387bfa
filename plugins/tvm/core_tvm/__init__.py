"""Apache TVM as a backend of core.

Enters: functional graphs in core's ATen operators. Leaves: an artifact that runs a compiled Relax program on the memory
of the tensors it is given. Each operator is written here as tensor expressions; mutation, aliasing and autograd are
core's.
"""

__version__ = "0.1.0"
